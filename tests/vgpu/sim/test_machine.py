"""The simulated machine by itself: memory and the log of copies, without torch."""

import pytest

from d2l_gpu.vgpu.sim import machine as m
from d2l_gpu.vgpu.sim.catalogue import LINKS, MODELS
from d2l_gpu.vgpu.sim.clock import NOTES, Clock, Work


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
    clock = Clock({0: MODELS["V100"]}, LINKS["NVLink2"], lambda key: Work("k", []))
    machine = m.Machine(1, capacity=1024, clock=clock)
    for _ in range(2 * NOTES + 7):
        machine.kernel_issued(0, ("k", 1))
    assert len(clock.notes) == 7
    assert machine.kernels == [2 * NOTES + 7]
    assert len(clock.spans) == 2 * NOTES
