"""Grading the notebooks of a class, several at a time: what ``d2l-gpu grade`` does."""

import json
import math
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm import tqdm

from d2l_gpu.common.children import kill_child, start_child
from d2l_gpu.common.files import write_atomically
from d2l_gpu.common.messages import localized, say
from d2l_gpu.common.processor import usable_cores
from d2l_gpu.common.settings import HIDDEN
from d2l_gpu.exercises.grading_process import STARTUP
from d2l_gpu.exercises.judge import environment_for, temporary_folder
from d2l_gpu.exercises.registry import Exercise
from d2l_gpu.exercises.verdict import Verdict
from d2l_gpu.grading import supervisor
from d2l_gpu.grading.cells_process import WORK
from d2l_gpu.grading.page import number_text
from d2l_gpu.grading.plan import Course, Plan, Settings
from d2l_gpu.grading.points import Points
from d2l_gpu.grading.results import GradedNotebook, Results, encodable
from d2l_gpu.grading.students import students_with
from d2l_gpu.grading.submissions import Submission, not_a_notebook, submissions_in
from d2l_gpu.grading.supervisor import Task
from d2l_gpu.grading.tables import DATA, FEEDBACK, PAGE, TABLE, write_all

# The folder with what came of each notebook, in that of the grades.
DONE = "results"


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
    them = settings.class_list
    ours = [output, settings.points_from, settings.own, them and them.path]
    handed_in = submissions_in(
        folder, filter(None, ours), them and (lambda owner: bool(them.find(owner)))
    )
    plans = [course.plan(each) for each in handed_in.submissions]
    for warning in course.check_settings():
        say(warning, file=sys.stderr)
    output.mkdir(parents=True, exist_ok=True)
    graded, kept, faults = _grade_all(plans, output / DONE, settings, hidden)
    for name in handed_in.others:
        say(f"not graded: {not_a_notebook(name)}")
    whose = zip(handed_in.submissions, graded, strict=True)
    students = students_with(whose, them)
    titles, about = course.titles(), course.about(folder)
    results = Results(students, titles, settings.points, about, handed_in.others)
    write_all(results, output)
    _say_who_is_missing(results, settings)
    count = len(results.students)
    notebooks = sum(bool(plan.submission.path) for plan in plans)
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    students = f"{count} {'student' if count == 1 else 'students'}"
    handed = f"{notebooks} {'notebook' if notebooks == 1 else 'notebooks'}"
    before = localized(f" ({kept} graded before)") if kept else ""
    say(f"{students}, {handed}{before}, {minutes}:{seconds:02} minutes")
    say(f"what the class did, and where it's stuck: {output / PAGE}")
    say(f"grades: {output / TABLE} and {output / DATA}")
    say(f"feedback for each student: {output / FEEDBACK}")
    if faults:
        say(
            f"{faults} of them could not be graded; the same command tries them again",
            file=sys.stderr,
        )
    return 1 if faults else 0


def _say_who_is_missing(results: Results, settings: Settings) -> None:
    absent = [each.name for each in results.students if not each.notebooks]
    if absent:
        say(f"handed in nothing: {', '.join(absent)}")
    strangers = [each.name for each in results.students if each.on_list is False]
    if strangers:
        path = settings.class_list.path
        say(f"not on the list {path}: {', '.join(strangers)}")


def _to_hide(folders: Sequence[Path]) -> list[Path]:
    """Return the folders without which Python gets on: those that hold none of it."""
    needed = [Path(each).resolve() for each in (*sys.path, sys.prefix) if each]
    return [
        folder
        for folder in (each.resolve() for each in folders)
        if not any(each.is_relative_to(folder) for each in needed)
    ]


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
    with Bar(total=len(keys), disable=None, leave=False) as bar:

        def finished(plan: Plan, result: dict) -> None:
            found[plan.key] = result
            if not result["again"]:
                write_atomically(done / f"{plan.key}.json", json.dumps(result))
            line = f"{_who(plan.submission)}: {_score(result, settings.points)}"
            bar.write("; ".join([line, *plan.notes, *result["notes"]]))
            sys.stdout.flush()
            bar.update()

        with temporary_folder() as temporary:
            workers = _Workers(settings, Path(temporary), hidden)
            workers.run(waiting, finished)
    graded = []
    for plan in plans:
        if plan.task is None:
            about_file = plan.submission.instead and not plan.submission.folder
            who = "" if about_file else f"{_who(plan.submission)}: "
            say(f"not graded: {who}{plan.problem}")
        graded.append(_graded(plan, found.get(plan.key)))
    faults = sum(each["again"] for each in found.values())
    return graded, kept, faults


class Bar(tqdm):
    """Says how many notebooks are graded, and about how long the others take."""

    def __init__(self, **options: Any):
        form = "{n_fmt} of {total_fmt} notebooks graded{left}"
        super().__init__(bar_format=form, smoothing=0, **options)

    @property
    def format_dict(self) -> dict[str, Any]:
        found = super().format_dict
        n, elapsed = found["n"], found["elapsed"]
        seconds = elapsed / n * (found["total"] - n) if n else 0
        minutes = math.ceil(seconds / 60)
        return {**found, "left": f", about {minutes} min left" if seconds else ""}


def _score(result: dict, points: Points) -> str:
    verdicts = [_verdict(each) for each in result["verdicts"]]
    most = round(sum(points.of(each.number) for each in verdicts), 2)
    earned = round(sum(map(points.earned, verdicts)), 2)
    right = sum(each.all_hold for each in verdicts)
    return (
        f"{number_text(earned)} of {number_text(most)} "
        f"{'point' if most == 1 else 'points'}, {right} of {len(verdicts)} "
        f"{'exercise passes' if len(verdicts) == 1 else 'exercises pass'} "
        f"({result['seconds']:.0f} s)"
    )


def _who(submission: Submission) -> str:
    owner = submission.owner
    name = f"{owner.name} ({owner.id})" if owner.id else owner.name
    if submission.folder is None or not submission.name:
        return name
    return f"{name}, {submission.name}"


def _graded(plan: Plan, result: dict | None) -> GradedNotebook:
    submission = plan.submission
    if plan.task is None or result is None:
        return GradedNotebook(
            submission.name, notes=[plan.problem], path=submission.path
        )
    verdicts = [_verdict(each) for each in result["verdicts"]]
    return GradedNotebook(
        submission.name,
        plan.task.framework,
        {each.number: each for each in verdicts},
        [*plan.notes, *result["notes"]],
        plan.code,
        submission.path,
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
