"""Parts onto slides, with code and output divided where they're too long."""

from collections.abc import Iterator
from dataclasses import replace

from nbformat import NotebookNode
from nbformat.v4 import new_output

from d2l_gpu.course.slides.parts import MOST_LINES, ROOM, Part, Slide, picture_of
from d2l_gpu.course.slides.prose import items

_MOST_OUTPUT = 20  # lines of printed text on a slide
_MOST_ROWS = 12  # of a table in the text


def packed(title: str, parts: list[Part], notes: list[str]) -> list[Slide]:
    """Return slides with these parts, as few as they fit on, in order.

    Args:
        title: of all of them.
        parts: what they show.
        notes: what their speaker says, on the first.
    """
    pieces = []
    for part in parts:
        first, *more = _pieces(part)
        first.said = part.said
        pieces += [first, *more]
    together = Slide(title, pieces, [*notes, *_said(pieces)])
    if together.put_beside():
        return [together]
    slides = [Slide(title)]
    for i, piece in enumerate(pieces):
        needed = piece.height
        if piece.kind == "question" and i + 1 < len(pieces):
            needed += min(pieces[i + 1].height, ROOM - needed)  # with its answer
            if needed > slides[-1].left:
                needed = piece.height
        if slides[-1].parts and needed > slides[-1].left:
            slides.append(Slide(title))
            piece.click = False  # what begins a slide is there from the start
        slides[-1].parts.append(piece)
    slides = [slide for slide in slides if slide.parts]
    for slide in slides:
        slide.put_beside()
        slide.notes = _said(slide.parts)
    if slides:
        slides[0].notes[:0] = notes
    return slides


def _said(parts: list[Part]) -> list[str]:
    return [part.said for part in parts if part.said]


def _pieces(part: Part) -> Iterator[Part]:
    """Yield a part in pieces that fit on a slide each."""
    if part.kind in ("code", "fenced"):
        for text in _divided(part.text.strip("\n").split("\n")):
            yield replace(part, text=text, said="")
    elif part.kind == "list" and part.height > ROOM:
        shown = Part("list")
        for item in items(part.text):
            longer = Part("list", f"{shown.text}\n{item}".strip("\n"), click=part.click)
            if shown.text and longer.height > ROOM:
                yield shown
                longer = Part("list", item, click=part.click)
            shown = longer
        yield shown
    elif part.kind == "table" and part.height > ROOM:
        head, rule, *rows = part.text.strip().split("\n")
        for begin in range(0, len(rows), _MOST_ROWS):
            these = [head, rule, *rows[begin : begin + _MOST_ROWS]]
            yield Part("table", "\n".join(these), click=part.click)
    elif part.kind == "output":
        for outputs in _divided_outputs(part.cell.outputs):
            cell = NotebookNode(part.cell, outputs=outputs)
            yield Part("output", cell=cell, click=part.click)
    else:
        yield part


def _divided(lines: list[str]) -> Iterator[str]:
    """Yield code in pieces, of lines that belong together."""
    while len(lines) > MOST_LINES:
        fewest = max(MOST_LINES // 3, len(lines) - 2 * MOST_LINES)
        places = range(fewest, MOST_LINES + 1)
        place = min(places, key=lambda i: (_indent(lines, i), abs(len(lines) - 2 * i)))
        yield "\n".join(lines[:place]).rstrip()
        lines = lines[place:]
        while lines and not lines[0].strip():
            lines = lines[1:]
    yield "\n".join(lines)


def _indent(lines: list[str], place: int) -> int:
    """Return how bad it is to divide code before a line: at best, it's a new block."""
    line = lines[place]
    if not line.strip():
        return 0 if place + 1 < len(lines) and lines[place + 1][:1] != " " else 2
    after_blank = not lines[place - 1].strip()
    return 4 * (len(line) - len(line.lstrip())) + (1 if after_blank else 3)


def _divided_outputs(outputs: list[NotebookNode]) -> Iterator[list[NotebookNode]]:
    """Yield outputs in lists that fit on a slide each."""
    these: list[NotebookNode] = []
    for output in _pages_of(outputs):
        part = Part("output", cell=NotebookNode(outputs=[*these, output]))
        picture = picture_of(NotebookNode(outputs=[output]))
        if these and (picture or part.height > ROOM):
            yield these
            these = []
        these.append(output)
    if these:
        yield these


def _pages_of(outputs: list[NotebookNode]) -> Iterator[NotebookNode]:
    for output in outputs:
        lines = output.get("text", "").rstrip("\n").split("\n")
        if output.output_type != "stream" or len(lines) <= _MOST_OUTPUT:
            yield output
            continue
        for begin in range(0, len(lines), _MOST_OUTPUT):
            text = "\n".join(lines[begin : begin + _MOST_OUTPUT])
            yield new_output("stream", name=output.name, text=text)
