"""What processes started from one with virtual GPUs do with these."""

import faulthandler
import os
import sys
from multiprocessing.reduction import ForkingPickler

import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset

from d2l_gpu import vgpu
from tests.helpers.waiting import PATIENCE

faulthandler.dump_traceback_later(PATIENCE, exit=True)
if "enable" in sys.argv:  # in the processes that are spawned, too
    vgpu.enable(2, memory="64MiB")


class Rows(Dataset):
    def __init__(self, X, bad=None):
        self.X, self.bad = X, bad

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        if i == self.bad:
            raise ValueError(f"Row {i} is bad.")
        return self.X[i]


def batches(X, method, bad=None):
    return list(
        DataLoader(
            Rows(X, bad),
            batch_size=4,
            num_workers=2 if method == "fork" else 1,  # to spawn takes seconds
            multiprocessing_context=method,
            timeout=PATIENCE,
        )
    )


def refused(sentence, function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        assert sentence in str(error), error
    else:
        raise AssertionError("Nothing was raised.")


FORKED = "Cannot re-initialize virtual GPUs in forked subprocess."


def answer(queue, *tensors):
    try:
        total = sum(tensors, torch.ones((), device="vgpu:1"))
        queue.put((total, torch.vgpu.memory_allocated(1)))
    except RuntimeError as error:
        queue.put(str(error))


def in_child(method, *arguments):
    """Return what ``answer`` says in a process of its own."""
    context = mp.get_context(method)
    queue = context.Queue()
    child = context.Process(target=answer, args=(queue, *arguments))
    child.start()
    try:
        return queue.get(timeout=PATIENCE)
    finally:
        child.join()


def workers():
    for method in ("fork", "spawn"):
        X = torch.arange(8.0)
        W = torch.ones(4, device="vgpu:1", requires_grad=True)
        for batch in batches(X, method):
            assert batch.device.type == "cpu"
            (W * batch.to("vgpu:1")).sum().backward()
        assert W.grad.tolist() == [4, 6, 8, 10]
    refused("Row 5 is bad.", batches, X, "fork", 5)


def rows_on_a_device():
    X = torch.arange(8.0, device="vgpu:1")
    first, second = batches(X, "spawn")
    assert first.device == second.device == X.device
    assert second.tolist() == [4, 5, 6, 7]
    refused(FORKED, batches, X, "fork")


def forked():
    X = torch.ones(200, 200, device="vgpu:1")
    (X @ X).sum().item()  # starts the host's threads, of which the child has none
    assert FORKED in in_child("fork")
    assert FORKED in in_child("fork", X)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            refused(FORKED, lambda: X + 1)
            refused(FORKED, lambda: X.add_(1))
            refused(FORKED, X.cpu)
            refused(FORKED, lambda: torch.ones(1, device="vgpu:0"))
            refused(FORKED, vgpu.enable)
            torch.manual_seed(0)
            torch.ones(2).sum()  # the CPU is still there
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert X.sum().item() == 200 * 200  # and here nothing has changed


def forked_before_use():
    assert not torch.vgpu.is_initialized()
    pid = os.fork()
    if pid == 0:
        ok = torch.ones(3, device="vgpu:1").sum().item() == 3
        os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert torch.vgpu.memory_allocated(1) == 0


def sent():
    X = nn.Parameter(torch.tensor(2.0, device="vgpu:1"))
    total, used = in_child("spawn", X.detach())
    assert (total.item(), total.device) == (3, X.device)
    assert used == 2 * 512  # the copy and the sum
    pickled = ForkingPickler.dumps(X)
    Y = ForkingPickler.loads(pickled)
    assert isinstance(Y, nn.Parameter)
    assert Y.requires_grad and Y.device == X.device and Y.item() == 2
    frozen = ForkingPickler.loads(ForkingPickler.dumps(X.requires_grad_(False)))
    assert isinstance(frozen, nn.Parameter) and not frozen.requires_grad


def shared():
    X = torch.ones(2, device="vgpu:1")
    assert not X.is_shared()
    refused("each process has its own virtual GPUs", X.share_memory_)
    refused("cannot share a tensor on vgpu:0", nn.Linear(1, 1).to(0).share_memory)
    assert torch.ones(2).share_memory_().to("vgpu:1").sum().item() == 2


def receive(X):
    raise AssertionError("The tensor arrived.")


if __name__ == "__main__":
    if sys.argv[1] == "enable":
        forked_before_use()
        for step in (workers, rows_on_a_device, forked, sent, shared):
            step()
        print("done")
    else:
        vgpu.enable(2)
        context = mp.get_context("spawn")
        child = context.Process(target=receive, args=(torch.ones(1).to("vgpu:1"),))
        child.start()
        child.join()
        print(child.exitcode)
