"""A map of what a caching allocator has taken from a GPU: what's in use, what's free.

A bar is a segment, and its pieces are the blocks. It shows why memory that is free can
be useless: a tensor needs one piece, and a segment with a block in use stays.
"""

import html
from collections.abc import Sequence
from typing import NamedTuple

from .drawing import COLOURS, GRID, INK, PAPER, SOFT, text_width
from .units import size_text

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 760, 16, 16, 92, 44
ROOM = WIDTH - LEFT - RIGHT
BAR, ROW = 9, 12  # pixels of a segment, and from one to the next
MOST_ROWS = 40
SMALL, LARGE = 12, 17  # pixels of the letters
COLUMNS = 60  # of the text

USED, FREE = COLOURS["compute"], COLOURS["wait"]


class Piece(NamedTuple):
    """A block of a segment: its bytes, and whether it's in use."""

    nbytes: int
    used: bool


class MemoryMap:
    """The segments of one device at one moment.

    Args:
        segments: the pieces of each segment, in the order of their addresses.
        label: what the picture says below its title, such as ``"simulated (T4)"``.
        wanted: bytes of a request to compare the free pieces with.
    Attributes:
        reserved, allocated, unallocated: bytes of all segments, of the pieces in use,
            and of the free ones.
        largest_free: bytes of the largest free piece.
    """

    def __init__(
        self,
        segments: Sequence[Sequence[Piece]],
        label: str = "",
        wanted: int | None = None,
    ):
        self.segments = sorted(map(tuple, segments), key=_size, reverse=True)
        self.label, self.wanted = label, wanted
        pieces = [piece for segment in self.segments for piece in segment]
        free = [piece.nbytes for piece in pieces if not piece.used]
        self.reserved = sum(piece.nbytes for piece in pieces)
        self.unallocated, self.pieces = sum(free), len(free)
        self.allocated = self.reserved - self.unallocated
        self.largest_free = max(free, default=0)

    def title(self) -> str:
        """Return the finding in a sentence: what's free, and in which pieces."""
        if not self.reserved:
            return "No memory is reserved"
        if not self.pieces:
            return f"All {size_text(self.reserved)} are in use"
        text = f"{size_text(self.unallocated)} free"
        if self.pieces == 1:
            return f"{text}, in one piece"
        return (
            f"{text}, in {self.pieces} pieces of at most {size_text(self.largest_free)}"
        )

    def conditions(self) -> str:
        number = len(self.segments)
        text = f"{size_text(self.reserved)} reserved in {number} segment"
        text += f"{'s' * (number != 1)}, {size_text(self.allocated)} of it in use"
        return f"{text}; {self.label}" if self.label else text

    # -------------------------------------------------------------- text

    def __repr__(self) -> str:
        scale = max(self._longest(), 1) / COLUMNS
        lines = [self.title(), self.conditions(), ""]
        bars = [[Piece(self.wanted, True)]] if self.wanted else []
        for segment in [*bars, *self.segments[:MOST_ROWS]]:
            text, before = "", 0
            for piece in segment:
                before += piece.nbytes
                letter = "?" if segment in bars else "#" if piece.used else "."
                text += letter * (round(before / scale) - len(text))
            lines.append(f"{size_text(_size(segment)):>12}  {text}".rstrip())
        if self._rest():
            lines.append(self._rest())
        legend = ["# in use", ". free", *["? wanted" for _ in bars]]
        return "\n".join([*lines, "", "  ".join(legend)])

    # -------------------------------------------------------------- SVG

    def _repr_svg_(self) -> str:
        return self.svg()

    def svg(self) -> str:
        """Return the map as the text of an SVG file."""
        top = TOP + (34 if self.wanted else 0)
        shown = self.segments[:MOST_ROWS]
        bottom = top + ROW * max(len(shown), 1)
        height = bottom + BOTTOM + (16 if self._rest() else 0)
        title, conditions = self.title(), self.conditions()
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" font-family="sans-serif" '
            f'font-size="{SMALL}" role="img">',
            f"<title>{html.escape(title)}</title>",
            f"<desc>A map of segments, the largest first. {html.escape(conditions)}."
            f"{self._comparison()}</desc>",
            f'<rect width="{WIDTH}" height="{height}" fill="{PAPER}"/>',
            _text(LEFT, 28, title, INK, f' font-size="{LARGE}" font-weight="bold"'),
            _text(LEFT, 48, conditions, SOFT),
            *self._legend(),
            *self._axis(top, bottom),
        ]
        if self.wanted:
            parts += self._request(TOP)
        for row, segment in enumerate(shown):
            parts += self._bar(segment, top + ROW * row)
        if self._rest():
            parts.append(_text(LEFT, bottom + 44, self._rest(), SOFT))
        return "\n".join([*parts, "</svg>"])

    def _legend(self) -> list[str]:
        parts, x = [], LEFT
        for colour, name in ((USED, "in use"), (FREE, "free")):
            parts.append(_rect(x, 62, 14, BAR, colour))
            parts.append(_text(x + 20, 71, name, INK))
            x += 80
        parts.append(_text(x, 71, "Each bar is a segment, cut into blocks.", SOFT))
        return parts

    def _axis(self, top: float, bottom: float) -> list[str]:
        parts = []
        for value, text in _ticks(self._longest()):
            x = LEFT + self._width(value)
            parts.append(_rect(x, top - 4, 1, bottom - top + 4, GRID))
            anchor = "start" if not value else "middle" if x < WIDTH - 60 else "end"
            more = f' text-anchor="{anchor}"'
            parts.append(_text(x, bottom + 18, text, SOFT, more))
        return parts

    def _request(self, y: float) -> list[str]:
        width = self._width(self.wanted)
        name = f"wanted in one piece: {size_text(self.wanted)}"
        inside = width > text_width(name, SMALL) + 16
        return [
            f'<rect x="{LEFT + 0.5}" y="{y + 0.5}" width="{max(width - 1, 1):g}" '
            f'height="21" fill="none" stroke="{INK}" stroke-dasharray="4 3"/>',
            _text(LEFT + (8 if inside else width + 8), y + 15, name, INK),
        ]

    def _bar(self, segment: Sequence[Piece], y: float) -> list[str]:
        parts, before = [], 0
        for piece in segment:
            x, before = LEFT + self._width(before), before + piece.nbytes
            width = LEFT + self._width(before) - x
            gap = 1 if width > 3 else 0  # so that neighbours can be told apart
            colour = USED if piece.used else FREE
            parts.append(_rect(x, y, max(width - gap, 0.5), BAR, colour))
        return parts

    # -------------------------------------------------------------- parts

    def _comparison(self) -> str:
        if not self.wanted:
            return ""
        return f" {size_text(self.wanted)} is wanted in one piece."

    def _longest(self) -> int:
        return max([self.wanted or 0, *map(_size, self.segments[:1])])

    def _width(self, nbytes: int) -> float:
        return round(ROOM * nbytes / max(self._longest(), 1), 1)

    def _rest(self) -> str:
        rest = self.segments[MOST_ROWS:]
        if not rest:
            return ""
        return f"and {len(rest)} smaller ones, {size_text(sum(map(_size, rest)))}"


def _size(segment: Sequence[Piece]) -> int:
    return sum(piece.nbytes for piece in segment)


def _ticks(longest: int) -> list[tuple[int, str]]:
    """Return up to six round values from 0 on, each with its text."""
    step = 512
    while longest >= 6 * step:
        step *= 2
    values = range(0, longest + 1, step)
    return [(value, _short(value) if value else "0") for value in values]


def _short(nbytes: int) -> str:
    """Return a size without needless digits: ``'256 MiB'``, ``'1.5 GiB'``."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:g} {name}"
    return f"{nbytes} bytes"


def _rect(x: float, y: float, width: float, height: float, colour: str) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
        f'fill="{colour}"/>'
    )


def _text(x: float, y: float, text: str, colour: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="{colour}"{more}>{html.escape(text)}</text>'
