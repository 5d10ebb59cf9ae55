"""Turn a lesson's cells into a notebook file, byte for byte reproducibly."""

from collections.abc import Callable
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from d2l_gpu.course import SOLUTIONS
from tools.figures import embed_figures, embedded_figures
from tools.lesson import HIDDEN, OUTPUT_ONLY, REASONS, SLIDE_TYPES, Cell
from tools.tolerance import is_tolerance

CELL_TIMEOUT = 600
"""Seconds that a cell may take; a whole lesson should take only minutes."""

_METADATA = {
    "kernelspec": {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    },
    # Without versions, which would differ between maintainers.
    "language_info": {
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "pygments_lexer": "ipython3",
    },
}


def assemble(
    cells: list[Cell],
    lessons: Path,
    committed: NotebookNode | None,
    drawing: Callable[[str], str] = str,
) -> NotebookNode:
    """Return a notebook of these cells, not executed.

    Cells keep the tags that set a tolerance, which `tools.pytest_setup` reads, and
    those that say why an output isn't compared. The latter get nbval's own tag, too.
    A tag that says how slides show the cell becomes the type that Jupyter has for that.

    Args:
        cells: the cells for one framework, in the notebook's language.
        lessons: the folder of the sources, which contains ``figures``.
        committed: the notebook from the last build, or None.
        drawing: returns the content of an SVG file in the notebook's language.

    Raises:
        FileNotFoundError: a figure does not exist.
        ValueError: a figure can't be rendered.
    """
    kept = embedded_figures(committed)
    built = []
    for cell in cells:
        if cell.kind == "code":
            reasons = [tag for tag in REASONS if tag in cell.tags]
            tags = [tag for tag in cell.tags if is_tolerance(tag)]
            if reasons:
                tags += [*reasons, "nbval-ignore-output"]
            metadata = {"tags": tags} if tags else {}
            if HIDDEN in cell.tags:
                metadata |= {"jupyter": {"source_hidden": True}, "cellView": "form"}
            metadata |= _slideshow(cell)
            built.append(new_code_cell(cell.source, id=cell.id, metadata=metadata))
        else:
            source, figures = embed_figures(cell.source, lessons, kept, drawing)
            metadata = {"figures": figures} if figures else {}
            metadata |= _slideshow(cell)
            built.append(new_markdown_cell(source, id=cell.id, metadata=metadata))
    return new_notebook(cells=built, metadata=nbformat.from_dict(_METADATA))


def _slideshow(cell: Cell) -> dict:
    """Return the metadata that says how slides show a cell; empty if nothing does."""
    types = [tag for tag in cell.tags if tag in SLIDE_TYPES]
    says = {"slide_type": types[0]} if types else {}
    if OUTPUT_ONLY in cell.tags:
        says = {"slide_type": "-", **says, "show_code": False}
    return {"slideshow": says} if says else {}


def cells_by_id(notebook: NotebookNode | None) -> dict[str, NotebookNode]:
    """Return a notebook's cells by id; empty if there is no notebook."""
    return {cell.id: cell for cell in notebook.cells} if notebook is not None else {}


def notebooks_in(folder: Path) -> list[Path]:
    """Return the paths of all editions' notebooks, sorted.

    Args:
        folder: the folder ``notebooks``.
    """
    return sorted(
        [*folder.glob("*/*/*.ipynb"), *folder.glob(f"*/*/{SOLUTIONS}/*.ipynb")]
    )


def read_notebook(path: Path) -> NotebookNode | None:
    """Return the notebook at ``path``; None if there is no such file."""
    if not path.is_file():
        return None
    return nbformat.read(path, as_version=4)


def canonical(notebook: NotebookNode) -> str:
    """Validate a notebook and return it as JSON, keys sorted, with a final newline."""
    nbformat.validate(notebook)
    return nbformat.writes(notebook) + "\n"


def take_outputs(notebook: NotebookNode, committed: NotebookNode | None) -> None:
    """Copy outputs and execution counts from the committed notebook, by cell id."""
    before = cells_by_id(committed)
    for cell in notebook.cells:
        old = before.get(cell.id)
        if cell.cell_type == "code" and old is not None and old.cell_type == "code":
            cell.outputs = old.outputs
            cell.execution_count = old.execution_count


def differences(committed: NotebookNode, rebuilt: NotebookNode) -> list[str]:
    """Return the differences between a committed notebook and its source.

    Args:
        committed: the committed notebook.
        rebuilt: the one built from the source, with the committed outputs.
    """
    before, now = cells_by_id(committed), cells_by_id(rebuilt)
    found = [f"cell {key} is new in the source" for key in now if key not in before]
    found += [f"cell {key} is gone from the source" for key in before if key not in now]
    for key in now.keys() & before.keys():
        for part in ("cell_type", "source", "metadata", "outputs"):
            if before[key].get(part) != now[key].get(part):
                found.append(f"cell {key} has another {part.replace('_', ' ')}")
    shared = [key for key in before if key in now]
    if shared != [key for key in now if key in before]:
        found.append("the cells are in another order")
    if committed.metadata != rebuilt.metadata:
        found.append("the notebook has other metadata")
    return sorted(found) or ["the file is formatted differently"]
