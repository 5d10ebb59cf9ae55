"""The thousand-GPU puzzle: find the fastest plan for a model and a machine.

    from d2l_gpu.vgpu.sim.puzzle import LEVELS

    level = LEVELS["17.1"]
    level.score(Plan(shards=8, sequences=2, checkpoint="full"))

A level states a model, a machine and the sequences of a step. Beside the player's plan
there is a whole grid of others: ``python -m tools.puzzles`` simulates all of them and
writes ``recordings/puzzles.json``, so that a score takes no search. The level that
somebody has run for real has that plan, too, with the speed that was measured.
"""

import html
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from typing import NamedTuple

from .catalogue import choose
from .plan_results import Outcome
from .plans import CHECKPOINTS, Machine, Plan, check, grid, model, simulate
from .recordings import Model
from .table import Table
from .units import size_text, time_text
from .words import shown

__all__ = ["LEVELS", "Level", "Neighbour", "Published", "Score", "level", "table"]

# A plan solves its level from this share of the speed of the grid's fastest plan on.
ENOUGH = 0.95

# Shares that differ by less are equal; times are rounded to picoseconds.
_EQUAL = 1e-6


class Published(NamedTuple):
    """A plan that somebody has run.

    Attributes:
        plan: how the model was divided.
        speed: tokens per second and GPU, as measured.
        compiled: whether with ``torch.compile``, which the simulation lacks.
        source: who measured it, and where it's published.
    """

    plan: Plan
    speed: float
    compiled: bool
    source: str


class Neighbour(NamedTuple):
    """A plan of a level's grid, simulated.

    Attributes:
        plan: how the model is divided.
        nbytes: the most bytes of any GPU.
        seconds: the seconds of a step; None if it doesn't fit.
        limit: what takes most of the time beside computing, a key of
            ``plan_results.CAUSES``, or ``"computing"`` if nothing else takes much.
    """

    plan: Plan
    nbytes: int
    seconds: float | None
    limit: str | None


@dataclass(frozen=True)
class Level:
    """One puzzle.

    Attributes:
        number: the level's number, such as ``"17.1"``.
        title: what's hard about it.
        network: the model's name.
        machine: the GPUs that a plan has to use, all of them.
        batch: the sequences of a step, all GPUs together.
        choices: the choices of the grid, as ``plans.grid`` takes them.
        published: a plan of a real run on such a machine, if there is one.
    """

    number: str
    title: str
    network: str
    machine: Machine
    batch: int
    choices: Mapping = field(default_factory=dict)
    published: Published | None = None

    @property
    def model(self) -> Model:
        """What is trained."""
        return model(self.network)

    def __repr__(self) -> str:
        return shown(
            f"{self.number}, {self.title}: {self.network} on {self.machine}; "
            f"{size_text(self.machine.capacity)} of memory each, {self.batch:,} "
            f"sequences of {self.model.shape.length:,} tokens per step"
        )

    def plans(self) -> Iterator[Plan]:
        """Yield the plans of the grid."""
        return grid(self.model, self.machine, self.batch, **self.choices)

    @cached_property
    def neighbours(self) -> tuple[Neighbour, ...]:
        """The plans of the grid that fit, the fastest first, then the others."""
        found = [_read(row) for row in _recorded()[self.number]]
        return tuple(sorted(found, key=lambda x: (x.seconds is None, x.seconds or 0)))

    @cached_property
    def fitting(self) -> tuple[Neighbour, ...]:
        """The plans of the grid that fit, the fastest first."""
        return tuple(each for each in self.neighbours if each.seconds is not None)

    @property
    def best(self) -> Plan:
        """The fastest plan of the grid."""
        return self.fitting[0].plan

    @property
    def fastest(self) -> float:
        """Tokens per second of the fastest plan of the grid."""
        return self.tokens / self.fitting[0].seconds

    @property
    def tokens(self) -> int:
        """Of a step, all GPUs together."""
        return self.batch * self.model.shape.length

    def problem(self, plan: Plan) -> str:
        """Return why a plan breaks the level's rules, as a sentence; empty if not."""
        if plan.batch != self.batch:
            return (
                f"A step must have {self.batch:,} sequences, but yours has "
                f"{plan.shards} × {plan.replicas} × {plan.microbatches} × "
                f"{plan.sequences} = {plan.batch:,} (shards × replicas × microbatches "
                "× sequences)."
            )
        try:
            check(self.model, plan, self.machine)
        except ValueError as error:
            return str(error)
        return ""

    def score(self, plan: Plan) -> "Score":
        """Simulate a plan, and compare it with those of the grid.

        Raises:
            TypeError: it's no ``Plan``.
            ValueError: it breaks the level's rules. If it only needs more memory than
                there is, the score says so.
        """
        if not isinstance(plan, Plan):
            raise TypeError(f"A level takes a Plan, but got {plan!r}.")
        problem = self.problem(plan)
        if problem:
            raise ValueError(problem)
        return Score(self, simulate(self.model, plan, self.machine))


class Score:
    """How fast a plan is, beside all plans of its level's grid.

    Attributes:
        level: the puzzle.
        outcome: what the plan would do, simulated.
    """

    def __init__(self, level: Level, outcome: Outcome):
        self.level, self.outcome = level, outcome

    @property
    def plan(self) -> Plan:
        """What was simulated."""
        return self.outcome.plan

    @property
    def share(self) -> float:
        """Its speed as a share of the grid's fastest plan; 0 if it doesn't fit."""
        if not self.outcome.fits:
            return 0.0
        return self.outcome.tokens_per_second / self.level.fastest

    @property
    def solved(self) -> bool:
        """Whether it's as fast as the level wants."""
        return self.share >= ENOUGH

    @property
    def slower(self) -> int:
        """How many of the grid's plans that fit are slower."""
        if not self.outcome.fits:
            return 0
        seconds = self.outcome.seconds
        return sum(each.seconds > seconds * (1 + 1e-9) for each in self.level.fitting)

    @property
    def beats(self) -> bool:
        """Whether it's faster than every plan of the grid."""
        return self.share > 1 + _EQUAL

    @property
    def ties(self) -> bool:
        """Whether it's as fast as the grid's fastest plan."""
        return abs(self.share - 1) <= _EQUAL

    def percent(self, digits: int = 1) -> str:
        """Return its share in per cent, 100 at most.

        It's rounded down, so that what isn't enough doesn't look like it.
        """
        scale = 10**digits
        share = math.floor(100 * scale * (min(self.share, 1) + _EQUAL)) / scale
        return f"{share:.{digits}f}%"

    @property
    def sentence(self) -> str:
        """The score in a sentence."""
        if not self.outcome.fits:
            return self.outcome.reason
        level, speed = self.level, self.outcome.tokens_per_second
        if self.beats:
            beside = f"{self.share - 1:.1%} faster than any plan of the grid"
        elif self.ties:
            beside = "as fast as any plan of the grid"
        else:
            beside = (
                f"faster than {self.slower} of the {len(level.fitting)} plans that fit"
            )
        return (
            f"{speed:,.0f} tokens/s, {self.percent()} of the fastest plan in the grid "
            f"({beside})"
        )

    def __repr__(self) -> str:
        lines = [f"{self.level.number}, {self.level.title}, simulated", str(self.plan)]
        lines.append(self.sentence)
        if self.outcome.fits:
            outcome, capacity = self.outcome, self.level.machine.capacity
            lines.append(
                f"{time_text(outcome.seconds)} a step, MFU {outcome.mfu:.1%}, "
                f"{size_text(outcome.allocated)} of {size_text(capacity)}"
            )
            lines.append(outcome.limits)
        return "\n".join(map(shown, lines))

    def _repr_html_(self) -> str:
        from .puzzle_map import svg

        lines = "<br>".join(html.escape(line) for line in repr(self).split("\n"))
        return f"<p>{lines}</p>{svg(self.level, self)}"


def level(number: str) -> Level:
    """Return a level by its number.

    Raises:
        ValueError: there is none.
    """
    choose("level", number, LEVELS)
    return LEVELS[number]


def table() -> Table:
    """Return how many plans each level's grid has, and how far apart they are."""
    near = f"within {1 - ENOUGH:.0%} of the fastest"
    columns = ["plans", "that fit", "fastest / slowest", near]
    rows = []
    for each in LEVELS.values():
        seconds = [found.seconds for found in each.fitting]
        rows.append(
            [
                f"{each.number} {shown(each.title)}",
                f"{len(each.neighbours):,}",
                f"{len(seconds):,}",
                f"{seconds[-1] / seconds[0]:.1f}",
                f"{sum(ENOUGH * x <= seconds[0] for x in seconds):,}",
            ]
        )
    return Table(["level", *columns], rows, columns)


# ------------------------------------------------------------------ the file

FILE = files("d2l_gpu.vgpu.sim.recordings") / "puzzles.json"
_NUMBERS = ("pipeline", "tensor", "shards", "replicas", "microbatches", "sequences")


def written(found: Neighbour) -> list:
    """Return a plan of a grid as a line of the file has it."""
    plan = found.plan
    return [
        *(getattr(plan, name) for name in _NUMBERS),
        CHECKPOINTS.index(plan.checkpoint),
        *(plan.schedule, plan.stages, plan.zero),
        *(found.nbytes, found.seconds, found.limit),
    ]


def _read(row: list) -> Neighbour:
    numbers, (checkpoint, *others), last = row[:6], row[6:10], row[10:]
    return Neighbour(Plan(*numbers, CHECKPOINTS[checkpoint], *others), *last)


@cache
def _recorded() -> dict[str, list]:
    return json.loads(FILE.read_text("utf-8"))


# ------------------------------------------------------------------ the levels

_FEW = (1, 2, 4)

# Memory is nine tenths of what the GPUs have: the rest stays free, for what the
# simulation doesn't count and because free memory is in pieces.
LEVELS = {
    each.number: each
    for each in (
        Level(
            "17.1",
            "beat the published plan",
            "Llama 3.1 70B",
            Machine(32, 8, "H100 96GB", memory="80GiB"),
            512,
            {"sequences": (1, 2, 4, 8, 16)},
            Published(
                Plan(tensor=8, shards=32, sequences=16, checkpoint="full"),
                *(597.3, True, "PyTorch team, torchtitan's benchmarks of June 2025"),
            ),
        ),
        Level(
            "17.2",
            "little memory",
            "Llama 3.1 70B",
            Machine(8, 8, "A100", memory="36GiB"),
            64,
            {"sequences": _FEW},
        ),
        Level(
            "17.3",
            "a slow network",
            "Llama 3.1 8B",
            Machine(4, 8, "A100", network="Ethernet 25", cards=1, memory="36GiB"),
            64,
            {"sequences": _FEW},
        ),
        Level(
            "17.4",
            "a thousand GPUs",
            "Llama 3.1 70B",
            Machine(128, 8, "H100", network="RoCE 400", cards=1, memory="72GiB"),
            512,
            {
                "sequences": _FEW,
                "pipeline": (1, 2, 4, 5, 8, 10, 16, 20),
                "schedule": (("1F1B", 1), ("interleaved", 2)),
            },
        ),
    )
}
"""The levels by number, such as ``"17.1"``."""
