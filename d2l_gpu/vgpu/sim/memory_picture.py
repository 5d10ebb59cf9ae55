"""A picture of a ``MemoryUse``: its categories, stacked over the simulated time.

You can read it on any page: it has a background of its own, light or dark as your
system is. The colours are those of Okabe and Ito (2008) or close to them, so you can
tell them apart with any colour vision. Each band has its name inside it or beside it.
"""

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from .units import size_text

if TYPE_CHECKING:
    from .memory_use import MemoryUse

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 66, 188, 66, 56  # of the plot, to the picture's edges
PLOT, ROOM = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
LETTER = 7.2  # pixels of a letter in bold
LINE = 16  # pixels between lines of text

# On a light background and on a dark one.
COLOURS = {
    "paper": ("#ffffff", "#111111"),
    "ink": ("#222222", "#e8e8e8"),
    "soft": ("#707070", "#a0a0a0"),
    "grid": ("#dddddd", "#333333"),
    "parameters": ("#b8558a", "#d98ab5"),
    "buffers": ("#5b4fb3", "#9d93ea"),
    "optimizer state": ("#d98e00", "#e0a92b"),
    "other": ("#8a8a8a", "#8a8a8a"),
    "gradients": ("#009e73", "#2bc99a"),
    "activations": ("#0072b2", "#56b4e9"),
    "temporary": ("#c4c4c4", "#5a5a5a"),
    # Their names beside them, where the band's own colour would be too faint.
    "temporary beside": ("#707070", "#a0a0a0"),
    "optimizer state beside": ("#a86e00", "#e0a92b"),
}


class Band(NamedTuple):
    """A category's bytes above those below it, for each column of pixels."""

    name: str
    below: list[int]
    above: list[int]
    most: int

    def thickness(self, i: int) -> int:
        return self.above[i] - self.below[i]


def svg(use: "MemoryUse", dark: bool | None = None) -> str:
    """Return a record's picture as the text of an SVG file.

    Args:
        dark: whether the background is dark; None: as your system is.
    """
    times, columns = use.series()
    bands = _bands(times, columns)
    highest = max((max(band.above) for band in bands), default=0)
    picture = _Picture(highest, times[-1], dark)
    picture.head(use.title(), use.conditions())
    picture.axes()
    picture.bands(bands)
    picture.names(bands)
    picture.phases(use.phases())
    return picture.text()


def _bands(times: Sequence[float], columns: dict[str, list[int]]) -> list[Band]:
    """Return a band for each category in use, from the lowest to the highest.

    Of the moments in one column of pixels, the one with most memory is drawn, so the
    peak is there. A column without moments continues the one before.
    """
    seconds = times[-1]
    sums = [sum(column) for column in zip(*columns.values(), strict=True)]
    chosen: list[int | None] = [None] * (PLOT + 1)
    last = [0] * (PLOT + 1)  # the last moment up to each column
    for i, time in enumerate(times):
        x = int(PLOT * time / seconds) if seconds else 0
        if chosen[x] is None or sums[i] > sums[chosen[x]]:
            chosen[x] = i
        last[x] = i
    for x in range(1, PLOT + 1):
        last[x] = max(last[x], last[x - 1])
        if chosen[x] is None:
            chosen[x] = last[x]
    chosen[-1] = len(times) - 1
    below, bands = [0] * (PLOT + 1), []
    for name, column in columns.items():
        above = [b + column[i] for b, i in zip(below, chosen, strict=True)]
        if above != below:
            bands.append(Band(name, below, above, max(column)))
        below = above
    return bands


class _Picture:
    """The parts of the picture so far.

    Args:
        highest: the most bytes to draw.
        seconds: the width of the plot.
    """

    def __init__(self, highest: int, seconds: float, dark: bool | None):
        self.highest, self.seconds, self.dark = highest or 1, seconds, dark
        self.parts: list[str] = []
        self.used: set[str] = set()

    def text(self) -> str:
        theme, style = "", ""
        if self.dark is None:
            theme = ' class="vgpu-memory"'
            rules = "".join(
                f".vgpu-memory .{_class(name)}{{fill:{COLOURS[name][1]}}}"
                for name in sorted(self.used)
            )
            style = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>\n"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
            f'font-size="12"{theme}>\n{style}' + "\n".join(self.parts) + "\n</svg>"
        )

    def fill(self, name: str) -> str:
        self.used.add(name)
        return f'class="{_class(name)}" fill="{COLOURS[name][bool(self.dark)]}"'

    def write(self, x: float, y: float, text: str, colour: str, more: str = "") -> None:
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" {self.fill(colour)}{more}>'
            f"{html.escape(text)}</text>"
        )

    def box(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            f"{self.fill(colour)}/>"
        )

    def x(self, seconds: float) -> float:
        return LEFT + (PLOT * seconds / self.seconds if self.seconds else 0)

    def y(self, nbytes: int) -> float:
        return round(TOP + ROOM * (1 - nbytes / self.highest), 1)

    # -------------------------------------------------------------- what it shows

    def head(self, title: str, conditions: str) -> None:
        self.box(0, 0, WIDTH, HEIGHT, "paper")
        self.parts.insert(0, f"<title>{html.escape(title)}</title>")
        self.write(16, 26, title, "ink", ' font-size="17" font-weight="bold"')
        self.write(16, 46, conditions, "soft")

    def axes(self) -> None:
        for value, text in _ticks(self.highest, (2**30, 2**20, 2**10, 1), _BYTES):
            self.box(LEFT, self.y(value) - 0.5, PLOT, 1, "grid")
            y = self.y(value) + 4
            self.write(LEFT - 8, y, text, "soft", ' text-anchor="end"')
        for value, text in _ticks(self.seconds, (1, 1e-3, 1e-6, 1e-9), _SECONDS):
            x, y = self.x(value), HEIGHT - BOTTOM + 18
            self.write(x, y, text, "soft", ' text-anchor="middle"')

    def bands(self, bands: Sequence[Band]) -> None:
        # From the highest to the lowest, each down to the axis: so each has one edge.
        for band in reversed(bands):
            edge = [f"M{LEFT} {self.y(0):g}V{self.y(band.above[0]):g}"]
            for x, (before, now) in enumerate(
                zip(band.above, band.above[1:], strict=False), 1
            ):
                if now != before:
                    edge.append(f"H{LEFT + x}V{self.y(now):g}")
            edge.append(f"H{LEFT + PLOT}V{self.y(0):g}Z")
            self.parts.append(f'<path {self.fill(band.name)} d="{"".join(edge)}"/>')
        self.box(LEFT, self.y(0), PLOT, 1, "soft")

    def names(self, bands: Sequence[Band]) -> None:
        """Write each band's name and most bytes inside it or beside its end."""
        beside = []
        pixel = self.highest / ROOM
        for band in bands:
            if band.thickness(-1) < 3 * pixel and self._write_inside(band):
                continue
            if band.most >= pixel:  # not too thin to be seen
                middle = self.y((band.above[-1] + band.below[-1]) // 2)
                colour = f"{band.name} beside"
                colour = colour if colour in COLOURS else band.name
                beside.append((middle, f"{band.name} {_short(band.most)}", colour))
        places = _apart([y for y, _, _ in beside], self.y(0))
        for y, (_, name, colour) in zip(places, beside, strict=True):
            self.write(LEFT + PLOT + 8, y + 4, name, colour, ' font-weight="bold"')

    def _write_inside(self, band: Band) -> bool:
        """Write a band's name into it if there's room, and return whether there is."""
        for name in (f"{band.name} {_short(band.most)}", band.name):
            place = self._room_inside(band, len(name) * LETTER)
            if place is not None:
                colour = "ink" if band.name == "temporary" else "paper"
                more = ' text-anchor="middle" font-weight="bold"'
                self.write(*place, name, colour, more)
                return True
        return False

    def _room_inside(self, band: Band, width: float) -> tuple[float, float] | None:
        """Return the middle of a line of text in the highest room of a band."""
        half, rooms = int(width / 2) + 4, []
        for x in range(half, PLOT - half, 4):
            top = min(band.above[x - half : x + half])
            bottom = max(band.below[x - half : x + half])
            rooms.append((top - bottom, x, self.y((top + bottom) // 2) + 4))
        most = max((room for room, _, _ in rooms), default=0)
        if most * ROOM < LINE * self.highest:
            return None
        places = [(LEFT + x, y) for room, x, y in rooms if room > 0.9 * most]
        return places[len(places) // 2]

    def phases(self, phases: Sequence[tuple[str, float, float]]) -> None:
        y, taken = HEIGHT - BOTTOM + 24, []
        for name, begin, end in sorted(phases, key=lambda x: x[1] - x[2]):
            x, width = self.x(begin), self.x(end) - self.x(begin)
            if not name or width < 3:
                continue
            self.box(x + 1, y, width - 2, 2, "soft")
            middle, half = x + width / 2, len(name) * LETTER / 2
            if all(abs(middle - other) > half + more for other, more in taken):
                taken.append((middle, half))
                self.write(middle, y + 16, name, "ink", ' text-anchor="middle"')


_BYTES = ("GiB", "MiB", "KiB", "bytes")
_SECONDS = ("s", "ms", "µs", "ns")


def _ticks(
    highest: float, units: Sequence[float], names: Sequence[str]
) -> list[tuple[float, str]]:
    """Return up to six round values from 0 on with their texts, the last with a unit"""
    if not highest:
        return [(0, "0")]
    unit, name = next(
        (pair for pair in zip(units, names, strict=True) if highest >= pair[0]),
        (units[-1], names[-1]),
    )
    step = next(
        factor * unit
        for factor in (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10**6, 10**9)
        if highest < 6 * factor * unit
    )
    count = int(highest / step)
    values = [i * step for i in range(count + 1)]
    texts = [f"{value / unit:g}" for value in values]
    texts[-1] += f" {name}"
    return list(zip(values, texts, strict=True))


def _short(nbytes: int) -> str:
    """Return a number of bytes in at most three digits, such as ``'4.6 GiB'``."""
    number, unit = size_text(nbytes).split()
    value = float(number)
    return f"{value:.{1 if value < 10 and unit != 'bytes' else 0}f} {unit}"


def _apart(places: Sequence[float], lowest: float) -> list[float]:
    """Return heights, from the lowest line up, moved up until no lines overlap."""
    moved: list[float] = []
    for y in places:
        y = min(y, lowest - 4)
        moved.append(min(y, moved[-1] - LINE) if moved else y)
    return moved


def _class(name: str) -> str:
    return name.replace(" ", "-")
