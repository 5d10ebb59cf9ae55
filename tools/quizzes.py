"""The quizzes: their sources, checked, and what the build makes of them.

A lesson's quiz is beside it, as in ``lessons/pytorch/03_copying.quiz.toml``::

    [[question]]
    text = "`X` is on the first GPU. What does `X.to(d2l.gpu(0))` copy?"

    [[question.option]]
    text = "Nothing"
    right = true
    why = "The tensor is already there, so `to` returns the tensor itself."

    [[question.option]]
    text = "All of `X`"
    why = "It would only with `copy=True`."

All texts are Markdown with formulas. A question may have several paragraphs and code;
an option and what explains it are one paragraph each. They're translated like lessons
(`tools.translation`). A language gets a file of its own once all of a quiz is
translated; until then its readers see the English one.
"""

import html
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin

from d2l_gpu.common.quantities import Style, is_number
from tools.languages import ENGLISH
from tools.lesson import Cell, Lesson, LessonError
from tools.translation import Translation, place_of, texts_of

SUFFIX = ".quiz.toml"

QUESTIONS = 5
OPTIONS = range(3, 6)

_VAGUE = re.compile(r"\b(?:all|none|both) of the (?:above|others)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Source:
    """The source of a quiz, read.

    Attributes:
        path: the file.
        questions: its tables, checked.
    """

    path: Path
    questions: Sequence[dict]

    @classmethod
    def of(cls, lesson: Lesson) -> "Source | None":
        """Return the source of a lesson's quiz; None if there is none.

        Raises:
            LessonError: all problems of the file.
        """
        path = lesson.path.with_name(f"{lesson.name}{SUFFIX}")
        return cls.read(path) if path.is_file() else None

    @classmethod
    def read(cls, path: Path) -> "Source":
        """Read a source.

        Raises:
            LessonError: all problems of the file.
        """
        name = f"{path.parent.name}/{path.name}"
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise LessonError(f"{name}: {error}") from None
        if problems := list(_problems(tables)):
            raise LessonError("\n".join(f"{name}: {each}" for each in problems))
        return cls(path, tables["question"])

    def as_lesson(self) -> Lesson:
        """Return the texts to translate, as if they were the cells of a lesson."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        cells, line = [], 0
        for text in self._texts():
            begins = text.split("\n")[0]
            found = (i for i, each in enumerate(lines) if i >= line and begins in each)
            line = next(found, line)
            cells.append(Cell("markdown", text, f"text-{len(cells)}", line=line + 1))
        return Lesson(self.path, cells)

    def built(self, title: str, translation: Translation | None) -> str | None:
        """Return the content of the file that readers get.

        Args:
            title: the lesson's title, in that language.
            translation: into the language; None for English.

        Returns:
            None if some of the quiz isn't translated.
        """
        lesson, language, style = self.as_lesson(), ENGLISH, Style()
        if translation is not None:
            place, language = place_of(lesson), translation.language.code
            style = Style.of(translation.language.written)
            texts = texts_of(lesson.cells)
            if any(translation.problem(text, place) for _, text in texts):
                return None
            lesson = translation.translated(lesson, None)
        # A bare number isn't a text to translate.
        texts = (
            style.written(cell.source) if is_number(cell.source) else cell.source
            for cell in lesson.cells
        )
        questions = [
            {
                "text": _both(next(texts), in_one_line=False),
                "options": [
                    {
                        "text": _both(next(texts)),
                        "why": _both(next(texts)),
                        "right": option.get("right", False),
                    }
                    for option in question["option"]
                ],
            }
            for question in self.questions
        ]
        data = {"title": title, "language": language, "questions": questions}
        return json.dumps(data, ensure_ascii=False, indent=1) + "\n"

    def _texts(self) -> Iterator[str]:
        for question in self.questions:
            yield question["text"].strip()
            for option in question["option"]:
                yield option["text"].strip()
                yield option["why"].strip()


def _problems(tables: dict) -> Iterator[str]:
    questions = tables.pop("question", [])
    for name in tables:
        yield f"{name} isn't known; questions are tables [[question]]"
    tables["question"] = questions
    if not _are_tables(questions) or len(questions) != QUESTIONS:
        yield f"it must have {QUESTIONS} tables [[question]]"
        return
    for number, question in enumerate(questions, 1):
        for problem in _problems_of_question(question):
            yield f"question {number}: {problem}"
    texts = [each.get("text") for each in questions]
    if len(set(map(str, texts))) < len(texts):
        yield "two questions are the same"


def _problems_of_question(question: dict) -> Iterator[str]:
    yield from _unknown(question, {"text", "option"})
    yield from _problems_of_text("text", question.get("text"), in_one_line=False)
    options = question.get("option")
    if not _are_tables(options) or len(options) not in OPTIONS:
        yield f"it must have {OPTIONS[0]} to {OPTIONS[-1]} [[question.option]]"
        return
    for place, option in enumerate(options, 1):
        found = list(_unknown(option, {"text", "right", "why"}))
        for name in "text", "why":
            found += _problems_of_text(name, option.get(name))
        if not isinstance(option.get("right", False), bool):
            found.append("right must be true or false")
        if _VAGUE.search(str(option.get("text"))):
            found.append("it depends on the others, whose order may change")
        yield from (f"option {place}: {each}" for each in found)
    if len({bool(each.get("right")) for each in options}) < 2:
        yield "some options must be right, and some wrong"
    if len({str(each.get("text")) for each in options}) < len(options):
        yield "two options are the same"


def _are_tables(value) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _unknown(table: dict, known: set[str]) -> Iterator[str]:
    for name in sorted(set(table) - known):
        yield f"{name} isn't known; there may be {', '.join(sorted(known))}"


def _problems_of_text(name: str, text, in_one_line: bool = True) -> Iterator[str]:
    if not isinstance(text, str) or not text.strip():
        yield f"{name} must be a text"
        return
    if in_one_line and "\n" in text.strip():
        yield f"{name} must be one line"
    try:
        _both(text.strip(), in_one_line)
    except ValueError as error:
        yield f"{name}: {error}"


def _both(text: str, in_one_line: bool = True) -> dict[str, str]:
    """Return a text as Markdown and as HTML."""
    render = _markdown().renderInline if in_one_line else _markdown().render
    return {"markdown": text, "html": render(text).strip()}


@cache
def _markdown() -> MarkdownIt:
    """Return a parser without raw HTML, whose formulas are MathML."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    return parser.use(dollarmath_plugin, renderer=_mathml)


def _mathml(formula: str, options: dict) -> str:
    display = "block" if options.get("display_mode") else "inline"
    try:
        return convert(formula, display=display)
    except Exception as error:
        raise ValueError(f"${html.escape(formula)}$ isn't a formula: {error}") from None
