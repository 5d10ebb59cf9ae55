"""A map of what a caching allocator has taken from a GPU: what's in use, what's free.

A bar is a segment, and its pieces are the blocks. It shows why memory that is free can
be useless: a tensor needs one piece, and a segment with a block in use stays.
"""

from collections.abc import Sequence
from typing import NamedTuple

from .drawing import COLOURS, EDGES, GRID, INK, SOFT, text_width
from .svg import LINE, PAD, SIZE, WIDTH, Svg
from .units import size_text
from .words import padded, shown

ROOM = WIDTH - 2 * PAD
BAR, ROW = 9, 12  # pixels of a segment, and from one to the next
MOST_ROWS = 40
COLUMNS = 60  # of the text

USED, FREE = "compute", "wait"  # in whose colours the pieces are drawn


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
        reserved: bytes of all segments.
        allocated: bytes of the pieces in use.
        unallocated: bytes of the free pieces.
        pieces: how many pieces are free.
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
        text = (
            f"{size_text(self.reserved)} reserved in {number} "
            f"segment{'s' * (number != 1)}, {size_text(self.allocated)} of it in use"
        )
        return f"{text}; {self.label}" if self.label else text

    # -------------------------------------------------------------- text

    def __repr__(self) -> str:
        scale = max(self._longest(), 1) / COLUMNS
        lines = [shown(self.title()), shown(self.conditions()), ""]
        bars = [[Piece(self.wanted, True)]] if self.wanted else []
        for segment in [*bars, *self.segments[:MOST_ROWS]]:
            text = _bar(segment, scale)
            if segment in bars:
                text = "?" * len(text)
            size = padded(shown(size_text(_size(segment))), 12, right=True)
            lines.append(f"{size}  {text}")
        if self._rest():
            lines.append(self._rest())
        legend = ["# in use", ". free", *["? wanted" for _ in bars]]
        return "\n".join([*lines, "", "  ".join(map(shown, legend))])

    # -------------------------------------------------------------- SVG

    def _repr_svg_(self) -> tuple[str, dict[str, str]]:
        return self.svg(), {"alt": self._description()}

    def svg(self) -> str:
        """Return the map as the text of an SVG file."""
        picture = Svg(self.title(), self.conditions())
        names = [("in use", USED), ("free", FREE)]
        key = [(name, COLOURS[x], EDGES.get(x)) for name, x in names]
        top = picture.key(picture.top + 4, key) + 8
        if self.wanted:
            self._draw_request(picture, top)
            top += 34
        shown = self.segments[:MOST_ROWS]
        bottom = top + ROW * max(len(shown), 1)
        self._draw_axis(picture, top, bottom)
        for row, segment in enumerate(shown):
            self._draw_bar(picture, segment, top + ROW * row)
        end = bottom + 18
        if self._rest():
            end += LINE + 8
            picture.write(PAD, end, self._rest(), SOFT)
        return picture.text(end + PAD, self._description())

    def _draw_axis(self, picture: Svg, top: float, bottom: float) -> None:
        for value, text in _ticks(self._longest()):
            x = PAD + self._width(value)
            picture.box(x, top - 4, 1, bottom - top + 4, GRID)
            anchor = "start" if not value else "middle" if x < WIDTH - 60 else "end"
            picture.write(x, bottom + 18, text, SOFT, anchor=anchor)

    def _draw_request(self, picture: Svg, y: float) -> None:
        width = self._width(self.wanted)
        name = f"wanted in one piece: {size_text(self.wanted)}"
        inside = width > text_width(name, SIZE) + 16
        picture.parts.append(
            f'<rect x="{PAD + 0.5}" y="{y + 0.5:g}" width="{max(width - 1, 1):g}" '
            f'height="21" fill="none" stroke="{INK}" stroke-dasharray="4 3"/>'
        )
        picture.write(PAD + (8 if inside else width + 8), y + 15, name)

    def _draw_bar(self, picture: Svg, segment: Sequence[Piece], y: float) -> None:
        before = 0
        for piece in segment:
            x, before = PAD + self._width(before), before + piece.nbytes
            width = PAD + self._width(before) - x
            gap = 1 if width > 3 else 0  # so that neighbours can be told apart
            colour = USED if piece.used else FREE
            edge = EDGES.get(colour) if width > 3 else None
            picture.box(x, y, max(width - gap, 0.5), BAR, COLOURS[colour], edge)

    # -------------------------------------------------------------- parts

    def _description(self) -> str:
        text = shown(
            "{title}. A map of segments, the largest first, each cut into blocks: "
            "{conditions}.",
            title=self.title(),
            conditions=self.conditions(),
        )
        if self.wanted:
            text += " " + shown(
                "{size_text} is wanted in one piece.", size_text=size_text(self.wanted)
            )
        return text

    def _longest(self) -> int:
        return max([self.wanted or 0, *map(_size, self.segments[:1])])

    def _width(self, nbytes: int) -> float:
        return round(ROOM * nbytes / max(self._longest(), 1), 1)

    def _rest(self) -> str:
        rest = self.segments[MOST_ROWS:]
        if not rest:
            return ""
        return f"and {len(rest)} smaller ones, {size_text(sum(map(_size, rest)))}"


def _bar(segment: Sequence[Piece], scale: float) -> str:
    """Return a segment as text, one letter for ``scale`` bytes.

    A block in use has at least one letter, however small it is: a segment without any
    would look as if it could be given back.
    """
    letters = ["."] * max(round(_size(segment) / scale), 1)
    before = 0
    for piece in segment:
        begin = min(round(before / scale), len(letters) - 1)
        before += piece.nbytes
        if piece.used:
            end = max(round(before / scale), begin + 1)
            letters[begin:end] = "#" * (end - begin)
    return "".join(letters)


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
