"""A map of a puzzle's plans: the memory that each needs, and how fast it is.

Each plan of the level's grid that fits is a dot, whose colour and shape say what limits
it. Beside them are the published plan and the player's.
"""

import math
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
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
from .words import sentences, shown

if TYPE_CHECKING:
    from .puzzle import Level, Score

ROOM = 330  # height of the plot
BEYOND = 126  # width of the strip for what doesn't fit
FAR = 90  # the most that a label may be away from its mark
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
        return (
            f'<path fill="{self.colour}" stroke="{edge}" stroke-width="0.7" '
            f'd="{dots}"/>'
        )


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
        score: of the player's plan, which is drawn, too.
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
        return f"Your plan needs {size_text(needed)}, {more} too much"
    if score is not None:
        return _compared(score, len(fitting))
    if len(fitting) == 1:
        return f"Only one of {len(level.neighbours):,} plans fits"
    times = fitting[-1].seconds / fitting[0].seconds
    times = number(times, 2 if times >= 1.1 else 3)
    return (
        f"The fastest of {len(fitting):,} plans that fit is {times} times as fast as "
        "the slowest"
    )


def _compared(score: "Score", plans: int) -> str:
    if score.beats:
        more = number(100 * (score.share - 1), 2)
        return f"Your plan is {more}% faster than the fastest of the grid"
    if score.ties:
        if plans == 1:
            return "Your plan is as fast as the only one of the grid that fits"
        return f"Your plan is as fast as the fastest of {plans:,} plans that fit"
    return f"Your plan reaches {score.percent()} of the fastest"


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
        units = ((1e6, "million "), (1e3, "thousand "))
        large = [unit for unit in units if max(speeds) >= unit[0]]
        self.scale, self.unit = large[0] if large else (1, "")
        self.ticks = linear_ticks(0, self.fastest / self.scale)
        widest = max(text_width(text, SIZE) for _, text in self.ticks)
        self.left, self.right = PAD + 8 + round(widest), WIDTH - PAD - BEYOND
        self.top = self.svg.top  # until the key is there

    @cached_property
    def places(self) -> list[tuple[float, float]]:
        """Where the plans that fit are, the fastest first."""
        return [self.place(x.nbytes, x.seconds) for x in self.level.fitting]

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

    # -------------------------------------------------------------- what it shows

    def key(self) -> None:
        """Write what the dots' shapes and colours mean, and where the plot begins."""
        counts = Counter(each.limit for each in self.level.fitting)
        x, y = float(PAD), self.svg.top + 4.0
        self.svg.write(x, y + 10.5, "what limits it:", SOFT)
        x += text_width("what limits it:", SIZE) + 14
        for limit, look in LOOKS.items():
            if limit not in counts:
                continue
            room = 14 + text_width(look.words, SIZE)
            if x + room > WIDTH - PAD:
                x, y = float(PAD), y + LINE + 2
            self.svg.parts.append(look.path([(x + 5, y + 6)]))
            self.svg.write(x + 14, y + 10.5, look.words)
            x += room + 18
        self.svg.write(PAD, y + 2 * LINE + 4, f"{self.unit}tokens/s", SOFT)
        self.top = y + 2 * LINE + 14

    def axes(self) -> None:
        for value, text in self.ticks:
            y = self.y(value * self.scale)
            self.svg.box(self.left, y - 0.5, self.right - self.left, 1, GRID)
            self.svg.write(self.left - 8, y + 4, text, SOFT, anchor="end")
        capacity = self.level.machine.capacity
        for value, text in linear_ticks(0, capacity, "iB"):
            x = self.x(value)
            if x < self.right - 80:
                self.svg.write(x, self.floor + 18, text, SOFT, anchor="middle")
        self.svg.box(self.left, self.floor, self.right - self.left, 1, SOFT)
        self.svg.box(self.right - 0.5, self.top, 1, ROOM, SOFT)
        self.svg.write(
            *(self.right, self.floor + 18, f"{size_text(capacity)} at most"),
            anchor="middle",
        )
        middle = (self.left + self.right) / 2
        self.svg.write(
            *(middle, self.floor + 18 + LINE + 2, "memory of the GPU that needs most"),
            *(SOFT,),
            anchor="middle",
        )

    def beyond(self) -> None:
        """Say to the right of the capacity what doesn't fit."""
        lines = wrapped(self._others(), BEYOND - 20, SIZE)
        for i, line in enumerate(lines):
            self.svg.write(self.right + 12, self.floor - LINE * (len(lines) - i), line)
        if self.score is None or self.score.outcome.fits:
            return
        x, y = self.right + 22, self.top + 16
        self.svg.parts.append(_star(x, y))
        text = f"your plan needs {size_text(self.score.outcome.allocated)}"
        for i, line in enumerate(wrapped(text, BEYOND - 20, SIZE, bold=True)):
            self.svg.write(self.right + 12, y + 26 + i * LINE, line, bold=True)

    def _others(self) -> str:
        level = self.level
        others = len(level.neighbours) - len(level.fitting)
        if not others:
            return "all plans of the grid fit"
        if others == 1:
            return "another plan doesn't fit"
        return f"{others:,} other plans don't fit"

    def dots(self) -> None:
        for limit, look in LOOKS.items():
            each = zip(self.level.fitting, self.places, strict=True)
            places = [place for found, place in each if found.limit == limit]
            if places:
                self.svg.parts.append(look.path(places))

    def marks(self) -> list[Mark]:
        """Draw the plans that have labels, and return them."""
        found = []
        if self.places:
            x, y = self.places[0]
            self.svg.parts.append(
                f'<circle cx="{x:g}" cy="{y:g}" r="7" fill="none" stroke="{INK}" '
                'stroke-width="1.5"/>'
            )
            found.append(Mark("fastest of the grid", x, y, 8))
        if self.published is not None:
            x, y = self.place(self.published.allocated, self.published.seconds)
            self.svg.parts.append(
                f'<rect x="{x - 6:g}" y="{y - 6:g}" width="12" height="12" fill="none" '
                f'stroke="{INK}" stroke-width="1.5"/>'
            )
            found.append(Mark("published plan, simulated", x, y, 8))
        if self.score is not None and self.score.outcome.fits:
            outcome = self.score.outcome
            x, y = self.place(outcome.allocated, outcome.seconds)
            self.svg.parts.append(_star(x, y))
            found.append(Mark("your plan", x, y, 10))
        return found

    def labels(self, marks: list[Mark]) -> None:
        """Write the labels where they hide no other label, no mark and few dots."""
        taken = [
            Room(m.x - m.half, m.y - m.half, m.x + m.half, m.y + m.half) for m in marks
        ]
        for mark in marks:
            places = [
                room
                for room in self._around(mark)
                if not any(room.meets(other) for other in taken)
            ]
            room = min(places, key=lambda room: self._cost(room, mark))
            taken.append(room)
            x, y = room.near(mark.x, mark.y)
            if math.hypot(x - mark.x, y - mark.y) > mark.half + 8:
                self.svg.parts.append(
                    f'<path d="M{mark.x:g} {mark.y:g}L{x:g} {y:g}" stroke="{INK}" '
                    'stroke-width="0.7"/>'
                )
            # It lets dots shine through.
            self.svg.parts.append(
                f'<rect x="{room.left:g}" y="{room.top:g}" height="{LINE}" '
                f'width="{room.right - room.left:g}" fill="{PAPER}" '
                'fill-opacity="0.8"/>'
            )
            self.svg.write(room.left + 3, room.top + 12, mark.text, bold=True)

    def _around(self, mark: Mark) -> Iterable[Room]:
        """Return the rooms in the plot that could take a mark's label."""
        width = text_width(mark.text, SIZE, bold=True) + 6
        low, high = self.top, self.floor - LINE
        for top in _steps(mark.y - FAR, mark.y + FAR, low, high):
            low, high = self.left + 2, self.right - width - 2
            for left in _steps(mark.x - FAR - width, mark.x + FAR, low, high):
                yield Room(left, top, left + width, top + LINE)

    def _cost(self, room: Room, mark: Mark) -> float:
        """Return how bad it is to write a label somewhere, in pixels of distance."""
        x, y = room.near(mark.x, mark.y)
        dots = sum(
            room.left - 4 < x < room.right + 4 and room.top - 4 < y < room.bottom + 4
            for x, y in self.places
        )
        return math.hypot(x - mark.x, y - mark.y) + 25 * dots

    def text(self) -> str:
        texts = [title(self.level, self.score), self._conditions(), self._contents()]
        height = self.floor + 18 + 2 * LINE + PAD
        return self.svg.text(height, sentences(texts))

    def _contents(self) -> str:
        counts = Counter(LOOKS[each.limit].words for each in self.level.fitting)
        limits = ", ".join(
            f"{shown(words)} {count}" for words, count in counts.most_common()
        )
        fitting = f"{len(self.places):,} plans that fit, by memory and speed"
        return f"{fitting}; what limits them: {limits}; {self._others()}"


def _steps(begin: float, end: float, low: float, high: float) -> range:
    """Return places six pixels apart in both of two ranges."""
    return range(math.ceil(max(begin, low)), math.floor(min(end, high)) + 1, 6)


def _star(x: float, y: float) -> str:
    """Return a star with its middle at a place."""
    points = (
        (x + r * math.sin(i * math.pi / 5), y - r * math.cos(i * math.pi / 5))
        for i in range(10)
        for r in ((10, 4.2)[i % 2],)
    )
    d = "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
    return f'<path fill="{INK}" stroke="{PAPER}" stroke-width="1" d="M{d}Z"/>'
