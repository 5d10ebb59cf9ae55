"""What a slide consists of, and how much of its height each part takes."""

import base64
import math
import re
import struct
from dataclasses import dataclass, field

from nbformat import NotebookNode

from d2l_gpu.course.slides.prose import items, width

# A slide is this large before the browser scales it to its window.
WIDTH, HEIGHT = 1280, 720

ROOM = 560
"""Of a slide's height, what's left below its title and above its number."""

MOST_LINES = 18  # of code on one slide

_COLUMNS = 92  # of text on a line
_SPACE = 14  # between parts
_PICTURE, _TALL_PICTURE = 280, 400  # of the height for a picture, at least
_BESIDE = 470  # letters of text beside a tall picture, at most
_TALL = 2.1  # of a picture's width to its height; what's less is tall
_LINES = {"text": 36, "lead": 36, "question": 38, "takeaway": 36, "quote": 34}
_PICTURES = ("image/svg+xml", "image/png", "image/jpeg")


@dataclass
class Part:
    """Something on a slide.

    Attributes:
        kind: how it looks: ``"lead"`` (what the code is about to do), ``"text"``,
            ``"question"``, ``"takeaway"`` (what the output shows), ``"list"``,
            ``"table"``, ``"quote"``, ``"figure"``, ``"formula"``, ``"fenced"``,
            ``"code"`` or ``"output"``. A tall picture with text to its left is a
            ``"figure-beside"`` or an ``"output-beside"``.
        text: its Markdown, or the code.
        cell: the cell of code, or of the output.
        click: whether it appears only when the speaker goes on.
        said: what the speaker says about it, beside what it shows.
        language: that fenced code is in, as Markdown names it.
    """

    kind: str
    text: str = ""
    cell: NotebookNode | None = None
    click: bool = False
    said: str = ""
    language: str = ""

    @property
    def is_tall(self) -> bool:
        """Whether it's a picture with room for text beside it."""
        if self.kind.startswith("output"):
            return len(self.cell.outputs) == 1 and _is_tall(
                self.cell.outputs[0].get("data", {})
            )
        match = re.search(r"data:image/png;base64,([\w+/]{64})", self.text)
        return bool(match) and _is_tall({"image/png": match[1]})

    @property
    def height(self) -> int:
        """The height that it takes, estimated."""
        return _SPACE + self._height()

    def _height(self) -> int:
        if self.kind in ("code", "fenced"):
            return 26 * len(self.text.strip().split("\n")) + 20
        if self.kind.startswith("output"):
            return sum(map(_output_height, self.cell.outputs))
        if self.kind == "list":
            return sum(
                36 * math.ceil(width(each) / (_COLUMNS - 4)) + 8
                for each in items(self.text)
            )
        if self.kind == "table":
            return 40 * (len(self.text.split("\n")) - 1)
        if self.kind.startswith("figure"):
            return _PICTURE
        if self.kind == "formula":
            return 70
        lines = math.ceil(width(self.text) / _COLUMNS)
        return _LINES.get(self.kind, 36) * lines + (24 * (self.kind == "quote"))


@dataclass
class Slide:
    """One slide.

    Attributes:
        title: what is written above it.
        parts: what it shows, from top to bottom.
        notes: what its speaker says, in paragraphs of Markdown.
        first: whether a new part of the talk begins with it.
        again: whether an earlier slide has the same title.
        opening: whether it's the title of the whole talk.
    """

    title: str
    parts: list[Part] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    first: bool = False
    again: bool = False
    opening: bool = False

    @property
    def left(self) -> int:
        """The height that's left."""
        return ROOM - sum(part.height for part in self.parts)

    def put_beside(self) -> bool:
        """Put the only picture beside the text, if it's tall and there's no code.

        Returns:
            whether everything fits on this slide then.
        """
        tall = [part for part in self.parts if part.is_tall]
        others = [part for part in self.parts if not part.is_tall]
        letters = sum(width(part.text) for part in others)
        if (
            len(tall) != 1
            or not letters
            or letters > _BESIDE
            or any(part.kind not in (*_LINES, "output") for part in others)
            or any("quote" in part.kind or picture_in(part) for part in others)
        ):
            return False
        tall[0].kind = f"{tall[0].kind.partition('-')[0]}-beside"
        return True


def picture_of(cell: NotebookNode) -> bool:
    """Return whether a cell's output is a picture."""
    return any(
        kind in output.get("data", {})
        for output in cell.get("outputs", ())
        for kind in _PICTURES
    )


def picture_in(part: Part) -> bool:
    """Return whether a part is a picture."""
    return part.kind.startswith("figure") or (
        part.kind.startswith("output") and picture_of(part.cell)
    )


def _is_tall(data: dict) -> bool:
    return _aspect(data) < _TALL


def _aspect(data: dict) -> float:
    """Return a picture's width divided by its height; infinity if there is none."""
    if svg := data.get("image/svg+xml"):
        if box := re.search(r'viewBox="\S+ \S+ (\S+) ([^"\s]+)"', svg):
            return float(box[1]) / float(box[2])
        return 1.0
    if png := data.get("image/png"):
        high = base64.b64decode("".join(png)[:64])[16:24]
        return struct.unpack(">I", high[:4])[0] / struct.unpack(">I", high[4:])[0]
    return math.inf


def _output_height(output: NotebookNode) -> int:
    data = output.get("data", {})
    if any(kind in data for kind in _PICTURES):
        return _TALL_PICTURE if _aspect(data) < _TALL else _PICTURE
    if rows := data.get("text/html", "").count("<tr"):
        return 38 * rows + 8
    text = output.get("text") or data.get("text/html") or data.get("text/plain", "")
    text = re.sub(r"<br>", "\n", text)
    return sum(
        26 * max(1, math.ceil(width(line) / 98)) for line in text.rstrip().split("\n")
    )
