"""Training in small worlds: gradients are those of one device."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import (
    DTensor,
    Replicate,
    Shard,
    _random,
    distribute_tensor,
)
from torch.distributed.tensor import rand as random_dtensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

from d2l_gpu import vgpu
from tests.helpers.fresh_process import run_program

pytestmark = pytest.mark.virtual_gpus(4, memory="64MiB")

torch.manual_seed(1)
X, Y = torch.randn(24, 6), torch.randn(24, 4)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4)
    )


def whole(parameter: torch.Tensor) -> torch.Tensor:
    grad = parameter.grad
    return grad.full_tensor() if isinstance(grad, DTensor) else grad


def data_parallel(wrap):
    """Return a rank's function: a step on its part of the batch, then gradients."""

    def step(rank, world_size):
        net = wrap(network().to("vgpu"))
        x, y = (values.chunk(world_size)[rank].to("vgpu") for values in (X, Y))
        for _ in range(2):
            net.zero_grad()
            mse_loss(net(x), y).backward()
        return [whole(x) for x in net.parameters()]

    return step


def check(gradients: list[torch.Tensor]) -> None:
    net = network()
    mse_loss(net(X), Y).backward()
    for a, b in zip(gradients, net.parameters(), strict=True):
        torch.testing.assert_close(a.cpu(), b.grad, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gradient_as_bucket_view": True, "bucket_cap_mb": 1e-4},
        {"static_graph": True},
    ],
)
def test_distributed_data_parallel(world, options):
    step = data_parallel(lambda net: DistributedDataParallel(net, **options))
    for gradients in vgpu.run_ranks(step, world):
        check(gradients)


def test_distributed_data_parallel_finds_unused_parameters():
    def step(rank, world_size):
        branches = nn.ModuleList(nn.Linear(2, 1) for _ in range(3)).to("vgpu")
        branches.forward = lambda x: branches[rank](x)
        net = DistributedDataParallel(branches, find_unused_parameters=True)
        net(torch.full((1, 2), rank + 1.0, device="vgpu")).sum().backward()
        return [branch.weight.grad for branch in branches]

    for first, second, third in vgpu.run_ranks(step, 2):
        assert first.tolist() == [[0.5, 0.5]]
        assert second.tolist() == [[1.0, 1.0]]
        assert third is None


@pytest.mark.parametrize("shape", [(2,), (3,), (4,), (2, 2)])
def test_fully_shard(shape):
    def wrap(net):
        names = ("replicas", "shards")[-len(shape) :]
        mesh = dist.init_device_mesh("vgpu", shape, mesh_dim_names=names)
        for layer in net[::2]:
            fully_shard(layer, mesh=mesh)
        return fully_shard(net, mesh=mesh)

    world = torch.Size(shape).numel()
    for gradients in vgpu.run_ranks(data_parallel(wrap), world):
        check(gradients)


@pytest.mark.parametrize("world", [2, 3, 4])
def test_tensor_parallelism(world):
    def step(rank, world_size):
        mesh = dist.init_device_mesh("vgpu", (world_size,))
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        net = parallelize_module(network().to("vgpu"), mesh, plan)
        mse_loss(net(X.to("vgpu")), Y.to("vgpu")).backward()
        return [whole(x) for x in net.parameters()]

    for gradients in vgpu.run_ranks(step, world):
        check(gradients)


def test_fully_shard_over_tensor_parallelism():
    def wrap(net):
        mesh = dist.init_device_mesh("vgpu", (2, 2), mesh_dim_names=("dp", "tp"))
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        return fully_shard(parallelize_module(net, mesh["tp"], plan), mesh=mesh["dp"])

    def step(rank, world_size):
        net = wrap(network().to("vgpu"))
        x, y = (values.chunk(2)[rank // 2].to("vgpu") for values in (X, Y))
        mse_loss(net(x), y).backward()
        return [whole(x) for x in net.parameters()]

    for gradients in vgpu.run_ranks(step, 4):
        check(gradients)


@pytest.mark.parametrize("schedule", [ScheduleGPipe, Schedule1F1B])
@pytest.mark.parametrize("cuts", [(2,), (2, 4), (1, 2, 4)])
def test_pipelines(schedule, cuts):
    def step(rank, world_size):
        begin, end = [0, *cuts, 5][rank : rank + 2]
        part = network()[begin:end].to("vgpu")
        stage = PipelineStage(part, rank, world_size, torch.device("vgpu", rank))
        pipe = schedule(stage, n_microbatches=4, loss_fn=mse_loss)
        inputs = (X.to("vgpu"),) if rank == 0 else ()
        last = rank == world_size - 1
        pipe.step(*inputs, target=Y.to("vgpu") if last else None)
        return [x.grad for x in part.parameters()]

    parts = vgpu.run_ranks(step, len(cuts) + 1)
    check([gradient for part in parts for gradient in part])


def test_dtensors_are_split_and_put_together():
    A = torch.arange(12.0).view(4, 3)

    def split(rank, world_size):
        mesh = dist.init_device_mesh("vgpu", (world_size,))
        part = distribute_tensor(A.to("vgpu"), mesh, [Shard(0)])
        other = part.redistribute(placements=[Shard(1)])
        total = (part @ part.t()).redistribute(placements=[Replicate()])
        return part.to_local(), other.to_local(), total.to_local()

    for rank, (part, other, total) in enumerate(vgpu.run_ranks(split, 3)):
        assert torch.equal(part.cpu(), A.chunk(3)[rank] if rank < 2 else A[4:])
        assert torch.equal(other.cpu(), A[:, rank : rank + 1])
        assert torch.equal(total.cpu(), A @ A.t())


def test_random_dtensors_differ_by_shard_and_are_repeated_by_seeds():
    def draw(rank, world_size):
        mesh = dist.init_device_mesh("vgpu", (world_size,))
        torch.manual_seed(5)
        options = {"device_mesh": mesh, "placements": [Shard(0)]}
        first = random_dtensor(8, **options).full_tensor()
        torch.manual_seed(5)
        return torch.stack([first, random_dtensor(8, **options).full_tensor()])

    one, two = vgpu.run_ranks(draw, 2)
    assert _random._rng_tracker is None  # of this process, where nobody has drawn
    assert torch.equal(one.cpu(), two.cpu())
    assert torch.equal(one[0], one[1])
    assert len(set(one[0].tolist())) == 8


def test_programs_that_say_cuda_and_nccl():
    assert run_program("ranks/says_cuda.py").split() == ["done"]
