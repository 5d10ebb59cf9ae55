"""The reader's copies of the notebooks, which are never overwritten once changed."""

import json
from collections.abc import Iterable
from pathlib import Path

from d2l_gpu.common.files import write_atomically
from d2l_gpu.common.messages import say


def copy_notebooks(
    notebooks: Path,
    lessons: Iterable[str],
    output: Path,
    *,
    outputs: bool | None = None,
) -> list[Path]:
    """Copy notebooks to the reader's folder, and say which of them stay as they are.

    A copy that is there already is replaced if it is the notebook of another edition,
    and kept if the reader has changed it, for example by running it.

    Args:
        notebooks: folder of one edition, ``<language>/<framework>``.
        lessons: which of its lessons, by full name.
        output: folder for the copies; it is made if it is missing.
        outputs: whether the copies have the published outputs; None: as the copy that
            is there, and a new one has them.

    Returns:
        The path of each copy, in the order of ``lessons``.

    Raises:
        OSError: a copy cannot be written to the folder, or not be read there.
    """
    copies, changed = [], []
    for name in lessons:
        source = notebooks / f"{name}.ipynb"
        copy = output / source.name
        try:
            if not _copied(source, copy, outputs):
                changed.append(copy)
        except OSError as error:
            raise OSError(not_written(copy, error)) from None
        copies.append(copy)
    if changed:
        say(
            f"kept, because you changed it or ran it: {', '.join(map(str, changed))} "
            "(delete a file to get the course's own notebook)"
        )
    return copies


def _copied(source: Path, copy: Path, outputs: bool | None) -> bool:
    """Copy a notebook unless the copy that is there is the reader's own work.

    Returns:
        Whether the copy is now as it was asked for.
    """
    text = source.read_text(encoding="utf-8")
    if outputs is False:
        text = _without_outputs(text)
    if copy.exists():
        there = _cells(copy)
        if there == _cells_in(text):
            return True
        editions = source.parents[2].glob(f"*/*/{source.name}")
        published = [_cells(edition) for edition in editions]
        if there not in published:
            if there not in map(_cells_without_outputs, published):
                return False
            if outputs is None:
                text = _without_outputs(text)
    if not copy.exists() or there != _cells_in(text):
        write_atomically(copy, text)
    return True


def not_written(path: Path, error: OSError) -> str:
    """Say in one sentence that a file in the reader's folder cannot be written."""
    return (
        f"{path} cannot be written ({error.strerror or error}): make room and see to "
        "its permissions, or name another folder with --output"
    )


def same_cells(one: Path, other: Path) -> bool:
    """Return whether two notebooks have the same cells and outputs.

    Their metadata may differ: JupyterLab writes its own when a notebook is opened.
    """
    return _cells(one) is not None and _cells(one) == _cells(other)


def _cells(path: Path) -> list[tuple] | None:
    """What the reader sees of each cell, or None if the file is no notebook."""
    try:
        return _cells_in(path.read_text(encoding="utf-8"))
    except (AttributeError, LookupError, TypeError, ValueError):
        return None


def _cells_in(text: str) -> list[tuple]:
    return [
        (cell["cell_type"], "".join(cell["source"]), cell.get("outputs"))
        for cell in json.loads(text)["cells"]
    ]


def _cells_without_outputs(cells: list[tuple] | None) -> list[tuple] | None:
    # Cells of text have None instead of a list of outputs.
    return cells and [(kind, source, outputs and []) for kind, source, outputs in cells]


def _without_outputs(text: str) -> str:
    """Return a notebook's text as if nobody had run it."""
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
