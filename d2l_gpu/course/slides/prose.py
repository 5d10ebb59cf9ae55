"""Markdown in blocks, and paragraphs in sentences, in the course's languages."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# What a block begins with, other than a paragraph.
_BEGINNINGS = {
    "heading": r"#{1,6} ",
    "quote": r">",
    "list": r"(?:[*+-]|\d+[.)]) ",
    "table": r"\|",
    "figure": r"!\[",
    "code": r"```|~~~",
    "formula": r"\$\$",
}
_ITEM = re.compile(_BEGINNINGS["list"])

_CODE = re.compile(
    r"(?<!`)(?P<marks>`+)(?!`).*?(?<!`)(?P=marks)(?!`)|\$[^$\n]+\$", re.DOTALL
)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_TEXT_LINK = r"(?<!!)\[(?P<shown>[^\]]*)\]\([^)]*\)"
# Abbreviations after which a sentence goes on.
_SHORT = re.compile(r"(?:\b(?:e\.g|i\.e|vs|etc|cf|p|ex|env|Fig|No|approx)|\b[A-Z])\.$")
_END = re.compile(
    r"[.!?…]+[)\"'»”’*_]*(?=\s+[^\sa-zà-ÿ])"  # before anything but a small letter
    r"|[.!?…]+[)\"'»”’*_]*(?=\s+`)"
    r"|[。！？…]+[”’）」』*_]*"
)


@dataclass(frozen=True)
class Block:
    """A heading, paragraph, list or the like.

    Attributes:
        kind: ``"paragraph"``, ``"heading"``, ``"list"``, ``"table"``, ``"quote"``,
            ``"figure"``, ``"code"`` or ``"formula"``.
        text: its Markdown.
    """

    kind: str
    text: str


def blocks(source: str) -> Iterator[Block]:
    """Yield the blocks of a Markdown text, in order."""
    kind, lines, fence = "", [], ""
    for line in [*source.split("\n"), ""]:
        if fence:
            lines.append(line)
            if line.strip().endswith(fence):
                fence = ""
            continue
        if line.strip() and kind == "list" and (line[0] == " " or _ITEM.match(line)):
            lines.append(line)
            continue
        found = _kind(line)
        if lines and (not line.strip() or found not in ("paragraph", kind)):
            if kind == "list" and not line.strip():
                lines.append(line)  # an item may have several paragraphs
                continue
            yield Block(kind, "\n".join(lines).strip("\n"))
            lines = []
        elif lines and kind == "list" and not lines[-1].strip():
            yield Block(kind, "\n".join(lines).strip("\n"))
            lines = []
        if not line.strip():
            continue
        if not lines:
            kind = found
        lines.append(line)
        if kind in ("code", "formula"):
            mark = line.strip()[:3] if kind == "code" else "$$"
            if kind == "code" or line.strip() == mark or line.count(mark) == 1:
                fence = mark
    if lines:
        yield Block(kind, "\n".join(lines).strip("\n"))


def _kind(line: str) -> str:
    for kind, beginning in _BEGINNINGS.items():
        if re.match(beginning, line):
            return kind
    return "paragraph"


def items(text: str) -> list[str]:
    """Return the items of a list, each with its mark."""
    found: list[list[str]] = []
    for line in text.split("\n"):
        if _ITEM.match(line) or not found:
            found.append([])
        found[-1].append(line)
    return ["\n".join(lines).rstrip() for lines in found]


def sentences(paragraph: str) -> list[str]:
    """Return the sentences of a paragraph, in order."""
    # French has spaces that don't break.
    text = re.sub(r"[ \t\n]+", " ", paragraph).strip()
    masked = text
    for hide in _CODE, _LINK:
        masked = hide.sub(lambda found: _mask(found.group()), masked)
    found, begin = [], 0
    for end in _END.finditer(masked):
        if not _SHORT.search(masked[begin : end.end()].rstrip(")\"'»”’*_")):
            these = masked[begin : end.end()]
            if any(these.count(a) > these.count(b) for a, b in ("()", "（）")):
                continue  # within brackets
            found.append(text[begin : end.end()].strip())
            begin = end.end()
    if text[begin:].strip():
        found.append(text[begin:].strip())
    return found


def joined(chosen: Iterable[str]) -> str:
    """Return sentences as one text; there's no space behind Chinese ones."""
    return re.sub(r"(?<=[。！？”）]) ", "", " ".join(chosen))


def _mask(text: str) -> str:
    """Return a text of the same length without ends of sentences or small letters."""
    return text[0] + "X" * (len(text) - 2) + text[-1]


def is_question(sentence: str) -> bool:
    """Return whether a sentence asks something."""
    return sentence.rstrip(" *_)”’\"'»").endswith(("?", "？"))


def width(text: str) -> int:
    """Return how wide a text is on one line, in Latin letters."""
    shown = _LINK.sub(r"\1", text).replace("**", "").replace("`", "")
    return sum(1 + (unicodedata.east_asian_width(each) in "WF") for each in shown)


def without_links(text: str) -> str:
    """Return Markdown with links replaced by their text; nobody clicks on a slide."""
    either = re.compile(rf"(?P<code>{_CODE.pattern})|{_TEXT_LINK}", re.DOTALL)
    return either.sub(lambda found: found["code"] or found["shown"], text)
