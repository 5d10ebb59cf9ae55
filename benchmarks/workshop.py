"""Run what the workshop of 90 minutes runs, and say how long each part takes.

    python benchmarks/workshop.py

The parts are those of the timetable in docs/teaching/workshop.md: the sections of
lessons 00, 03 and 05 that it names, and its exercises, with a wrong answer and the
solution. Each lesson runs in one kernel, from a fresh folder, as participants would.
Reading isn't measured: it's the words of a part at 150 a minute.
"""

import datetime
import os
import tempfile
import time

import nbformat
from common import hardware
from nbclient import NotebookClient
from nbformat import NotebookNode

from d2l_gpu.course import SOLUTIONS, lesson_names, notebooks_dir, select_lessons
from tools.sections import WORDS_PER_MINUTE, sections

WRONG = {
    "00.1": "def ones_on(devices):\n"
    "    return [torch.ones(2, 3, device=devices[0]) for _ in devices]\n\n\n"
    "d2l.check('00.1', ones_on)"
}

# Of each lesson: its sections that are run, and an exercise.
PARTS = {
    "00": (("Start here", "What is real, what is simulated"), "00.1"),
    "03": (
        (
            "Copying between devices",
            "Two tensors, two devices",
            "Recording copies",
            "What a copy costs",
            "Copies you didn't ask for",
            "Python waits",
            "Back to the loop",
        ),
        "03.5",
    ),
    "05": (("Time", "Python doesn't wait"), None),
}


def duration(cell: NotebookNode) -> float:
    """Return the seconds that a code cell took when it was executed."""
    times = cell.metadata["execution"]
    begin, end = (
        datetime.datetime.fromisoformat(times[name].replace("Z", "+00:00"))
        for name in ("iopub.execute_input", "shell.execute_reply")
    )
    return (end - begin).total_seconds()


def walk(lesson: str, names: tuple[str, ...], exercise: str | None) -> list[tuple]:
    """Run parts of a lesson; return the name, words and seconds of each."""
    edition = notebooks_dir("en", "pytorch")
    [stem] = select_lessons([lesson], lesson_names(edition))
    notebook = nbformat.read(edition / f"{stem}.ipynb", as_version=4)
    solved = nbformat.read(edition / SOLUTIONS / f"{stem}.ipynb", as_version=4)
    found = [s for s in sections(notebook, {}) if s.title in names]
    kept = {key for each in found for key in each.cells}
    cells = [c for c in notebook.cells if c.id in kept]
    tries = []
    if exercise:
        tries = [c for c in solved.cells if f"d2l.check('{exercise}'" in c.source]
        wrong = WRONG.get(exercise)
        tries[:0] = [nbformat.v4.new_code_cell(wrong)] if wrong else []
        # What the exercise needs of the cells before it.
        at = solved.cells.index(tries[-1])
        known = {c.id for c in cells}
        tries[:0] = [
            c
            for c in solved.cells[at - 3 : at]
            if c.cell_type == "code" and c.id not in known and "check" not in c.source
        ]
    ran = nbformat.from_dict({**notebook, "cells": cells + tries})
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        where = {"metadata": {"path": folder}}
        NotebookClient(ran, timeout=900, record_timing=True, resources=where).execute()
        took = time.perf_counter() - start
    seconds = {c.id: duration(c) for c in ran.cells if c.cell_type == "code"}
    rows = [
        (f"{lesson}, {each.title}", each.words, sum(seconds[key] for key in each.cells))
        for each in found
    ]
    if exercise:
        rows.append((f"exercise {exercise}", 0, sum(seconds[c.id] for c in tries)))
        print(exercise, "|", *(o.get("text", "") for o in tries[-1].outputs))
    return [*rows, (f"{lesson}, kernel and everything", 0, took)]


def main() -> None:
    rows = []
    for lesson, (names, exercise) in PARTS.items():
        rows += walk(lesson, names, exercise)
    print(f"{hardware()}; load {os.getloadavg()[0]:.0f}; {datetime.date.today()}")
    for name, words, seconds in rows:
        print(
            f"{name:45} {words:5} words {words / WORDS_PER_MINUTE:4.1f} min "
            f"{seconds:6.1f} s"
        )


if __name__ == "__main__":
    main()
