"""What the commands of ``d2l-gpu`` do with notebooks, and where these are.

* ``run``: executes lessons and writes one page (``page``) with their results.
* ``lab``: opens the course in JupyterLab, whose default settings ``jupyter`` changes.
* ``bundle``: makes an archive for a class without a network; ``install_bundle`` is the
  script in it.
* ``slides``: makes slides of lessons.
* ``copies``: the reader's own copies of the notebooks.
* ``kernel``, ``kernelspec``: run a notebook's cells in this very Python.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from d2l_gpu.common.requirements import clone_root
from d2l_gpu.common.settings import spoken_languages

SOLUTIONS = "solutions"
"""The folder with the solutions to the exercises of an edition, beside its lessons."""


def solutions_of(lesson: Path) -> Path:
    """Return the notebook with the solutions to a lesson; it may be missing.

    An installed package has only those in English, whose cells have the same ids.
    """
    own = lesson.parent / SOLUTIONS / lesson.name
    if own.is_file():
        return own
    return lesson.parents[2] / "en" / lesson.parent.name / SOLUTIONS / lesson.name


def notebooks_dir(language: str | None = None, framework: str | None = None) -> Path:
    """Return the folder of one edition of the notebooks, ``<language>/<framework>``.

    Args:
        language: as ``en``; None for the reader's, as the environment tells it, or
            English where the course has no edition in that one.
        framework: as ``pytorch``; None for PyTorch.

    Raises:
        FileNotFoundError: there are no notebooks at all.
        ValueError: there is no such edition; the message lists those there are.
    """
    root = editions_root()
    there = editions(root)
    wanted = framework or "pytorch"
    languages = [each for each, its_framework in there if its_framework == wanted]
    if language is None:
        spoken = spoken_languages()
        language = next((each for each in spoken if each in languages), "en")
    if (language, wanted) not in there:
        raise ValueError(
            f"there is no edition in {language!r} for {wanted!r}; the editions are: "
            + ", ".join("/".join(edition) for edition in there)
        )
    return root / language / wanted


def editions_root() -> Path:
    """Return the folder that holds all editions, as ``en/pytorch``.

    An installed wheel carries them inside this package; a clone, also one that
    is installed with ``pip install -e``, has them under ``notebooks/``. A clone's
    own come first there, because they are the ones being edited.

    Raises:
        FileNotFoundError: neither folder exists.
    """
    candidates = [Path(__file__).resolve().parent / "notebooks"]
    clone = clone_root()
    if clone:
        candidates.insert(0, clone / "notebooks")
    for folder in candidates:
        if editions(folder):
            return folder
    raise FileNotFoundError(
        f"the notebooks of the course are not at {candidates[0]}; "
        "install d2l-gpu again, or build them with `python -m tools.build`"
    )


def editions(root: Path) -> list[tuple[str, str]]:
    """Return the editions under ``root``, each as language and framework."""
    folders = {path.parent for path in root.glob("*/*/*.ipynb")}
    return sorted((folder.parent.name, folder.name) for folder in folders)


def lesson_names(folder: Path, suffix: str = ".ipynb") -> list[str]:
    """Return the names of the lessons in ``folder``, in the order of the course.

    A lesson is a file named like ``01_devices.ipynb``, an appendix one like
    ``A1_more.ipynb``; appendices come last, and other files are none.
    """
    return sorted(path.stem for path in folder.glob(f"[0-9A-Z][0-9]_*{suffix}"))


def is_appendix(name: str) -> bool:
    """Return whether a lesson is an appendix, which may need more than the course."""
    return name[0].isalpha()


def select_lessons(wanted: Iterable[str], known: Sequence[str]) -> list[str]:
    """Return the lessons of ``known`` that ``wanted`` names, in course order.

    Args:
        wanted: each a number (``01`` or ``1``), a full name (``01_devices``) or the
            name alone (``devices``); a file name of the lesson does as well. None at
            all means every lesson.
        known: full names of the lessons there are.

    Raises:
        ValueError: a name that no lesson has; the message lists the known ones.
    """
    by_name = {
        alias: name
        for name in known
        for number, _, title in [name.partition("_")]
        for alias in (name, number, number.lstrip("0") or "0", title)
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


def without_solutions(text: str) -> str:
    """Leave out the last sentence of the exercises' introduction, with its link."""
    link = re.search(r"\[[^\]]*\]\([^)]*/solutions/[^)]*\)", text)
    if link is None:
        return text
    ends = re.finditer(r"[.!?](?:\s+)|。", text[: link.start()])
    return text[: max((end.end() for end in ends), default=link.start())].rstrip()
