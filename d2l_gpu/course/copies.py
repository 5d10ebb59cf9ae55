"""The reader's copies of the notebooks, which are never overwritten once changed."""

from collections.abc import Iterable
from pathlib import Path

from d2l_gpu.course.files import write_atomically


def copy_notebooks(notebooks: Path, lessons: Iterable[str], output: Path) -> list[Path]:
    """Copy notebooks to the reader's folder, and say which of them stay as they are.

    A copy that is there already is replaced if it equals the notebook of another
    edition, and kept if the reader has changed it, for example by running it.

    Args:
        notebooks: folder of one edition, ``<language>/<framework>``.
        lessons: which of its lessons, by full name.
        output: folder for the copies; it is made if it is missing.

    Returns:
        The path of each copy, in the order of ``lessons``.
    """
    copies, kept = [], []
    for name in lessons:
        copy = output / f"{name}.ipynb"
        text = (notebooks / copy.name).read_text(encoding="utf-8")
        if not copy.exists():
            write_atomically(copy, text)
        elif (there := copy.read_text(encoding="utf-8")) != text:
            editions = notebooks.parents[1].glob(f"*/*/{copy.name}")
            if any(there == path.read_text(encoding="utf-8") for path in editions):
                write_atomically(copy, text)
            else:
                kept.append(copy)
        copies.append(copy)
    if kept:
        print(_kept(kept))
    return copies


def _kept(copies: list[Path]) -> str:
    names = ", ".join(map(str, copies))
    if len(copies) == 1:
        return (
            f"{names} differs from the notebook of the course; yours is kept "
            "(delete it to get the original)"
        )
    return (
        f"{names} differ from the notebooks of the course; yours are kept "
        "(delete them to get the originals)"
    )
