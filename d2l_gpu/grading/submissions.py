"""The notebooks that a class handed in: whose they are, and of which lesson."""

import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from d2l_gpu.common.frameworks import FRAMEWORKS
from d2l_gpu.grading.names import Owner, owner_of

# A notebook of more bytes isn't read.
_LARGEST = 100 * 2**20


class Unreadable(Exception):
    """Why a notebook can't be graded, as a sentence without a full stop."""


@dataclass(frozen=True)
class Submission:
    """One notebook, or a student who handed in none.

    Attributes:
        owner: whose it is, as the name of the file tells, or that of the folder in
            which it is.
        path: the notebook; None if there's none.
        folder: the student's own folder, with what else belongs to the notebook; None
            if the notebook lies among those of other students.
        instead: what was handed in instead of a notebook; empty if nothing was.
    """

    owner: Owner
    path: Path | None
    folder: Path | None = None
    instead: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The notebook's name within the student's folder."""
        if self.path is None:
            return ""
        return printable(self.path.relative_to(self.folder or self.path.parent))

    @property
    def problem(self) -> str:
        """Why there is no notebook, as a sentence without a full stop."""
        if self.folder is None:
            return not_a_notebook(self.instead[0])
        if not self.instead:
            return "there is nothing in this folder"
        some = ", ".join(self.instead[:_MOST_NAMES])
        more = ", and more" if len(self.instead) > _MOST_NAMES else ""
        return f"there is no notebook in this folder, only {some}{more}"

    @property
    def feedback(self) -> PurePath:
        """Where to put feedback so that systems find the student again.

        Canvas knows a file by its name. Moodle knows a folder, and takes each file in
        it for feedback.
        """
        if self.folder is None:
            return PurePath(f"{without_format(self._top)}.html")
        if self.owner.system == "moodle":
            return PurePath(printable(self.folder.name), "feedback.html")
        return PurePath(f"{printable(self.folder.name)}.html")

    @property
    def _top(self) -> str:
        """The name in the folder of the class."""
        if self.folder:
            return printable(self.folder.name)
        return printable(self.path.name) if self.path else self.instead[0]


@dataclass(frozen=True)
class HandedIn:
    """What a class handed in.

    Attributes:
        submissions: sorted by student.
        others: names of files that aren't notebooks, and tell no student who hasn't
            handed in anything else.
    """

    submissions: Sequence[Submission]
    others: Sequence[str] = ()


def submissions_in(
    folder: Path,
    leave_out: Iterable[Path] = (),
    is_student: Callable[[Owner], bool] | None = None,
) -> HandedIn:
    """Return the notebooks in a folder, sorted by student.

    A student is a notebook in the folder, or a folder in it, with notebooks at any
    depth. Another file is taken for a student's if that student has handed in nothing
    else. Hidden files and what macOS adds to archives don't count; links are listed
    with the files that aren't notebooks.

    Args:
        folder: holds the notebooks.
        leave_out: files and folders in it that aren't a student's.
        is_student: tells whether somebody is in the class; None if nobody knows.
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
    ours = {path.resolve() for path in leave_out}
    found: list[Submission] = []
    rest: list[Path] = []
    for path in sorted(folder.iterdir()):
        if _is_hidden(path.name) or path.resolve() in ours:
            continue
        if path.is_dir() and not path.is_symlink():
            found += _in_folder(path)
        elif _is_notebook(path):
            found.append(Submission(_owner(path.name), path))
        else:
            rest.append(path)
    if not any(each.path for each in found):
        raise ValueError(
            f"there are no notebooks in {folder}: it should have a notebook, or a "
            "folder of notebooks, for each student"
        )
    there, others = {each.owner.key for each in found}, []
    for path in rest:
        owner, name = _owner(path.name), printable(path.name)
        known = is_student or (lambda owner, path=path: _is_answer(owner, path))
        if owner.key in there or path.is_symlink() or not known(owner):
            others.append(name)
        else:
            there.add(owner.key)
            found.append(Submission(owner, None, None, [name]))
    found.sort(key=lambda each: (each.owner.name.casefold(), each.owner.key))
    return HandedIn(found, others)


def not_a_notebook(name: str) -> str:
    """Return that a file isn't a notebook, as a sentence without a full stop."""
    if ".ipynb" in name.lower():
        right = f"{without_format(name)}.ipynb"
        return f"{name} isn't a notebook by its name; if it is one, call it {right}"
    return f"{name} isn't a notebook"


def _in_folder(path: Path) -> list[Submission]:
    """Return what is in the folder of a student."""
    owner = owner_of(printable(path.name))
    files = sorted(_files_below(path))
    notebooks = [each for each in files if _is_notebook(each)]
    if notebooks:
        return [Submission(owner, each, path) for each in notebooks]
    names = [printable(each.relative_to(path)) for each in files]
    return [Submission(owner, None, path, names)]


def _owner(name: str) -> Owner:
    return owner_of(without_format(printable(name)))


def without_format(name: str) -> str:
    """Return the name of a file without what says its format, as some browsers add to
    that of a notebook, too: ``anna`` for ``anna.ipynb.txt``."""
    stem = PurePath(name).stem
    return stem[:-6] if stem.lower().endswith(".ipynb") and stem[:-6] else stem


def _is_answer(owner: Owner, path: Path) -> bool:
    """Return whether a file looks like a student's, handed in for a notebook."""
    if owner.system:
        return True
    texts = path.suffix.lower() in _TEXTS or ".ipynb" in path.name.lower()
    return texts and owner.name.casefold() not in ("readme", "license")


# What students hand in instead of a notebook, but teachers don't keep beside them.
_TEXTS = (
    *(".7z", ".doc", ".docx", ".heic", ".htm", ".html", ".jpeg", ".jpg", ".md", ".odt"),
    *(".pages", ".pdf", ".png", ".py", ".rar", ".rtf", ".tar", ".tgz", ".txt", ".zip"),
)

# Files that a sentence names.
_MOST_NAMES = 3


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


def _files_below(folder: Path) -> Iterator[Path]:
    for where, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if not _is_hidden(each)]
        yield from (Path(where, each) for each in files if not _is_hidden(each))


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
