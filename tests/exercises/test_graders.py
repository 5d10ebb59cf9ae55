"""Every grader passes right answers, and tells mistakes apart, each by its own hint.

The answers are in ``graders/``. A process grades those to the exercises of a lesson.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from d2l_gpu.common.frameworks import FRAMEWORKS
from d2l_gpu.common.frameworks import framework as framework_with
from d2l_gpu.exercises.judge import NO_GPUS
from d2l_gpu.exercises.registry import lessons_of
from tests.exercises.graders.answers import Graded
from tests.helpers.cells import checks_in
from tests.helpers.fresh_process import PATH
from tests.helpers.paths import REPOSITORY
from tests.helpers.waiting import PATIENCE
from tools import environments

LESSONS = [(each.tag, lesson) for each in FRAMEWORKS for lesson in lessons_of(each.tag)]
LEAST_MISTAKES = 3


def _size(framework: str, lesson: str) -> pytest.MarkDecorator:
    """Return how often mistakes are tried: each with PyTorch, else some in CI."""
    often = framework == "pytorch" or lesson == "01"
    return pytest.mark.all if often else pytest.mark.weekly


def all_graded(
    framework: str, lessons: Sequence[str], *options: str
) -> tuple[list[str], list[Graded]]:
    """Return the numbers of the lessons' exercises, and what is said of all answers."""
    numbers, counts, graded = _graded(framework, *lessons, *options)
    for count in counts[1:]:
        graded += _graded(framework, *lessons, f"--gpus={count}", *options)[2]
    return numbers, [Graded(**each) for each in graded]


def _graded(framework: str, *arguments: str) -> list:
    its = framework_with(framework)
    if reason := environments.missing(its):
        pytest.skip(reason)
    own = environments.has_its_own(its)
    python = environments.interpreter(framework) if own else sys.executable
    done = subprocess.run(
        [python, "-m", "tests.exercises.graders.answers", framework, *arguments],
        env={**os.environ, **PATH, "D2L_GPU_VIRTUAL": "", **NO_GPUS},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# A plain run sees right answers only. 08 takes long, and A1 has GPUs named cuda.
PLAIN = [each for each in lessons_of("pytorch") if each not in ("08", "A1")]


@pytest.mark.parametrize(
    ("framework", "lessons"),
    [
        ("pytorch", PLAIN),
        pytest.param("pytorch", ["08"], marks=pytest.mark.all),
        pytest.param("pytorch", ["A1"], marks=pytest.mark.all),
        pytest.param("tensorflow", lessons_of("tensorflow"), marks=pytest.mark.all),
        pytest.param("jax", lessons_of("jax"), marks=pytest.mark.all),
    ],
    ids=["pytorch", "pytorch-08", "beside-the-book", "tensorflow", "jax"],
)
def test_graders_pass_right_answers(framework, lessons):
    numbers, answers = all_graded(framework, lessons, "--right")
    assert {each.number for each in answers} == set(numbers)
    assert [f"{each.number}: {each.text}" for each in answers if not each.passed] == []


@pytest.mark.parametrize(
    ("framework", "lesson"),
    [pytest.param(*each, marks=_size(*each), id="-".join(each)) for each in LESSONS],
)
def test_graders_pass_right_answers_and_tell_mistakes_apart(framework, lesson):
    numbers, answers = all_graded(framework, [lesson])
    problems = []
    for answer in answers:
        where = f"{answer.number} {answer.name}"
        if answer.expected is None and not answer.passed:
            problems.append(f"{where} is right:\n{answer.text}")
        elif answer.expected is not None and answer.passed:
            problems.append(f"{where} is wrong, and passes:\n{answer.text}")
        elif answer.expected is not None and answer.expected not in answer.said:
            problems.append(f"{where} is to say {answer.expected!r}:\n{answer.text}")
    rights = Counter(each.number for each in answers if each.expected is None)
    wrongs = Counter(each.number for each in answers if each.expected is not None)
    said = Counter((each.number, each.said) for each in answers if each.expected)
    problems += [
        f"{number}: several mistakes are told {text!r}"
        for (number, text), times in said.items()
        if times > 1
    ]
    for number in numbers:
        if not rights[number]:
            problems.append(f"{number} has no second right answer")
        if wrongs[number] < LEAST_MISTAKES:
            problems.append(
                f"{number} has {wrongs[number]} mistakes, and needs {LEAST_MISTAKES}"
            )
    assert not problems, "\n".join(problems)
    # Not asked in this process: who imports JAX changes how TensorFlow logs.
    edition = REPOSITORY / "notebooks" / "en" / framework
    (notebook,) = edition.glob(f"{lesson}_*.ipynb")
    assert set(numbers) == set(checks_in(notebook))


def test_there_are_answers_for_no_other_lessons():
    folder = Path(__file__).parent / "graders"
    found = {
        (path.parent.name, path.stem.removeprefix("lesson_").upper())
        for path in folder.glob("*/lesson_*.py")
    }
    assert found == set(LESSONS)
