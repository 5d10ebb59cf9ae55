"""The texts in drawings, for translation.

Drawings are SVG files with one ``<text>`` for each line. In another language a line has
the same place and, if it would need more room than the English one with a tenth to
spare, smaller letters.
"""

import html
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from d2l_gpu.vgpu.sim.drawing import text_width
from tools.shown_texts import is_prose
from tools.translation import Message

FOLDER = "figures"

_TEXT = re.compile(r"(<text\b[^>]*>)(.*?)(</text>)", re.DOTALL)
_RUN = re.compile(r"(<[^>]+>)")
_SIZE = re.compile(r'\bfont-size="([\d.]+)"')
_ROOM, _LEAST = 1.1, 9.0  # how much wider a text may be, and how small its letters


def messages_in(lessons: Path) -> Iterator[Message]:
    """Yield the texts of all drawings that a language may say otherwise."""
    for path in sorted((lessons / FOLDER).glob("*.svg")):
        content = path.read_text("utf-8")
        for match in _TEXT.finditer(content):
            line = content.count("\n", 0, match.start()) + 1
            for text in _runs(match[2]):
                if is_prose(_escaped(text)):
                    yield Message(_escaped(text), (f"{FOLDER}/{path.name}",), line)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _runs(inside: str) -> list[str]:
    """Return the pieces of a line, which may be parted by marks such as bold ones."""
    pieces = (html.unescape(piece).strip() for piece in _RUN.split(inside)[::2])
    return [piece for piece in pieces if piece]


def translated(drawing: str, translate: Callable[[str], str]) -> str:
    """Return a drawing with its texts in another language.

    Args:
        drawing: the content of an SVG file.
        translate: returns a text's translation, or the text.
    """

    root = _SIZE.search(drawing.partition(">")[0])
    usual = float(root[1]) if root else 0.0

    def line(match: re.Match) -> str:
        opening, inside, closing = match.groups()
        pieces = _RUN.split(inside)
        for i in range(0, len(pieces), 2):
            text = html.unescape(pieces[i])
            if bare := text.strip():
                said = text.replace(bare, translate(bare))
                pieces[i] = html.escape(said, quote=False)
        now = "".join(pieces)
        if now == inside:
            return match.group()
        return _smaller(opening, usual, _plain(inside), _plain(now)) + now + closing

    return _TEXT.sub(line, drawing)


def _plain(inside: str) -> str:
    return html.unescape(_RUN.sub("", inside))


def _smaller(opening: str, usual: float, before: str, now: str) -> str:
    """Return the tag of a text with a size at which the new one fits its room.

    Args:
        opening: the tag.
        usual: the size that texts have which tell none; 0 if the drawing has none.
        before, now: the text in English and in translation.
    """
    ratio = text_width(now, 1) / (_ROOM * text_width(before, 1) or 1)
    own = _SIZE.search(opening)
    size = float(own[1]) if own else usual
    if ratio <= 1 or not size:
        return opening
    new = f'font-size="{max(size / ratio, min(_LEAST, size)):.3g}"'
    if own:
        return opening.replace(own.group(), new)
    return opening.replace("<text", f"<text {new}", 1)
