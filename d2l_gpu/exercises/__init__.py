"""Exercises that check themselves: what is asked for, and whether an answer is right.

Each framework's helper offers `exercise` and `check`, as ``d2l.check('03.1', answer)``.
The lesson says what an exercise asks for. Its grader is in the module of the lesson:
``pytorch/lesson_03.py``, ``jax/lesson_03.py`` …; ``shared/`` holds the graders that
several frameworks have in common.

* ``registry``: what a grader is made of, and how it's found.
* ``specification``: the text of an exercise, out of the reader's notebook.
* ``judge``: takes an answer to its verdict, and says what's wrong before that.
* ``grading_process``: the process in which an answer is graded.
* ``verdict``: what the reader is told.
* ``arrays``, ``crossing``: what graders must know of a framework: its arrays, and what
  crosses between devices (``<framework>/arrays.py``, ``<framework>/port.py``).
* ``cases``, ``small_network``: claims over several cases, a network to train.
"""

from typing import Any

from d2l_gpu.exercises.judge import judge
from d2l_gpu.exercises.specification import show
from d2l_gpu.exercises.verdict import Verdict

__all__ = ["Exercises", "Verdict", "judge"]


class Exercises:
    """The exercises of one framework, as its helper offers them.

    Args:
        framework: the tag of the framework.
    """

    def __init__(self, framework: str):
        self._framework = framework

    def exercise(self, number: str, language: str | None = None) -> None:
        """Show what an exercise asks for, as its lesson does.

        Args:
            number: of the lesson and of the exercise in it, as ``'03.1'``.
            language: as ``'fr'``; None for the reader's, where there is an edition.
        Raises:
            TypeError, ValueError: there is no such exercise, or no such edition.
        """
        show(self._framework, number, language)

    def check(self, number: str, answer: Any = ...) -> None:
        """Say whether an answer is right: what holds, what does not, and a hint.

        The answer runs in a Python of its own, on new virtual GPUs, whatever this
        process uses, and has half a minute unless its exercise says otherwise.

        Args:
            number: of the lesson and of the exercise in it, as ``'03.1'``.
            answer: a function, or a value, as the exercise asks for.
        Raises:
            TypeError, ValueError: there is no such exercise.
        """
        print(judge(self._framework, number, answer))
