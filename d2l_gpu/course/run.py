"""Running the course headless: what ``d2l-gpu run`` does."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import nbformat

from d2l_gpu.common.files import write_atomically
from d2l_gpu.course.copies import copy_notebooks
from d2l_gpu.course.kernel import CellFailure, progress_bar, run_cells
from d2l_gpu.course.page import LessonResult, report_html


def run_course(
    notebooks: Path, lessons: Sequence[str], output: Path, timeout: int
) -> int:
    """Execute lessons and write executed copies and one report of them.

    The notebooks are copied to ``output`` first and executed there. One that the
    reader has changed there stays as it is, and it is that one which is executed.

    Args:
        notebooks: folder of the notebooks as they are published.
        lessons: which of them, by full name.
        output: folder for the notebooks, ``executed/`` and ``report.html``.
        timeout: seconds that one cell may take.

    Returns:
        0, or 1 if a cell failed; the other lessons are executed all the same.
    """
    results = []
    for copy in copy_notebooks(notebooks, lessons, output):
        result = _execute(copy, timeout)
        executed = output / "executed" / copy.name
        write_atomically(executed, nbformat.writes(result.notebook) + "\n")
        print(f"{result.name}: {result.status} ({result.seconds:.1f} s)", flush=True)
        results.append(result)
    for result in results:
        if result.failure:
            print(_failed_cell(result), file=sys.stderr)
    report = output / "report.html"
    write_atomically(report, report_html(results))
    print(f"report: {report}")
    return 1 if any(result.failure for result in results) else 0


def _execute(path: Path, timeout: int) -> LessonResult:
    notebook = nbformat.read(path, as_version=4)
    failure = None
    start = time.perf_counter()
    with progress_bar(notebook, path.stem) as bar:
        try:
            run_cells(notebook, path.parent, timeout=timeout, after_cell=bar.update)
        except CellFailure as error:
            failure = error
    seconds = time.perf_counter() - start
    return LessonResult(path.stem, notebook, seconds, failure)


def _failed_cell(result: LessonResult) -> str:
    """Say which cell of a lesson failed, how it begins, and why."""
    failure = result.failure
    head = result.notebook.cells[failure.index].source.splitlines()[:3]
    source = "\n".join(f"    {line}" for line in head)
    return (
        f"{result.name}, cell {failure.index + 1} failed:\n{source}\n{failure.summary}"
    )
