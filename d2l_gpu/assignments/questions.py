"""Take a lesson apart into its exercises and what these need."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from d2l_gpu.course import solutions_of, without_solutions

INTRODUCTION = "exercises"
"""The id of the cell before a lesson's exercises, which says what to do."""

_HEADING = re.compile(r"^### (\w\d\.\d+) ", re.MULTILINE)
_CHECK = re.compile(r"^(?:\w+\.)*check\('(\w\d\.\d+)', (\w+)\)$", re.MULTILINE)


@dataclass(frozen=True)
class Question:
    """An exercise.

    Attributes:
        number: such as ``03.1``.
        answer: the name that the answer has in the notebook, such as ``total``.
        given: its text, and code that comes with it.
        check: the line that checks the answer.
        stub: the code cell that students fill in, without the check.
        solution: the same cell, filled in.
    """

    number: str
    answer: str
    given: Sequence[NotebookNode]
    check: str
    stub: str
    solution: str


@dataclass(frozen=True)
class Assignment:
    """A lesson's exercises.

    Attributes:
        lesson: its full name, such as ``03_copying``.
        framework: the framework's tag.
        title: of the lesson.
        introduction: what students do, in the notebook's language.
        needed: the lesson's code cells that the exercises need.
        questions: in the lesson's order.
        metadata: of the notebook: its kernel and language.
    """

    lesson: str
    framework: str
    title: str
    introduction: str
    needed: Sequence[NotebookNode]
    questions: Sequence[Question]
    metadata: NotebookNode


def read_assignment(path: Path, framework: str) -> Assignment:
    """Read the exercises of a published lesson, with their solutions.

    Args:
        path: of the lesson's notebook.
        framework: the framework's tag.

    Raises:
        ValueError: the lesson has no exercises.
    """
    solved = solutions_of(path)
    if not solved.is_file():
        raise ValueError(f"{path.stem} has no exercises")
    lesson = nbformat.read(path, as_version=4)
    solutions = nbformat.read(solved, as_version=4)
    first = [cell.id for cell in lesson.cells].index(INTRODUCTION)
    shared = {cell.id for cell in solutions.cells}
    needed = [
        cell
        for cell in lesson.cells[:first]
        if cell.id in shared and cell.cell_type == "code"
    ]
    answers = dict(_solutions(solutions.cells))
    questions = tuple(_questions(lesson.cells[first + 1 :], answers))
    title = lesson.cells[0].source.partition("\n")[0].lstrip("# ")
    return Assignment(
        path.stem,
        framework,
        title,
        without_solutions(lesson.cells[first].source),
        needed,
        questions,
        lesson.metadata,
    )


def _questions(
    cells: Sequence[NotebookNode], solutions: dict[str, str]
) -> Iterator[Question]:
    given: list[NotebookNode] = []
    for cell in cells:
        if cell.cell_type == "markdown" and _HEADING.match(cell.source):
            given = []
        given.append(cell)
        check = _CHECK.search(cell.source) if cell.cell_type == "code" else None
        if check:
            yield Question(
                check[1],
                check[2],
                tuple(given[:-1]),
                check[0],
                _without_check(cell.source),
                solutions[check[1]],
            )
            given = []


def _solutions(cells: Sequence[NotebookNode]) -> Iterator[tuple[str, str]]:
    for cell in cells:
        check = _CHECK.search(cell.source) if cell.cell_type == "code" else None
        if check:
            yield check[1], _without_check(cell.source)


def _without_check(source: str) -> str:
    return _CHECK.sub("", source).strip()


def without_outputs(cell: NotebookNode) -> NotebookNode:
    """Return a copy of a cell as nobody has run it."""
    copied = nbformat.from_dict(dict(cell))
    if copied.cell_type == "code":
        copied.outputs, copied.execution_count = [], None
    return copied


def introduced(assignment: Assignment) -> NotebookNode:
    """Return the first cell of an assignment: its title, and what students do."""
    _, _, what = assignment.introduction.partition("\n")
    text = f"# {assignment.title}\n\n{what.strip()}".strip()
    return new_markdown_cell(text, id="title")
