"""What slides show of a block of text: all of it, or how it begins."""

import re

from d2l_gpu.course.slides.parts import Part
from d2l_gpu.course.slides.prose import (
    Block,
    is_question,
    items,
    joined,
    sentences,
    width,
    without_links,
)

FEW_WORDS = 32
"""Letters of a sentence that's too short to be understood alone."""

SHORT = 240
"""Letters of a text that's short enough to be shown whole."""

_SHORT_ITEM, _SHORT_QUOTE = 190, 330  # the same of an item of a list, and of a quote


def whole(block: Block) -> Part:
    """Return all of a block for a slide, with its notes."""
    if block.kind == "code":
        first, *lines = block.text.split("\n")
        kind = first.lstrip("`~").strip()
        return Part("fenced", "\n".join(lines[:-1]), said=block.text, language=kind)
    text = block.text
    if block.kind == "quote":
        text = re.sub(r"^> ?", "", text, flags=re.MULTILINE)
    kind = "text" if block.kind == "paragraph" else block.kind
    return Part(kind, without_links(text), said=_said(block))


def _said(block: Block) -> str:
    """Return what the speaker says of a block."""
    return "" if block.kind == "figure" else block.text


def excerpt(block: Block) -> Part:
    """Return what a slide shows of a block by itself, with its notes."""
    part = whole(block)
    if part.kind == "text":
        part.text = _beginning(part.text)
    elif part.kind == "quote" and width(part.text) > _SHORT_QUOTE:
        part.text = joined(sentences(part.text)[:3])
    elif part.kind == "list":
        part.text = "\n".join(
            each if width(each) <= _SHORT_ITEM else first_of(each)
            for each in items(part.text)
        )
    return part


def first_of(paragraph: str) -> str:
    """Return the first sentence, and the next if it's too short to stand alone."""
    text = without_links(paragraph)
    said = [each for each in sentences(text) if not is_question(each)]
    said = [each for each in said if each[0] not in "(（"] or said
    many = 2 if said and width(said[0]) < FEW_WORDS else 1
    return joined(said[:many]) or text


def _beginning(paragraph: str) -> str:
    """Return as many sentences as fit into a few lines, at least the first."""
    text = without_links(paragraph)
    shown, *more = sentences(text)
    for each in more:
        if width(f"{shown} {each}") > SHORT:
            break
        shown = joined([shown, each])
    return shown


def question_of(said: list[str]) -> list[Part]:
    """Return the question with which sentences end, if they do.

    One sentence may follow, such as *Decide, then run the next cell*, and what is
    needed to understand a short question comes before it.
    """
    asked = [i for i, each in enumerate(said) if is_question(each)]
    if not asked or asked[-1] < len(said) - 2:
        return []
    begin, end = asked[-1], asked[-1] + 1
    while begin and is_question(said[begin - 1]):
        begin -= 1
    if begin > 1 and width(said[begin]) < FEW_WORDS:
        begin -= 1
    return [Part("question", joined(said[begin:end]), click=True)]
