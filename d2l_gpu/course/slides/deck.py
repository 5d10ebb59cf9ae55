"""The slides of a lesson as a notebook, whose cells have Jupyter's types of slides."""

from collections.abc import Iterator

from nbformat import NotebookNode, from_dict
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from d2l_gpu.course.slides.cells import is_stub, slide_type
from d2l_gpu.course.slides.parts import Part, Slide
from d2l_gpu.course.slides.prose import without_links
from d2l_gpu.course.slides.rules import slides_of

# Of JupyterLab's extension for slides: no effects, and cells that don't fit scroll.
_LIVE = {"scroll": True, "transition": "none", "theme": "simple"}


def deck(notebook: NotebookNode, label: str = "") -> NotebookNode:
    """Return the slides as a notebook for nbconvert, where code and output are apart.

    Args:
        notebook: the lesson, with its outputs.
        label: above the title of the talk, such as the lesson's number.
    """
    cells = [cell for slide in slides_of(notebook) for cell in _cells(slide, label)]
    for number, cell in enumerate(cells):
        cell.id = f"part-{number}"  # so that pages are the same whenever they're made
    return new_notebook(cells=cells, metadata=notebook.metadata)


def live_deck(notebook: NotebookNode) -> NotebookNode:
    """Return the slides as a notebook to be run, with all of the lesson's code.

    Each code cell is there once and whole, without its output. Those that no slide
    shows have to be run before the talk; the cells for the answers to exercises have
    slides of their own.
    """
    cells: list[NotebookNode] = []
    waiting = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for slide in slides_of(notebook):
        new = [each for each in _cells(slide, "") if each.cell_type == "markdown"]
        for part in slide.parts:
            ids = [cell.id for cell in waiting]
            if part.cell is None or part.cell.id not in ids:
                continue
            place = ids.index(part.cell.id)
            cells += map(_unseen, waiting[:place])
            # Its title begins a slide already.
            kind = "fragment" if slide_type(part.cell) == "fragment" else "-"
            new.append(_typed(waiting[place], kind))
            waiting = waiting[place + 1 :]
        cells += _order(new)
    cells += map(_unseen, waiting)
    numbered = [
        NotebookNode(cell, id=f"slide-{i}") if cell.cell_type == "markdown" else cell
        for i, cell in enumerate(cells)
    ]
    metadata = {**notebook.metadata, "rise": _LIVE}
    return new_notebook(cells=numbered, metadata=from_dict(metadata))


def _unseen(cell: NotebookNode) -> NotebookNode:
    """Return a code cell that no slide shows, for a live talk."""
    return _typed(cell, "subslide" if is_stub(cell) else "skip")


def _order(cells: list[NotebookNode]) -> list[NotebookNode]:
    """Return the cells of a slide with what is said about an output behind the code."""
    below = {"takeaway"}
    after = [each for each in cells if below & {*each.metadata.get("tags", ())}]
    return [each for each in cells if each not in after] + after


def _typed(cell: NotebookNode, kind: str) -> NotebookNode:
    """Return a code cell of this type, without its output."""
    metadata = {**cell.metadata, "slideshow": {"slide_type": kind}}
    empty = {"outputs": [], "execution_count": None, "metadata": metadata}
    return from_dict({**cell, **empty})


def _cells(slide: Slide, label: str) -> Iterator[NotebookNode]:
    """Yield the cells of a slide: its title, notes, and parts."""
    kind = "slide" if slide.first else "subslide"
    if slide.opening:
        above = f"*{label}*\n\n" if label else ""
        yield _prose(f"{above}# {slide.title}", kind, "opening")
    else:
        yield _prose(f"## {slide.title}", kind, "again" if slide.again else "title")
    if slide.notes:
        unique = dict.fromkeys(map(without_links, slide.notes))
        yield _prose("\n\n".join(unique), "notes", "notes")
    click = False  # whether we're in what appears on a click
    for part in slide.parts:
        kind = "fragment" if part.click else "-"
        if click and not part.click:
            part.click = True
            kind = "-"  # appears with what is above it
        click = click or part.click
        yield _cell(part, kind)


def _cell(part: Part, kind: str) -> NotebookNode:
    if part.kind.startswith("output"):
        return new_code_cell("", outputs=part.cell.outputs, metadata=_meta(part, kind))
    if part.kind == "code":
        return new_code_cell(part.text, metadata=_meta(part, kind))
    if part.kind == "fenced":
        return _prose(f"```{part.language}\n{part.text}\n```", kind, "fenced")
    return _prose(part.text, kind, part.kind)


def _meta(part: Part, kind: str) -> dict:
    tags = dict.fromkeys([part.kind.partition("-")[0], part.kind])
    return {"slideshow": {"slide_type": kind}, "tags": [*tags]}


def _prose(text: str, kind: str, tag: str) -> NotebookNode:
    metadata = {"slideshow": {"slide_type": kind}, "tags": [tag]}
    return new_markdown_cell(text, metadata=metadata)
