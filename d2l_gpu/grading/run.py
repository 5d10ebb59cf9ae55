"""Grading the notebooks of a class, several at a time: what ``d2l-gpu grade`` does."""

import contextlib
import functools
import hashlib
import json
import os
import platform
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from tqdm import tqdm

import d2l_gpu
from d2l_gpu import exercises as exercises_package
from d2l_gpu.common.children import kill_child, start_child
from d2l_gpu.common.files import write_atomically
from d2l_gpu.common.frameworks import framework as framework_with
from d2l_gpu.common.processor import usable_cores
from d2l_gpu.common.settings import HIDDEN
from d2l_gpu.course import lesson_names, notebooks_dir, select_lessons
from d2l_gpu.exercises.grading_process import STARTUP
from d2l_gpu.exercises.judge import environment_for, temporary_folder
from d2l_gpu.exercises.registry import Exercise, lessons_of, load, of_lesson
from d2l_gpu.exercises.specification import specification
from d2l_gpu.exercises.variants.draw import current
from d2l_gpu.exercises.verdict import Verdict
from d2l_gpu.grading import submissions, supervisor
from d2l_gpu.grading.cells_process import WORK
from d2l_gpu.grading.points import Points
from d2l_gpu.grading.results import (
    GradedNotebook,
    Results,
    Student,
    encodable,
    in_order,
)
from d2l_gpu.grading.submissions import Submission, Unreadable, submissions_in
from d2l_gpu.grading.supervisor import Task
from d2l_gpu.grading.tables import DATA, FEEDBACK, PAGE, TABLE, write_all

CELL_SECONDS, NOTEBOOK_SECONDS = 120, 600

# The folder with what came of each notebook, in that of the grades.
DONE = "results"

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


def grade_class(folder: Path, output: Path, settings: Settings) -> int:
    """Grade the notebooks in a folder; write tables, a page and feedback.

    What has been graded is kept as soon as it's there.

    Args:
        folder: holds a notebook, or a folder of notebooks, for each student.
        output: the folder for everything that is written.
        settings: how to grade.

    Returns:
        0, or 1 if a notebook couldn't be graded for no fault of its own.

    Raises:
        OSError: something can't be read or written.
        ValueError: there is nothing to grade, or `settings` name what doesn't exist.
    """
    began = time.monotonic()
    hidden = _to_hide([folder, output])
    course = Course(settings)
    plans = [course.plan(each) for each in submissions_in(folder, output)]
    course.check_settings()
    output.mkdir(parents=True, exist_ok=True)
    graded, kept, faults = _grade_all(plans, output / DONE, settings, hidden)
    results = course.results(graded)
    write_all(results, output)
    count = len(results.students)
    notebooks = sum(bool(plan.submission.path) for plan in plans)
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    print(
        f"{count} {'student' if count == 1 else 'students'}, {notebooks} "
        f"{'notebook' if notebooks == 1 else 'notebooks'}"
        f"{f' ({kept} graded before)' if kept else ''}, {minutes}:{seconds:02} minutes"
    )
    print(f"what the class did, and where it's stuck: {output / PAGE}")
    print(f"grades: {output / TABLE} and {output / DATA}")
    print(f"feedback for each student: {output / FEEDBACK}")
    if faults:
        print(
            f"{faults} of them could not be graded; the same command tries them again",
            file=sys.stderr,
        )
    return 1 if faults else 0


# ------------------------------------------------------------------ what to do


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
    """

    submission: Submission
    task: Task | None = None
    problem: str = ""
    key: str = ""
    beside: Sequence[Path] = ()
    notes: Sequence[str] = ()


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
        if settings.framework:
            framework_with(settings.framework)
        self._lesson = settings.lesson and _lesson_called(
            settings.lesson, settings.framework or "pytorch"
        )

    def plan(self, submission: Submission) -> Plan:
        """Return what is to be done with a notebook; nothing of it runs."""
        if submission.path is None:
            return Plan(submission, problem="there is no notebook in this folder")
        try:
            data = submissions.read(submission.path)
            notebook = submissions.parsed(data)
            tag = self._framework_of(notebook)
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
        return Plan(submission, task, key=key, beside=beside, notes=notes)

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

    def check_settings(self) -> None:
        """Raise a ValueError if settings name exercises that no notebook has."""
        if not self._there:
            return  # it's the notebooks' fault
        lessons = {each.partition(".")[0] for each in self._there}
        for what, names in (
            ("--only", self._settings.only),
            ("--points", self._settings.points.table),
        ):
            for name in names:
                known = name in self._there or (what == "--only" and name in lessons)
                if not known:
                    raise ValueError(
                        f"{what} names {name}, but no notebook has that exercise; "
                        f"there are: {', '.join(in_order(self._there))}"
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

    def results(self, graded: Sequence[GradedNotebook]) -> Results:
        """Return what came of the class."""
        students = [
            Student(name, list(notebooks))
            for name, notebooks in groupby(graded, key=lambda each: each.student)
        ]
        titles = {each: self._title(each) for each in in_order(self._used)}
        return Results(students, titles, self._settings.points)

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


def _to_hide(folders: Sequence[Path]) -> list[Path]:
    """Return the folders without which Python gets on: those that hold none of it."""
    needed = [Path(each).resolve() for each in (*sys.path, sys.prefix) if each]
    return [
        folder
        for folder in (each.resolve() for each in folders)
        if not any(each.is_relative_to(folder) for each in needed)
    ]


# ------------------------------------------------------------------ doing it


def _grade_all(
    plans: Sequence[Plan], done: Path, settings: Settings, hidden: Sequence[Path]
) -> tuple[list[GradedNotebook], int, int]:
    """Grade notebooks, and return what came of them.

    Also returned: how many had been graded before, and how many couldn't be graded.
    """
    found: dict[str, dict] = {}
    waiting: queue.SimpleQueue[Plan] = queue.SimpleQueue()
    kept, keys = 0, set()
    for plan in plans:
        if plan.task is None:
            continue
        before = None if settings.again else _read(done / f"{plan.key}.json")
        if before is not None:
            found[plan.key] = before
            kept += 1
        elif plan.key not in keys:  # those of a copy are the same
            waiting.put(plan)
            keys.add(plan.key)
    with tqdm(
        total=len(keys), desc="grading", unit="notebook", disable=None, leave=False
    ) as bar:

        def finished(plan: Plan, result: dict) -> None:
            found[plan.key] = result
            if not result["again"]:
                write_atomically(done / f"{plan.key}.json", json.dumps(result))
            right = sum(_verdict(each).all_hold for each in result["verdicts"])
            line = (
                f"{_who(plan.submission)}: {right} of {len(result['verdicts'])} "
                f"exercises pass ({result['seconds']:.0f} s)"
            )
            bar.write("; ".join([line, *plan.notes, *result["notes"]]))
            sys.stdout.flush()
            bar.update()

        with temporary_folder() as temporary:
            workers = _Workers(settings, Path(temporary), hidden)
            workers.run(waiting, finished)
    graded = []
    for plan in plans:
        if plan.task is None:
            print(f"{_who(plan.submission)}: {plan.problem}")
        graded.append(_graded(plan, found.get(plan.key)))
    faults = sum(each["again"] for each in found.values())
    return graded, kept, faults


def _who(submission: Submission) -> str:
    if submission.folder is None or not submission.name:
        return submission.student
    return f"{submission.student}, {submission.name}"


def _graded(plan: Plan, result: dict | None) -> GradedNotebook:
    submission = plan.submission
    if plan.task is None or result is None:
        return GradedNotebook(submission.student, submission.name, notes=[plan.problem])
    verdicts = [_verdict(each) for each in result["verdicts"]]
    return GradedNotebook(
        submission.student,
        submission.name,
        plan.task.framework,
        {each.number: each for each in verdicts},
        [*plan.notes, *result["notes"]],
    )


def _verdict(fields: dict) -> Verdict:
    return Verdict.from_json(json.dumps(fields))


def _read(path: Path) -> dict | None:
    """Return what came of a notebook before; None if it isn't there."""
    try:
        found = json.loads(path.read_text("utf-8"))
        return found if {"notes", "verdicts", "again"} <= found.keys() else None
    except (OSError, ValueError, AttributeError):
        return None


class _Workers:
    """Grades notebooks, several at a time, each supervised by a process of its own.

    Args:
        settings: how to grade.
        temporary: a folder for what the processes write.
        hidden: folders that no notebook can read.
    """

    def __init__(self, settings: Settings, temporary: Path, hidden: Sequence[Path]):
        self._settings, self._stopped = settings, threading.Event()
        self._temporary, self._hidden = temporary, [*hidden, temporary]
        self._running: set[subprocess.Popen] = set()
        self._lock = threading.Lock()

    def run(
        self,
        waiting: "queue.SimpleQueue[Plan]",
        finished: Callable[[Plan, dict], None],
    ) -> None:
        """Grade what is waiting.

        Args:
            waiting: what to grade.
            finished: is called in this thread with what came of each notebook.
        """
        ready: queue.SimpleQueue[tuple[Plan, dict] | BaseException | None]
        ready = queue.SimpleQueue()

        def work() -> None:
            try:
                while not self._stopped.is_set():
                    plan = waiting.get_nowait()
                    ready.put((plan, self._grade(plan)))
            except queue.Empty:
                pass
            except BaseException as error:
                ready.put(error)
            finally:
                ready.put(None)

        jobs = min(self._settings.jobs, waiting.qsize())
        threads = [threading.Thread(target=work, daemon=True) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        try:
            while jobs:
                one = ready.get()
                if one is None:
                    jobs -= 1
                elif isinstance(one, BaseException):
                    raise one
                else:
                    finished(*one)
        finally:
            self._stop(threads)

    def _stop(self, threads: Sequence[threading.Thread]) -> None:
        """End all processes, with what they started and what they wrote."""
        self._stopped.set()
        with self._lock:
            for process in self._running:
                process.stdin.close()
        for thread in threads:
            thread.join(30)

    def _grade(self, plan: Plan) -> dict:
        began = time.monotonic()
        with temporary_folder(self._temporary) as name:
            folder = Path(name)
            (folder / WORK).mkdir()
            for path in plan.beside:
                shutil.copyfile(path, folder / WORK / path.name)
            plan.task.write(folder)
            with (folder / "stderr").open("w+b") as stderr:
                out = self._supervise(plan.task, folder, stderr)
                stderr.seek(0)
                said = stderr.read()[-2000:].decode("utf-8", "replace").splitlines()
        try:
            result = json.loads(out)
        except ValueError:
            result = {"notes": ["grading itself failed"], "again": True}
            result["verdicts"] = [
                asdict(Verdict(each.number, problem="it could not be graded."))
                for each in plan.task.exercises
            ]
        if result["again"] and said:
            result["notes"].append(f"the last that was printed: {said[-1]}")
        return {**encodable(result), "seconds": time.monotonic() - began}

    def _supervise(self, task: Task, folder: Path, stderr: Any) -> bytes:
        """Return what the supervisor of a notebook says; nothing if it has to be
        stopped."""
        longest = STARTUP + task.notebook_seconds + 60
        longest += sum(2 * STARTUP + 2 * each.seconds for each in task.exercises)
        process = self._start(folder, stderr)
        late = threading.Timer(longest, process.stdin.close)
        late.daemon = True
        late.start()
        try:
            return process.stdout.read()
        finally:
            late.cancel()
            with self._lock:
                self._running.discard(process)
                process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                kill_child(process)
                process.wait()

    def _start(self, folder: Path, stderr: Any) -> subprocess.Popen:
        threads = max(1, usable_cores() // self._settings.jobs)
        environment = {
            "OMP_NUM_THREADS": str(threads),
            **environment_for(Exercise("", "", iter, None), self._settings.own),
            HIDDEN: os.pathsep.join(str(each.resolve()) for each in self._hidden),
            "TMPDIR": str(folder),
        }
        code = f"from {supervisor.__name__} import main; main()"
        with self._lock:
            if self._stopped.is_set():
                raise KeyboardInterrupt
            process = start_child(
                [sys.executable, "-P", "-c", code, str(folder)],
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
                cwd=folder,
            )
            self._running.add(process)
        return process
