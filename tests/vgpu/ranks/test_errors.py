"""Errors in a small world: one sentence each, and nobody waits for ever."""

import gc
import sys
import threading
import traceback

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import relu
from torch.nn.parallel import DistributedDataParallel

from d2l_gpu import vgpu
from tests.helpers.fresh_process import run_fresh, run_program

pytestmark = pytest.mark.virtual_gpus(4, memory="64MiB")


@pytest.fixture(autouse=True)
def nothing_remains():
    """Whatever a test does: no thread and no group remain, and ranks run again."""
    threads, hook = set(threading.enumerate()), sys.excepthook
    yield
    gc.collect()  # of modules and errors that know each other; pytest does it once more
    assert set(threading.enumerate()) <= threads
    assert not dist.is_initialized()
    assert sys.excepthook is hook  # init_process_group changes it
    assert vgpu.run_ranks(total, 3) == [6, 6, 6]


def total(rank, world_size):
    X = torch.tensor(rank + 1, device="vgpu")
    dist.all_reduce(X)
    return X.item()


def message(function, world: int = 3) -> str:
    with pytest.raises(RuntimeError) as caught:
        vgpu.run_ranks(function, world)
    return str(caught.value)


# ------------------------------------------------------------------ arguments


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((3, 2), TypeError, "needs a function of rank and world size, but got 3"),
        ((total, "2"), TypeError, "must be an integer, but got '2'"),
        ((total, True), TypeError, "must be an integer, but got True"),
        ((total, 2.0), TypeError, "must be an integer, but got 2.0"),
        ((total, 0), ValueError, "must be at least 1, but got 0"),
        ((total, 5), ValueError, "5 ranks need 5 virtual GPUs, but there are 4"),
    ],
)
def test_arguments_that_make_no_sense(arguments, error, words):
    with pytest.raises(error, match=words):
        vgpu.run_ranks(*arguments)


def test_ranks_need_virtual_gpus():
    run_fresh(
        """
        from d2l_gpu import vgpu
        try:
            vgpu.run_ranks(print, 2)
        except RuntimeError as error:
            assert 'call vgpu.enable first' in str(error), error
        """
    )


def test_a_process_that_is_a_rank_already_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        assert "This process is a rank already" in message(total)
        assert dist.get_backend() == "gloo"
    finally:
        dist.destroy_process_group()


def test_a_rank_cannot_start_ranks():
    assert "a rank can't start others" in message(
        lambda rank, n: vgpu.run_ranks(total, 2)
    )


# ------------------------------------------------------------------ errors of one rank


@pytest.mark.parametrize("failing", range(3))
def test_an_error_ends_all_ranks_and_names_its_own(failing):
    ended = []

    def work(rank, world_size):
        X = torch.ones(2, device="vgpu")
        dist.all_reduce(X)
        if rank == failing:
            raise KeyError("the reason")
        try:
            dist.all_reduce(X)
        finally:
            ended.append(rank)

    with pytest.raises(RuntimeError) as caught:
        vgpu.run_ranks(work, 3)
    assert str(caught.value) == f"Rank {failing} of 3 raised KeyError: 'the reason'"
    cause = caught.value.__cause__
    assert isinstance(cause, KeyError)
    assert 'raise KeyError("the reason")' in "".join(traceback.format_exception(cause))
    # Those that never had a turn never began.
    assert set(ended) <= {0, 1, 2} - {failing}


def test_an_error_that_others_handle_still_ends_them():
    def work(rank, world_size):
        while True:
            try:
                dist.barrier()
                if rank == 1:
                    break
            except Exception:
                pass
        raise ValueError("enough")

    assert message(work) == "Rank 1 of 3 raised ValueError: enough"


class Reducing(torch.autograd.Function):
    """The identity, whose gradient is summed over ranks."""

    @staticmethod
    def forward(ctx, X):
        return X.clone()

    @staticmethod
    def backward(ctx, grad):
        dist.all_reduce(grad)
        return grad


def ddp(net):
    return DistributedDataParallel(net)


WRAPS = {"ddp": ddp, "fsdp": fully_shard}


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("where", ["before", "hook", "memory", "never"])
def test_an_error_while_others_wait_in_backward(wrap, where):
    def work(rank, world_size):
        net = WRAPS[wrap](nn.Linear(6, 4).to("vgpu"))
        loss = net(torch.ones(2, 6, device="vgpu")).sum()
        if rank == 1:
            if where == "before":
                raise ValueError("before backward")
            if where == "hook":
                loss.register_hook(lambda grad: 1 / 0)
            if where == "memory":
                X = torch.ones(3000, 1, device="vgpu", requires_grad=True)
                loss = loss * relu(X @ X.t()).sum()
            if where == "never":
                return
        loss.backward()

    expected = {
        "before": "Rank 1 of 3 raised ValueError: before backward",
        "hook": "Rank 1 of 3 raised ZeroDivisionError: division by zero",
        "memory": "Rank 1 of 3 raised OutOfMemoryError: vgpu out of memory.",
        "never": "rank 1 has returned, rank 2 waits for rank 1 in ",
    }
    assert expected[where] in message(work)


@pytest.mark.parametrize("returns", [False, True])
def test_an_error_while_others_wait_in_a_function_of_the_program(returns):
    def work(rank, world_size):
        X = torch.ones(2, device="vgpu", requires_grad=True)
        Y = Reducing.apply(X).sum()
        if rank == 1 and not returns:
            raise ValueError("before backward")
        if rank != 1:
            Y.backward()

    words = "rank 1 has returned" if returns else "Rank 1 of 3 raised ValueError"
    assert words in message(work)


# ------------------------------------------------------------------ waiting for ever


def on_device(size: int = 2, dtype=torch.float32):
    return torch.ones(size, dtype=dtype, device="vgpu")


DEADLOCKS = {
    "a rank has returned": (
        lambda rank, n: rank == 1 or dist.all_reduce(on_device()),
        "rank 0 waits for rank 1 in all_reduce of float32 (2,) by SUM, rank 1 has "
        "returned, rank 2 waits for rank 1 in all_reduce",
    ),
    "all send first": (
        lambda rank, n: dist.send(on_device(), (rank + 1) % n),
        "rank 0 waits for rank 1 to receive what it sends, rank 1 waits for rank 2",
    ),
    "all receive first": (
        lambda rank, n: dist.recv(on_device(), (rank + 1) % n),
        "rank 0 waits for rank 1 to send what it receives, rank 1 waits for rank 2",
    ),
    "nobody sends": (
        lambda rank, n: rank or dist.recv(on_device()),
        "rank 0 waits for any rank to send what it receives, rank 1 has returned",
    ),
    "groups in another order": (
        lambda rank, n: [
            dist.barrier(group)
            for group in [dist.new_group([0, 1, 2]), dist.new_group([0, 1, 2])][
                :: -1 if rank else 1
            ]
        ],
        "rank 0 waits for rank 1 and rank 2 in barrier, rank 1 waits for rank 0",
    ),
    "a key that nobody sets": (
        lambda rank, n: dist.distributed_c10d._get_default_store().get("key"),
        "key' in the store, rank 1 waits for '",
    ),
}


@pytest.mark.parametrize("name", DEADLOCKS)
def test_ranks_that_would_wait_for_ever(name):
    work, words = DEADLOCKS[name]
    text = message(work)
    assert text.startswith("The ranks would wait for ever: rank 0 ")
    assert words in text


def test_ranks_that_would_wait_for_ever_leave_no_memory_behind():
    assert run_program("ranks/deadlock.py").split() == ["True", "done"]


MISMATCHES = {
    "another collective": (
        lambda rank, n: dist.barrier() if rank else dist.all_reduce(on_device()),
        "Rank 0 calls all_reduce of float32 (2,) by SUM where rank 1 calls barrier:",
    ),
    "another size": (
        lambda rank, n: dist.all_reduce(on_device(2 + rank)),
        "calls all_reduce of float32 (2,) by SUM where rank 1 calls all_reduce of "
        "float32 (3,) by SUM:",
    ),
    "another dtype": (
        lambda rank, n: dist.broadcast(
            on_device(dtype=torch.int64 if rank else torch.float32), 0
        ),
        "calls broadcast of float32 (2,) with root 0 where rank 1 calls broadcast of "
        "int64 (2,) with root 0:",
    ),
    "another root": (
        lambda rank, n: dist.broadcast(on_device(), rank),
        "with root 0 where rank 1 calls broadcast of float32 (2,) with root 1:",
    ),
    "another reduction": (
        lambda rank, n: dist.all_reduce(
            on_device(), dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM
        ),
        "by SUM where rank 1 calls all_reduce of float32 (2,) by MAX:",
    ),
}


@pytest.mark.parametrize("name", MISMATCHES)
def test_ranks_that_call_different_collectives(name):
    work, words = MISMATCHES[name]
    text = message(work)
    assert words in text
    assert text.endswith("in the same order, for tensors that fit.")


def test_a_piece_that_does_not_fit_the_tensor_that_it_is_for():
    def work(rank, world_size):
        outputs = [on_device() for _ in range(world_size)]
        dist.all_gather(outputs, on_device(3 if rank == 1 else 2))

    words = "all_gather brings 3 elements of float32 to a tensor of 2 elements"
    assert words in message(work)


@pytest.mark.parametrize("wrong", ["device", "cpu and gpu", "sparse", "uneven"])
def test_tensors_that_a_rank_cannot_pass(wrong):
    def work(rank, world_size):
        X = on_device()
        if wrong == "device":
            dist.all_reduce(torch.ones(2, device="vgpu:0"))
        elif wrong == "cpu and gpu":
            dist.all_gather([torch.ones(2) for _ in range(world_size)], X)
        elif wrong == "sparse":
            dist.all_reduce(X.to_sparse())
        else:
            dist.reduce_scatter_tensor(X[:1], X)

    expected = {
        "device": "Rank 1 has the device vgpu:1, but it passes a tensor on vgpu:0",
        "cpu and gpu": "must be on one device, but found cpu and vgpu:0",
        "sparse": "make this tensor dense first",
        "uneven": "shape (2,) can't be divided evenly among 3 ranks",
    }
    assert expected[wrong] in message(work)


# ------------------------------------------------------------------ Ctrl-C


def test_ctrl_c_ends_all_ranks():
    assert run_program("ranks/interrupted.py").split() == ["done"]
