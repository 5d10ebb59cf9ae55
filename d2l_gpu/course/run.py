"""Running the course headless: what ``d2l-gpu run`` does."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_notebook

from d2l_gpu.common.files import write_atomically
from d2l_gpu.common.messages import localized, say
from d2l_gpu.course.copies import copy_notebooks, not_written
from d2l_gpu.course.kernel import CellFailure, Failure, progress_bar, run_cells
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
        0, or 1 if a lesson failed; the others are executed all the same.

    Raises:
        OSError: the copies or the report cannot be written.
    """
    results = []
    for copy in copy_notebooks(notebooks, lessons, output):
        result = _execute(copy, timeout, output / "executed" / copy.name)
        print(
            f"{result.name}: {localized(result.status)} ({result.seconds:.1f} s)",
            flush=True,
        )
        results.append(result)
    for result in results:
        if result.failure:
            say(_failed_cell(result), file=sys.stderr)
    report = output / "report.html"
    _write(report, report_html(results), OSError)
    say(f"report: {report}")
    return 1 if any(result.failure for result in results) else 0


def _execute(path: Path, timeout: int, executed: Path) -> LessonResult:
    """Execute a notebook, and write an executed copy of it."""
    result = LessonResult(path.stem, new_notebook(), 0.0)
    start = time.perf_counter()
    try:
        result.notebook = notebook = _read(path)
        with progress_bar(notebook, path.stem) as bar:
            try:
                run_cells(notebook, path.parent, timeout=timeout, after_cell=bar.update)
            except CellFailure as error:
                result.failure = error
        result.seconds = time.perf_counter() - start
        _write(executed, nbformat.writes(notebook) + "\n", Failure)
    except Failure as error:
        result.failure = result.failure or error
    return result


def _read(path: Path) -> NotebookNode:
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
    except OSError as error:
        raise Failure(f"{path} cannot be read ({error.strerror or error})") from None
    except Exception:  # nbformat raises whatever it stumbles over
        raise Failure(
            f"{path} is damaged, or no notebook: delete it, and you get the notebook "
            "of the course again"
        ) from None
    return notebook


def _write(path: Path, text: str, kind: type[Exception]) -> None:
    """Write a file whole, or raise this kind of exception, in one sentence."""
    try:
        write_atomically(path, text)
    except OSError as error:
        raise kind(not_written(path, error)) from None


def _failed_cell(result: LessonResult) -> str:
    """Say which cell of a lesson failed, how it begins, and why."""
    failure = result.failure
    if not isinstance(failure, CellFailure):
        return f"{result.name}: {failure.summary}"
    head = result.notebook.cells[failure.index].source.splitlines()[:3]
    source = "\n".join(f"    {line}" for line in head)
    return (
        f"{result.name}, cell {failure.index + 1} failed:\n{source}\n{failure.summary}"
    )
