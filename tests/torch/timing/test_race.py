"""One product of two matrices: measured on this machine, simulated on others."""

import re

import pytest
import torch

from d2l_gpu import torch as d2l
from d2l_gpu import vgpu
from d2l_gpu.torch.timing import race as module
from d2l_gpu.torch.timing.race import RUNNERS
from tests.helpers.fresh_process import run_program

pytestmark = pytest.mark.virtual_gpus(2)

GPUS = [name for name in RUNNERS if vgpu.MODELS[name].asynchronous]


class Stopwatch:
    """Stands for a timer: every product takes a second."""

    starts = 0

    def __init__(self, device):
        pass

    def start(self):
        Stopwatch.starts += 1

    def stop(self):
        return 1.0


@pytest.fixture
def a_second_each(monkeypatch):
    monkeypatch.setattr(module, "Timer", Stopwatch)
    monkeypatch.setattr(Stopwatch, "starts", 0)


def test_this_machine_is_measured_and_the_models_are_simulated():
    race = d2l.race(128)
    assert next(iter(race.seconds)) == "this CPU"
    assert [*race.seconds][-len(RUNNERS) :] == [*RUNNERS]
    assert all(0 < seconds < 1 for seconds in race.seconds.values())
    assert race.operations == 2 * 128**3
    assert race.rate("T4") == race.operations / race.seconds["T4"]
    head, *lines = repr(race).splitlines()
    assert head.split() == ["time", "speed"]
    for line, name in zip(lines, race.seconds, strict=True):
        assert line.startswith(name)
        assert line.endswith("  simulated") == (name in RUNNERS)
        assert ("  measured (" in line) == (name not in RUNNERS)


def test_simulated_lines_are_the_same_every_time_and_beside_any_measurement():
    first, second = (repr(d2l.race(64, budget=b)).splitlines() for b in (4, 1e-9))
    assert first[0] == second[0]
    assert first[2:] == second[2:]


def test_large_products_come_close_to_the_peak_and_small_ones_do_not():
    large, small = d2l.race(4096, budget=1e-6), d2l.race(32)
    for name in RUNNERS:
        peak = vgpu.MODELS[name].rates["fp32"]
        assert 0.75 < large.rate(name) / peak < 1
        assert small.rate(name) / peak < 0.03
    times = [small.seconds[name] for name in GPUS]
    assert max(times) < 1.2 * min(times)  # it isn't the arithmetic that takes long


def test_pictures_tell_processors_from_gpus():
    kinds = d2l.race(8).kinds
    hosts = {"this CPU", "Xeon E5-2698 v4"}
    assert kinds == {n: "host" if n in hosts else "compute" for n in kinds}


@pytest.mark.parametrize(
    ("n", "rows", "seconds"), [(1024, 1024, 1.0), (2048, 1024, 2.0), (4096, 256, 16.0)]
)
def test_a_slow_machine_computes_some_of_the_rows(a_second_each, n, rows, seconds):
    # A trial of 1,024 rows takes a second, so 2,048 would take 8, and 4,096 take 64.
    race = d2l.race(n, [], budget=4)
    assert race.seconds == {"this CPU": seconds}
    part = f"; {rows:,} of {n:,} rows)"
    assert repr(race).endswith(part) == (rows < n)
    assert Stopwatch.starts == 4 + 3  # four small ones, and three that count


def test_at_least_one_run_counts_whatever_the_budget(a_second_each):
    assert d2l.race(16, [], budget=1e-3).seconds == {"this CPU": 16.0}
    assert Stopwatch.starts == 4 + 1


def test_the_fastest_run_counts(monkeypatch):
    durations = iter([9, 9, 9, 9, 0.3, 0.2, 0.6, 0.1])

    class Varies(Stopwatch):
        def stop(self):
            return next(durations)

    monkeypatch.setattr(module, "Timer", Varies)
    # The third run brings the time that has been spent above a second.
    assert d2l.race(8, [], budget=9.9).seconds == {"this CPU": 0.2}


def test_short_runs_are_repeated_for_a_second(monkeypatch):
    class Short(Stopwatch):
        def stop(self):
            return 1 / 64

    monkeypatch.setattr(module, "Timer", Short)
    monkeypatch.setattr(Stopwatch, "starts", 0)
    d2l.race(8, [])
    assert Stopwatch.starts == 4 + 64


def test_small_products_are_left_to_one_thread(monkeypatch):
    threads = set()

    class Looks(Stopwatch):
        def stop(self):
            threads.add(torch.get_num_threads())
            return 1.0

    monkeypatch.setattr(module, "Timer", Looks)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert repr(d2l.race(128, [])).endswith("; 1 thread)")
        assert threads == {1}
        threads.clear()
        assert "thread" not in repr(d2l.race(129, []))
        assert threads == {torch.get_num_threads()} == {3}
    finally:
        torch.set_num_threads(before)


def test_products_are_in_full_fp32_whatever_the_program_has_set(monkeypatch):
    settings = set()

    class Looks(Stopwatch):
        def stop(self):
            settings.add(torch.get_float32_matmul_precision())
            return 1.0

    monkeypatch.setattr(module, "Timer", Looks)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        d2l.race(8, [])
        assert settings == {"highest"}
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_races_random_numbers_are_its_own():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    d2l.race(8, [])
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"n": 0}, ValueError, "The number of rows must be at least 1"),
        ({"n": 4.0}, TypeError, "The number of rows must be an integer"),
        ({"budget": 0}, ValueError, "The budget must be positive, but got 0"),
        ({"budget": "1"}, TypeError, "The budget must be a number of seconds"),
        ({"models": ["H1000"]}, ValueError, "did you mean 'H100'?): choose from T4"),
    ],
)
def test_bad_arguments(arguments, error, sentence):
    with pytest.raises(error, match=re.escape(sentence)):
        d2l.race(**arguments)


def test_a_race_leaves_the_process_without_virtual_gpus():
    run_program("race/without_virtual_gpus.py")


def test_the_first_real_gpu_takes_part_even_beside_virtual_ones():
    run_program("race/real_gpus.py")
