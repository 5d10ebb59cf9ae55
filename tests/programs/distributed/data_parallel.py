"""Training on two ranks against one process that sees the whole batch."""

import copy
import faulthandler
import gc
import os
import time
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

from d2l_gpu import vgpu
from tests.helpers.waiting import PATIENCE

faulthandler.dump_traceback_later(PATIENCE, exit=True)
vgpu.enable(2, memory="64MiB")
rank = int(os.environ["LOCAL_RANK"])
gpu = torch.device("vgpu", rank)
# DeviceMesh chooses this rank's device: none has been chosen or used.
mesh = dist.init_device_mesh("vgpu", (2,))
assert torch.vgpu.current_device() == rank

torch.manual_seed(1)
X, Y = torch.randn(8, 8), torch.randn(8, 4)
mine = slice(4 * rank, 4 * rank + 4)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def loss(net, rows=slice(None), device="cpu"):
    return mse_loss(net(X[rows].to(device)), Y[rows].to(device))


def gradients(net):
    return [parameter.grad for parameter in net.parameters()]


def close(a, b, atol=1e-6, rtol=1e-6):
    assert a.device == gpu
    torch.testing.assert_close(a.cpu(), b, atol=atol, rtol=rtol)


whole = network()
loss(whole).backward()


def ddp(**options):
    net = DistributedDataParallel(network().to(gpu), **options)
    for _ in range(2):
        net.zero_grad()
        loss(net, mine, gpu).backward()
    for a, b in zip(gradients(net), gradients(whole), strict=True):
        close(a, b)
    return net


def data_parallel():
    ddp()
    ddp(device_ids=[rank])
    ddp(device_ids=[gpu], gradient_as_bucket_view=True, bucket_cap_mb=0.0005)
    ddp(static_graph=True)
    ddp(find_unused_parameters=True)


def accumulation():
    net = DistributedDataParallel(network().to(gpu))
    with net.no_sync():
        loss(net, mine, gpu).backward()
    alone = network()
    loss(alone, mine).backward()
    for a, b in zip(gradients(net), gradients(alone), strict=True):
        close(a, b)
    loss(net, mine, gpu).backward()
    for a, b in zip(gradients(net), gradients(whole), strict=True):
        close(a, 2 * b)


class Branches(nn.Module):
    """Each rank takes a branch of its own; nobody takes the third."""

    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(2, 1, bias=False) for _ in range(3))

    def forward(self, x):
        return self.branches[rank](x)


def unused_parameters():
    net = DistributedDataParallel(Branches().to(gpu), find_unused_parameters=True)
    net(torch.full((1, 2), rank + 1.0, device=gpu)).sum().backward()
    first, second, third = gradients(net)
    close(first, torch.full((1, 2), 0.5))
    close(second, torch.full((1, 2), 1.0))
    assert third is None
    # An error below C++ in backward is an error, with such a module too.
    X = torch.ones(3000, 1, device=gpu)
    product = (net(torch.ones(1, 2, device=gpu)) * X * X.t()).sum()
    ballast = torch.empty(50 * 2**20, dtype=torch.uint8, device=gpu)
    try:
        product.backward()
    except torch.OutOfMemoryError as error:
        assert "Tried to allocate 34.33 MiB" in str(error), error
    else:
        raise AssertionError("Nothing was raised.")
    del ballast


def buffers():
    torch.manual_seed(rank)
    norm = nn.BatchNorm1d(8).to(gpu)
    norm.running_mean += rank + 1
    net = DistributedDataParallel(norm)
    assert torch.equal(net.module.running_mean.cpu(), torch.ones(8))
    net(X[mine].to(gpu)).sum().backward()
    net(X[mine].to(gpu))
    means = [torch.empty(8, device=gpu) for _ in range(2)]
    net.eval()
    dist.all_gather(means, net.module.running_mean)
    assert not torch.equal(*means)  # of each rank's own batch, until the next forward
    net.train()
    net(X[:4].to(gpu))
    dist.all_gather(means, net.module.running_mean)
    assert torch.equal(*means)


def hooks():
    for state, hook in (
        (None, default_hooks.allreduce_hook),
        (None, default_hooks.fp16_compress_hook),
        (
            powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2),
            powerSGD_hook.powerSGD_hook,
        ),
    ):
        net = DistributedDataParallel(network().to(gpu))
        net.register_comm_hook(state, hook)
        for _ in range(3):
            net.zero_grad()
            loss(net, mine, gpu).backward()
        if hook is default_hooks.allreduce_hook:
            for a, b in zip(gradients(net), gradients(whole), strict=True):
                close(a, b)
        assert all(a.device == gpu for a in gradients(net))


def copies():
    net = ddp()
    x, y = X[mine].to(gpu), Y[mine].to(gpu)
    with vgpu.record_copies() as log:
        mse_loss(net(x), y).backward()
    assert log == [], log  # what collectives move is not in the log


def sharded_optimizer():
    net = DistributedDataParallel(network().to(gpu))
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.1)
    reference = network()
    adam = torch.optim.Adam(reference.parameters(), lr=0.1, foreach=True)
    for _ in range(2):
        optimizer.zero_grad()
        loss(net, mine, gpu).backward()
        optimizer.step()
        adam.zero_grad()
        loss(reference).backward()
        adam.step()
    for a, b in zip(net.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(a.detach().cpu(), b.detach(), atol=1e-5, rtol=1e-4)


def distributed_tensors():
    D = distribute_tensor(X, mesh, [Shard(0)])
    assert D.to_local().device == gpu
    assert torch.equal(D.to_local().cpu(), X[mine])
    E = D.redistribute(mesh, [Shard(1)])
    assert E.to_local().shape == (8, 4)
    assert torch.equal(E.full_tensor().cpu(), X)
    close((D @ D.t()).full_tensor(), X @ X.t())
    net = distribute_module(network(), mesh)
    assert next(net.parameters()).to_local().device == gpu


def tensor_parallel():
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    net = parallelize_module(network().to(gpu), mesh, plan)
    loss(net, device=gpu).backward()
    for a, b in zip(gradients(net), gradients(whole), strict=True):
        close(a.full_tensor(), b)


def fully_sharded():
    halves = []
    for rows in (slice(0, 4), slice(4, 8)):
        net = network()
        loss(net, rows).backward()
        halves.append(gradients(net))
    torch.vgpu.reset_peak_memory_stats()
    net = network()  # on the CPU: fully_shard brings it to the device
    before = allocated()
    for layer in (net[0], net[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    shards = [p.to_local() for p in net.parameters()]
    after = allocated()
    assert after - before == blocks(shards)
    for _ in range(2):
        net.zero_grad()
        loss(net, mine, gpu).backward()
        for a, b, c in zip(gradients(net), *halves, strict=True):
            assert torch.equal(a.full_tensor().cpu(), (b + c) / 2)
    # The whole parameters are freed. Gradients are there, and FSDP keeps one buffer.
    left = allocated() - after
    assert left <= blocks(shards) + 512, left
    assert torch.vgpu.max_memory_allocated() > after + left
    optimizer = torch.optim.Adam(net.parameters())
    loss(net, mine, gpu).backward()
    optimizer.step()


def allocated():
    """The bytes allocated, once gloo's threads have let go of earlier collectives."""
    dist.barrier()
    gc.collect()
    last = -1
    while (now := torch.vgpu.memory_allocated()) != last:
        last = now
        time.sleep(0.1)
    return now


def blocks(tensors):
    """The bytes that tensors occupy, in blocks of 512."""
    return sum(-(-tensor.nbytes // 512) * 512 for tensor in tensors)


def synchronized_batch_norm():
    # The ranks may have batches of different sizes.
    for part in ([slice(0, 4), slice(4, 8)], [slice(0, 3), slice(3, 8)]):
        whole = nn.BatchNorm1d(8)
        norm = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(whole)).to(gpu)
        x = X.clone().requires_grad_()
        ours = X[part[rank]].to(gpu).requires_grad_()
        for _ in range(2):
            (whole(x) ** 3).sum().backward()
            (norm(ours) ** 3).sum().backward()
        close(ours.grad, x.grad[part[rank]], rtol=1e-4, atol=1e-4)
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            close(getattr(norm, name), getattr(whole, name))
        for mine, expected in zip(norm.parameters(), whole.parameters(), strict=True):
            dist.all_reduce(mine.grad)
            close(mine.grad, expected.grad, rtol=1e-4, atol=1e-4)


warnings.simplefilter("ignore")
for step in (
    data_parallel,
    accumulation,
    unused_parameters,
    buffers,
    hooks,
    copies,
    sharded_optimizer,
    distributed_tensors,
    tensor_parallel,
    fully_sharded,
    synchronized_batch_norm,
):
    step()
    dist.barrier()
dist.destroy_process_group()
if rank == 0:
    print("done")
