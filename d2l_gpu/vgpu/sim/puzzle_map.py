"""A map of a puzzle's plans: the memory that each needs, and how fast it is.

Each plan of the level's grid that fits is a dot, whose colour and shape say what limits
it. Beside them are the published plan and the reader's.
"""

import math
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from .critical_path import HOSTED
from .drawing import (
    COLOURS,
    EDGES,
    GRID,
    INK,
    OTHERS,
    PAPER,
    SOFT,
    linear_ticks,
    number,
    text_width,
    wrapped,
)
from .plan_commands import COMPUTING, GATHERING, PIPELINE, REDUCING, TENSOR, UPDATING
from .plans import simulate
from .svg import LINE, PAD, SIZE, WIDTH, Svg
from .units import size_text

if TYPE_CHECKING:
    from .puzzle import Level, Score

ROOM = 330  # height of the plot
BEYOND = 126  # width of the strip for what doesn't fit
HEADROOM = 1.1  # of the plot above the fastest plan

# Shapes of dots as the rest of a path that is at their middle.
_CIRCLE = "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z"
_SQUARE = "m-3-3h6v6h-6z"
_TRIANGLE = "m0-3.8 3.6 6.4h-7.2z"
_UPSIDE_DOWN = "m0 3.8 3.6-6.4h-7.2z"
_DIAMOND = "m0-4.2 4.2 4.2-4.2 4.2-4.2-4.2z"
_PLUS = "m-1.3-3.9h2.6v2.6h2.6v2.6h-2.6v2.6h-2.6v-2.6h-2.6v-2.6h2.6z"
_CROSS = "m0-1.7 2-2 1.7 1.7-2 2 2 2-1.7 1.7-2-2-2 2-1.7-1.7 2-2-2-2 1.7-1.7z"


class Look(NamedTuple):
    """What the key calls a limit, and the shape and the colour of its dots."""

    words: str
    shape: str
    colour: str

    def path(self, places: Iterable[tuple[float, float]]) -> str:
        """Return the dots at some places as one element."""
        dots = "".join(f"M{x:g} {y:g}{self.shape}" for x, y in places)
        edge = EDGES["wait"] if self.colour == COLOURS["wait"] else PAPER
        return f'<path fill="{self.colour}" stroke="{edge}" stroke-width="0.7" d="{dots}"/>'


# Those of ``Neighbour.limit``, in the order of the key.
LOOKS = {
    COMPUTING: Look("computing", _CIRCLE, COLOURS["compute"]),
    PIPELINE: Look("the pipeline's bubble", _SQUARE, COLOURS["wait"]),
    GATHERING: Look("gathering parameters", _TRIANGLE, COLOURS["communicate"]),
    REDUCING: Look("reducing gradients", _UPSIDE_DOWN, OTHERS[1]),
    TENSOR: Look("tensor parallelism", _DIAMOND, OTHERS[2]),
    UPDATING: Look("the optimizer", _PLUS, COLOURS["copy"]),
    HOSTED: Look("the host", _CROSS, COLOURS["host"]),
}


class Mark(NamedTuple):
    """A plan with a label: where it is, and the half of its sign's width."""

    text: str
    x: float
    y: float
    half: float


class Room(NamedTuple):
    """A rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "Room") -> bool:
        return (
            min(self.right, other.right) > max(self.left, other.left)
            and min(self.bottom, other.bottom) > max(self.top, other.top)
        )  # fmt: skip

    def near(self, x: float, y: float) -> tuple[float, float]:
        """Return the point in it that's nearest to another."""
        return (
            min(max(x, self.left), self.right),
            min(max(y, self.top), self.bottom),
        )


def svg(level: "Level", score: "Score | None" = None) -> str:
    """Return the map of a level's plans as the text of an SVG file.

    Args:
        score: of the reader's plan, which is drawn, too.
    """
    picture = _Picture(level, score)
    picture.key()
    picture.axes()
    picture.beyond()
    picture.dots()
    picture.labels(picture.marks())
    return picture.text()


def title(level: "Level", score: "Score | None" = None) -> str:
    """Return the finding in a sentence."""
    capacity, fitting = level.machine.capacity, level.fitting
    if score is not None and not score.outcome.fits:
        needed = score.outcome.allocated
        more = size_text(needed - capacity)
        return f"Your plan needs {size_text(needed)}, {more} more than a GPU has"
    if score is not None:
        return _compared(score.share, len(fitting))
    if len(fitting) == 1:
        return f"Only one of {len(level.neighbours):,} plans fits"
    times = fitting[-1].seconds / fitting[0].seconds
    times = number(times, 2 if times >= 1.1 else 3)
    return (
        f"The fastest of {len(fitting):,} plans that fit is {times} times as fast as "
        "the slowest"
    )


def _compared(share: float, plans: int) -> str:
    if share > 1 + 1e-6:
        more = number(100 * (share - 1), 2)
        return f"Your plan is {more}% faster than the fastest of the grid"
    if share > 1 - 1e-6:
        if plans == 1:
            return "Your plan is as fast as the only one of the grid that fits"
        return f"Your plan is as fast as the fastest of {plans:,} plans that fit"
    # What is slower never reaches 100%.
    percent = math.floor(1000 * share) / 10 if share > 0.99 else 100 * share
    digits = 3 if share > 0.99 else 2
    return f"Your plan reaches {number(percent, digits)}% of the fastest"


class _Picture:
    """The parts of the picture so far.

    Attributes:
        published: the published plan, simulated; None if there's none, or none fits.
        left, right, top, floor: edges of the plot; its right one is the capacity.
        fastest: tokens per second at the upper edge.
    """

    def __init__(self, level: "Level", score: "Score | None"):
        self.level, self.score, self.published = level, score, None
        if level.published is not None:
            outcome = simulate(level.network, level.published.plan, level.machine)
            self.published = outcome if outcome.fits else None
        self.svg = Svg(title(level, score), self._conditions())
        speeds = [level.tokens / each.seconds for each in level.fitting]
        speeds += [x.tokens_per_second for x in self._outcomes()]
        self.fastest = HEADROOM * max(speeds)
        self.scale, self.unit = next(
            pair
            for pair in ((1e6, "million "), (1e3, "thousand "), (0, ""))
            if max(speeds) >= pair[0]
        )
        self.scale = self.scale or 1
        self.ticks = linear_ticks(0, self.fastest / self.scale)
        widest = max(text_width(text, SIZE) for _, text in self.ticks)
        self.left, self.right = PAD + 8 + round(widest), WIDTH - PAD - BEYOND
        self.places = [self.place(x.nbytes, x.seconds) for x in level.fitting]

    def _outcomes(self) -> list:
        found = [self.published, self.score and self.score.outcome]
        return [outcome for outcome in found if outcome and outcome.fits]

    def _conditions(self) -> str:
        level = self.level
        return (
            f"{level.network} on {level.machine}; {level.batch:,} sequences of "
            f"{level.model.shape.length:,} tokens a step; simulated"
        )

    @property
    def floor(self) -> float:
        return self.top + ROOM

    def place(self, nbytes: int, seconds: float) -> tuple[float, float]:
        return self.x(nbytes), self.y(self.level.tokens / seconds)

    def x(self, nbytes: float) -> float:
        width = self.right - self.left
        return round(self.left + width * nbytes / self.level.machine.capacity, 1)

    def y(self, speed: float) -> float:
        return round(self.floor - ROOM * speed / self.fastest, 1)
