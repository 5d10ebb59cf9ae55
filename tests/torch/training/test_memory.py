"""Memory over a long training: nothing of a step is left when the next one begins."""

import copy
import gc

import pytest
import torch
from torch import nn

from d2l_gpu import vgpu
from d2l_gpu.vgpu.tensor import VirtualTensor


@pytest.fixture
def devices():
    """Two virtual GPUs, and no garbage collector that could hide a cycle."""
    # The first optimizer of a process, on the CPU too, leaves one of PyTorch's own.
    first = torch.ones(1, requires_grad=True)
    first.sum().backward()
    torch.optim.Adam([first]).step()
    gc.collect()
    vgpu.enable(2, memory="64MiB")
    gc.disable()
    yield [torch.device("vgpu", i) for i in range(2)]
    gc.enable()


def num_tensors():
    return sum(type(thing) is VirtualTensor for thing in gc.get_objects())


def memory(devices):
    return [torch.vgpu.memory_allocated(device) for device in devices]


def step(nets, optimizers, batch):
    """Take one step of data parallelism: gradients meet on the first device."""
    for net, optimizer, part in zip(nets, optimizers, batch.chunk(2), strict=True):
        optimizer.zero_grad()
        X = part.to(net[0].weight.device)
        nn.functional.mse_loss(net(X), X.sum(1, keepdim=True)).backward()
    for first, second in zip(*(net.parameters() for net in nets), strict=True):
        first.grad += second.grad.to(first.device)
        second.grad.copy_(first.grad)
    for optimizer in optimizers:
        optimizer.step()


@pytest.mark.all
def test_a_thousand_steps_leave_nothing_behind(devices):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    nets = [copy.deepcopy(net).to(device) for device in devices]
    optimizers = [torch.optim.Adam(net.parameters()) for net in nets]
    batch = torch.randn(16, 8)
    for i in range(1, 1001):
        step(nets, optimizers, batch)
        if i == 10:
            used, tensors = memory(devices), num_tensors()
        elif i > 10:
            assert memory(devices) == used
    assert min(used) > 0
    assert num_tensors() == tensors
    for first, second in zip(*(net.parameters() for net in nets), strict=True):
        assert torch.equal(first.cpu(), second.cpu())
    del nets, optimizers, first, second
    assert memory(devices) == [0, 0]
    assert num_tensors() == 0


def test_what_only_a_cycle_holds_does_not_keep_devices_in_use():
    vgpu.enable(2, memory="64MiB")
    gc.collect()
    gc.disable()
    try:
        cycle = [torch.ones(1, device="vgpu:0")]
        cycle.append(cycle)
        del cycle
        assert torch.vgpu.memory_allocated(0) > 0
        vgpu.enable(3)
    finally:
        gc.enable()
