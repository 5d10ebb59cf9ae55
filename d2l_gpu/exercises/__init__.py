"""Self-checking exercises: show the task, grade the answer.

Each framework's helper offers `exercise` and `check`, as in
``d2l.check('03.1', answer)``. The lesson states the task; the grader lives in the
module for that lesson: ``pytorch/lesson_03.py``, ``jax/lesson_03.py`` and so on.
``shared/`` holds the graders that several frameworks use.

* ``registry``: the building blocks of a grader, and looking one up.
* ``own``: the file with a teacher's own exercises.
* ``specification``: the text of an exercise, read from the reader's notebook.
* ``judge``: rejects answers that can't be run, and has the others graded.
* ``grading_process``: the process that computes the verdict from records.
* ``answer_process``: the process that runs the answer and sends the records, within
  ``limits``; ``arguments`` notices changed arguments, ``records`` is the plain data.
* ``verdict``: the result, as the reader sees it.
* ``arrays``, ``crossing``, ``gpus``: each framework's arrays, the copies between its
  devices, and the devices of an experiment, behind common interfaces
  (``<framework>/arrays.py``, ``<framework>/port.py``).
* ``variants``: exercises with other numbers, sizes and data.
* ``best_plans``: the reader's best plans for the puzzle of lesson 17.
* ``cases``, ``small_network``: claims over several cases, a network to train.
"""

from typing import Any

from d2l_gpu.common.messages import say, tell
from d2l_gpu.exercises.judge import judge
from d2l_gpu.exercises.own import chosen_file
from d2l_gpu.exercises.specification import show
from d2l_gpu.exercises.variants.draw import choose, current
from d2l_gpu.exercises.verdict import Verdict
from d2l_gpu.progress.record import record

__all__ = ["Exercises", "Verdict", "judge"]


class Exercises:
    """The exercises for one framework, as its helper offers them.

    Args:
        framework: the framework's tag, such as ``'pytorch'``.
    """

    def __init__(self, framework: str):
        self._framework = framework

    def exercise(self, number: str, language: str | None = None) -> None:
        """Show the text of an exercise, as in its lesson.

        Args:
            number: lesson and exercise, such as ``'03.1'``.
            language: such as ``'fr'``; None for the reader's language, or English if
                the course has no edition in it.
        Raises:
            TypeError: `number` is not a string.
            ValueError: there is no such exercise or edition.
            FileNotFoundError: the notebooks are missing, or lack this exercise.
        """
        show(self._framework, number, language)

    def variant(self, name: str | None) -> None:
        """Show and check the exercises of a variant from now on.

        A notebook that ``d2l-gpu variant`` has written calls this.

        Args:
            name: such as ``'3f9a1c72'``; None for the ordinary exercises.
        Raises:
            ValueError: it's no variant's name.
        """
        choose(name)

    def check(
        self, number: str, answer: Any = ..., exercises: str | None = None
    ) -> None:
        """Print whether an answer is right: what holds, what doesn't, and a hint.

        The answer runs in a separate Python process, on fresh virtual GPUs, whatever
        this process uses. It times out after 30 seconds unless its exercise sets
        another limit. What else is limited, and what isn't, is in ``docs/teaching.md``.
        That an exercise has passed is recorded for ``d2l-gpu progress``, unless
        ``D2L_GPU_PROGRESS`` is 0.

        Args:
            number: lesson and exercise, such as ``'03.1'``.
            answer: the function or value that the exercise asks for.
            exercises: a file with exercises of your teacher's, such as
                ``'my_exercises.py'``; by default the one that the environment variable
                ``D2L_GPU_EXERCISES`` names, if it's set.
        Raises:
            TypeError: `number` is not a string.
            ValueError: there is no such exercise, or no such file, or
                ``D2L_GPU_VARIANT`` is set, but no variant's name.
            ImportError: cloudpickle is not installed.
        """
        current(self._framework)
        verdict = judge(self._framework, number, answer, exercises)
        tell(verdict)
        if not verdict.all_hold or chosen_file(exercises):
            return  # the record is of the course's own exercises
        if problem := record(self._framework, verdict.number):
            say(f"  {problem}")
