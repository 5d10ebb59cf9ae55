"""Comparing programs by the time they take, simulated or measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

import torch

from d2l_gpu.common.arguments import check_integer
from d2l_gpu.vgpu import time_text
from d2l_gpu.vgpu.sim.words import columns, padded, shown

from .arrivals import check_arrivals
from .timer import Timer

Device = torch.device | str


@dataclass(frozen=True)
class Measurement:
    """The time that one program took in one place.

    Attributes:
        program: its name.
        label: ``simulated (V100)`` or ``measured (…)``.
        seconds: simulated time, or the median of the measured times.
        spread: half the interquartile range as a fraction of the median; 0.0 for
            simulated times, which are the same every time.
    """

    program: str
    label: str
    seconds: float
    spread: float

    def __str__(self) -> str:
        text = f"{time_text(self.seconds)}  {self.label}"
        return (
            text
            if self.label.startswith("simulated")
            else f"{text} ± {self.spread:.0%}"
        )


class Comparison(list):
    """Measurements, by place and then by program; printed as lines."""

    def seconds(self, program: str, place: int = 0) -> float:
        """Return a program's seconds in a place, counted from 0."""
        return [each for each in self if each.program == program][place].seconds

    def __repr__(self) -> str:
        names = [shown(each.program) for each in self]
        width = max(map(columns, names), default=0)
        # Times have a fixed width, because simulated lines must not depend on others.
        return "\n".join(
            f"{padded(name, width)}  {time:>7}  {shown(label)}".strip()
            for name, each in zip(names, self, strict=True)
            for time, label in [str(each).split("  ")]
        )


def bench(
    programs: Callable | Mapping[str, Callable],
    *places: Device | Sequence[Device],
    rounds: int = 9,
    warmup: int = 2,
) -> Comparison:
    """Run programs in several places and return how long they took.

    On virtual GPUs the time is simulated, so one run is enough. Everywhere else it is
    measured: after some warm-up runs, the programs take turns, and every device of the
    place is synchronized before the clock is read, at the start and at the end.

    Args:
        programs: a function with one argument for each device of a place, or a
            dictionary of names and such functions.
        places: each a device or a list of devices; empty lists are skipped, so you can
            write ``real_gpus(2)`` on any machine.
        rounds: number of measurements per program, at least 1.
        warmup: number of runs before that; one is made in any case, to check for early
            reads.
    Raises:
        TypeError, ValueError: an argument is invalid.
        RuntimeError: a program reads a copy from a device without waiting for it
            (``non_blocking=True``), so the data may not have arrived.
    """
    check_integer("The number of rounds", rounds, least=1, example=9)
    check_integer("The number of runs to warm up", warmup, least=0, example=2)
    if callable(programs):
        programs = {getattr(programs, "__name__", "program"): programs}
    if not isinstance(programs, Mapping) or not all(map(callable, programs.values())):
        raise TypeError(
            "bench expects a function, or a dictionary of names and functions, but "
            f"got {programs!r}."
        )
    comparison = Comparison()
    for place in places:
        devices = [place] if isinstance(place, torch.device | str) else list(place)
        if devices:
            comparison += _in_place(programs, devices, rounds, warmup)
    return comparison


def _in_place(programs, devices, rounds: int, warmup: int) -> list[Measurement]:
    from d2l_gpu import vgpu

    devices = [torch.device(device) for device in devices]
    simulated = any(vgpu.simulator_of(device) is not None for device in devices)
    timer = Timer(devices, simulated=simulated)
    if simulated:
        warmup, rounds = 1, 1
    for program in programs.values():
        check_arrivals(program, devices)
        for _ in range(warmup - 1):
            program(*devices)
    times = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            timer.start()
            result = program(*devices)
            times[name].append(timer.stop())
            del result
    return [
        Measurement(name, timer.label, median(seconds), _spread(seconds))
        for name, seconds in times.items()
    ]


def _spread(seconds: Sequence[float]) -> float:
    if len(seconds) < 2:
        return 0.0
    lower, middle, upper = quantiles(seconds, n=4, method="inclusive")
    return (upper - lower) / 2 / middle
