"""Ranks of a small world whose programs say cuda and nccl."""

import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from d2l_gpu import vgpu

warnings.simplefilter("ignore", FutureWarning)  # names that 2.13 replaces
vgpu.enable(4, as_cuda=True)


def collectives(rank, world_size):
    assert dist.get_backend() == "nccl"
    assert torch.cuda.current_device() == rank
    X = torch.full((2,), rank + 1.0, device="cuda")
    dist.all_reduce(X, dist.ReduceOp.AVG)
    objects = [None] * world_size
    dist.all_gather_object(objects, rank)
    dist.barrier(device_ids=[rank])
    try:
        dist.all_reduce(X.cpu())
    except RuntimeError as error:
        assert "No backend type associated with device type cpu" in str(error)
    else:
        raise AssertionError("NCCL doesn't take tensors on the CPU.")
    beside = dist.new_group(backend="gloo")
    Y = torch.ones(1)
    dist.all_reduce(Y, group=beside)
    return X.tolist(), objects, Y.item()


assert vgpu.run_ranks(collectives, 4) == [([2.5, 2.5], [0, 1, 2, 3], 4.0)] * 4


def training(rank, world_size, wrap):
    torch.manual_seed(0)
    net = wrap(nn.Linear(3, 2).cuda())
    net(torch.full((1, 3), rank + 1.0).cuda()).square().sum().backward()
    grad = next(net.parameters()).grad
    return grad.full_tensor() if wrap is not DistributedDataParallel else grad


torch.manual_seed(0)
net = nn.Linear(3, 2)
X = torch.arange(1.0, 5)[:, None].expand(4, 3)
(net(X).square().sum() / 4).backward()
for wrap in DistributedDataParallel, fully_shard:
    for grad in vgpu.run_ranks(lambda *ranks: training(*ranks, wrap=wrap), 4):  # noqa: B023
        torch.testing.assert_close(grad.cpu(), net.weight.grad)
print("done")
