"""The notebooks that a class handed in: whose they are, and of which lesson."""

import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from d2l_gpu.common.frameworks import FRAMEWORKS

# A notebook of more bytes isn't read.
_LARGEST = 100 * 2**20


class Unreadable(Exception):
    """Why a notebook can't be graded, as a sentence without a full stop."""


@dataclass(frozen=True)
class Submission:
    """One notebook, or a student who handed in none.

    Attributes:
        student: the name of the file, or of the folder in which it is.
        path: the notebook; None if the folder has none.
        folder: the student's own folder, with what else belongs to the notebook; None
            if the notebook lies among those of other students.
    """

    student: str
    path: Path | None
    folder: Path | None = None

    @property
    def name(self) -> str:
        """The notebook's name within the student's folder."""
        if self.path is None:
            return ""
        return printable(self.path.relative_to(self.folder or self.path.parent))


def submissions_in(folder: Path, leave_out: Path | None = None) -> list[Submission]:
    """Return the notebooks in a folder, sorted by student.

    A student is a notebook in the folder, or a folder in it, with notebooks at any
    depth. Hidden files, links and what macOS adds to archives don't count.

    Args:
        folder: holds the notebooks.
        leave_out: a folder in it that isn't a student's.
    Raises:
        FileNotFoundError: there is no such folder.
        NotADirectoryError: it's a file.
        ValueError: nobody has handed in anything.
    """
    if not folder.exists():
        raise FileNotFoundError(f"there is no folder {folder}")
    if not folder.is_dir():
        raise NotADirectoryError(
            f"{folder} is a file; name a folder with a notebook, or a folder of "
            "notebooks, for each student (unpack an archive first)"
        )
    found = []
    for path in sorted(folder.iterdir()):
        if _is_hidden(path.name) or (
            leave_out and path.resolve() == leave_out.resolve()
        ):
            continue
        if path.is_dir():
            student = printable(path.name)
            notebooks = sorted(_notebooks_below(path))
            found += [Submission(student, each, path) for each in notebooks]
            if not notebooks:
                found.append(Submission(student, None, path))
        elif _is_notebook(path):
            found.append(Submission(printable(path.stem), path))
    if not any(each.path for each in found):
        raise ValueError(
            f"there are no notebooks in {folder}: it should have a notebook, or a "
            "folder of notebooks, for each student"
        )
    return sorted(found, key=lambda each: (each.student.casefold(), each.student))


def printable(name: str | Path) -> str:
    """Return a file's name as text that every file and screen takes."""
    text = os.fsencode(str(name)).decode("utf-8", "backslashreplace")
    text = unicodedata.normalize("NFC", text)  # as macOS doesn't
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "__MACOSX"))


def _is_notebook(path: Path) -> bool:
    if path.suffix.lower() != ".ipynb" or path.is_symlink():
        return False
    return os.path.isfile(path)  # noqa: PTH113  unlike Path's, it never raises


def _notebooks_below(folder: Path) -> Iterator[Path]:
    for where, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if not _is_hidden(each)]
        for path in (Path(where, each) for each in files):
            if not _is_hidden(path.name) and _is_notebook(path):
                yield path


# ------------------------------------------------------------------ one notebook


@dataclass(frozen=True)
class Notebook:
    """What a notebook contains.

    Attributes:
        code: its code cells, each with its place among all cells, from 0.
        prose: its other cells, as one text.
    """

    code: dict[int, str]
    prose: str


def parsed(data: bytes) -> Notebook:
    """Return what a notebook contains.

    Raises:
        Unreadable: it isn't a notebook.
    """
    try:
        found = json.loads(data.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        if not data.strip():
            raise Unreadable("the notebook is empty") from None
        raise Unreadable(
            f"the notebook isn't valid JSON (line {error.lineno}: {error.msg})"
        ) from None
    except (ValueError, RecursionError):
        raise Unreadable("the notebook isn't valid JSON") from None
    if isinstance(found, dict) and isinstance(found.get("worksheets"), list):
        raise Unreadable(
            "the notebook has the format of before 2015; open and save it in Jupyter"
        )
    cells = found.get("cells") if isinstance(found, dict) else None
    if not isinstance(cells, list):
        raise Unreadable("the file is valid JSON, but no notebook: it has no cells")
    code, prose = {}, []
    for index, cell in enumerate(cells):
        source = cell.get("source", "") if isinstance(cell, dict) else ""
        if isinstance(source, list):
            source = "".join(map(str, source))
        if not isinstance(cell, dict) or not isinstance(source, str):
            raise Unreadable(f"the notebook is damaged: cell {index + 1} is no cell")
        if cell.get("cell_type") == "code":
            code[index] = source
        else:
            prose.append(source)
    if not any(source.strip() for source in code.values()):
        raise Unreadable("the notebook has no code")
    return Notebook(code, "\n\n".join(prose))


def read(path: Path) -> bytes:
    """Return a notebook's bytes.

    Raises:
        Unreadable: it can't be read, or is too large.
    """
    try:
        if path.stat().st_size > _LARGEST:
            raise Unreadable(f"the notebook has more than {_LARGEST // 2**20} MB")
        return path.read_bytes()
    except OSError as error:
        raise Unreadable(f"the notebook can't be read ({error.strerror})") from None


def framework_of(notebook: Notebook) -> str | None:
    """Return the tag of the framework whose helper a notebook imports; None if none."""
    votes = Counter()
    for each in FRAMEWORKS:
        imports = re.compile(
            rf"^\s*(from d2l_gpu import {each.module}\b"
            rf"|(import|from) d2l_gpu\.{each.module}\b)",
            re.MULTILINE,
        )
        for source in notebook.code.values():
            votes[each.tag] += len(imports.findall(source))
    ((tag, times),) = votes.most_common(1)
    return tag if times else None


_CHECK = re.compile(r"check\(\s*['\"]([^'\"\n]{1,40})['\"]")
_HEADING = re.compile(r"^#+ +(\w\d\.\d+)\b", re.MULTILINE)


def mentioned(notebook: Notebook) -> set[str]:
    """Return the numbers of the exercises that a notebook checks, or shows."""
    found = set(_HEADING.findall(notebook.prose))
    for source in notebook.code.values():
        found |= set(_CHECK.findall(source))
    return found


_VARIANT = re.compile(r"\bvariant\(\s*['\"]([0-9a-f]{8})['\"]")


def variants_in(notebook: Notebook) -> set[str]:
    """Return the variants of exercises that a notebook chooses; usually none."""
    found = map(_VARIANT.findall, notebook.code.values())
    return {name for names in found for name in names}


def defined(notebook: Notebook) -> set[str]:
    """Return the names of what a notebook defines, for all that its text tells."""
    names = r"^(?:async )?def +(\w+)|^(\w+) *(?::[^=\n]*)?=(?!=)"
    found = set()
    for source in notebook.code.values():
        for pair in re.findall(names, source, re.MULTILINE):
            found |= set(filter(None, pair))
    return found


def lesson_of(
    numbers: Iterable[str], name: str, known: Sequence[str], names: Sequence[str]
) -> str | None:
    """Return the lesson that a notebook is about; None if that can't be told.

    Args:
        numbers: the exercises that it mentions.
        name: the notebook's file name.
        known: the lessons with exercises, such as ``03``.
        names: full names of the lessons, such as ``03_copying``.
    """
    votes = Counter(each.partition(".")[0] for each in numbers)
    best = [lesson for lesson, _ in votes.most_common() if lesson in known]
    if best:
        return best[0]
    for full in names:
        lesson = full.partition("_")[0]
        if full in name and lesson in known:
            return lesson
    begin = re.match(r"\w\d(?=[_\W])", Path(name).name)
    return begin[0] if begin and begin[0] in known else None
