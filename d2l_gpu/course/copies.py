"""The reader's copies of the notebooks, which are never overwritten once changed."""

import json
from collections.abc import Iterable
from pathlib import Path

from d2l_gpu.common.files import write_atomically


def copy_notebooks(notebooks: Path, lessons: Iterable[str], output: Path) -> list[Path]:
    """Copy notebooks to the reader's folder, and say which of them stay as they are.

    A copy that is there already is replaced if it is the notebook of another edition,
    and kept if the reader has changed it, for example by running it.

    Args:
        notebooks: folder of one edition, ``<language>/<framework>``.
        lessons: which of its lessons, by full name.
        output: folder for the copies; it is made if it is missing.

    Returns:
        The path of each copy, in the order of ``lessons``.

    Raises:
        OSError: a copy cannot be written to the folder, or not be read there.
    """
    copies, changed = [], []
    for name in lessons:
        source = notebooks / f"{name}.ipynb"
        copy = output / source.name
        editions = notebooks.parents[1].glob(f"*/*/{source.name}")
        try:
            if not copy.exists() or (
                not same_cells(copy, source)
                and any(same_cells(copy, edition) for edition in editions)
            ):
                write_atomically(copy, source.read_text(encoding="utf-8"))
            elif not same_cells(copy, source):
                changed.append(copy)
        except OSError as error:
            raise OSError(not_written(copy, error)) from None
        copies.append(copy)
    if changed:
        print(
            f"kept, because you changed it or ran it: {', '.join(map(str, changed))} "
            "(delete a file to get the course's own notebook)"
        )
    return copies


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
        return [
            (cell["cell_type"], "".join(cell["source"]), cell.get("outputs"))
            for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        ]
    except (AttributeError, LookupError, TypeError, ValueError):
        return None
