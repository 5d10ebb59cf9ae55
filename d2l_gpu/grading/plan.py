"""What is to be done with each notebook of a class, before any of it runs."""

import contextlib
import functools
import hashlib
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import d2l_gpu
from d2l_gpu import exercises as exercises_package
from d2l_gpu.common.frameworks import framework as framework_with
from d2l_gpu.common.processor import usable_cores
from d2l_gpu.course import lesson_names, notebooks_dir, select_lessons
from d2l_gpu.exercises.registry import Exercise, lessons_of, load, of_lesson
from d2l_gpu.exercises.specification import specification
from d2l_gpu.exercises.variants.draw import current
from d2l_gpu.grading import submissions
from d2l_gpu.grading.answers import code_of
from d2l_gpu.grading.class_list import ClassList
from d2l_gpu.grading.points import Points
from d2l_gpu.grading.results import in_order
from d2l_gpu.grading.submissions import Submission, Unreadable
from d2l_gpu.grading.supervisor import Task

CELL_SECONDS, NOTEBOOK_SECONDS = 120, 600

# Files beside a notebook that it gets: their bytes, and how many there may be.
_BESIDE, _MOST_BESIDE = 64 * 2**20, 500


@dataclass(frozen=True)
class Settings:
    """How a class is graded.

    Attributes:
        framework: the tag of all notebooks' framework; None if they tell.
        lesson: the lesson of all notebooks, by number or name; None if they tell.
        only: the exercises, or lessons, that count; empty for all.
        own: a file with a teacher's own exercises.
        points: what exercises are worth.
        cell_seconds: how long a cell may take.
        notebook_seconds: how long all cells of a notebook may take.
        jobs: how many notebooks are graded at a time.
        again: whether to grade also what has been graded.
        class_list: everyone in the class; None if nobody knows.
        points_from: the file that `points` were read from.
    """

    framework: str | None = None
    lesson: str | None = None
    only: Sequence[str] = ()
    own: Path | None = None
    points: Points = field(default_factory=Points)
    cell_seconds: float = CELL_SECONDS
    notebook_seconds: float = NOTEBOOK_SECONDS
    jobs: int = field(default_factory=usable_cores)
    again: bool = False
    class_list: ClassList | None = None
    points_from: Path | None = None


@dataclass(frozen=True)
class Plan:
    """What is to be done with a notebook.

    Attributes:
        submission: the notebook.
        task: how to grade it; None if it can't be.
        problem: why it can't be, as a sentence without a full stop.
        key: tells whether it has been graded: the same for the same notebook.
        beside: the files that it gets.
        notes: what to note before it's graded.
        code: the answers' code, by the numbers of the exercises.
    """

    submission: Submission
    task: Task | None = None
    problem: str = ""
    key: str = ""
    beside: Sequence[Path] = ()
    notes: Sequence[str] = ()
    code: dict[str, str] = field(default_factory=dict)


class Course:
    """The exercises that a class is graded on.

    Args:
        settings: how to grade.
    Raises:
        ValueError: the settings name a framework, lesson or file that doesn't exist.
    """

    def __init__(self, settings: Settings):
        self._settings = settings
        self._own = load(settings.own).exercises if settings.own else {}
        self._own_text = settings.own.read_bytes() if settings.own else b""
        self._used: dict[str, str] = {}  # the exercises that count; their frameworks
        self._there: set[str] = set()  # the exercises of all notebooks
        self._frameworks: set[str] = set()  # of all notebooks
        if settings.framework:
            framework_with(settings.framework)
        self._lesson = settings.lesson and _lesson_called(
            settings.lesson, settings.framework or "pytorch"
        )

    def plan(self, submission: Submission) -> Plan:
        """Return what is to be done with a notebook; nothing of it runs."""
        if submission.path is None:
            return Plan(submission, problem=submission.problem)
        try:
            data = submissions.read(submission.path)
            notebook = submissions.parsed(data)
            tag = self._framework_of(notebook)
            self._frameworks.add(tag)
            exercises = self._exercises_of(notebook, submission, tag)
        except Unreadable as problem:
            return Plan(submission, problem=str(problem))
        if not exercises:
            return Plan(submission, problem="--only leaves out all of its exercises")
        for each in exercises:
            self._used.setdefault(each.number, tag)
        settings = self._settings
        limits = settings.cell_seconds, settings.notebook_seconds
        lessons = {each.number.partition(".")[0] for each in exercises}
        sources = set().union(*(_sources(tag, each) for each in lessons))
        ours = [i for i, text in notebook.code.items() if text.strip() in sources]
        task = Task(tag, exercises, notebook.code, *limits, ours)
        beside, notes = _beside(submission)
        variant = current(tag)
        for name in sorted(submissions.variants_in(notebook) - {variant}):
            graded = f"as variant {variant}" if variant else "without a variant"
            notes.append(f"the notebook names variant {name}, but is graded {graded}")
        key = self._key(task, beside)
        code = {each.number: code_of(each, task.cells, ours) for each in exercises}
        return Plan(submission, task, key=key, beside=beside, notes=notes, code=code)

    def _framework_of(self, notebook: submissions.Notebook) -> str:
        tag = self._settings.framework or submissions.framework_of(notebook)
        its = framework_with(tag or "pytorch")
        if not its.is_installed:
            raise Unreadable(f"{its.title} is not installed here: {its.install}")
        return its.tag

    def _exercises_of(
        self, notebook: submissions.Notebook, submission: Submission, tag: str
    ) -> list[Exercise]:
        names = submissions.defined(notebook)
        numbers = submissions.mentioned(notebook)
        numbers |= {each for each, own in self._own.items() if own.name in names}
        known = lessons_of(tag)
        lesson = self._lesson or submissions.lesson_of(
            sorted(numbers - set(self._own)), submission.name, known, _names(tag)
        )
        if not lesson and not numbers & set(self._own):
            lesson = _lesson_with(names, tag)
        exercises = dict(of_lesson(tag, lesson)) if lesson else {}
        for number in numbers & set(self._settings.only):
            if number not in self._own:
                exercises |= {
                    each: it
                    for each, it in of_lesson(tag, number.partition(".")[0]).items()
                    if each == number
                }
        exercises |= {each: self._own[each] for each in numbers & set(self._own)}
        if not exercises:
            raise Unreadable(
                "the notebook doesn't tell which lesson it is, by its exercises or its "
                "name; --lesson says so for all notebooks"
            )
        self._there |= exercises.keys()
        return [exercises[each] for each in in_order(exercises) if self._counts(each)]

    def _counts(self, number: str) -> bool:
        only = self._settings.only
        return not only or number in only or number.partition(".")[0] in only

    def check_settings(self) -> list[str]:
        """Return what to say about exercises in the settings that no notebook has.

        Raises:
            ValueError: they don't exist, or no notebook has any of those that count.
        """
        if not self._there:
            return []  # it's the notebooks' fault
        only, table = self._settings.only, self._settings.points.table
        lessons = {each.partition(".")[0] for each in self._there}
        absent = [each for each in only if each not in self._there | lessons]
        for what, names in ("--only", absent), ("--points", table):
            for name in names:
                if not self._exists(name) or len(absent) == len(only) > 0:
                    raise ValueError(
                        f"{what} names {name}, but no notebook has that exercise; "
                        f"there are: {', '.join(in_order(self._there))}"
                    )
        return [f"--only names {each}, but no notebook has it" for each in absent]

    def _exists(self, name: str) -> bool:
        """Return whether there's such an exercise or lesson, handed in or not."""
        lesson, _, exercise = name.partition(".")
        return name in self._own or any(
            lesson in lessons_of(tag)
            and (not exercise or name in of_lesson(tag, lesson))
            for tag in self._frameworks
        )

    def _key(self, task: Task, beside: Sequence[Path]) -> str:
        digest = hashlib.sha256(_version())
        digest.update(self._own_text)
        numbers = [each.number for each in task.exercises]
        limits = [task.cell_seconds, task.notebook_seconds]
        variant = current(task.framework)
        what = [task.framework, numbers, list(task.cells.items()), limits, variant]
        digest.update(json.dumps(what).encode("utf-8", "backslashreplace"))
        for path in beside:
            digest.update(os.fsencode(path.name) + b"\0" + path.read_bytes())
        return digest.hexdigest()[:32]

    def titles(self) -> dict[str, str]:
        """Return the exercises that count, with their titles, in order."""
        return {each: self._title(each) for each in in_order(self._used)}

    def about(self, folder: Path) -> list[str]:
        """Return what is graded, when and how, as phrases."""
        settings = self._settings
        titles = [framework_with(each).title for each in sorted(self._frameworks)]
        variants = {current(each) for each in self._frameworks} - {None}
        files = {
            "points": settings.points_from,
            "exercises": settings.own,
            "class": settings.class_list and settings.class_list.path,
        }
        return [
            f"{datetime.now():%Y-%m-%d %H:%M}",
            f"d2l-gpu {d2l_gpu.__version__}",
            *titles,
            f"folder {submissions.printable(folder.name or folder.resolve().name)}",
            *(f"{what} from {path.name}" for what, path in files.items() if path),
            *(["all or nothing"] if settings.points.all_or_nothing else []),
            *([f"only {', '.join(settings.only)}"] if settings.only else []),
            *(f"variant {each}" for each in sorted(variants)),
        ]

    def _title(self, number: str) -> str:
        if number in self._own:
            return self._own[number].name
        try:
            text = specification(self._used[number], number)
        except (FileNotFoundError, ValueError):
            return ""
        heading = text.splitlines()[0].lstrip("# ")
        return heading.removeprefix(number).strip()


def _lesson_called(name: str, tag: str) -> str:
    """Return the number of a lesson, given as `select_lessons` takes it.

    Raises:
        ValueError: there is none, or it has no exercises.
    """
    (full,) = select_lessons([name], lesson_names(notebooks_dir("en", tag)))
    lesson = full.partition("_")[0]
    if lesson not in lessons_of(tag):
        raise ValueError(f"lesson {full} has no exercises")
    return lesson


def _lesson_with(names: set[str], tag: str) -> str | None:
    """Return the lesson of which a notebook has most answers, by their names."""
    votes = {
        lesson: sum(each.name in names for each in of_lesson(tag, lesson).values())
        for lesson in lessons_of(tag)
    }
    best = max(votes, key=votes.get, default=None)
    return best if best and votes[best] else None


def _names(tag: str) -> list[str]:
    """Return the full names of a framework's lessons; an empty list if unknown."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return lesson_names(notebooks_dir("en", tag))
    return []


@functools.cache
def _sources(tag: str, lesson: str) -> frozenset[str]:
    """Return the code of the cells of a lesson's own notebook; nothing if unknown."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        for path in notebooks_dir("en", tag).glob(f"{lesson}_*.ipynb"):
            cells = submissions.parsed(path.read_bytes()).code.values()
            return frozenset(source.strip() for source in cells)
    return frozenset()


@functools.cache
def _version() -> bytes:
    """Return what a verdict depends on besides the notebook."""
    versions = d2l_gpu.__version__, platform.python_version()
    digest = hashlib.sha256(" ".join(versions).encode())
    package = Path(exercises_package.__file__).parent
    for path in sorted((*package.rglob("*.py"), *Path(__file__).parent.glob("*.py"))):
        digest.update(path.read_bytes())
    return digest.digest()


def _beside(submission: Submission) -> tuple[list[Path], list[str]]:
    """Return the files beside a notebook in its student's folder, and what to note."""
    if submission.folder is None:
        return [], []  # they belong to others
    found = [
        path
        for path in sorted(submission.path.parent.iterdir())
        if os.path.isfile(path)  # noqa: PTH113  unlike Path's, it never raises
        and not path.is_symlink()
        and os.access(path, os.R_OK)
        and not path.name.startswith(".")
        and path.suffix.lower() != ".ipynb"
    ]
    size = sum(path.stat().st_size for path in found)
    if size > _BESIDE or len(found) > _MOST_BESIDE:
        return [], [
            "the files beside the notebook were left out: at most "
            f"{_MOST_BESIDE} files with {_BESIDE // 2**20} MB are taken along"
        ]
    return found, []
