"""Virtual GPUs beside threads and other processes."""

import gc
import os
import pickle
import sys
import threading
import time
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from torch import nn

from d2l_gpu import vgpu
from tests.helpers.ranks import run
from tests.helpers.waiting import PATIENCE


@pytest.fixture(autouse=True)
def two_devices():
    gc.collect()
    vgpu.enable(2, memory="256MiB")


def train(gpu: torch.device, losses: list) -> None:
    """Train a small network; append the losses and, last, the parameters' bytes."""
    generator = torch.Generator().manual_seed(gpu.index)
    X, Y = (torch.randn(64, 8, generator=generator).to(gpu) for _ in range(2))
    net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    net.to(gpu)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(X), Y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    losses.append([p.detach().cpu().numpy().tobytes() for p in net.parameters()])


def test_two_threads_train_as_one_after_the_other_would():
    gpus = [torch.device("vgpu", i) for i in range(2)]
    apart, together = ([], []), ([], [])
    for gpu, losses in zip(gpus, apart, strict=True):
        train(gpu, losses)
    threads = [
        threading.Thread(target=train, args=pair)
        for pair in zip(gpus, together, strict=True)
    ]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=PATIENCE)
    finally:
        sys.setswitchinterval(interval)
    assert not any(thread.is_alive() for thread in threads)
    assert together == apart
    gc.collect()
    assert [torch.vgpu.memory_allocated(i) for i in range(2)] == [0, 0]


class Hesitating(list):
    """A list that lets other threads run between a read and what follows."""

    def __getitem__(self, i):
        value = super().__getitem__(i)
        time.sleep(1e-5)
        return value


def test_threads_on_one_device_keep_its_account():
    machine = vgpu.machine_in_use()
    machine.used = Hesitating(machine.used)

    def allocate():
        for _ in range(200):
            torch.empty(128, device="vgpu:0")

    threads = [threading.Thread(target=allocate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    machine.used = list(machine.used)
    assert machine.used == [0, 0]


@pytest.mark.all
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("kind", [torch.Tensor.detach, nn.Parameter])
@pytest.mark.parametrize("size", [0, 1, 7])
def test_what_is_sent_arrives_as_it_was(kind, needs_grad, size):
    sent = kind(torch.randn(size, 2, device="vgpu:1")).requires_grad_(needs_grad)
    if needs_grad:
        (sent.sum() * 2).backward()  # a gradient doesn't travel
    for _ in range(2):
        arrived = pickle.loads(bytes(ForkingPickler.dumps(sent)))
        assert torch.equal(arrived, sent) and arrived is not sent
        assert (arrived.device, arrived.grad) == (sent.device, None)
        assert arrived.requires_grad == needs_grad and arrived.is_leaf
        assert isinstance(arrived, nn.Parameter) == (kind is nn.Parameter)


@pytest.mark.all
def test_workers_forks_and_tensors_sent_to_other_processes():
    done = run("processes.py", "enable")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.all
def test_a_process_without_virtual_gpus_says_so_when_a_tensor_arrives():
    done = run("processes.py", "without")
    assert done.stdout == "1\n"
    assert (
        "A tensor on vgpu:1 was sent to a process without virtual GPUs: call "
        "d2l_gpu.vgpu.enable there before it arrives, or send tensor.cpu()."
    ) in done.stderr
    assert "The tensor arrived" not in done.stderr
