"""Write a course for nbgrader, whose hidden tests ask this course's judge."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from d2l_gpu.assignments.questions import (
    Assignment,
    introduced,
    without_outputs,
)
from d2l_gpu.common.files import write_atomically
from d2l_gpu.common.messages import say
from d2l_gpu.grading.points import Points

CONFIGURATION = """\
\"\"\"nbgrader's configuration for this course.\"\"\"

c = get_config()  # noqa: F821  nbgrader provides it

c.CourseDirectory.course_id = "d2l-gpu"

# Students keep the stubs of the lessons, which stand above the solutions.
c.ClearSolutions.code_stub = {"python": ""}

# Training takes longer than nbgrader's 30 seconds.
c.ExecutePreprocessor.timeout = 600
"""

# The share of the claims that hold is the share of the points. nbgrader takes a cell's
# value for its points, and an error for none.
_TEST = """\
# Points for exercise {number}.
### BEGIN HIDDEN TESTS
from d2l_gpu.exercises import judge
from d2l_gpu.grading.points import share_of

verdict = judge({framework!r}, {number!r}, {answer})
print(verdict)
assert share_of(verdict), str(verdict)
{points} * float(share_of(verdict))
### END HIDDEN TESTS"""


def write(
    assignments: Sequence[Assignment], folder: Path, points: Points
) -> Iterator[Path]:
    """Write a course for nbgrader, and yield the path of each file.

    Args:
        assignments: an assignment of nbgrader each.
        folder: the course's; assignments of the same names are overwritten.
        points: what exercises are worth.
    """
    configuration = folder / "nbgrader_config.py"
    if not configuration.exists():
        write_atomically(configuration, CONFIGURATION)
        yield configuration
    elif configuration.read_text("utf-8") != CONFIGURATION:
        _, _, needed = CONFIGURATION.partition('"d2l-gpu"\n\n')
        say(f"{configuration} is yours and was kept. It needs these lines:\n{needed}")
    for assignment in assignments:
        name = assignment.lesson
        path = folder / "source" / name / f"{name}.ipynb"
        text = nbformat.writes(notebook(assignment, points)) + "\n"
        write_atomically(path, text)
        yield path


def next_step(assignments: Sequence[Assignment], folder: Path) -> str:
    """Return what a teacher does next, as a line for a terminal."""
    return (
        f"now: cd {shlex.quote(str(folder))}; nbgrader generate_assignment "
        f"{assignments[0].lesson}"
    )


def notebook(assignment: Assignment, points: Points) -> NotebookNode:
    """Return an assignment as ``nbgrader generate_assignment`` takes it."""
    cells = [_locked(introduced(assignment))]
    cells += [_locked(without_outputs(cell)) for cell in assignment.needed]
    for question in assignment.questions:
        name = question.number.replace(".", "-").lower()
        cells += [_locked(without_outputs(cell)) for cell in question.given]
        answer = (
            f"{question.stub}\n\n\n### BEGIN SOLUTION\n{question.solution}\n"
            "### END SOLUTION"
        )
        cells.append(_marked(new_code_cell(answer, id=f"answer-{name}"), solution=True))
        cells.append(new_code_cell(question.check, id=f"check-{name}"))
        worth = points.of(question.number)
        test = _TEST.format(
            number=question.number,
            framework=assignment.framework,
            answer=question.answer,
            points=worth,
        )
        cells.append(_marked(new_code_cell(test, id=f"points-{name}"), points=worth))
    return new_notebook(cells=cells, metadata=assignment.metadata)


def _locked(cell: NotebookNode) -> NotebookNode:
    """Mark a cell that students can read and run, but not change."""
    return _marked(cell)


def _marked(
    cell: NotebookNode, solution: bool = False, points: float | None = None
) -> NotebookNode:
    cell.metadata["nbgrader"] = {
        "schema_version": 3,
        "grade_id": cell.id,
        "solution": solution,
        "grade": points is not None,
        "locked": not solution,
        "task": False,
    }
    if points is not None:
        cell.metadata["nbgrader"]["points"] = points
    return cell
