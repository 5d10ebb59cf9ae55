"""The questions of a quiz, read from the file that the build makes of its source."""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from d2l_gpu.common.frameworks import FRAMEWORKS, framework
from d2l_gpu.course import lesson_names, notebooks_dir, select_lessons

FOLDER = "quizzes"
"""The folder with the quizzes of an edition, beside its notebooks."""

_ENGLISH = "en"


class NoQuiz(ValueError):
    """A lesson has no quiz; the message says which have one."""


@dataclass(frozen=True)
class Text:
    """A text of a quiz.

    Attributes:
        markdown: as its author wrote it.
        html: the same for a page, with formulas as MathML.
    """

    markdown: str
    html: str


@dataclass(frozen=True)
class Option:
    """An answer to choose.

    Attributes:
        text: the answer.
        why: why it's right or wrong.
        right: whether it's right.
    """

    text: Text
    why: Text
    right: bool


@dataclass(frozen=True)
class Question:
    """A question.

    Attributes:
        text: the question.
        options: the answers to choose from, at least one of them right.
    """

    text: Text
    options: tuple[Option, ...]

    @property
    def right(self) -> str:
        """The letters of the right answers, such as ``b`` or ``ac``."""
        return "".join(letter(i) for i, each in enumerate(self.options) if each.right)


@dataclass(frozen=True)
class Quiz:
    """The questions about a lesson.

    Attributes:
        lesson: the lesson's name, such as ``03_copying``.
        title: the lesson's title.
        language: the language of the questions.
        wanted: the language that was asked for.
        questions: the questions, in order.
    """

    lesson: str
    title: str
    language: str
    wanted: str
    questions: tuple[Question, ...]

    @property
    def heading(self) -> str:
        """The lesson's number and title."""
        return f"{self.lesson.partition('_')[0]} {self.title}"

    def shuffled(self, seed: int) -> "Quiz":
        """Return the quiz with each question's options in another order.

        Args:
            seed: the same seed gives the same order on every machine.
        """
        order = random.Random(f"{seed}/{self.lesson}")
        questions = []
        for question in self.questions:
            options = list(question.options)
            order.shuffle(options)
            questions.append(replace(question, options=tuple(options)))
        return replace(self, questions=tuple(questions))


def letter(place: int) -> str:
    """Return the letter of an option by its place, from 0."""
    return "abcdefgh"[place]


def quiz_file(notebooks: Path, lesson: str) -> Path:
    """Return the path of a quiz.

    Args:
        notebooks: the folder of an edition, such as ``notebooks/en/pytorch``.
        lesson: the lesson's name.
    """
    return notebooks / FOLDER / f"{lesson}.json"


def find_quiz(
    tag: str, lesson: str, language: str | None = None, root: Path | None = None
) -> Quiz:
    """Return the quiz of a lesson, in English if it isn't translated.

    Args:
        tag: of the framework.
        lesson: number or name of the lesson, such as ``03`` or ``copying``.
        language: such as ``fr``; None for the reader's.
        root: the folder of all editions; None for the reader's, and then the language
            may be None.

    Raises:
        TypeError: `lesson` is not a string.
        NoQuiz: the lesson has none.
        ValueError: there is no such lesson or edition.
        FileNotFoundError: there are no notebooks.
    """
    if not isinstance(lesson, str):
        raise TypeError(f"lesson must be a string such as '03', but got {lesson!r}.")
    folder = root / language / tag if root else notebooks_dir(language, tag)
    (name,) = select_lessons([lesson], lesson_names(folder))
    wanted = folder.parent.name
    english = folder.parents[1] / _ENGLISH / tag
    for each in dict.fromkeys((folder, english)):
        if (path := quiz_file(each, name)).is_file():
            return _read(path, wanted)
    raise NoQuiz(_none(name, tag, folder))


def lessons_with_quiz(notebooks: Path) -> list[str]:
    """Return the names of the lessons that have a quiz, in order.

    Args:
        notebooks: the folder of an edition.
    """
    english = notebooks.parents[1] / _ENGLISH / notebooks.name
    names = lesson_names(notebooks)
    return [name for name in names if quiz_file(english, name).is_file()]


def _read(path: Path, wanted: str) -> Quiz:
    return from_data(json.loads(path.read_text("utf-8")), path.stem, wanted)


def from_data(data: Mapping, lesson: str, wanted: str) -> Quiz:
    """Return the quiz that a file contains.

    Args:
        data: what JSON makes of the file.
        lesson: the lesson's name.
        wanted: the language that was asked for.
    """
    questions = tuple(
        Question(
            Text(**each["text"]),
            tuple(
                Option(Text(**one["text"]), Text(**one["why"]), one["right"])
                for one in each["options"]
            ),
        )
        for each in data["questions"]
    )
    return Quiz(lesson, data["title"], data["language"], wanted, questions)


def _none(name: str, tag: str, folder: Path) -> str:
    """Return the sentence that a lesson has no quiz."""
    number = name.partition("_")[0]
    title = framework(tag).title
    others = [
        each
        for each in FRAMEWORKS
        if quiz_file(folder.parents[1] / _ENGLISH / each.tag, name).is_file()
    ]
    if not others:
        return f"Lesson {number} has no quiz."
    its = " and ".join(each.title for each in others)
    options = f"d2l-gpu quiz {number} --framework {others[0].tag}"
    return (
        f"Lesson {number} has no quiz for {title} yet, only for {its}: `{options}` "
        "writes it as a page."
    )
