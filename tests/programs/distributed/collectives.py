"""Every collective on two ranks, each with a virtual GPU of its own."""

import faulthandler
import os
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from d2l_gpu import vgpu
from tests.helpers.waiting import PATIENCE, wait_until

faulthandler.dump_traceback_later(PATIENCE, exit=True)
vgpu.enable(2, memory="64MiB")
rank = int(os.environ["LOCAL_RANK"])
other = 1 - rank
gpu = torch.device("vgpu", rank)
torch.vgpu.set_device(rank)
match sys.argv[1]:
    case "gloo":
        dist.init_process_group("gloo")
    case "default":
        dist.init_process_group()
    case "device_id":
        dist.init_process_group(device_id=gpu)


def values(*numbers):
    return torch.tensor(numbers, dtype=torch.float32, device=gpu)


def check(tensor, *numbers):
    assert tensor.device == gpu, tensor
    assert tensor.tolist() == list(numbers), tensor


def reductions():
    X = values(1, rank)
    assert dist.all_reduce(X) is None
    check(X, 2, 1)
    X = values(rank)
    dist.all_reduce(X, dist.ReduceOp.MAX)
    check(X, 1)
    X = values(1)
    dist.reduce(X, 0)
    if rank == 0:
        check(X, 2)
    X = values(0)
    dist.reduce_scatter(X, [values(1), values(2)])
    check(X, 2 * (rank + 1))
    X = values(0)
    dist.reduce_scatter_tensor(X, values(1, 2))
    check(X, 2 * (rank + 1))


def asynchronous():
    X = values(1, rank)
    work = dist.all_reduce(X, async_op=True)
    work.wait()
    check(X, 2, 1)
    # Its future holds the tensor of the device, for hooks that compute with it.
    check(work.get_future().wait()[0] + X, 4, 2)


def movements():
    X = values(rank, rank)
    dist.broadcast(X, 1)
    check(X, 1, 1)
    X = [values(0), values(0)]
    dist.all_gather(X, values(rank))
    check(X[0], 0)
    check(X[1], 1)
    X = values(0, 0)
    dist.all_gather_into_tensor(X, values(rank))
    check(X, 0, 1)
    X = [values(0), values(0)] if rank == 0 else None
    dist.gather(values(rank), X)
    if rank == 0:
        check(X[1], 1)
    X = values(0)
    dist.scatter(X, [values(5), values(6)] if rank == 0 else None)
    check(X, 5 + rank)
    if torch.__version__ >= "2.12":  # gloo could not before
        X = [values(0), values(0)]
        dist.all_to_all(X, [values(rank), values(10 + rank)])
        check(X[1], 10 * rank + 1)
        # Pieces of any sizes: rank r sends 3 r + s + 1 numbers to rank s.
        X = [values(*[9] * (3 * other + rank + 1)) for other in range(2)]
        dist.all_to_all(X, [values(*[rank] * (3 * rank + s + 1)) for s in range(2)])
        for other in range(2):
            check(X[other], *[other] * (3 * other + rank + 1))
    X = values(0, 0)
    dist.all_to_all_single(X, values(rank, 10 + rank))
    check(X, 10 * rank, 10 * rank + 1)


def point_to_point():
    X = values(rank)
    if rank == 0:
        dist.send(X, 1)
        dist.isend(X + 7, 1).wait()
    else:
        dist.recv(X, 0)
        check(X, 0)
        dist.irecv(X).wait()
        check(X, 7)
    X = values(-1)
    sending = dist.P2POp(dist.isend, values(rank), other)
    for work in dist.batch_isend_irecv([sending, dist.P2POp(dist.irecv, X, other)]):
        work.wait()
    check(X, other)


def barriers_and_objects():
    dist.barrier()
    dist.barrier(device_ids=[rank])
    dist.barrier(async_op=True).wait()
    everyone = [None, None]
    dist.all_gather_object(everyone, {"rank": rank, "X": values(rank)})
    assert everyone[1]["rank"] == 1
    assert everyone[1]["X"].device == torch.device("vgpu", 1)
    objects = [rank, "text"]
    dist.broadcast_object_list(objects, 0, device=gpu)
    assert objects == [0, "text"]


def coalesced():
    X = [values(1), values(2, 3)]
    with dist._coalescing_manager():
        for x in X:
            dist.all_reduce(x)
    check(X[1], 4, 6)


def functions():
    world = dist.group.WORLD
    check(functional.all_reduce(values(1, rank), "sum", world), 2, 1)
    check(functional.all_gather_tensor(values(rank), 0, world), 0, 1)
    X = functional.reduce_scatter_tensor(values(1, 2), "sum", 0, world)
    check(X, 2 * (rank + 1))
    X = functional.all_to_all_single(values(rank, 10 + rank), None, None, world)
    check(X, 10 * rank, 10 * rank + 1)
    check(functional.broadcast(values(rank), 1, world), 1)
    W = values(1).requires_grad_()
    X = functional.all_gather_tensor_autograd(W, 0, world)
    (3 * X).sum().backward()  # before 2.12 gradients have to be contiguous
    check(W.grad, 6)


def host_tensors():
    X = torch.tensor([1.0, rank])
    dist.all_reduce(X)
    assert X.tolist() == [2, 1]


def refused(collective, *sentences):
    try:
        collective()
    except RuntimeError as error:
        assert all(s in str(error) for s in sentences), error
    else:
        raise AssertionError("Nothing was raised.")


def two_memories():
    cpu, neighbour = torch.zeros(1), torch.zeros(1, device=torch.device("vgpu", other))
    sentence = "allgather expects all tensors of this process to be on the same device"
    refused(lambda: dist.all_gather([cpu, cpu], values(1)), sentence, "cpu and vgpu:")
    refused(
        lambda: dist.all_gather([values(1), neighbour], values(1)),
        sentence,
        f"vgpu:{rank} and vgpu:{other}",
    )
    refused(lambda: dist.all_gather([values(1)] * 2, cpu), "device=cpu", "device=vgpu")


def out_of_memory():
    X = torch.ones(10 * 2**20, device=gpu)
    refused(
        lambda: functional.all_gather_tensor(X, 0, dist.group.WORLD), "out of memory"
    )


warnings.simplefilter("ignore")  # newer names of the same functions


def simulated_time():
    X, simulation = torch.ones(1000, device=gpu), vgpu.current_simulator()
    parts = [torch.empty(1000, device=gpu) for _ in range(2)]
    for collective, steps, sent in (
        (lambda: dist.all_reduce(X), 2, 4000),
        (lambda: dist.all_gather(parts, X), 1, 4000),
        (lambda: dist.reduce_scatter(X, parts), 1, 4000),
        (lambda: dist.broadcast(X, 0), 1, 4000),
    ):
        simulation.reset()
        collective()
        link = next(x for x in simulation.report().links if x.source == f"GPU {rank}")
        assert (link.copies, link.nbytes) == (1, sent), link
        assert simulation.elapsed() > steps * simulation.link.step


steps = [
    reductions,
    simulated_time,
    asynchronous,
    movements,
    point_to_point,
    barriers_and_objects,
    coalesced,
    functions,
    host_tensors,
    two_memories,
    out_of_memory,
]
if sys.argv[1] != "gloo":
    steps = [reductions, movements, point_to_point, host_tensors]
for step in steps:
    step()
    # A thread of gloo lets go of a tensor a moment after the collective.
    wait_until(lambda: torch.vgpu.memory_allocated(gpu) == 0)
    dist.barrier()
dist.destroy_process_group()
if rank == 0:
    print("done")
