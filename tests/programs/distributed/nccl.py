"""Collectives of the backend ``nccl`` against what they are to compute."""

import copy
import faulthandler
import os

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from tests.helpers.waiting import PATIENCE

faulthandler.dump_traceback_later(PATIENCE, exit=True)
rank = int(os.environ["LOCAL_RANK"])
gpu = torch.device("cuda", rank)
torch.cuda.set_device(gpu)
SIZES = (1, 2, 7, 1000)


def everyones(size: int) -> torch.Tensor:
    """A row of numbers for each rank, the same on all ranks; none is zero."""
    generator = torch.Generator().manual_seed(size)
    return torch.rand(2, size, generator=generator) + 1


def equal(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.device == gpu
    torch.testing.assert_close(actual.cpu(), expected)


def reductions(group=None):
    for size in SIZES:
        both = everyones(size)
        for op, expected in (
            (dist.ReduceOp.SUM, both.sum(0)),
            (dist.ReduceOp.AVG, both.mean(0)),
            (dist.ReduceOp.MAX, both.amax(0)),
        ):
            X = both[rank].to(gpu)
            dist.all_reduce(X, op, group)
            equal(X, expected)
            X = both[rank].to(gpu)
            equal(functional.all_reduce(X, op.name.lower(), dist.group.WORLD), expected)
            equal(X, both[rank])
        for factor in (0.5, torch.tensor(0.25), torch.tensor(3.0, device=gpu)):
            X = both[rank].to(gpu)
            dist.all_reduce(X, dist._make_nccl_premul_sum(factor), group)
            equal(X, both.sum(0) * float(factor))
    # The sum of these is no float16, their average is.
    X = torch.full((3,), 6e4, dtype=torch.float16, device=gpu)
    dist.all_reduce(X, dist.ReduceOp.AVG)
    equal(X, torch.full((3,), 6e4, dtype=torch.float16))


def scattering():
    for size in SIZES:
        both = everyones(2 * size)
        for op, expected in (
            (dist.ReduceOp.SUM, both.sum(0)),
            (dist.ReduceOp.AVG, both.mean(0)),
        ):
            mine = both[rank].to(gpu)
            part = torch.empty(size, device=gpu)
            dist.reduce_scatter_tensor(part, mine, op)
            equal(part, expected[rank * size :][:size])
            dist.reduce_scatter(part, list(mine.chunk(2)), op)
            equal(part, expected[rank * size :][:size])
            equal(mine, both[rank])  # averages leave it alone
        mine = both[rank].to(gpu)
        dist.reduce_scatter_tensor(part, mine, dist._make_nccl_premul_sum(0.5))
        equal(part, expected[rank * size :][:size])
        equal(mine, both[rank])


def sums_after_an_average_that_failed():
    try:
        dist.reduce_scatter_tensor(
            torch.empty(3, device=gpu), torch.ones(8, device=gpu), dist.ReduceOp.AVG
        )
    except RuntimeError as error:
        assert "6 vs. 8" in str(error), error
    else:
        raise AssertionError("Nothing was raised.")
    X = torch.ones(5, device=gpu)
    dist.all_reduce(X)
    equal(X, torch.full((5,), 2.0))


def gathering():
    for size in SIZES:
        both = everyones(size)
        for shape in ((2, size), (2 * size,)):
            X = torch.empty(shape, device=gpu)
            dist.all_gather_into_tensor(X, both[rank].to(gpu))
            equal(X, both.view(shape))
        received = [torch.empty(size, device=gpu) for _ in range(2)]
        dist.all_to_all(received, [both[rank].to(gpu) + to for to in range(2)])
        equal(torch.stack(received), both + rank)


def order():
    X = torch.ones(1000, device=gpu)
    works = [dist.all_reduce(X, async_op=True) for _ in range(5)]
    works[-1].wait()
    equal(X, torch.full((1000,), 32.0))


def groups():
    for _ in range(2):
        alone = [dist.new_group([0]), dist.new_group([1])][rank]
        X = torch.full((2,), 3.0, device=gpu)
        dist.all_reduce(X, dist.ReduceOp.AVG, alone)
        equal(X, torch.full((2,), 3.0))
        dist.destroy_process_group(alone)
    reductions(dist.new_group([0, 1]))


def sharded_tensors():
    mesh = init_device_mesh("cuda", (2,))
    both = everyones(6)
    rows = distribute_tensor(both.to(gpu), mesh, [Shard(0)])
    assert rows.device == rows.to_local().device == gpu
    columns = rows.redistribute(mesh, [Shard(1)])
    equal(columns.to_local(), both.chunk(2, 1)[rank])
    equal(rows.to(columns).full_tensor(), both)


def sharded_modules():
    torch.manual_seed(0)
    whole = nn.Linear(6, 4)
    X = everyones(6)
    whole(X).sum().backward()
    for shard in (
        lambda net: FullyShardedDataParallel(net, device_id=rank, use_orig_params=True),
        lambda net: fully_shard(net.to(gpu)) and net,
    ):
        net = shard(copy.deepcopy(whole))
        net(X[rank:][:1].to(gpu)).sum().backward()
        squares = sum(_part(p.grad).square().sum() for p in net.parameters())
        dist.all_reduce(squares)
        expected = sum((p.grad / 2).square().sum() for p in whole.parameters())
        equal(squares, expected)


def _part(grad):
    if grad is None:  # this rank has nothing of it
        return torch.zeros(1, device=gpu)
    return grad.to_local() if isinstance(grad, DTensor) else grad


def tensors_of_the_cpu():
    try:
        dist.all_reduce(torch.ones(2))
    except RuntimeError as error:
        assert "No backend type associated with device type cpu" in str(error), error
    else:
        raise AssertionError("Nothing was raised.")


STEPS = (
    reductions,
    scattering,
    sums_after_an_average_that_failed,
    gathering,
    order,
    groups,
    sharded_tensors,
    sharded_modules,
    tensors_of_the_cpu,
)
for bound in (None, gpu):
    dist.init_process_group("nccl", device_id=bound)
    assert dist.get_backend() == "nccl"
    for step in STEPS:
        step()
    dist.barrier(device_ids=[rank])
    dist.destroy_process_group()
if rank == 0:
    print("done")
