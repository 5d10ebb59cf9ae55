"""A picture of a ``MemoryUse``: its categories, stacked over the simulated time.

Each band has its name inside it or beside it, and says it when somebody points at it.
The bands' paths are drawn in whole units of memory from the axis up, so scripts find in
them how much each category held at a time.
"""

import html
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from .drawing import (
    COLOURS,
    EDGES,
    GRID,
    INSIDE,
    OTHERS,
    PAPER,
    SOFT,
    WORDS,
    linear_ticks,
    moment_text,
    quantity,
    spread,
    text_width,
)
from .svg import LINE, PAD, SIZE, WIDTH, Svg
from .units import time_text
from .words import sentences, shown

if TYPE_CHECKING:
    from .memory_use import MemoryUse

ROOM = 278  # height of the plot

# In whose colour each category is drawn: activations are computed, gradients travel.
_KINDS = {
    "activations": "compute",
    "gradients": "communicate",
    "optimizer state": "copy",
    "parameters": "host",
    "temporary": "wait",
    "other": "reference",
}


class Band(NamedTuple):
    """A category's bytes above those below it, for each column of pixels."""

    name: str
    below: list[int]
    above: list[int]
    most: int

    def thickness(self, i: int) -> int:
        return self.above[i] - self.below[i]

    @property
    def text(self) -> str:
        size = quantity(self.most, "iB", 2)
        return f"{shown(self.name)} {shown(size)}"

    @property
    def title(self) -> str:
        size = quantity(self.most, "iB", 3)
        return shown("{what}, at most {size}", what=self.name, size=size)


def svg(use: "MemoryUse") -> str:
    """Return a record's picture as the text of an SVG file."""
    picture = _Picture(use)
    picture.axes()
    picture.draw_bands()
    picture.names()
    picture.phases(use.phases())
    return picture.text()


def _bands(
    times: Sequence[float], columns: dict[str, list[int]], width: int
) -> list[Band]:
    """Return a band for each category in use, from the lowest to the highest.

    Of the moments in one column of pixels, the one with most memory is drawn, so the
    peak is there. A column without moments continues the one before.
    """
    seconds = times[-1]
    sums = [sum(column) for column in zip(*columns.values(), strict=True)]
    chosen: list[int | None] = [None] * (width + 1)
    last = [0] * (width + 1)  # the last moment up to each column
    for i, time in enumerate(times):
        x = int(width * time / seconds) if seconds else 0
        if chosen[x] is None or sums[i] > sums[chosen[x]]:
            chosen[x] = i
        last[x] = i
    for x in range(1, width + 1):
        last[x] = max(last[x], last[x - 1])
        if chosen[x] is None:
            chosen[x] = last[x]
    chosen[-1] = len(times) - 1
    below, bands = [0] * (width + 1), []
    for name, column in columns.items():
        above = [b + column[i] for b, i in zip(below, chosen, strict=True)]
        if above != below:
            bands.append(Band(name, below, above, max(column)))
        below = above
    return bands


class _Picture:
    """The parts of the picture so far.

    Attributes:
        seconds: the width of the plot.
        highest: the most bytes to draw.
        left, plot, top: where the plot begins, how wide it is, and its upper edge.
        lower: height of a second line for the names of phases, 0 if there's none.
    """

    def __init__(self, use: "MemoryUse"):
        times, columns = use.series()
        self.use, self.seconds = use, times[-1]
        self.highest = (
            max(map(sum, zip(*columns.values(), strict=True)), default=0) or 1
        )
        self.svg = Svg(use.title(), use.conditions())
        self.top = round(self.svg.top) + 8
        self.ticks = linear_ticks(0, self.highest, "iB")
        self.left = PAD + 8 + round(max(text_width(t, SIZE) for _, t in self.ticks))
        used = [name for name, column in columns.items() if any(column)]
        names = [f"{shown(name)} 999 MiB" for name in used]
        beside = max((text_width(name, SIZE, bold=True) for name in names), default=0)
        self.plot = round(WIDTH - PAD - self.left - beside - 8)
        self.bands = _bands(times, columns, self.plot)
        # Sizes are multiples of an allocator's block, so numbers of these are short.
        self.unit = math.gcd(*(n for band in self.bands for n in band.above)) or 1
        self.lower = 0.0

    def text(self) -> str:
        texts = [self.use.title(), self.use.conditions(), self._contents()]
        height = self.top + ROOM + 40 + self.lower + PAD
        about = {"picture": "memory", "seconds": f"{self.seconds:.6g}"}
        about |= {"left": f"{self.left}", "width": f"{self.plot}"}
        about |= {"top": f"{self.top}", "unit": f"{self.unit}"}
        return self.svg.text(height, sentences(texts), about)

    def _contents(self) -> str:
        bands = ", ".join(band.text for band in self.bands) or "nothing"
        return shown("Memory over the time, stacked, at most: {bands}", bands=bands)

    def x(self, seconds: float) -> float:
        return self.left + (self.plot * seconds / self.seconds if self.seconds else 0)

    def y(self, nbytes: float) -> float:
        return round(self.top + ROOM * (1 - nbytes / self.highest), 1)

    # -------------------------------------------------------------- what it shows

    def axes(self) -> None:
        for value, text in self.ticks:
            self.svg.box(self.left, self.y(value) - 0.5, self.plot, 1, GRID)
            y = self.y(value) + 4
            self.svg.write(self.left - 8, y, text, SOFT, anchor="end")
        ticks = linear_ticks(0, self.seconds, "s") if self.seconds else []
        self.svg.parts.append('<g data-part="axis">')
        for value, text in ticks:
            x, y = self.x(value), self.top + ROOM + 18
            self.svg.write(x, y, text, SOFT, anchor="middle")
        self.svg.parts.append("</g>")

    def draw_bands(self) -> None:
        # From the highest to the lowest, each down to the axis: so each has one edge.
        floor = self.y(0)
        scale = ROOM * self.unit / self.highest
        self.svg.parts.append(
            f'<g data-part="bands" transform="matrix(1 0 0 {-scale:.9g} '
            f'{self.left} {floor:g})">'
        )
        for band in reversed(self.bands):
            above = [n // self.unit for n in band.above]
            edge = [f"M0 0V{above[0]}"]
            for x, (before, now) in enumerate(pairwise(above), 1):
                if now != before:
                    edge.append(f"H{x}V{now}")
            edge.append(f"H{self.plot}V0Z")
            colour, outline, _, _ = _look(band.name)
            line = ' vector-effect="non-scaling-stroke"'
            line = f' stroke="{outline}"{line}' if outline else ""
            self.svg.parts.append(
                f'<path fill="{colour}"{line} d="{"".join(edge)}">'
                f"<title>{html.escape(band.title, quote=False)}</title></path>"
            )
        self.svg.parts.append("</g>")
        self.svg.box(self.left, floor, self.plot, 1, SOFT)

    def names(self) -> None:
        """Write each band's name and most bytes inside it or beside its end."""
        beside = []
        self.svg.parts.append('<g data-part="names" pointer-events="none">')
        pixel = self.highest / ROOM
        for band in self.bands:
            if band.thickness(-1) < 3 * pixel and self._write_inside(band):
                continue
            if band.most >= pixel:  # not too thin to be seen
                beside.append(band)
        middles = [self.y((band.above[-1] + band.below[-1]) / 2) for band in beside]
        rooms = [float(LINE)] * len(beside)
        places = spread(middles, rooms, self.top - 8, self.y(0) + 8)
        for y, band in zip(places, beside, strict=True):
            x = self.left + self.plot + 8
            self.svg.write(x, y + 4, band.text, _look(band.name)[2], bold=True)
        self.svg.parts.append("</g>")

    def _write_inside(self, band: Band) -> bool:
        """Write a band's name into it if there's room, and return whether there is."""
        for name in (band.text, band.name):
            place = self._room_inside(band, text_width(name, SIZE, bold=True))
            if place is not None:
                ink = _look(band.name)[3]
                self.svg.write(*place, name, ink, bold=True, anchor="middle")
                return True
        return False

    def _room_inside(self, band: Band, width: float) -> tuple[float, float] | None:
        """Return the middle of a line of text in the highest room of a band."""
        half, rooms = int(width / 2) + 4, []
        for x in range(half, self.plot - half, 4):
            top = min(band.above[x - half : x + half])
            bottom = max(band.below[x - half : x + half])
            rooms.append((top - bottom, x, self.y((top + bottom) // 2) + 4))
        most = max((room for room, _, _ in rooms), default=0)
        if most * ROOM < LINE * self.highest:
            return None
        places = [(self.left + x, y) for room, x, y in rooms if room > 0.9 * most]
        return places[len(places) // 2]

    def phases(self, phases: Sequence[tuple[str, float, float]]) -> None:
        """Mark the phases below the axis, each with its name if there's room.

        A name that has no room between its neighbours goes to a second line.
        """
        y, lines = self.top + ROOM + 26, [[], []]
        self.svg.parts.append('<g data-part="phases">')
        for name, begin, end in sorted(phases, key=lambda x: x[1] - x[2]):
            x, width = self.x(begin), self.x(end) - self.x(begin)
            if not name or width < 3:
                continue
            title = shown(
                "{what}: at {begin} for {time}",
                what=name,
                begin=moment_text(begin, self.seconds),
                time=time_text(end - begin),
            )
            self.svg.box(x + 1, y, width - 2, 2, SOFT, title=title)
            middle, half = x + width / 2, text_width(name, SIZE) / 2
            middle = max(middle, PAD + half)
            for i, taken in enumerate(lines):
                if all(abs(middle - other) > half + more + 4 for other, more in taken):
                    taken.append((middle, half))
                    self.svg.write(middle, y + 16 + i * LINE, name, anchor="middle")
                    break
        self.svg.parts.append("</g>")
        self.lower = float(LINE) if lines[1] else 0.0


def _look(name: str) -> tuple[str, str | None, str, str]:
    """Return a band's colour, and those of its edge and its name beside and inside."""
    if name not in _KINDS:
        return OTHERS[1], None, OTHERS[1], PAPER
    kind = _KINDS[name]
    return COLOURS[kind], EDGES.get(kind), WORDS[kind], INSIDE[kind]
