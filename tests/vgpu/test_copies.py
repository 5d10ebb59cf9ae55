"""Copies: how many bytes cross, and what shares memory with what."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d2l_gpu import vgpu
from d2l_gpu.vgpu.sim.machine import HOST
from tests.helpers.properties import sizes

pytestmark = pytest.mark.virtual_gpus(3)

PLACES = [HOST, 0, 1, 2]
TYPES = [torch.float32, torch.float64, torch.float16, torch.int64, torch.uint8]


def name_of(place: int) -> str:
    return "cpu" if place == HOST else f"vgpu:{place}"


# ------------------------------------------------------------------ bytes that cross


@given(
    source=st.sampled_from(PLACES),
    target=st.sampled_from(PLACES),
    types=st.tuples(st.sampled_from(TYPES), st.sampled_from(TYPES)),
    n=sizes(),
    in_place=st.booleans(),
    late=st.booleans(),
)
def test_what_crosses_is_converted_where_it_comes_from_but_on_the_host_at_its_end(
    source, target, types, n, in_place, late
):
    before, after = types
    x = torch.arange(n, dtype=before, device=name_of(source))
    y = torch.empty(n, dtype=after, device=name_of(target))
    with vgpu.record_copies() as copies:
        if in_place:
            y.copy_(x, non_blocking=late)
        else:
            y = x.to(name_of(target), after, non_blocking=late)
    assert (y.dtype, y.device) == (after, torch.device(name_of(target)))
    assert torch.equal(y.cpu(), torch.arange(n, dtype=before).to(after))
    # The host computes for both directions; of two GPUs, the one that is read from.
    crossing = before if target == HOST else after
    expected = [(source, target, n * crossing.itemsize)]
    if source == target or not n:
        expected = []
    assert [(each.source, each.target, each.nbytes) for each in copies] == expected


@pytest.mark.parametrize("number", [3, 2.5, True, float("nan")])
@pytest.mark.parametrize("dtype", TYPES)
def test_a_number_is_copied_into_a_tensor_as_on_the_cpu(number, dtype):
    if number != number and not dtype.is_floating_point:
        pytest.skip("only floating-point numbers can be NaN")
    expected = torch.zeros(2, 3, dtype=dtype).copy_(number)
    with vgpu.record_copies() as copies:
        actual = torch.zeros(2, 3, dtype=dtype, device="vgpu:1").copy_(number)
    assert torch.equal(actual.cpu().nan_to_num(7), expected.nan_to_num(7))
    assert [(copy.source, copy.target) for copy in copies] == [(HOST, 1)]


# ------------------------------------------------------------------ shared memory

WAYS = {
    "clone": torch.clone,
    "contiguous": torch.Tensor.contiguous,
    "contiguous, transposed": lambda x: x.t().contiguous(),
    "data": lambda x: x.data,
    "deepcopy": copy.deepcopy,
    "detach": torch.detach,
    "flatten": torch.flatten,
    "flatten, transposed": lambda x: x.t().flatten(),
    "float": torch.Tensor.float,
    "double": torch.Tensor.double,
    "index": lambda x: x[torch.tensor([0, 1], device=x.device)],
    "new": lambda x: x.new(x),
    "new_tensor": lambda x: x.new_tensor(x.detach()),
    "parameter": lambda x: torch.nn.Parameter(x).data,
    "part": lambda x: x[1:, 2],
    "reshape": lambda x: x.reshape(4, 3),
    "split": lambda x: x.split(2)[1],
    "squeeze": torch.squeeze,
    "stack": lambda x: torch.stack([x, x]),
    "as_tensor": torch.as_tensor,
    "to": lambda x: x.to(x.device),
    "to, copied": lambda x: x.to(x.device, copy=True),
    "to, type": lambda x: x.to(torch.float32),
    "type": lambda x: x.type(torch.float32),
    "type_as": lambda x: x.type_as(x),
    "view": lambda x: x.view(12),
    "view, bits": lambda x: x.view(torch.int32).view(torch.float32),
}


def after_writing(device: str, way) -> list[list]:
    """Write into a tensor and into what was made of it; return what each became."""
    found = []
    for i in range(2):
        x = torch.arange(12.0, device=device).reshape(3, 4)
        both = x, way(x)
        both[i].view(-1)[:1].fill_(100) if both[i].is_contiguous() else None
        both[i].data[..., -1] = 50
        found.append([each.tolist() for each in both])
    return found


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_what_shares_memory_on_the_cpu_shares_it_and_nothing_else_does(way):
    assert after_writing("vgpu:1", way) == after_writing("cpu", way)
