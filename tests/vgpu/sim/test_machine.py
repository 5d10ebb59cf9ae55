"""The simulated machine by itself: memory and the log of copies, without torch."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d2l_gpu.vgpu.sim import machine as m
from d2l_gpu.vgpu.sim.catalogue import LINKS, MODELS
from d2l_gpu.vgpu.sim.clock import NOTES, Clock
from tests.helpers.properties import sizes

BLOCK = 512


def in_blocks(nbytes: int) -> int:
    return -(-nbytes // BLOCK) * BLOCK


# What a program does with memory, and on which device, with how many bytes, and with
# which of its allocations.
STEP = st.tuples(
    st.sampled_from(["new", "new", "resize", "free"]),
    sizes(most=2),
    sizes(most=5 * BLOCK) | sizes(most=5).map(lambda blocks: blocks * BLOCK),
    sizes(),
)


@settings(max_examples=100)
@given(
    capacities=st.lists(sizes(1, 9), min_size=1, max_size=3),
    odd=sizes(most=BLOCK - 1),
    first=sizes(most=2),
    steps=st.lists(STEP, max_size=20),
)
def test_the_account_is_that_of_all_that_lives(capacities, odd, first, steps):
    capacities = [BLOCK * capacity + odd for capacity in capacities]
    n, living = len(capacities), []
    machine = m.Machine(n, capacities, first=first)
    peak = [0] * (first + n)

    def used() -> list[int]:
        found = [0] * (first + n)
        for _, i, nbytes in living:
            found[i] += in_blocks(nbytes)
        return found

    def fits(i: int, nbytes: int, instead_of: int = 0) -> bool:
        more = in_blocks(nbytes) - in_blocks(instead_of)
        return more <= 0 or used()[i] + more <= capacities[i - first]

    for what, i, nbytes, which in steps:
        i, place = first + i % n, which % (len(living) or 1)
        if what == "new" and fits(i, nbytes):
            machine.reserve(i, nbytes)
            living.append((machine.charge(i, nbytes), i, nbytes))
        elif what == "new":
            for refuses in (machine.reserve, machine.charge):
                with pytest.raises(MemoryError):
                    refuses(i, nbytes)
        elif what == "resize" and living:
            charge, i, old = living[place]
            if fits(i, nbytes, old):
                charge.resize(nbytes)
                living[place] = charge, i, nbytes
            else:
                with pytest.raises(MemoryError):
                    charge.resize(nbytes)
            del charge
        elif living:
            del living[place]
        peak = list(map(max, peak, used()))
        assert machine.used == used()
        assert machine.peak == peak
        assert [machine.free(first + i) for i in range(n)] == [
            capacity - used()[first + i] for i, capacity in enumerate(capacities)
        ]
    living.clear()
    assert machine.used == [0] * (first + n)


def test_what_does_not_fit_is_refused_with_what_is_free():
    machine = m.Machine(1, capacity=1024)
    kept = machine.charge(0, 600)
    with pytest.raises(MemoryError, match=r"GPU 0 .* of which 0 bytes is free"):
        machine.charge(0, 1)
    del kept


def test_more_than_the_host_has_left_is_refused():
    machine = m.Machine(1, capacity=2**50, memory_left=lambda: 2**30)
    machine.reserve(0, 2**29)
    with pytest.raises(MemoryError, match=r"host's memory, of which only 1024.00 MiB"):
        machine.reserve(0, 2**31)


def test_copies_are_logged_while_somebody_records():
    machine = m.Machine(2, capacity=1024)
    machine.bytes_moved(m.HOST, 0, 1)
    with machine.record_copies() as outer:
        machine.bytes_moved(m.HOST, 0, 24)
        with machine.record_copies() as inner:
            machine.bytes_moved(0, 1, 8, blocking=False)
        machine.bytes_moved(1, m.HOST, 0)  # nothing moves, nothing is logged
    machine.bytes_moved(0, 1, 8)
    assert outer == [m.Copy(24, m.HOST, 0), m.Copy(8, 0, 1, blocking=False)]
    assert inner == [m.Copy(8, 0, 1, blocking=False)]


def test_notes_for_the_clock_are_worked_off_before_they_are_many():
    clock = Clock({0: MODELS["V100"]}, LINKS["NVLink2"], lambda key: ("k", []))
    machine = m.Machine(1, capacity=1024, clock=clock)
    for _ in range(2 * NOTES + 7):
        machine.kernel_issued(0, ("k", 1))
    assert len(clock.notes) == 7
    assert machine.kernels == [2 * NOTES + 7]
    assert len(clock.spans) == 2 * NOTES
