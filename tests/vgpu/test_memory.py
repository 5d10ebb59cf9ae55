"""The memory of virtual GPUs: all of it can be used, and all of it comes back."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.helpers.properties import DEVICES, orders, sizes

BLOCK, BLOCKS = 512, 12
CAPACITY = BLOCK * BLOCKS

pytestmark = pytest.mark.virtual_gpus(DEVICES, memory=CAPACITY)


@pytest.fixture(autouse=True, scope="module")
def warm():
    # The first of PyTorch's own operators on shapes alone imports modules, which keep
    # the frames of its callers until the garbage collector runs.
    torch.cat([torch.ones(2, device="meta")])


def used() -> list[int]:
    return [torch.vgpu.memory_allocated(i) for i in range(DEVICES)]


def in_blocks(nbytes: int) -> int:
    return -(-nbytes // BLOCK) * BLOCK


# Ways to n elements that take no more memory than the result does; ``one`` is a single
# element on the device, ``there`` one on another device.
WAYS = {
    "empty": lambda n, one, there: one.new_empty(n),
    "zeros": lambda n, one, there: torch.zeros(n, dtype=one.dtype, device=one.device),
    "from the host": lambda n, one, there: torch.zeros(n, dtype=one.dtype).to(
        one.device
    ),
    "from another": lambda n, one, there: there.expand(n).to(one.device),
    "copied": lambda n, one, there: one.expand(n).contiguous(),
    "cloned": lambda n, one, there: one.expand(n).clone(),
    "added": lambda n, one, there: one.expand(n) + 1,
    "multiplied": lambda n, one, there: one.expand(n) * one,
    "joined": lambda n, one, there: torch.cat(
        [one.expand(n // 3)] * 3 + [one] * (n % 3)
    ),
    "repeated": lambda n, one, there: one.repeat(n),
    "looked up": lambda n, one, there: one[torch.zeros(n, dtype=torch.long)],
    "padded": lambda n, one, there: nn.functional.pad(one, (0, n - 1)),
    "out": lambda n, one, there: torch.add(one.expand(n), 1, out=one.new_empty(0)),
    "resized": lambda n, one, there: one.new_empty(0).resize_(n),
    "storage": lambda n, one, there: (
        one.new_empty(0).untyped_storage().resize_(n * one.element_size())
    ),
}


@settings(max_examples=25)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@given(
    order=orders().filter(lambda order: len(order) > 1),
    taken=st.lists(sizes(most=2 * BLOCK), max_size=5),
    dtype=st.sampled_from([torch.uint8, torch.int16, torch.float32, torch.float64]),
)
def test_memory_can_be_used_to_the_last_byte_and_no_further(way, order, taken, dtype):
    here, other = order[:2]
    ballast = [torch.empty(n, dtype=torch.uint8, device=f"vgpu:{here}") for n in taken]
    one = torch.zeros(1, dtype=dtype, device=f"vgpu:{here}")
    there = torch.zeros(1, dtype=dtype, device=f"vgpu:{other}")
    before = used()
    assert before[here] == sum(map(in_blocks, taken)) + BLOCK
    room = CAPACITY - before[here]
    assert torch.vgpu.mem_get_info(here) == (room, CAPACITY)
    most = room // one.element_size()
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError):
            way(most + 1, one, there)
        assert used() == before
        if most:
            result = way(most, one, there)
            assert torch.vgpu.mem_get_info(here) == (0, CAPACITY)
            assert torch.vgpu.max_memory_allocated(here) == CAPACITY
            del result
        assert used() == before
    del ballast, one, there
    assert used() == [0] * DEVICES


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["take", "take", "drop", "reset"]),
            sizes(most=DEVICES - 1),
            sizes(most=3 * BLOCK),
        ),
        max_size=20,
    )
)
def test_the_peak_is_the_most_in_use_since_its_reset_and_never_less_than_now(steps):
    living = []
    for i in range(DEVICES):
        torch.vgpu.reset_peak_memory_stats(i)
    peaks = used()
    for what, i, n in steps:
        if what == "take" and in_blocks(n) <= torch.vgpu.mem_get_info(i)[0]:
            living.append(torch.empty(n, dtype=torch.uint8, device=f"vgpu:{i}"))
        elif what == "drop" and living:
            del living[n % len(living)]
        elif what == "reset":
            torch.vgpu.reset_peak_memory_stats(i)
            peaks[i] = used()[i]
        peaks = list(map(max, peaks, used()))
        found = [torch.vgpu.max_memory_allocated(i) for i in range(DEVICES)]
        assert found == peaks


# Ways to one or more tensors that share the memory of another.
VIEWS = [
    lambda X: [X.view(X.shape)],
    lambda X: [X.detach()],
    lambda X: [X.t()] if X.dim() == 2 else [X[None]],
    lambda X: [X[..., ::2]],
    lambda X: [X[:0]],
    lambda X: list(X.unbind()),
    lambda X: list(X.split(2)),
    lambda X: [X.unsqueeze(0).expand(7, *X.shape)],
    lambda X: [X.to(X.device)],
    lambda X: [X.data],
    lambda X: [nn.Parameter(X.detach())],
    lambda X: [X.view(torch.uint8)] if X.stride()[-1:] == (1,) else [X],
    lambda X: [torch.as_strided(X, (1,), (1,), 0)] if X.numel() else [X],
]


@settings(max_examples=100)
@given(
    bases=st.lists(
        st.tuples(sizes(most=DEVICES - 1), sizes(1, 9), sizes(1, 23)),
        min_size=1,
        max_size=4,
    ),
    views=st.lists(st.tuples(sizes(), st.sampled_from(VIEWS)), max_size=12),
    drops=st.lists(sizes(), max_size=20),
)
def test_memory_counts_once_for_all_that_share_it_until_the_last_is_gone(
    bases, views, drops
):
    living = [
        (torch.ones(m, n, device=f"vgpu:{i}"), base)
        for base, (i, m, n) in enumerate(bases)
    ]

    def expected() -> list[int]:
        found = [0] * DEVICES
        for base in {base for _, base in living}:
            i, m, n = bases[base]
            found[i] += in_blocks(4 * m * n)
        return found

    assert used() == expected()
    for which, view in views:
        X, base = living[which % len(living)]
        living += zip(view(X) if X.dim() else [X], itertools.repeat(base))
        assert used() == expected()
    X = None
    for which in drops:
        if living:
            del living[which % len(living)]
        assert used() == expected()
    living.clear()
    assert used() == [0] * DEVICES


def test_statistics_count_allocations_and_refusals_on_each_device():
    kept, before = [], [torch.vgpu.memory_stats(i) for i in range(DEVICES)]
    for device in range(DEVICES):
        for _ in range(device + 1):
            kept.append(torch.empty(BLOCK, dtype=torch.uint8, device=device))
            kept.append(kept[-1][1:])  # a view allocates nothing
            with pytest.raises(torch.OutOfMemoryError):
                torch.empty(2 * CAPACITY, dtype=torch.uint8, device=device)
    for device in range(DEVICES):
        stats = torch.vgpu.memory_stats(device)
        assert stats["allocated_bytes.all.current"] == BLOCK * (device + 1)
        for name in ("allocation.all.allocated", "num_ooms"):
            assert stats[name] - before[device][name] == device + 1, name


@given(
    blocks=st.integers(1, BLOCKS),
    limit=st.integers(0, BLOCKS),
    new=st.integers(0, 6000),
)
def test_a_lowered_limit_refuses_what_needs_memory_and_nothing_else(blocks, limit, new):
    X = torch.ones(blocks * BLOCK, dtype=torch.uint8, device="vgpu:3")
    torch.vgpu.set_per_process_memory_fraction(limit / BLOCKS, 3)
    try:
        torch.empty(0, device="vgpu:3"), torch.ones(0, 5, device="vgpu:3"), X[1:]
        fits = in_blocks(new) <= max(limit, blocks) * BLOCK
        storage = X.untyped_storage()
        if fits:
            storage.resize_(new)
        else:
            with pytest.raises(torch.OutOfMemoryError):
                storage.resize_(new)
        kept = new if fits else blocks * BLOCK
        assert (storage.nbytes(), used()[3]) == (kept, in_blocks(kept))
    finally:
        torch.vgpu.set_per_process_memory_fraction(1.0, 3)
