"""Cells of notebooks: making some, and asking about those of others."""

import re
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell
from nbval.plugin import IPyNbCell, get_sanitize_patterns

from tests.helpers.paths import SANITIZE


def executed_cell(number: int) -> NotebookNode:
    """Return a code cell as if it had been executed as the ``number``-th."""
    return new_code_cell(
        f"print({number})",
        id=f"cell-{number}",
        execution_count=number,
        outputs=[stream(f"{number}\n")],
    )


def stream(text: str, name: str = "stdout") -> NotebookNode:
    """Return a piece of output on ``stdout`` or ``stderr``."""
    return nbformat.v4.new_output("stream", name=name, text=text)


def checks_in(path: Path) -> Iterator[str]:
    """Yield the numbers of the exercises that the cells of a notebook check."""
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            calls = r"^(?:d2l\.)?check\('([\w.]+)'"  # in A1, d2l is the book's
            yield from re.findall(calls, cell.source, re.M)


def sanitised_by_nbval(text: str) -> str:
    patterns = OrderedDict(get_sanitize_patterns(SANITIZE.read_text()))
    cell = SimpleNamespace(parent=SimpleNamespace(sanitize_patterns=patterns))
    return IPyNbCell.sanitize(cell, text)
