"""DistributedDataParallel and what belongs to it, with NCCL."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.ecosystem.support import (
    batch,
    close,
    main,
    mlp,
    same_gradients,
    same_parameters,
    start,
    torchrun,
    train,
)

NEEDS = ("torch",)


def check_two_ranks_train_as_one_process():
    """Two ranks with half of each batch end with the parameters of one process."""
    torchrun(rank_trains)


def rank_trains():
    rank, gpu = start()
    X, Y = batch()
    expected = mlp()
    train(expected, X, Y, steps=3)
    model = mlp().to(gpu)
    ddp = DistributedDataParallel(model, device_ids=[rank], output_device=rank)
    data = TensorDataset(X, Y)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler, pin_memory=True)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            x, y = x.to(gpu, non_blocking=True), y.to(gpu, non_blocking=True)
            optimizer.zero_grad()
            mse_loss(ddp(x), y).backward()
            optimizer.step()
    same_parameters(model, expected, gpu)


def check_gradients_travel_in_half_precision():
    """With hooks for bfloat16, float16 and PowerSGD, gradients are close to exact."""
    torchrun(rank_with_hooks)


def rank_with_hooks():
    rank, gpu = start()
    X, Y = batch()
    expected = mlp()
    mse_loss(expected(X), Y).backward()
    powers = powerSGD_hook.PowerSGDState(None, 4, start_powerSGD_iter=2)
    for hook, state in (
        (default_hooks.bf16_compress_hook, dist.group.WORLD),
        (default_hooks.fp16_compress_hook, dist.group.WORLD),
        (default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook), None),
        (powerSGD_hook.powerSGD_hook, powers),
    ):
        ddp = DistributedDataParallel(mlp().to(gpu), device_ids=[rank])
        ddp.register_comm_hook(state, hook)
        for _ in range(3):
            ddp.zero_grad()
            mse_loss(ddp(X[rank::2].to(gpu)), Y[rank::2].to(gpu)).backward()
        if hook is powerSGD_hook.powerSGD_hook:  # an approximation of rank 4
            for p in ddp.parameters():
                other = p.grad.clone()
                dist.broadcast(other, 0)
                close(p.grad, other, gpu)
        else:
            same_gradients(ddp, expected, gpu, rtol=2e-2, atol=5e-3)


def check_batches_are_normalized_over_ranks():
    """SyncBatchNorm normalizes over the batches of all ranks, backward too."""
    torchrun(rank_normalizes)


def rank_normalizes():
    rank, gpu = start()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    expected = copy.deepcopy(net)
    X = torch.randn(6, 2, 5, 5)
    Y = expected(X)
    Y.square().mean().backward()
    net = nn.SyncBatchNorm.convert_sync_batchnorm(net).to(gpu)
    assert isinstance(net[1], nn.SyncBatchNorm)
    ddp = DistributedDataParallel(net, device_ids=[rank])
    mine = ddp(X[3 * rank : 3 * rank + 3].to(gpu))
    close(mine, Y[3 * rank : 3 * rank + 3], gpu, rtol=1e-3, atol=1e-3)
    mine.square().mean().backward()
    same_gradients(net, expected, gpu, rtol=1e-3, atol=1e-3)
    close(net[1].running_var, expected[1].running_var, gpu, rtol=1e-3, atol=1e-3)


def check_ranks_with_uneven_data_join():
    """A rank that runs out of batches shadows the others until all have joined."""
    torchrun(rank_joins)


def rank_joins():
    rank, gpu = start()
    X, Y = batch()
    model = mlp().to(gpu)
    ddp = DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    with Join([ddp]):
        for i in range(1 + rank):
            optimizer.zero_grad()
            rows = slice(4 * rank + 8 * i, 4 * rank + 8 * i + 4)
            mse_loss(ddp(X[rows].to(gpu)), Y[rows].to(gpu)).backward()
            optimizer.step()
    expected = mlp()
    train(expected, X[:8], Y[:8])
    # The second batch is rank 1's alone; its gradients are divided by 2 ranks.
    train(expected, X[12:16], Y[12:16], lr=0.05)
    same_parameters(model, expected, gpu)


def check_a_static_graph_with_checkpoints_and_unused_parameters():
    """With static_graph, a checkpointed layer used twice has the right gradients."""
    torchrun(rank_with_static_graph)


class Reusing(nn.Module):
    """A layer used twice, each time recomputed in backward, and one never used."""

    def __init__(self, again: bool):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.shared = nn.Linear(8, 8), nn.Linear(8, 8)
        self.last, self.unused = nn.Linear(8, 4), nn.Linear(4, 4)
        self.again = again

    def forward(self, X):
        X = self.first(X)
        for _ in range(2):
            if self.again:
                X = checkpoint(self.shared, X, use_reentrant=True).relu()
            else:
                X = self.shared(X).relu()
        return self.last(X)


def rank_with_static_graph():
    rank, gpu = start()
    X, Y = batch()
    expected = Reusing(False)
    mse_loss(expected(X), Y).backward()
    model = Reusing(True).to(gpu)
    ddp = DistributedDataParallel(model, device_ids=[rank], static_graph=True)
    for _ in range(2):
        ddp.zero_grad()
        mse_loss(ddp(X[rank::2].to(gpu)), Y[rank::2].to(gpu)).backward()
    for name in "first", "shared", "last":
        a, b = getattr(model, name), getattr(expected, name)
        same_gradients(a, b, gpu)


def check_gradients_accumulate_without_sums():
    """Inside no_sync gradients stay on their rank; the next backward sums them all."""
    torchrun(rank_accumulates)


def rank_accumulates():
    rank, gpu = start()
    X, Y = batch()
    mine = slice(8 * rank, 8 * rank + 8)
    x, y = X[mine].to(gpu), Y[mine].to(gpu)
    model = mlp().to(gpu)
    ddp = DistributedDataParallel(
        model, device_ids=[rank], gradient_as_bucket_view=True, bucket_cap_mb=0.0005
    )
    with ddp.no_sync():
        (mse_loss(ddp(x[:4]), y[:4]) / 2).backward()
    local = mlp()
    (mse_loss(local(x[:4].cpu()), y[:4].cpu()) / 2).backward()
    same_gradients(model, local, gpu)
    (mse_loss(ddp(x[4:]), y[4:]) / 2).backward()
    expected = mlp()
    mse_loss(expected(X), Y).backward()
    same_gradients(model, expected, gpu)


def check_the_state_of_an_optimizer_is_shared_out():
    """ZeroRedundancyOptimizer takes Adam's steps, and gathers its state to save it."""
    torchrun(rank_with_zero)


def rank_with_zero():
    rank, gpu = start()
    X, Y = batch()
    expected = mlp()
    adam = torch.optim.Adam(expected.parameters(), lr=0.01)
    model = mlp().to(gpu)
    ddp = DistributedDataParallel(model, device_ids=[rank])
    zero = ZeroRedundancyOptimizer(
        ddp.parameters(), optimizer_class=torch.optim.Adam, lr=0.01
    )
    for _ in range(3):
        adam.zero_grad()
        mse_loss(expected(X), Y).backward()
        adam.step()
        zero.zero_grad()
        mse_loss(ddp(X[rank::2].to(gpu)), Y[rank::2].to(gpu)).backward()
        zero.step()
    same_parameters(model, expected, gpu, rtol=1e-3, atol=1e-4)
    zero.consolidate_state_dict(to=0)
    if rank == 0:
        state = zero.state_dict()["state"]
        assert len(state) == 4, state.keys()
        moments = adam.state_dict()["state"]
        for i in range(4):
            close(state[i]["exp_avg"], moments[i]["exp_avg"], rtol=1e-3, atol=1e-4)


if __name__ == "__main__":
    main(globals())
