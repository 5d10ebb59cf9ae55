"""What must hold for every committed notebook, and for an edition as a whole.

nbval alone is not enough: it passes a notebook that was never executed, because
there is nothing in it to compare.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tools.compare import is_compared
from tools.outputs import has_comparable_output, output_problems

MIN_COMPARED = 0.9  # of the code cells with output, in an edition

# What opens and closes a notebook in English.
_AIMS = re.compile(r"You will be able to\b.*\b\d+ minutes\b", re.DOTALL)
_LAST_HEADINGS = ["Summary", "Exercises"]

# What a check says of a function that is not written yet, and of a solution.
_SAID = {
    False: re.compile(r"^\w\d\.\d+: not answered yet\.", re.MULTILINE),
    True: re.compile(r"^\w\d\.\d+: all holds\.", re.MULTILINE),
}
_CHECK = re.compile(r"^(?:d2l\.)?check\(", re.MULTILINE)


def notebook_problems(notebook: NotebookNode, solutions: bool = False) -> Iterator[str]:
    """Yield what is wrong with one committed notebook in English, a line each.

    Args:
        notebook: as it was read.
        solutions: whether it is one with the solutions to exercises.
    """
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    counts = [cell.execution_count for cell in code]
    if None in counts:
        for cell in code:
            if cell.execution_count is None:
                yield f"cell {cell.id}: it was never executed"
    elif counts != list(range(1, len(code) + 1)):
        yield f"the cells were not executed in order, from 1: {counts}"
    if not any(cell.outputs for cell in code):
        yield "no cell has any output"
    for cell in code:
        for problem in output_problems(cell):
            yield f"cell {cell.id}: {problem}"
        checks = len(_CHECK.findall(cell.source))
        if len(_SAID[solutions].findall(_printed(cell))) != checks:
            what = "a solution does not pass" if solutions else "it shows an answer"
            yield f"cell {cell.id}: {what}: {_printed(cell).strip()}"
    if not solutions:
        yield from _form_problems(notebook)


def _printed(cell: NotebookNode) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)


def _form_problems(notebook: NotebookNode) -> Iterator[str]:
    """Yield what is missing of title, aims, duration, summary and exercises."""
    opening = notebook.cells[0] if notebook.cells else None
    if opening is None or not opening.source.startswith("# "):
        yield "the first cell does not begin with a title"
    elif not _AIMS.search(opening.source):
        yield "the first cell does not state the aims and the minutes that it takes"
    headings = [
        line.removeprefix("## ").strip()
        for cell in notebook.cells
        if cell.cell_type == "markdown"
        for line in cell.source.splitlines()
        if line.startswith("## ")
    ]
    if headings[-2:] != _LAST_HEADINGS:
        yield f"the last headings are not {' and '.join(_LAST_HEADINGS)}"


def share_compared(notebooks: Sequence[NotebookNode]) -> float:
    """Return the share of the code cells with output that nbval really compares.

    A cell that shows nothing but a picture does not count as compared.
    """
    with_output = [
        cell
        for notebook in notebooks
        for cell in notebook.cells
        if cell.cell_type == "code" and cell.outputs
    ]
    compared = [
        cell
        for cell in with_output
        if is_compared(cell) and has_comparable_output(cell)
    ]
    return len(compared) / len(with_output) if with_output else 0.0


def edition_problems(paths: Sequence[Path], solutions: bool = False) -> Iterator[str]:
    """Yield what is wrong with the notebooks in English for one framework.

    Those in other languages have the same code and outputs; the build compares them.

    Args:
        paths: all its notebooks, or all with solutions.
        solutions: whether they are those.
    """
    notebooks = [nbformat.read(path, as_version=4) for path in paths]
    if not notebooks:
        yield "there are no notebooks"
        return
    for path, notebook in zip(paths, notebooks, strict=True):
        for problem in notebook_problems(notebook, solutions):
            yield f"{path.name}: {problem}"
    share = share_compared(notebooks)
    if share < MIN_COMPARED:
        yield (
            f"only {share:.0%} of the code cells with output are compared, "
            f"not {MIN_COMPARED:.0%}"
        )
