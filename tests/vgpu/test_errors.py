"""What virtual GPUs say when something is wrong: PyTorch's own sentences.

The wordings are those of PyTorch 2.13's sources for CUDA, with vgpu in the place of
cuda; where they stand is written in ``d2l_gpu/vgpu/errors.py``.
"""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

pytestmark = pytest.mark.virtual_gpus(2, memory="256MiB")


def gpu(i):
    return torch.device("vgpu", i)


def wrong(argument, operator, other="vgpu:1", first="vgpu:0"):
    """The sentence of operators that check their arguments one by one."""
    return (
        f"Expected all tensors to be on the same device, but got {argument} is on "
        f"{other}, different from other tensors on {first} (when checking argument in "
        f"method wrapper_VGPU_{operator})"
    )


def found(other="vgpu:1", first="vgpu:0"):
    """The sentence of element-wise operators."""
    return (
        "Expected all tensors to be on the same device, but found at least two "
        f"devices, {first} and {other}!"
    )


INDICES = "indices should be either on cpu or on the same device as the indexed tensor"
ZEROS = torch.zeros(2, dtype=torch.int64)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda X, Y: X + Y, found()),
        (lambda X, Y: X.add_(Y), found()),
        (lambda X, Y: torch.add(X, X, out=Y), found()),
        (lambda X, Y: torch.where(X > 0, X, Y), found()),
        (lambda X, Y: X.masked_fill(Y > 0, 0), found()),
        (lambda X, Y: torch._foreach_add([X], [Y]), found()),
        (lambda X, Y: F.mse_loss(X, Y), found()),
        # What comes after the mismatch does not make up for it.
        (lambda X, Y: torch.addcmul(X, Y, X), found()),
        (lambda X, Y: torch.cat([X, Y, X]), wrong("tensors", "cat")),
        (lambda X, Y: torch.where(X > 0, Y, torch.tensor(0.0)), found()),
        # A number on the CPU has no dimensions.
        (lambda X, Y: X + torch.ones(1), found("cpu")),
        (lambda X, Y: X @ Y, wrong("mat2", "mm")),
        (lambda X, Y: F.linear(X, Y), wrong("mat2", "mm")),
        (lambda X, Y: F.linear(X, X, Y[0]), wrong("mat1", "addmm", "vgpu:0", "vgpu:1")),
        # The first argument says where the others should be, on the CPU too.
        (lambda X, Y: X.cpu() @ Y, wrong("mat2", "mm", "vgpu:1", "cpu")),
        (
            lambda X, Y: F.linear(X, X, Y[0].cpu()),
            wrong("mat1", "addmm", "vgpu:0", "cpu"),
        ),
        (lambda X, Y: torch.cat([X.cpu(), Y]), wrong("tensors", "cat", first="cpu")),
        (lambda X, Y: X[0].cpu() + Y, found("cpu", "vgpu:1")),
        (lambda X, Y: torch.bmm(X[None], Y[None]), wrong("mat2", "bmm")),
        (lambda X, Y: torch.cat([X, Y]), wrong("tensors", "cat")),
        (lambda X, Y: torch.stack([X, Y]), wrong("tensors", "stack")),
        (
            lambda X, Y: F.cross_entropy(X, ZEROS.to(Y.device)),
            wrong("target", "nll_loss_forward"),
        ),
        (
            lambda X, Y: F.cross_entropy(X, ZEROS),
            wrong("target", "nll_loss_forward", "cpu"),
        ),
        (
            lambda X, Y: F.embedding(ZEROS, X),
            wrong("indices", "embedding", "cpu"),
        ),
        (lambda X, Y: X[ZEROS.to(Y.device)], f"{INDICES} (vgpu:0)"),
        (lambda X, Y: X.cpu()[ZEROS.to(Y.device)], f"{INDICES} (cpu)"),
        (
            lambda X, Y: nn.LSTM(2, 2).to(Y.device)(X),
            wrong("params", "lstm"),
        ),
    ],
)
def test_operands_on_two_devices(call, sentence):
    X, Y = torch.ones(2, 2, device=gpu(0)), torch.ones(2, 2, device=gpu(1))
    with pytest.raises(RuntimeError) as error:
        call(X, Y)
    assert str(error.value) == sentence


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("other", ["vgpu:1", "cpu"])
def test_an_optimizer_with_its_state_elsewhere(foreach, other):
    weight = nn.Parameter(torch.ones(2, device=gpu(0)))
    weight.grad = torch.ones(2, device=gpu(0))
    optimizer = torch.optim.Adam([weight], foreach=foreach)
    optimizer.step()
    state = optimizer.state[weight]
    state["exp_avg"] = state["exp_avg"].to(other)
    with pytest.raises(RuntimeError) as error:
        optimizer.step()
    if foreach and other != "cpu":  # PyTorch groups tensors by device first
        assert "Tensors of the same index must be on the same device" in str(
            error.value
        )
    else:
        pair = {"vgpu:0", other}
        assert str(error.value) in {found(a, b) for a in pair for b in pair - {a}}


@pytest.mark.parametrize("name", ["vgpu:2", "vgpu:99"])
def test_a_device_that_is_not_there(name):
    X = torch.ones(1)
    for call in (lambda: X.to(name), lambda: torch.ones(1, device=name)):
        with pytest.raises(
            RuntimeError, match=f"invalid device ordinal.*no {name}, because only 2"
        ):
            call()
    for call in (torch.vgpu.set_device, torch.vgpu.Stream, torch.vgpu.memory_allocated):
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            call(name)


def test_running_out_of_memory_is_worded_like_cudas():
    X = torch.ones(25 * 2**20, device=gpu(1))  # 100 of 256 MiB
    with pytest.raises(torch.OutOfMemoryError) as error:
        torch.ones(50 * 2**20, device=gpu(1))
    assert str(error.value) == (
        "vgpu out of memory. Tried to allocate 200.00 MiB. GPU 1 has a total capacity "
        "of 256.00 MiB of which 156.00 MiB is free. Of the allocated memory 100.00 MiB "
        "is allocated by PyTorch. (Simulated memory of a virtual GPU.)"
    )
    del X


def test_a_generator_of_another_device():
    for call in (
        lambda g: torch.randn(2, device=gpu(0), generator=g),
        lambda g: torch.empty(2, device=gpu(0)).normal_(generator=g),
        lambda g: F.dropout(torch.ones(2, device=gpu(0))).bernoulli_(generator=g),
    ):
        with pytest.raises(RuntimeError) as error:
            call(torch.Generator())
        assert str(error.value) == (
            "Expected a 'vgpu' device type for generator but found 'cpu'"
        )


@pytest.mark.filterwarnings("ignore")  # of sparse, nested and quantized tensors
def test_tensors_neither_strided_nor_sparse_by_elements_are_refused():
    X = torch.eye(2, device=gpu(0))
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    for call in (
        lambda: X.to_sparse_bsr((1, 1)),
        lambda: X.to_sparse().to_sparse_bsc((1, 1)),
        lambda: torch.eye(2).to_sparse_bsr((1, 1)).to(gpu(1)),
        lambda: torch.sparse_bsr_tensor([0, 1], [0], [[[1.0]]], device=gpu(0)),
        lambda: nested.to(gpu(1)),
        lambda: torch.nested.nested_tensor([X[0], X[1]]),
        lambda: torch.quantize_per_tensor(X.cpu(), 0.1, 0, torch.qint8).to(gpu(1)),
    ):
        with pytest.raises(NotImplementedError) as error:
            call()
        assert re.match("Virtual GPUs support strided tensors and", str(error.value))


X, LABELS = torch.randn(3, 5), torch.tensor([0, 7, 1])


@pytest.mark.parametrize(
    "call",
    [
        lambda X, labels: F.cross_entropy(X, labels),
        lambda X, labels: F.nll_loss(X.reshape(1, 3, 5), labels.repeat(1, 5)[:, :5]),
        lambda X, labels: F.embedding(labels, X),
        lambda X, labels: X.gather(1, labels[:, None]),
        lambda X, labels: X[labels],
        lambda X, labels: X.index_select(0, labels),
        lambda X, labels: X.take(labels + 99),
        lambda X, labels: X.scatter_(1, labels[:, None], 1.0),
        lambda X, labels: X.index_put_((labels,), X + 1),
        lambda X, labels: X.index_add_(0, labels, X.clone()),
        lambda X, labels: F.binary_cross_entropy(X * 9, X),
        lambda X, labels: torch.multinomial(X - 9, 1),
    ],
)
def test_a_wrong_value_is_an_assertion_of_the_kernel(call):
    with pytest.raises((IndexError, RuntimeError)) as here:
        call(X.clone(), LABELS)
    for i in range(2):
        with pytest.raises(torch.AcceleratorError) as there:
            call(X.to(gpu(i)), LABELS.to(gpu(i)))
        assert str(there.value).startswith(
            f"vgpu error: device-side assert triggered: {str(here.value).rstrip('.')}. "
        )
    assert torch.ones(2, device=gpu(0)).sum() == 2  # devices go on, unlike real ones


@pytest.mark.parametrize(("labels", "classes"), [([1, 3], 3), ([-1, 0], 3)])
def test_a_class_out_of_range_has_no_row_of_zeros(labels, classes):
    labels = torch.tensor(labels)
    with pytest.raises(RuntimeError, match="Class values must be"):
        F.one_hot(labels, classes)
    with pytest.raises(torch.AcceleratorError, match="device-side assert triggered"):
        F.one_hot(labels.to(gpu(1)), classes)


@pytest.mark.parametrize(
    "call",
    [
        lambda X, labels: X[7],
        lambda X, labels: X.index_select(7, labels),
        lambda X, labels: X.gather(1, labels),
        lambda X, labels: X.narrow(0, 2, 9),
        lambda X, labels: F.cross_entropy(X, labels[:2]),
        lambda X, labels: F.one_hot(labels.float()),
        lambda X, labels: X.tensor_split(labels.cpu().float()),
        lambda X, labels: X.tensor_split(labels.cpu()[None]),
        lambda X, labels: X.tensor_split(labels.cpu(), 2),
        lambda X, labels: F.one_hot(labels[:0]),
        lambda X, labels: F.one_hot(labels[:0], 0),
    ],
)
def test_a_wrong_number_or_shape_is_the_same_error_as_on_the_cpu(call):
    with pytest.raises((IndexError, RuntimeError, ValueError)) as here:
        call(X, LABELS)
    with pytest.raises(type(here.value)) as there:
        call(X.to(gpu(1)), LABELS.to(gpu(1)))
    assert str(there.value) == str(here.value)
