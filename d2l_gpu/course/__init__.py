"""Where the notebooks of the course are, and what their lessons are called."""

from collections.abc import Iterable, Sequence
from pathlib import Path


def notebooks_dir() -> Path:
    """Return the folder of the English PyTorch notebooks.

    An installed wheel carries them inside this package; a clone, also one that
    is installed with ``pip install -e``, has them under ``notebooks/``. A clone's
    own come first there, because they are the ones being edited.

    Raises:
        FileNotFoundError: neither folder exists.
    """
    here = Path(__file__).resolve().parent
    clone = here.parents[1]
    candidates = [here / "en" / "pytorch"]
    if (clone / "pyproject.toml").is_file():
        candidates.insert(0, clone / "notebooks" / "en" / "pytorch")
    for folder in candidates:
        if folder.is_dir():
            return folder
    raise FileNotFoundError(
        f"the notebooks of the course are not at {candidates[0]}; "
        "install d2l-gpu again, or build them with `python -m tools.build`"
    )


def lesson_names(folder: Path, suffix: str = ".ipynb") -> list[str]:
    """Return the names of the lessons in ``folder``, in the order of the course.

    A lesson is a file named like ``01_devices.ipynb``; other files are none.
    """
    return sorted(path.stem for path in folder.glob(f"[0-9][0-9]_*{suffix}"))


def select_lessons(wanted: Iterable[str], known: Sequence[str]) -> list[str]:
    """Return the lessons of ``known`` that ``wanted`` names, in course order.

    Args:
        wanted: each a number (``01``), a full name (``01_devices``) or the name
            alone (``devices``); a file name of the lesson does as well. None at
            all means every lesson.
        known: full names of the lessons there are.

    Raises:
        ValueError: a name that no lesson has; the message lists the known ones.
    """
    by_name = {
        alias: name
        for name in known
        for alias in (name, name.split("_")[0], name.partition("_")[2])
    }
    chosen = set()
    for name in wanted:
        alias = Path(name).stem
        if alias not in by_name:
            raise ValueError(
                f"there is no lesson {name!r}; the lessons are: {', '.join(known)}"
            )
        chosen.add(by_name[alias])
    return [name for name in known if name in chosen or not chosen]
