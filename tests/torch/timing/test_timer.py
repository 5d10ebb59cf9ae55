"""Time is measured from start to stop, on all devices that are named."""

import time

import pytest

from d2l_gpu import torch as d2l
from tests.helpers.fresh_process import run_program


def test_a_timer_runs_from_its_making_and_records_every_stop():
    timer = d2l.Timer()
    time.sleep(0.02)
    first = timer.stop()
    before = time.perf_counter()
    timer.start()
    second = timer.stop()
    assert first >= 0.02
    assert 0 <= second <= time.perf_counter() - before  # and not since its making
    assert timer.times == [first, second]
    assert timer.sum() == first + second
    assert timer.avg() == (first + second) / 2
    assert timer.cumsum() == [first, first + second]


def test_stopping_a_timer_that_is_not_running_is_an_error():
    timer = d2l.Timer()
    timer.stop()
    with pytest.raises(RuntimeError, match=r"call start\(\) first"):
        timer.stop()


def test_an_average_of_nothing_is_an_error():
    with pytest.raises(RuntimeError, match="recorded nothing"):
        d2l.Timer().avg()


def test_every_device_is_waited_for_before_the_clock_is_read():
    out = run_program("timer/every_device_is_waited_for.py")
    both = "['vgpu:0', 'vgpu:1']"
    assert out.splitlines()[1:] == [both, both, "['vgpu:1']"]


def test_simulated_times_name_the_devices_that_were_timed_and_no_others():
    sim = d2l.simulator(2, ["V100", "T4"], backing="meta")
    labels = [d2l.Timer(x, simulated=True).label for x in (sim.gpu(0), sim.gpu(1))]
    assert labels == ["simulated (V100)", "simulated (T4)"]
    assert d2l.Timer(sim.gpus(), simulated=True).label == "simulated (V100, T4)"
