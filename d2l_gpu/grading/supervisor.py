"""The process that grades one notebook, without running any of its code.

It has the cells run by another process (``cells_process.py``), stops that one when its
time is up, kills what it left behind, and has the answers judged one after another.
What it found goes to standard output, which no other process has.
"""

import base64
import binascii
import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from d2l_gpu.common.children import end_with_parent, kill_child, start_child
from d2l_gpu.common.settings import VIRTUAL
from d2l_gpu.exercises.answer_process import PLACE
from d2l_gpu.exercises.grading_process import STARTUP
from d2l_gpu.exercises.judge import (
    NO_GPUS,
    Prepared,
    environment_for,
    judge_prepared,
)
from d2l_gpu.exercises.limits import (
    PROCESSES,
    THREADS,
    adopt_orphans,
    few_processes,
    kill_descendants,
)
from d2l_gpu.exercises.own import chosen_file
from d2l_gpu.exercises.records import RecordError, from_json
from d2l_gpu.exercises.registry import Exercise
from d2l_gpu.exercises.verdict import Verdict
from d2l_gpu.grading import cells_process
from d2l_gpu.grading.answers import cells_of, label, on_one_line, quoted
from d2l_gpu.grading.cells_process import LARGEST, TASK, WORK
from d2l_gpu.grading.results import UNANSWERED, UNRUN

# Seconds in which a cell that is too late can end when it's interrupted.
_GRACE = 5

# A line of more bytes is none of ours.
_LONGEST = 2 * LARGEST

# Errors of cells that a report names.
_MOST_ERRORS = 5


def main() -> None:
    folder = Path(sys.argv[1])
    adopt_orphans()
    end_with_parent(first=kill_descendants)
    results = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    task = Task.read(folder)
    cells = Cells(task)
    with _started(folder) as process:
        with few_processes(process.pid, cells.crowded):
            cells.follow(process)
        kill_descendants(keep=process.pid)
    verdicts = _verdicts(task, cells)
    found = {"notes": cells.notes(), "again": cells.again}
    found["verdicts"] = [asdict(each) for each in verdicts]
    results.write(json.dumps(found))
    results.flush()
    os._exit(0)


@dataclass(frozen=True)
class Task:
    """What is done with one notebook.

    Attributes:
        framework: the framework's tag.
        exercises: those to grade; of each, only what `judge_prepared` asks for, and the
            name.
        cells: the code cells, each with its place among all cells, from 0.
        cell_seconds: how long a cell may take.
        notebook_seconds: how long all of them together may take.
        ours: the cells that are the course's own. If one raises an error, that isn't
            reported: perhaps it can't run within the limits, as worker processes can't.
    """

    framework: str
    exercises: Sequence[Exercise]
    cells: dict[int, str]
    cell_seconds: float
    notebook_seconds: float
    ours: Sequence[int] = ()

    def write(self, folder: Path) -> None:
        """Write what `read` reads, and what the process of the cells needs."""
        text = json.dumps(
            {
                "framework": self.framework,
                "find": [each.number for each in self.exercises],
                "exercises": [
                    [each.number, each.name, each.gpus, each.seconds, each.as_cuda]
                    for each in self.exercises
                ],
                "cells": list(self.cells.items()),
                "seconds": [self.cell_seconds, self.notebook_seconds],
                "ours": list(self.ours),
            }
        )
        (folder / TASK).write_text(text, "utf-8")

    @classmethod
    def read(cls, folder: Path) -> "Task":
        found = json.loads((folder / TASK).read_text("utf-8"))
        exercises = [
            Exercise(number, name, iter, None, (), gpus, seconds, as_cuda)
            for number, name, gpus, seconds, as_cuda in found["exercises"]
        ]
        cells = dict(found["cells"])
        seconds, ours = found["seconds"], found["ours"]
        return cls(found["framework"], exercises, cells, *seconds, ours)


@contextlib.contextmanager
def _started(folder: Path) -> Iterator[subprocess.Popen]:
    """Start the process that runs the cells; on leaving the block, kill it."""
    temporary = folder / WORK / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        **NO_GPUS,
        "MPLBACKEND": "agg",
        "IPYTHONDIR": str(temporary),
        "TMPDIR": str(temporary),
        "PYTHONIOENCODING": "utf-8",
    }
    # Lessons make as many virtual GPUs as they want.
    environment.pop(VIRTUAL, None)
    code = f"from {cells_process.__name__} import main; main()"
    process = start_child(
        [sys.executable, "-P", "-c", code, str(folder)],
        stdout=subprocess.PIPE,
        env=environment,
        cwd=folder,
    )
    try:
        yield process
    finally:
        kill_child(process)
        kill_descendants(keep=process.pid)
        process.wait()


@dataclass(frozen=True)
class Failure:
    """What went wrong in a cell.

    Attributes:
        what: that it didn't finish in time, say, or what was raised.
        raised: whether something was raised.
        line: the line that raised it; 0 if unknown.
    """

    what: str
    raised: bool = False
    line: int = 0


@dataclass
class Cells:
    """What the process of the cells said.

    Attributes:
        task: what it was to do.
        failed: what went wrong in single cells.
        told: the cells of which a verdict says what went wrong.
        stopped: why the remaining cells didn't run, with ``{cell}`` for the one that
            was running; empty if all did.
        answers: the answers by the numbers of their exercises.
        again: whether what went wrong may be the machine's fault.
    """

    task: Task
    failed: dict[int, Failure] = field(default_factory=dict)
    told: set[int] = field(default_factory=set)
    stopped: str = ""
    answers: dict[str, Prepared] = field(default_factory=dict)
    again: bool = False
    _crowd: bool = False
    _cell: int | None = None
    _late: set[int] = field(default_factory=set)

    def crowded(self) -> None:
        self._crowd = True

    def follow(self, process: subprocess.Popen) -> None:
        """Listen until the process is done, is too late, or has ended."""
        # What nobody waits for stays in the pipe, so that its writer has to wait.
        lines: queue.Queue[bytes] = queue.Queue(maxsize=2)
        threading.Thread(target=_pass_on, args=(process, lines), daemon=True).start()
        until = time.monotonic() + STARTUP  # imports are no part of its time
        cell_until, late = until, False
        numbers = {each.number for each in self.task.exercises}
        while not self.stopped:
            now = time.monotonic()
            try:
                line = lines.get(timeout=max(0.0, min(until, cell_until) - now))
            except queue.Empty:
                if self._cell is None:
                    self.again = True
                    self.stopped = "Python took too long to start"
                elif time.monotonic() >= until:
                    seconds = self.task.notebook_seconds
                    self.stopped = (
                        f"the notebook didn't finish in {seconds:g} seconds, and was "
                        "stopped in {cell}"
                    )
                elif late:
                    self.stopped = (
                        f"{{cell}} {self._too_late()} and couldn't be interrupted"
                    )
                else:
                    late, cell_until = True, time.monotonic() + _GRACE
                    with contextlib.suppress(OSError, ValueError):  # Windows has none
                        process.send_signal(signal.SIGINT)
                continue
            said = _decoded(line)
            if said is None:
                self.stopped = self._how_it_ended(process, bool(line))
            elif said.get("done") is True:
                break
            elif self._is_cell(begins := said.get("begins")):
                if self._cell is None:
                    until = time.monotonic() + self.task.notebook_seconds
                self._cell, late = begins, False
                cell_until = time.monotonic() + self.task.cell_seconds
            elif self._cell is not None and self._is_cell(said.get("ends")):
                if late:
                    self._late.add(self._cell)
                    self.failed[self._cell] = Failure(self._too_late())
                elif error := on_one_line(str(said.get("error") or "")):
                    place = said.get("line")
                    place = place if type(place) is int else 0
                    self.failed[self._cell] = Failure(error, True, place)
            elif (number := str(said.get("answer"))) in numbers:
                self.answers[number] = _prepared(said)

    def label(self, cell: int) -> str:
        """Return what a report calls a cell."""
        task = self.task
        return label(cell, task.cells, task.exercises, task.ours)

    def place(self, cell: int, line: int) -> str:
        """Return the line of a cell in parentheses; empty if nobody knows it."""
        return f" ({quoted(line, self.task.cells[cell])})" if line else ""

    def why_unanswered(self, exercise: Exercise) -> str:
        """Return why there is no answer to an exercise, as a sentence."""
        its = cells_of(exercise, self.task.cells, self.task.ours)
        failed = [cell for cell in its if cell in self.failed]
        if failed:
            # The others fail because there is no answer, if not for the same reason.
            self.told.update(failed)
            first = self.failed[failed[0]]
            why = f"{first.what}{self.place(failed[0], first.line)}"
            return f"{UNRUN}: {why if first.raised else f'its cell {why}'}."
        if self.stopped and self._cell in its:
            return f"{UNRUN}: {self.stopped.format(cell='its cell')}."
        last = -1 if self._cell is None else self._cell
        if self.stopped and any(cell > last for cell in its):
            return f"{UNRUN}: the notebook stopped before this exercise."
        return f"{UNANSWERED}: the notebook doesn't define `{exercise.name}`."

    def notes(self) -> list[str]:
        """Return what went wrong and no verdict tells, as sentences without a full
        stop."""
        errors = [
            self._note(cell, failure)
            for cell, failure in self.failed.items()
            if cell not in self.told
            and (cell not in self.task.ours or cell in self._late)
        ]
        notes = errors[:_MOST_ERRORS]
        if more := len(errors) - len(notes):
            notes.append(f"{more} more {'cell' if more == 1 else 'cells'} failed")
        if self.stopped and self._cell is None:
            notes.append(f"{self.stopped.replace(' in {cell}', '')}; no cell ran")
        elif self.stopped:
            why = self.stopped.format(cell=self.label(self._cell))
            notes.append(f"{why}; the cells after it didn't run")
        return notes

    def _note(self, cell: int, failure: Failure) -> str:
        name = self.label(cell)
        if not failure.raised:
            return f"{name} {failure.what}"
        place = self.place(cell, failure.line)
        if name.startswith("the cell ") and name[9:] in place:
            place = ""  # it's the line that the name quotes
        return f"{name} raised {failure.what}{place}"

    def _is_cell(self, cell: Any) -> bool:
        return type(cell) is int and cell in self.task.cells

    def _too_late(self) -> str:
        return f"didn't finish in {self.task.cell_seconds:g} seconds"

    def _how_it_ended(self, process: subprocess.Popen, nonsense: bool) -> str:
        if self._crowd:
            return (
                f"the notebook started more than {PROCESSES} processes, or more than "
                f"{THREADS:,} threads in them, in {{cell}}"
            )
        if not nonsense:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(_GRACE)
                if code >= 0:
                    self.again = self._cell is None
                    return f"the notebook's process exited with code {code} in {{cell}}"
                with contextlib.suppress(ValueError):
                    name = signal.Signals(-code).name
                    return f"the notebook's process was killed by {name} in {{cell}}"
        return "the notebook's process sent what can't be read in {cell}"


def _pass_on(process: subprocess.Popen, lines: "queue.Queue[bytes]") -> None:
    """Pass on each line that the process writes, and an empty one at the end."""
    with contextlib.suppress(OSError, ValueError):
        while line := process.stdout.readline(_LONGEST):
            lines.put(line)
    lines.put(b"")


def _decoded(line: bytes) -> dict | None:
    """Return what a line says; None if it's none that we'd send."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _prepared(said: dict) -> Prepared:
    """Return an answer as it was sent, if that can be one."""
    problem, value, pickled = (
        said.get(each) for each in ("problem", "value", "pickled")
    )
    try:
        if isinstance(problem, str) and problem:
            return Prepared(problem)
        if isinstance(value, str):
            from_json(value)
            return Prepared(value=value)
        return Prepared(pickled=base64.b64decode(pickled, validate=True))
    except (RecordError, TypeError, binascii.Error, ValueError):
        return Prepared("your answer interfered with its check: it can't be read.")


def _verdicts(task: Task, cells: Cells) -> list[Verdict]:
    """Return the verdicts on the answers, in the order of the exercises."""
    verdicts = {each.number: Verdict(each.number) for each in task.exercises}
    alike: dict[tuple, list[tuple[Exercise, Prepared]]] = {}
    for exercise in task.exercises:
        prepared = cells.answers.get(exercise.number)
        if prepared is None:
            prepared = Prepared(cells.why_unanswered(exercise))
        own = alike.setdefault((exercise.gpus, exercise.as_cuda), [])
        own.append((exercise, prepared))
    for answers in alike.values():
        environment = environment_for(answers[0][0], chosen_file())
        for each in judge_prepared(task.framework, answers, environment):
            problem = _with_place(each.problem, each.number, cells)
            verdicts[each.number] = replace(each, problem=problem)
    return list(verdicts.values())


def _with_place(problem: str, number: str, cells: Cells) -> str:
    """Quote the line of the notebook that caused a problem with an answer."""
    place = PLACE.search(problem)
    if place is None:
        return problem
    line, told = int(place["line"]), ""
    found = re.fullmatch(r"<cell (\d{1,7})>", place["file"])
    task = cells.task
    if found and (cell := int(found[1]) - 1) in task.cells:
        told = quoted(line, task.cells[cell])
        (exercise,) = [each for each in task.exercises if each.number == number]
        if cell not in cells_of(exercise, task.cells):
            told = f"in {cells.label(cell)}, {told}"
        told = f" ({told})"
    return problem.replace(place.group(), told)
