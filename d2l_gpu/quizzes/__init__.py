"""A quiz for each lesson: five questions, and why each answer is right or wrong.

Each framework's helper offers ``quiz``, as in ``d2l.quiz('03')``. The source is beside
the lesson, ``lessons/pytorch/03_copying.quiz.toml``; `tools.quizzes` makes a file of it
for each language, which is beside the notebooks.

* ``quiz``: the questions, read from these files.
* ``shown``: a quiz in a notebook, on the site or in a terminal. It needs no script:
  each option opens, and says whether it's right.
* ``printed``: pages for students and for their teacher.
* ``words.toml``: the few words that a quiz doesn't bring, by language.
"""

from d2l_gpu.common.messages import say
from d2l_gpu.quizzes.quiz import NoQuiz, find_quiz
from d2l_gpu.quizzes.shown import show

__all__ = ["NoQuiz", "Quizzes", "find_quiz"]


class Quizzes:
    """The quizzes for one framework, as its helper offers them.

    Args:
        framework: the framework's tag, such as ``'pytorch'``.
    """

    def __init__(self, framework: str):
        self._framework = framework

    def quiz(self, lesson: str, language: str | None = None) -> None:
        """Show the quiz of a lesson, or say that it has none.

        Args:
            lesson: number or name, such as ``'03'``.
            language: such as ``'fr'``; None for the reader's language. What isn't
                translated is in English.
        Raises:
            TypeError: `lesson` is not a string.
            ValueError: there is no such lesson or edition.
            FileNotFoundError: the notebooks are missing.
        """
        try:
            found = find_quiz(self._framework, lesson, language)
        except NoQuiz as error:
            say(error)
        else:
            show(found)
