"""Make handouts for a class: student notebooks, solutions and running times.

    python -m tools.classroom FOLDER                   the whole course, with PyTorch
    python -m tools.classroom FOLDER 03 05             these lessons
    python -m tools.classroom FOLDER --worksheets      only the exercises, by lesson
    python -m tools.classroom FOLDER --language fr     in another language

Students get the lessons without outputs, so that they can predict them, and with the
exercises as stubs. FOLDER gets ``students``, ``solutions`` and the page
``durations.md``.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from d2l_gpu.assignments.questions import INTRODUCTION, without_outputs
from d2l_gpu.common.files import write_atomically
from d2l_gpu.common.frameworks import framework as framework_with
from d2l_gpu.course import SOLUTIONS, lesson_names, notebooks_dir, select_lessons
from tools.check import prose_of
from tools.durations import RESULTS
from tools.languages import ENGLISH
from tools.lesson import aims_and_minutes

MACHINES = {0: "without a GPU", 1: "on one GPU", 2: "on two GPUs"}

_EXERCISE = re.compile(r"^### \w\d\.\d+ ", re.MULTILINE)


def student_notebook(
    lesson: NotebookNode, solutions: NotebookNode, worksheet: bool = False
) -> NotebookNode:
    """Return a lesson as students get it, without outputs.

    Args:
        lesson: the published notebook, with its exercises as stubs.
        solutions: the notebook with the solutions; its cells show which of the
            lesson's cells the exercises need.
        worksheet: whether to keep only the exercises and the cells that they need.
    """
    cells = lesson.cells
    if worksheet:
        needed = {cell.id for cell in solutions.cells}
        first = [cell.id for cell in cells].index(INTRODUCTION)
        kept = [cell for cell in cells[1:first] if cell.id in needed]
        cells = [cells[first], *kept, *cells[first + 1 :]]
        cells[0] = nbformat.from_dict(
            cells[0] | {"source": f"# {_title(lesson)}\n\n{cells[0].source}"}
        )
    return nbformat.from_dict({**lesson, "cells": [*map(without_outputs, cells)]})


def _title(notebook: NotebookNode) -> str:
    return notebook.cells[0].source.partition("\n")[0].lstrip("# ")


def durations_page(framework: str, notebooks: Sequence[Path]) -> str:
    """Return a Markdown page on how long the lessons and exercises take.

    Args:
        framework: the framework's tag.
        notebooks: the lessons.
    """
    runs = json.loads(RESULTS.read_text("utf-8")) if RESULTS.is_file() else []
    runs = [run for run in runs if run["framework"] == framework]
    title = framework_with(framework).title
    lines = [
        f"# How long the course takes, with {title}",
        "",
        "*To read* is what a lesson says of itself: reading it and running its cells. "
        "*Run All* is measured: all cells of the lesson one after another, and of the "
        "notebook with its solutions, each in a new kernel.",
        "",
    ]
    head = ["Lesson", "Exercises", "To read"]
    head += [f"Run All, {machine}" for machine in MACHINES.values()]
    lines += [_row(head), _row(["---"] * len(head))]
    for path in notebooks:
        notebook = nbformat.read(path, as_version=4)
        row = [path.stem, str(len(_exercises(notebook))), _to_read(path)]
        for gpus in MACHINES:
            row.append(_measured(runs, gpus, path.stem))
        lines.append(_row(row))
    lines.append("")
    for gpus, machine in MACHINES.items():
        of_machine = [run for run in runs if run["gpus"] == gpus]
        what = "; ".join(f"{run['hardware']}, {run['date']}" for run in of_machine)
        lines.append(
            f"* {machine}: {what or f'not measured yet; {_HOW.format(framework)}'}"
        )
    return "\n".join(lines) + "\n"


_HOW = "`python -m tools.durations --framework {}` on such a machine does it"


def _to_read(path: Path) -> str:
    """Return the minutes that a lesson states, read from its English notebook."""
    english = path.parents[2] / ENGLISH / path.parent.name / path.name
    says = aims_and_minutes(prose_of(nbformat.read(english, as_version=4)))
    return f"{says[1]} min" if says else ""


def _exercises(notebook: NotebookNode) -> list[str]:
    return [cell.id for cell in notebook.cells if _EXERCISE.match(cell.source)]


def _measured(runs: Sequence[dict], gpus: int, lesson: str) -> str:
    """Return the seconds that a lesson and its solutions took, in the latest run on a
    machine with this number of GPUs."""
    of_machine = [run["seconds"] for run in runs if run["gpus"] == gpus]
    found = next((each for each in reversed(of_machine) if lesson in each), None)
    if found is None:
        return "—"
    solutions = found.get(f"{SOLUTIONS}/{lesson}")
    return f"{found[lesson]:.0f} s" + (f" + {solutions:.0f} s" if solutions else "")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def hand_out(
    notebooks: Sequence[Path], framework: str, target: Path, worksheets: bool
) -> Iterator[Path]:
    """Write the handouts, and yield the path of each file.

    Args:
        notebooks: the lessons, each with its solutions in the folder beside it.
        framework: the framework's tag.
        target: the folder to write to; files of the same names are overwritten.
        worksheets: whether students get only the exercises.

    Raises:
        ValueError: a lesson has no solutions.
    """
    pairs = []
    for path in notebooks:
        solved = path.parent / SOLUTIONS / path.name
        if not solved.is_file():
            raise ValueError(f"{path.stem} has no solutions: {solved} does not exist")
        pairs.append(
            (path, *(nbformat.read(each, as_version=4) for each in (path, solved)))
        )
    for path, lesson, solutions in pairs:
        student = student_notebook(lesson, solutions, worksheets)
        for folder, notebook in ("students", student), (SOLUTIONS, solutions):
            file = target / folder / path.name
            write_atomically(file, nbformat.writes(notebook) + "\n")
            yield file
    page = target / "durations.md"
    write_atomically(page, durations_page(framework, notebooks))
    yield page


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the handouts; return 0, or 1 on an error."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.classroom", description=__doc__.splitlines()[0]
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "lessons", nargs="*", metavar="lesson", help="such as 03 or copying"
    )
    parser.add_argument("--framework", default="pytorch", metavar="TAG")
    parser.add_argument("--language", default=ENGLISH)
    parser.add_argument("--worksheets", action="store_true", help="exercises alone")
    parser.add_argument(
        "--force", action="store_true", help="replace an earlier handout"
    )
    options = parser.parse_args(arguments)
    try:
        framework_with(options.framework)  # raises if unknown
        edition = notebooks_dir(options.language, options.framework)
        solved = lesson_names(edition / SOLUTIONS)
        names = select_lessons(options.lessons, lesson_names(edition))
        if not options.lessons:
            names = [name for name in names if name in solved]
        there = [options.folder / name for name in ("students", SOLUTIONS)]
        if any(map(Path.exists, there)) and not options.force:
            raise ValueError(
                f"{options.folder} already holds a handout: choose another folder, or "
                "use --force to replace it"
            )
        paths = [edition / f"{name}.ipynb" for name in names]
        for file in hand_out(
            paths, options.framework, options.folder, options.worksheets
        ):
            print(file)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
