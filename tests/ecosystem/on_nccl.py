"""Process groups with NCCL: what programs for several GPUs start with."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tests.ecosystem.support import close, launch, main, raises, start, torchrun

NEEDS = ("torch",)


def check_nccl_says_that_it_is_there():
    """NCCL is available, its version is known, and so are its names as a backend."""
    assert dist.is_nccl_available()
    assert dist.is_backend_available("nccl")
    version = torch.cuda.nccl.version()
    assert isinstance(version, tuple) and version >= (2, 10), version
    assert dist.get_default_backend_for_device("cuda") == "nccl"


def check_ranks_under_torchrun_sum_with_nccl():
    """Ranks that torchrun starts join a group of NCCL, and sum tensors of GPUs."""
    torchrun(rank_sums)


def rank_sums():
    rank, gpu = start("nccl")
    assert dist.get_backend() == "nccl"
    assert torch.cuda.current_device() == rank
    X = torch.tensor([1.0, rank], device="cuda")
    dist.all_reduce(X)
    close(X, torch.tensor([2.0, 1.0]), gpu)


def check_torchrun_itself_is_run_by_the_command():
    """Ranks have GPUs when the program that is run on them is torchrun."""
    launch("torch.distributed.run", ["--standalone", "--nproc-per-node=2"], rank_sums)


def check_spawned_ranks_use_nccl():
    """Processes started by torch.multiprocessing.spawn sum tensors with NCCL."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    mp.spawn(spawned, (2, port), nprocs=2)


def spawned(rank: int, world_size: int, port: int):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", str(port)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    X = torch.full((3,), float(rank + 1), device=rank)
    dist.all_reduce(X)
    close(X, torch.full((3,), 3.0), f"cuda:{rank}")
    dist.destroy_process_group()


def check_gloo_for_the_cpu_and_nccl_for_gpus():
    """A group with a backend for each kind of device serves tensors of both."""
    torchrun(rank_with_both, "cpu:gloo,cuda:nccl")


def check_a_group_without_a_backend_has_nccl():
    """Where there are GPUs, a group for which no backend is named has NCCL."""
    torchrun(rank_without_a_backend)


def rank_without_a_backend():
    rank, gpu = start(None)
    X = torch.full((2,), float(rank), device=gpu)
    dist.broadcast(X, 1)
    close(X, torch.ones(2), gpu)
    assert str(dist.get_backend_config()) == "cuda:nccl", dist.get_backend_config()
    dist.barrier()


def rank_with_both(backend: str):
    rank, gpu = start(backend)
    for device in torch.device("cpu"), gpu:
        X = torch.full((2,), float(rank), device=device)
        dist.broadcast(X, 1)
        close(X, torch.ones(2), device)
    config = dist.get_backend_config()
    assert "cuda:nccl" in config and "cpu:gloo" in config, config
    dist.barrier()


def check_a_group_is_bound_to_a_device():
    """With device_id, a group knows its device; subgroups and a new start work too."""
    torchrun(rank_bound)


def rank_bound():
    gpu = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=gpu)
    rank = dist.get_rank()
    assert dist.group.WORLD.bound_device_id == gpu
    dist.barrier()
    groups = [dist.new_group([0]), dist.new_group([1])]
    X = torch.full((1,), float(rank), device=gpu)
    dist.all_reduce(X, group=groups[rank])
    close(X, torch.tensor([float(rank)]), gpu)
    assert dist.get_world_size(groups[rank]) == 1
    dist.destroy_process_group()
    assert not dist.is_initialized()


def check_reductions():
    """All reductions that NCCL knows give their results, also in bfloat16."""
    torchrun(rank_reductions)


def rank_reductions():
    rank, gpu = start("nccl")
    Op = dist.ReduceOp
    for op, result in (
        (Op.SUM, [5.0, 3.0]),
        (Op.AVG, [2.5, 1.5]),
        (Op.PRODUCT, [6.0, 2.0]),
        (Op.MIN, [2.0, 1.0]),
        (Op.MAX, [3.0, 2.0]),
    ):
        for dtype in torch.float32, torch.bfloat16, torch.float16:
            X = torch.tensor([2.0 + rank, 2.0 - rank], dtype=dtype, device=gpu)
            dist.all_reduce(X, op)
            close(X, torch.tensor(result, dtype=dtype), gpu)
    X = torch.tensor([2**40 + rank, rank], device=gpu)
    dist.all_reduce(X, Op.MAX)
    assert X.tolist() == [2**40 + 1, 1]
    X = torch.ones(2, device=gpu)
    dist.reduce(X, dst=0)
    if rank == 0:
        close(X, torch.full((2,), 2.0), gpu)
    parts = [torch.full((2,), float(i + rank), device=gpu) for i in range(2)]
    X = torch.empty(2, device=gpu)
    dist.reduce_scatter(X, parts)
    close(X, torch.full((2,), 2.0 * rank + 1), gpu)
    dist.reduce_scatter_tensor(X, torch.cat(parts), op=Op.AVG)
    close(X, torch.full((2,), rank + 0.5), gpu)


def check_gathering_and_scattering():
    """Ranks gather, scatter and exchange tensors, and each result is on its GPU."""
    torchrun(rank_movements)


def rank_movements():
    rank, gpu = start("nccl")
    mine = torch.tensor([float(rank), 10.0 + rank], device=gpu)
    rows = [torch.tensor([0.0, 10.0]), torch.tensor([1.0, 11.0])]
    parts = [torch.empty(2, device=gpu) for _ in range(2)]
    dist.all_gather(parts, mine)
    for part, row in zip(parts, rows, strict=True):
        close(part, row, gpu)
    X = torch.empty(2, 2, device=gpu)
    dist.all_gather_into_tensor(X, mine)
    close(X, torch.stack(rows), gpu)
    parts = [torch.empty(2, device=gpu) for _ in range(2)] if rank == 1 else None
    dist.gather(mine, parts, dst=1)
    if rank == 1:
        close(torch.stack(parts), torch.stack(rows), gpu)
    X = torch.empty(2, device=gpu)
    dist.scatter(X, [r.to(gpu) for r in rows] if rank == 0 else None, src=0)
    close(X, rows[rank], gpu)
    parts = [torch.empty(1, device=gpu) for _ in range(2)]
    dist.all_to_all(parts, list(mine.split(1)))
    close(torch.cat(parts), torch.stack(rows)[:, rank], gpu)
    # Uneven: rank 0 keeps one of three and sends two; rank 1 sends one, keeps two.
    inputs = torch.arange(3.0, device=gpu) + 10 * rank
    sizes = [[1, 1], [2, 2]][rank]
    X = torch.empty(sum(sizes), device=gpu)
    dist.all_to_all_single(X, inputs, sizes, [1, 2])
    expected = [[0.0, 10.0], [1.0, 2.0, 11.0, 12.0]][rank]
    close(X, torch.tensor(expected), gpu)


def check_sending_and_receiving():
    """Ranks send tensors to each other, one by one and in batches."""
    torchrun(rank_sends)


def rank_sends():
    rank, gpu = start("nccl")
    X = torch.zeros(3, device=gpu)
    if rank == 0:
        dist.send(torch.arange(3.0, device=gpu), dst=1)
        dist.isend(torch.full((3,), 5.0, device=gpu), dst=1).wait()
    else:
        dist.recv(X, src=0)
        close(X, torch.arange(3.0), gpu)
        dist.irecv(X, src=0).wait()
        close(X, torch.full((3,), 5.0), gpu)
    other = 1 - rank
    mine = torch.full((2,), float(rank), device=gpu)
    theirs = torch.empty(2, device=gpu)
    operations = [
        dist.P2POp(dist.isend, mine, other),
        dist.P2POp(dist.irecv, theirs, other),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    close(theirs, torch.full((2,), float(other)), gpu)


def check_work_that_is_not_waited_for():
    """An asynchronous sum on another stream is there once it has been waited for."""
    torchrun(rank_asynchronous)


def rank_asynchronous():
    rank, gpu = start("nccl")
    stream = torch.cuda.Stream()
    X = torch.full((1000,), float(rank + 1), device=gpu)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work = dist.all_reduce(X, async_op=True)
        work.wait()
        Y = X * 2
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    assert work.is_completed()
    close(Y, torch.full((1000,), 6.0), gpu)
    works = [dist.all_reduce(X, async_op=True) for _ in range(3)]
    future = works[-1].get_future().then(lambda f: f.value()[0] / 3)
    close(future.wait(), torch.full((1000,), 8.0), gpu)


def check_objects_and_barriers():
    """Ranks exchange any objects through NCCL, with tensors of GPUs inside, too."""
    torchrun(rank_objects)


def rank_objects():
    rank, _ = start("nccl")
    everyone = [None, None]
    dist.all_gather_object(everyone, {"rank": rank, "name": "x" * (rank + 1)})
    assert everyone == [{"rank": 0, "name": "x"}, {"rank": 1, "name": "xx"}]
    objects = [rank, torch.full((2,), float(rank))]
    dist.broadcast_object_list(objects, src=1)
    assert objects[0] == 1
    close(objects[1], torch.ones(2), "cpu")
    output = [None]
    dist.scatter_object_list(output, [{"for": 0}, {"for": 1}] if rank == 0 else None)
    assert output == [{"for": rank}]
    gathered = [None, None] if rank == 0 else None
    dist.gather_object(rank * 10, gathered, dst=0)
    assert gathered == ([0, 10] if rank == 0 else None)
    dist.barrier(device_ids=[rank])


def check_nccl_refuses_tensors_of_the_cpu():
    """A group of NCCL alone says that it has no backend for tensors on the CPU."""
    torchrun(rank_refuses)


def rank_refuses():
    _, gpu = start("nccl")
    X = torch.ones(2)
    raises(RuntimeError, lambda: dist.all_reduce(X), "No backend type associated")
    Y = torch.ones(2, device=gpu)
    dist.all_reduce(Y)
    close(Y, torch.full((2,), 2.0), gpu)


if __name__ == "__main__":
    main(globals())
