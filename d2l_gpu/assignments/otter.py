"""Write notebooks for ``otter assign``, whose hidden tests ask this course's judge."""

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import (
    new_code_cell,
    new_notebook,
    new_raw_cell,
)

from d2l_gpu import __version__
from d2l_gpu.assignments.questions import (
    Assignment,
    Question,
    introduced,
    without_outputs,
)
from d2l_gpu.common.files import write_atomically
from d2l_gpu.grading.points import Points

_TEST = """\
\"\"\" # BEGIN TEST CONFIG
hidden: true
points: {points}
\"\"\" # END TEST CONFIG
def test_{name}({answer}):
    from d2l_gpu.exercises import judge

    verdict = judge({framework!r}, {number!r}, {answer})
    assert verdict.all_hold, str(verdict)"""


def requirements(framework: str) -> str:
    """Return what Gradescope's machine has to install, as a requirements file."""
    extra = {"pytorch": "course"}.get(framework, f"jupyter,{framework}")
    lines = [
        f"d2l-gpu[{extra}] @ "
        f"https://github.com/d2l-gpu/d2l-gpu/archive/refs/tags/v{__version__}.zip"
    ]
    if framework == "pytorch":
        # Without CUDA, which Gradescope's machines have no use for.
        lines.insert(0, "--extra-index-url https://download.pytorch.org/whl/cpu")
    return "\n".join(lines) + "\n"


def write(
    assignments: Sequence[Assignment], folder: Path, points: Points
) -> Iterator[Path]:
    """Write what ``otter assign`` takes, and yield the path of each file.

    Args:
        assignments: a folder with a notebook each.
        folder: the course's; files of the same names are overwritten.
        points: what exercises are worth.
    """
    for assignment in assignments:
        own = folder / assignment.lesson
        path = own / f"{assignment.lesson}.ipynb"
        text = nbformat.writes(master(assignment, points)) + "\n"
        write_atomically(path, text)
        yield path
        needs = own / "requirements.txt"
        write_atomically(needs, requirements(assignment.framework))
        yield needs


def next_step(assignments: Sequence[Assignment], folder: Path) -> str:
    """Return what a teacher does next, as a line for a terminal."""
    lesson = assignments[0].lesson
    return (
        f"now: cd {shlex.quote(str(folder / lesson))}; otter assign {lesson}.ipynb dist"
    )


def master(assignment: Assignment, points: Points) -> NotebookNode:
    """Return an assignment in the notebook format of ``otter assign``."""
    settings = {
        "name": f"d2l-gpu {assignment.lesson}",
        "init_cell": False,
        "check_all_cell": False,
        "export_cell": False,
        "solutions_pdf": False,
        "requirements": "requirements.txt",
        "generate": True,
        "tests": {"files": False, "ok_format": False},
    }
    cells = [
        new_raw_cell("# ASSIGNMENT CONFIG\n" + _yaml(settings), id="assignment"),
        introduced(assignment),
        *map(without_outputs, assignment.needed),
    ]
    for question in assignment.questions:
        worth = points.of(question.number)
        cells += _question(question, assignment.framework, worth)
    return new_notebook(cells=cells, metadata=assignment.metadata)


def _question(
    question: Question, framework: str, points: float
) -> Iterator[NotebookNode]:
    name = question.number.replace(".", "_").lower()

    def raw(text: str) -> NotebookNode:
        return new_raw_cell(f"# {text}", id=f"{name}-{text.lower().replace(' ', '-')}")

    begin = raw("BEGIN QUESTION")
    begin.source += f"\nname: q{name}\npoints: {points}"
    yield begin
    yield from map(without_outputs, question.given)
    yield raw("BEGIN SOLUTION")
    answer = (
        f'""" # BEGIN PROMPT\n{question.stub}\n"""; # END PROMPT\n'
        f"# BEGIN SOLUTION NO PROMPT\n{question.solution}\n# END SOLUTION"
    )
    yield new_code_cell(answer, id=f"{name}-answer")
    yield raw("END SOLUTION")
    yield raw("BEGIN TESTS")
    test = _TEST.format(
        name=name,
        number=question.number,
        framework=framework,
        answer=question.answer,
        points=points,
    )
    yield new_code_cell(test, id=f"{name}-test")
    yield raw("END TESTS")
    yield raw("END QUESTION")
    yield new_code_cell(question.check, id=f"{name}-check")


def _yaml(settings: dict) -> str:
    """Return settings as YAML, of which JSON is a part."""
    return "\n".join(f"{name}: {json.dumps(each)}" for name, each in settings.items())
