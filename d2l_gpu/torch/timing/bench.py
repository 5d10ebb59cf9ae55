"""Programs compared by the time they take, simulated or measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

import torch

from d2l_gpu.common.arguments import check_integer
from d2l_gpu.vgpu import time_text

from .arrivals import check_arrivals
from .timer import Timer

Device = torch.device | str


@dataclass(frozen=True)
class Measurement:
    """What one program took in one place.

    Attributes:
        program: its name.
        label: ``simulated (V100)`` or ``measured (…)``.
        seconds: simulated, or the median of the measured ones.
        spread: half of the distance between the quartiles, in shares of the median;
            0.0 for simulated times, which are the same every time.
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
    """Measurements, program by program and place by place; prints as lines."""

    def seconds(self, program: str, place: int = 0) -> float:
        """Return the seconds of a program in the place that was given as the i-th."""
        return [each for each in self if each.program == program][place].seconds

    def __repr__(self) -> str:
        width = max((len(each.program) for each in self), default=0)
        # A fixed width for times: lines that are simulated must not depend on others.
        return "\n".join(
            f"{each.program:<{width}}  {time:>7}  {label}".strip()
            for each in self
            for time, label in [str(each).split("  ")]
        )


def bench(
    programs: Callable | Mapping[str, Callable],
    *places: Device | Sequence[Device],
    rounds: int = 9,
    warmup: int = 2,
) -> Comparison:
    """Run programs in several places and return what they took.

    On virtual GPUs the time is simulated: one run tells it. Everywhere else it is
    measured: after some runs that do not count, programs take turns; before the clock
    is read, at the start and at the end, every device of the place is waited for.

    Args:
        programs: a function of one argument for each device of a place; or several, by
            name.
        places: a device, or several; an empty list is left out, so that
            ``real_gpus(2)`` can stand here on any machine.
        rounds: how often each is measured, at least 1.
        warmup: how often each is run before.
    Raises:
        TypeError, ValueError: an argument makes no sense.
        RuntimeError: a program reads a copy from a device that it does not wait for
            (``non_blocking=True``): what it reads may not be there yet.
    """
    check_integer("The number of rounds", rounds, least=1, example=9)
    check_integer("The number of runs to warm up", warmup, least=0, example=2)
    if callable(programs):
        programs = {getattr(programs, "__name__", "program"): programs}
    if not isinstance(programs, Mapping) or not all(map(callable, programs.values())):
        raise TypeError(
            "bench takes a function, or a dictionary of names and functions, not "
            f"{programs!r}."
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
