"""Which of a notebook's cells slides show, and how an author says so."""

import ast
import re
from collections.abc import Iterator
from html import unescape

from nbformat import NotebookNode, from_dict

from d2l_gpu.course.slides.parts import picture_of

TYPES = ("slide", "subslide", "fragment", "notes", "skip")
"""The types that an author can give cells; code can't be a note."""

NEW, FRAGMENT, NOTES, SKIP = TYPES[:2], *TYPES[2:]

_DRAWING = 10  # lines of code that only draw; longer, they aren't shown
_LEFT_OUT = ("header-", "report")  # beginnings of the ids of cells that are no lesson
# Where an output says what its picture shows.
_DESCRIPTIONS = {
    "image/png": "^<Figure: (.+)>",
    "image/svg+xml": "<desc>(.+?)</desc>",
}


def slide_type(cell: NotebookNode) -> str:
    """Return the type that a cell has on slides; empty if none."""
    found = cell.metadata.get("slideshow", {}).get("slide_type", "")
    return "" if found == "-" else found


def is_shown(cell: NotebookNode) -> bool:
    """Return whether a slide shows a code cell, or its output."""
    if slide_type(cell) in (SKIP, NOTES):
        return False
    if cell.metadata.get("jupyter", {}).get("source_hidden"):
        return bool(cell.get("outputs"))
    return bool(slide_type(cell)) or not _is_setup(cell.source)


def code_of(cell: NotebookNode) -> str:
    """Return the code that a slide shows of a cell; empty if only its output."""
    if cell.metadata.get("jupyter", {}).get("source_hidden"):
        return ""
    if not cell.metadata.get("slideshow", {}).get("show_code", True):
        return ""
    tree = _parsed(cell.source)
    defines = any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree)
    if picture_of(cell) and not defines and len(cell.source.split("\n")) > _DRAWING:
        return ""
    return cell.source.strip("\n")


def is_left_out(cell: NotebookNode) -> bool:
    """Return whether a cell is for readers of the notebook only."""
    return cell.get("id", "").startswith(_LEFT_OUT) or (
        cell.cell_type == "markdown" and slide_type(cell) == SKIP
    )


def _parsed(source: str) -> list[ast.stmt]:
    try:
        return ast.parse(source).body
    except SyntaxError:
        return []  # such as a command of IPython


def _is_setup(source: str) -> bool:
    """Return whether code imports something, and at most sets it up."""
    tree = _parsed(source)
    imports = [isinstance(node, ast.Import | ast.ImportFrom) for node in tree]
    defines = any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree)
    if not any(imports) or defines or "print(" in source:
        return False
    return all(imports) or sum(imports) > 1


def outputs_of(cell: NotebookNode) -> Iterator[NotebookNode]:
    """Yield what a slide shows of a cell's outputs, pictures with what they show."""
    for output in cell.get("outputs", ()):
        if output.output_type == "stream" and output.name == "stderr":
            continue
        data = output.get("data", {})
        for kind, pattern in _DESCRIPTIONS.items():
            source = data.get("text/plain" if kind == "image/png" else kind, "")
            if kind in data and (says := re.search(pattern, source)):
                alt = {kind: {"alt": unescape(says[1])}}
                output = from_dict({**output, "metadata": {**output.metadata, **alt}})
        if output.get("text", "x").strip():
            yield output


def is_stub(cell: NotebookNode) -> bool:
    """Return whether a cell is for the answer to an exercise."""
    return "d2l.check(" in cell.source
