"""Answers to exercises, right and wrong ones, by which graders are tested.

A module for each lesson, such as ``pytorch/lesson_03.py``, holds them::

    @right("03.1")
    def with_a_dictionary(a, b, c, device): ...

    @wrong("03.1", "crossed to the same GPU")
    def sends_each(a, b, c, device): ...

A right one is written differently from the solution. A wrong one is a mistake that
readers make; the text is part of the hint that they are to get for it, and for no other
mistake in that exercise. Values are answers, too: ``wrong("01.3", "from 0")(4)``.

As a program, it grades answers and prints JSON; see `report` and `test_graders.py`:

    python -m tests.exercises.graders.answers pytorch 03
"""

import argparse
import contextlib
import importlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from d2l_gpu.exercises import grading_process
from d2l_gpu.exercises.answer_process import (
    AnswerError,
    Careful,
    make_gpus,
    run,
    what_was_raised,
)
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.grading_process import Runner
from d2l_gpu.exercises.judge import value_as_json, why_no_answer
from d2l_gpu.exercises.records import from_json, to_json
from d2l_gpu.exercises.registry import Exercise, find, of_lesson
from d2l_gpu.exercises.verdict import Verdict


@dataclass(frozen=True)
class Answer:
    """An answer to an exercise, and what is to be said of it.

    Attributes:
        number: of the exercise.
        value: the function, or the value.
        hint: part of the hint; None for a right answer.
    """

    number: str
    value: Any
    hint: str | None = None

    @property
    def name(self) -> str:
        return getattr(self.value, "__name__", repr(self.value))


@dataclass
class Answers:
    """The answers to the exercises of one lesson."""

    all: list[Answer] = field(default_factory=list)

    def right(self, number: str) -> Callable:
        """Register an answer that is to pass."""
        return self._register(number, None)

    def wrong(self, number: str, hint: str) -> Callable:
        """Register a mistake, and part of the hint that it is to get."""
        return self._register(number, hint)

    def _register(self, number: str, hint: str | None) -> Callable:
        def register(value: Any) -> Any:
            self.all.append(Answer(number, value, hint))
            return value

        return register


@dataclass(frozen=True)
class Graded:
    """What was said of an answer; what it is to be, stands in `Answer`."""

    number: str
    name: str
    expected: str | None
    passed: bool
    said: str
    text: str


def report(
    framework: str,
    lessons: Sequence[str],
    gpus: int | None,
    right: bool = False,
    variants: Sequence[str | None] = (None,),
) -> None:
    """Grade answers to the exercises of lessons here, and print about them as JSON.

    That is: the numbers of the exercises; how many GPUs they have, the smallest number
    first; and the answers, each `Graded`, to those that have so many GPUs.

    Args:
        framework: the tag of the edition.
        lessons: as ``["03"]``.
        gpus: a process has one number of them; None for the smallest.
        right: whether to leave out the mistakes.
        variants: of the exercises, in which all answers are graded; None for the
            ordinary exercises.
    """
    exercises, answers = {}, []
    for lesson in lessons:
        name = f"tests.exercises.graders.{framework}.lesson_{lesson.lower()}"
        answers += importlib.import_module(name).ANSWERS.all
        exercises |= of_lesson(framework, lesson)
    counts = sorted({exercise.gpus for exercise in exercises.values()})
    wanted = counts[0] if gpus is None else gpus
    with contextlib.redirect_stdout(io.StringIO()):
        as_cuda = any(exercise.as_cuda for exercise in exercises.values())
        make_gpus(framework, wanted, as_cuda)
        results = [
            _graded(framework, answer, variant)
            for variant in variants
            for answer in answers
            if find(framework, answer.number).gpus == wanted
            and not (right and answer.hint is not None)
        ]
    print(json.dumps([list(exercises), counts, results]))


def _graded(framework: str, answer: Answer, variant: str | None) -> dict:
    exercise = find(framework, answer.number)
    verdict = _verdict(framework, exercise, answer.value, variant)
    said = verdict.hint or verdict.problem
    return asdict(
        Graded(
            answer.number,
            f"{answer.name}, {variant}" if variant else answer.name,
            answer.hint,
            verdict.all_hold,
            said,
            str(verdict),
        )
    )


def _verdict(
    framework: str, exercise: Exercise, value: Any, variant: str | None = None
) -> Verdict:
    problem = why_no_answer(exercise, value)
    if problem:
        return Verdict(exercise.number, problem=problem)
    if exercise.parameters is not None:
        value = Here(framework, exercise, value)
    else:
        value = from_json(value_as_json(value))
    return grading_process.grade(exercise, value, variant)


class Here(Runner):
    """Runs experiments in this process, which is quicker than in one of their own."""

    def __init__(self, framework: str, exercise: Exercise, answer: Callable):
        self._framework, self._exercise = framework, exercise
        self._answer = Careful(exercise, answer, framework)
        self.changed = self._answer.changed

    def __call__(self, experiment: Callable, *arguments: Any) -> Any:
        gpus = Gpus.of(self._framework, self.reverse)
        arguments = from_json(to_json(arguments))
        with self._errors():
            found = run(experiment, self._exercise, self._answer, gpus, *arguments)
        return from_json(found)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except AnswerError:
            raise
        except (Exception, SystemExit) as error:
            raise AnswerError(what_was_raised(error)) from error


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("framework")
    parser.add_argument("lessons", nargs="+")
    parser.add_argument("--gpus", type=int)
    parser.add_argument("--right", action="store_true")
    parser.add_argument("--variants", nargs="+", default=[None])
    options = parser.parse_args()
    report(
        options.framework,
        options.lessons,
        options.gpus,
        options.right,
        options.variants,
    )


if __name__ == "__main__":
    main()
