"""Layouts that are remembered are those that PyTorch computes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from d2l_gpu import vgpu

CALLS = {
    "add": lambda x, y: x + y,
    "add a number": lambda x, y: x + 1.5,
    "add an integer": lambda x, y: x + 2,
    "add a float that equals it": lambda x, y: x + 2.0,
    "divide": lambda x, y: x / y,
    "compare": lambda x, y: x > y,
    "compare with a number": lambda x, y: x == 0,
    "square root": lambda x, y: x.sqrt(),
    "sum": lambda x, y: x.sum(),
    "sum of rows": lambda x, y: x.sum(0),
    "sum of rows, kept": lambda x, y: x.sum(0, keepdim=True),
    "product": lambda x, y: x @ y.mT,
    "power": lambda x, y: x**2,
    "clone": lambda x, y: x.clone(),
    "argmax": lambda x, y: x.argmax(-1),
    "where it is 0": lambda x, y: x.masked_fill(y == 0, 1),
    "one of two": lambda x, y: torch.where(x > 0, x, y),
    "product and sum": lambda x, y: torch.addmm(x, x, y.mT),
    "scaled product and sum": lambda x, y: torch.addmm(x, x, y.mT, alpha=2, beta=3),
    "largest": lambda x, y: x.max(dim=0).indices,
    "sorted": lambda x, y: x.sort(dim=-1)[0],
    "one after the other": lambda x, y: torch.cat([x, y]),
    "side by side": lambda x, y: torch.cat([x, y], 1),
    "normalized": lambda x, y: F.layer_norm(x, (y.shape[1],)),
    "normalized and scaled": lambda x, y: F.layer_norm(x, y.shape[1:], y[0], y[0]),
    "mean and variance": lambda x, y: torch.var_mean(x, 0)[1],
    "rows": lambda x, y: x[torch.zeros(4, dtype=torch.int64, device=x.device)],
    "another type": lambda x, y: x.to(torch.float64),
}
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool]
TENSOR = st.tuples(
    st.integers(1, 3), st.integers(1, 3), st.sampled_from(DTYPES), st.booleans()
)


def make(drawn, device):
    rows, columns, dtype, transposed = drawn
    x = torch.empty(rows, columns, dtype=dtype, device=device)
    return x.t() if transposed else x


def layout(call, tensors, default):
    """Return the layout of a result, or what kind of error there is."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        found = call(*tensors)
        return found.shape, found.stride(), found.dtype
    except (IndexError, NotImplementedError, RuntimeError) as error:
        return RuntimeError if isinstance(error, RuntimeError) else type(error)
    finally:
        torch.set_default_dtype(before)


@pytest.fixture(scope="module")
def device():
    simulator = vgpu.simulator(1, backing="meta")
    yield simulator.gpu()
    simulator.close()


@settings(max_examples=60)
@given(tensors=st.tuples(TENSOR, TENSOR))
def test_a_result_has_the_layout_that_pytorch_gives_it(device, tensors):
    for name, call in CALLS.items():
        for default in (torch.float32, torch.float64):
            expected = layout(call, [make(x, "meta") for x in tensors], default)
            for _ in range(2):  # computed, then remembered
                found = layout(call, [make(x, device) for x in tensors], default)
                assert found == expected, name


@settings(max_examples=30)
@given(rows=st.integers(1, 4), columns=st.integers(1, 4))
def test_results_are_in_the_memory_that_pytorch_gives_them(device, rows, columns):
    """A layer on tensors of three dimensions is a product whose result is viewed."""
    W = torch.empty(128 * columns, 128, device=device)
    X = torch.empty(2, 128 * rows, W.shape[1], device=device)
    for call in (lambda: F.linear(X, W), lambda: X @ W.T, lambda: X.relu() @ W.T):
        peaks = []
        for _ in range(3):  # computed, then remembered
            before = torch.vgpu.memory_allocated(device)
            torch.vgpu.reset_peak_memory_stats(device)
            result = call()
            peaks.append(torch.vgpu.max_memory_allocated(device) - before)
            assert torch.vgpu.memory_allocated(device) - before == result.nbytes
            del result
        assert peaks == peaks[:1] * 3
