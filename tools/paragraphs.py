"""Split Markdown into paragraphs, the units of translation.

A paragraph is a heading, a paragraph proper, the text of a list item, a whole table, or
a displayed formula with words or decimals. Code blocks don't count. The markup around a
paragraph, such as a list marker, is not part of it.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin

_IN_WORDS = re.compile(r"\\text\{[^}]*[^\W\d_]|\d\.\d")  # in a formula
_LIST_MARK = re.compile(r"[^\s>]")


@dataclass(frozen=True)
class Paragraph:
    """A paragraph and its position.

    Attributes:
        text: the paragraph, without markup before its lines.
        begin, end: its lines in the source, counted from 0, `end` exclusive.
        before: the markup before its first line, such as a list marker.
    """

    text: str
    begin: int
    end: int
    before: str = ""


@cache
def parser() -> MarkdownIt:
    """Return a parser for the Markdown dialect of notebooks."""
    return MarkdownIt("commonmark").enable("table").use(dollarmath_plugin)


def paragraphs(source: str) -> Iterator[Paragraph]:
    """Yield the paragraphs of a Markdown text, in order."""
    lines = source.split("\n")
    tokens = parser().parse(source)
    for position, token in enumerate(tokens):
        if token.map is None:
            continue
        begin, end = token.map
        formula = token.type == "math_block" and _IN_WORDS.search(token.content)
        if formula or token.type in ("heading_open", "table_open", "html_block"):
            yield _as_it_is(lines, begin, end)
        elif token.type == "paragraph_open":
            content = [
                line.strip() for line in tokens[position + 1].content.split("\n")
            ]
            before = lines[begin][: lines[begin].find(content[0])]
            yield Paragraph("\n".join(content), begin, begin + len(content), before)


def _as_it_is(lines: list[str], begin: int, end: int) -> Paragraph:
    while end > begin + 1 and not lines[end - 1].strip():
        end -= 1  # the parser counts blank lines after a table as part of it
    return Paragraph("\n".join(lines[begin:end]), begin, end)


def replaced(source: str, translate: Callable[[str], str]) -> str:
    """Return a Markdown text with each of its paragraphs replaced.

    Args:
        source: the text.
        translate: takes a paragraph's text and returns the replacement.
    """
    lines = source.split("\n")
    for each in reversed(list(paragraphs(source))):
        first, *more = translate(each.text).split("\n")
        # Indent an item's later lines as far as its text; keep the > of quotes.
        margin = _LIST_MARK.sub(" ", each.before)
        lines[each.begin : each.end] = [
            each.before + first,
            *(margin + line for line in more),
        ]
    return "\n".join(lines)
