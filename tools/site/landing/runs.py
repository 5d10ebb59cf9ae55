"""Published runs beside simulated ones, as the landing page shows them."""

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from d2l_gpu.vgpu.sim.published import RUNS
from tools.site.landing.texts import Texts

BIN = 0.025
"""How near two errors are if their dots stand on each other."""
TICK = 0.2


@dataclass(frozen=True)
class Run:
    """A published run.

    Attributes:
        network, gpu: what trained, and on which GPU.
        gpus: how many of them.
        precision: the type of numbers.
        year: of the software.
        published: seconds of a step.
        error: of the simulated speed, relative to the published one.
    """

    network: str
    gpu: str
    gpus: int
    precision: str
    year: int
    published: float
    error: float

    @property
    def simulated(self) -> float:
        """The seconds of a step on the simulated clock."""
        return self.published / (1 + self.error)


def runs() -> list[Run]:
    """Return all published runs."""
    return [Run(*run) for run in RUNS]


def median_error() -> float:
    """Return the median of the relative errors, without their signs."""
    return statistics.median(abs(run.error) for run in runs())


def worst_of_each_network() -> list[Run]:
    """Return the run with the largest error of each network, the worst network first.

    That is the rule by which the page chooses; it flatters no network.
    """
    worst: dict[str, Run] = {}
    for run in sorted(runs(), key=lambda run: -abs(run.error)):
        worst.setdefault(run.network, run)
    return list(worst.values())


@dataclass(frozen=True)
class Dot:
    """A run in the picture of all errors.

    Attributes:
        place: from the left, in percent of the width.
        level: how many dots are below it.
        title: which run it is.
        worst: whether no other run has a larger error.
    """

    place: float
    level: int
    title: str
    worst: bool


@dataclass(frozen=True)
class Axis:
    """The errors that a picture shows, and where."""

    low: float
    high: float

    @classmethod
    def of(cls, errors: list[float]) -> "Axis":
        """Return an axis with room for these errors, and for half a dot beside them."""
        return cls(min(errors) - BIN, max(errors) + BIN)

    @property
    def ticks(self) -> list[float]:
        """Errors to write below the picture."""
        steps = range(math.ceil(self.low / TICK), math.floor(self.high / TICK) + 1)
        return [step * TICK for step in steps]

    def place(self, error: float) -> float:
        """Return where an error is, in percent of the width."""
        return round(100 * (error - self.low) / (self.high - self.low), 2)


def axis() -> Axis:
    """Return the axis for all runs."""
    return Axis.of([run.error for run in runs()])


def dots(texts: Texts) -> Iterator[Dot]:
    """Yield a dot for each run."""
    levels: dict[int, int] = {}
    scale = axis()
    most = max(abs(run.error) for run in runs())
    for run in sorted(runs(), key=lambda run: abs(run.error)):
        column = round(run.error / BIN)
        level = levels.get(column, 0)
        levels[column] = level + 1
        title = f"{texts.name(run.network)}, {conditions(run, texts)}: "
        title += texts.percent(run.error, sign=True)
        worst = abs(run.error) == most
        yield Dot(scale.place(column * BIN), level, title, worst)


def highest() -> int:
    """Return how many dots stand on each other at most."""
    return 1 + max(dot.level for dot in dots(Texts("en")))


def described(texts: Texts) -> str:
    """Return what the picture of all errors shows, in words."""
    errors = [run.error for run in runs()]
    return texts["runs_dots"].format(
        runs=len(errors),
        low=texts.percent(min(errors), sign=True),
        high=texts.percent(max(errors), sign=True),
        median=texts.percent(median_error()),
    )


def gpus_of(run: Run, texts: Texts) -> str:
    """Return how many GPUs a network ran on, and which.

    A model with an unusual memory has its size behind a dash, such as ``H100-96``.
    """
    name, _, memory = run.gpu.partition("-")
    size = f" ({texts['memory'].format(gigabytes=memory)})" if memory else ""
    return f"{run.gpus} × {name}{size}"


def conditions(run: Run, texts: Texts) -> str:
    """Return on what a network ran."""
    return f"{gpus_of(run, texts)}, {run.precision}, {run.year}"
