"""The paragraphs of a text in Markdown: what is translated one at a time.

A paragraph is a heading, a paragraph proper, the text of a list's item, or a table as
a whole. Code blocks and displayed formulas are none. What stands around a paragraph,
such as the mark of its item, stays where it is.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin

_LIST_MARK = re.compile(r"[^\s>]")


@dataclass(frozen=True)
class Paragraph:
    """A paragraph and its place.

    Attributes:
        text: without what stands before its lines.
        begin, end: its lines in the whole, from 0; the second is the one behind it.
        before: what stands before its first line, as the mark of a list's item.
    """

    text: str
    begin: int
    end: int
    before: str = ""


@cache
def parser() -> MarkdownIt:
    """Return a parser of the Markdown that notebooks show."""
    return MarkdownIt("commonmark").enable("table").use(dollarmath_plugin)


def paragraphs(source: str) -> Iterator[Paragraph]:
    """Yield the paragraphs of a text in Markdown, in order."""
    lines = source.split("\n")
    tokens = parser().parse(source)
    for position, token in enumerate(tokens):
        if token.map is None:
            continue
        begin, end = token.map
        if token.type in ("heading_open", "table_open", "html_block"):
            yield _as_it_is(lines, begin, end)
        elif token.type == "paragraph_open":
            content = [
                line.strip() for line in tokens[position + 1].content.split("\n")
            ]
            before = lines[begin][: lines[begin].find(content[0])]
            yield Paragraph("\n".join(content), begin, begin + len(content), before)


def _as_it_is(lines: list[str], begin: int, end: int) -> Paragraph:
    while end > begin + 1 and not lines[end - 1].strip():
        end -= 1  # blank lines behind a table belong to it for the parser
    return Paragraph("\n".join(lines[begin:end]), begin, end)


def replaced(source: str, translate: Callable[[str], str]) -> str:
    """Return a text in Markdown with each of its paragraphs replaced.

    Args:
        source: the text.
        translate: takes a paragraph, and returns what to put in its place.
    """
    lines = source.split("\n")
    for each in reversed(list(paragraphs(source))):
        first, *more = translate(each.text).split("\n")
        # The lines of an item are indented as far as its text; quotes keep their mark.
        margin = _LIST_MARK.sub(" ", each.before)
        lines[each.begin : each.end] = [
            each.before + first,
            *(margin + line for line in more),
        ]
    return "\n".join(lines)
