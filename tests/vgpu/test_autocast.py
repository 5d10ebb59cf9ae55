"""Inside ``torch.autocast``, operators compute in the types that they do for CUDA."""

import re
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from d2l_gpu import vgpu
from d2l_gpu.vgpu import autocast
from d2l_gpu.vgpu.records import RECORDS

LISTED = {name: record.autocast for name, record in RECORDS.items() if record.autocast}
# On CUDA the operators of cuDNN below these are on the list.
RECURRENT = {
    f"{kind}.{way}"
    for kind in ("gru", "lstm", "rnn_relu", "rnn_tanh")
    for way in ("data", "input")
}
HALVES = torch.float16, torch.bfloat16


def test_the_operators_are_those_that_pytorch_casts_for_cuda():
    casts = torch._C._dispatch_has_kernel_for_dispatch_key
    expected = {
        name.removeprefix("aten::")
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::") and casts(name, "AutocastCUDA")
    }
    expected = {name for name in expected if "cudnn" not in name}
    assert set(LISTED) == expected | RECURRENT


HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
LISTS = {
    "LOWER_PRECISION_FP": autocast.lower,
    "FP32": autocast.float32,
    "FP32_SET_OPT_DTYPE": autocast.into_float32,
    "PROMOTE": autocast.widest,
}


@pytest.mark.skipif(not HEADER.exists(), reason="this PyTorch comes without headers")
@pytest.mark.parametrize("name", LISTS)
def test_each_operator_is_on_pytorchs_list(name):
    text = HEADER.read_text("utf-8").replace("\\\n", "\n")
    (body,) = re.findall(rf"#define AT_FORALL_{name}\(_\)(.*?)\n\s*\n", text, re.DOTALL)
    listed = {
        f"{operator}.{overload}" if overload else operator
        for operator, overload in re.findall(r"_\((\w+)(?:, (\w+))?\)", body)
    }
    assert len(listed) > 9
    ours = {x for x, kernel in LISTED.items() if kernel is LISTS[name]}
    assert ours - RECURRENT == listed


# How to call one operator of each kind with tensors of any types, and the type of the
# result as a function of the lower precision and of the widest of those tensors.
CALLS = {
    "product": (lambda x, y: x @ y, lambda low, wide: low),
    "einsum": (lambda x, y: torch.einsum("ij,jk", x, y), lambda low, wide: low),
    "linear": (F.linear, lambda low, wide: low),
    "exp": (lambda x, y: (x + y).exp(), lambda low, wide: torch.float32),
    "power": (lambda x, y: (x + y) ** 2, lambda low, wide: torch.float32),
    "norm": (lambda x, y: (x + y).norm(), lambda low, wide: torch.float32),
    "rows": (lambda x, y: (x + y).norm(dim=1), lambda low, wide: torch.float32),
    "columns": (
        lambda x, y: torch.norm(x + y, 1, 0, keepdim=True),
        lambda low, wide: torch.float32,
    ),
    "softmax": (lambda x, y: (x + y).softmax(1), lambda low, wide: torch.float32),
    "sum": (lambda x, y: (x + y).sum(), lambda low, wide: torch.float32),
    "told": (lambda x, y: (x + y).sum(dtype=torch.half), lambda low, wide: torch.half),
    "running": (lambda x, y: (x + y).cumsum(0), lambda low, wide: torch.float32),
    "loss": (F.mse_loss, lambda low, wide: torch.float32),
    "ratio": (
        lambda x, y: torch.addcdiv(x, y, y),
        lambda low, wide: torch.float32 if wide is torch.float32 else low,
    ),
    "stack": (lambda x, y: torch.cat([x, y]), lambda low, wide: wide),
    "other": (lambda x, y: (x + y).relu(), lambda low, wide: wide),
}


@pytest.mark.virtual_gpus(2)
@given(
    call=st.sampled_from(sorted(CALLS)),
    low=st.sampled_from(HALVES),
    types=st.lists(st.booleans(), min_size=2, max_size=2),
    index=st.integers(0, 1),
)
def test_the_type_of_a_result_depends_on_the_operator(call, low, types, index):
    first, second = (torch.float32 if wide else low for wide in types)
    x = torch.rand(4, 4).add(1).to(first)
    y = torch.rand(4, 4).add(1).to(second)
    function, expected = CALLS[call]
    with torch.autocast("vgpu", dtype=low):
        result = function(x.to(f"vgpu:{index}"), y.to(f"vgpu:{index}"))
    wide = torch.promote_types(first, second)
    assert result.dtype is expected(low, wide)
    assert result.device == torch.device("vgpu", index)
    plain = function(x.double(), y.double())
    torch.testing.assert_close(result.cpu().double(), plain.double(), rtol=0.1, atol=1)


@pytest.mark.virtual_gpus(1)
@pytest.mark.parametrize("call", ["product", "exp", "norm", "softmax", "loss", "ratio"])
def test_doubles_stay_and_nothing_changes_outside(call):
    function, _ = CALLS[call]
    X = torch.rand(3, 3, dtype=torch.float64, device="vgpu")
    with torch.autocast("vgpu", dtype=torch.bfloat16):
        assert function(X, X).dtype is torch.float64
        with torch.autocast("vgpu", enabled=False):
            half = X.bfloat16() + 1
            assert function(half, half).dtype is torch.bfloat16
    half = X.bfloat16() + 1
    assert function(half, half).dtype is torch.bfloat16
    on_cpu = torch.rand(3, 3)
    with torch.autocast("vgpu", dtype=torch.bfloat16):
        assert function(on_cpu, on_cpu).dtype is torch.float32


@pytest.mark.virtual_gpus(1)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_compute_in_the_lower_precision(kind):
    layer = kind(3, 4).to("vgpu")
    with torch.autocast("vgpu", dtype=torch.bfloat16):
        outputs, _ = layer(torch.rand(5, 2, 3, device="vgpu"))
    assert outputs.dtype is torch.bfloat16
    outputs.float().sum().backward()
    assert all(p.grad.dtype is torch.float32 for p in layer.parameters())


@pytest.mark.virtual_gpus(1)
def test_a_loss_whose_gradient_overflows_is_refused():
    scores = torch.rand(3, device="vgpu")
    with (
        torch.autocast("vgpu", dtype=torch.float16),
        pytest.raises(RuntimeError, match="unsafe to autocast"),
    ):
        F.binary_cross_entropy(scores, scores)
    assert F.binary_cross_entropy(scores, scores) > 0


# ------------------------------------------------------------------ kept copies


def casts(sim) -> int:
    uses = sim.report().devices[0].operators
    return sum(use.calls for use in uses if use.name == "copy_")


@pytest.mark.virtual_gpus(1)
@pytest.mark.parametrize(("kept", "expected"), [(True, 1), (False, 5)])
def test_a_parameter_is_cast_once_however_often_it_is_used(kept, expected):
    sim = vgpu.simulator(1)
    W = nn.Parameter(torch.rand(8, 8, device=sim.gpu(0)))
    X = torch.rand(8, 8, device=sim.gpu(0)).bfloat16()
    sim.reset()
    with torch.autocast("vgpu", dtype=torch.bfloat16, cache_enabled=kept):
        for _ in range(5):
            X = X @ W
    assert casts(sim) == expected


@pytest.mark.virtual_gpus(1)
def test_after_an_optimizers_step_the_new_parameter_counts():
    net = nn.Linear(3, 3, bias=False).to("vgpu")
    X = torch.eye(3, device="vgpu")
    before = torch.vgpu.memory_allocated()
    for step in range(3):
        with torch.no_grad():
            net.weight.fill_(step)
        with torch.autocast("vgpu", dtype=torch.float16):
            assert net(X).unique().tolist() == [step]
    assert torch.vgpu.memory_allocated() == before


@pytest.mark.virtual_gpus(1)
def test_an_inner_context_of_another_type_casts_anew():
    W = nn.Parameter(torch.rand(3, 3, device="vgpu"))
    X = torch.eye(3, device="vgpu")
    with torch.autocast("vgpu", dtype=torch.float16):
        assert (X @ W).dtype is torch.float16
        with torch.autocast("vgpu", dtype=torch.bfloat16):
            assert (X @ W).dtype is torch.bfloat16
        assert (X @ W).dtype is torch.float16
