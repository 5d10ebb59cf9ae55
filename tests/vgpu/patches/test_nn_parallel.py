"""``torch.nn.parallel``: what is spread over devices, and what comes back."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import parallel
from torch.nn.parallel import comm

from tests.helpers.properties import orders, sizes

DEVICES = 4

pytestmark = pytest.mark.virtual_gpus(DEVICES)


def places(parts) -> list[int]:
    return [part.device.index for part in parts]


@given(
    order=orders(DEVICES),
    shape=st.lists(sizes(1, 7), min_size=1, max_size=3),
    dim=sizes(most=2),
    source=sizes(-1, DEVICES - 1),
)
def test_a_tensor_is_divided_along_its_dimension_and_comes_back(
    order, shape, dim, source
):
    dim %= len(shape)
    plain = torch.rand(shape)
    whole = plain if source < 0 else plain.to(f"vgpu:{source}")
    parts = parallel.scatter(whole, order, dim)
    expected = plain.chunk(len(order), dim)
    assert places(parts) == order[: len(expected)]
    for part, own in zip(parts, expected, strict=True):
        assert torch.equal(part.cpu(), own)
    back = parallel.gather(parts, order[0], dim)
    assert back.device.index == order[0]
    assert torch.equal(back.cpu(), plain)


@given(order=orders(DEVICES), given_sizes=st.data(), dim=sizes(most=1))
def test_parts_have_the_sizes_that_are_asked_for(order, given_sizes, dim):
    chunks = given_sizes.draw(
        st.lists(sizes(1, 5), min_size=len(order), max_size=len(order))
    )
    shape = [2, 2]
    shape[dim] = sum(chunks)
    plain = torch.rand(shape)
    parts = comm.scatter(plain, order, chunks, dim)
    assert places(parts) == order
    assert [part.size(dim) for part in parts] == chunks
    assert torch.equal(torch.cat([part.cpu() for part in parts], dim), plain)
    out = [torch.empty_like(part) for part in parts]
    comm.scatter(plain, out=out, dim=dim)
    for part, own in zip(out, parts, strict=True):
        assert torch.equal(part.cpu(), own.cpu())


@given(order=orders(DEVICES), count=sizes(1, 4))
def test_every_device_gets_every_tensor_and_the_sum_of_all(order, count):
    plain = [torch.rand(2, 3) for _ in range(count)]
    tensors = [x.to(f"vgpu:{order[0]}") for x in plain]
    copies = comm.broadcast_coalesced(tensors, order)
    assert [places(own) for own in copies] == [[i] * count for i in order]
    for own in copies:
        assert all(torch.equal(x.cpu(), y) for x, y in zip(own, plain, strict=True))
    sums = comm.reduce_add_coalesced(copies, order[-1])
    assert places(sums) == [order[-1]] * count
    for x, total in zip(plain, sums, strict=True):
        torch.testing.assert_close(total.cpu(), len(order) * x)
