"""The page with all terms that the lessons introduce, in each language.

``lessons/glossary.toml`` has the page's title, its introduction and the heads of its
columns. Then each table is a lesson, with the terms that it introduces, as they're
written there, and their definitions::

    [03]
    bandwidth = "How many bytes a link or a memory moves in a second."

The definitions are translated like the lessons (`tools.translation`); what a term is
called in another language is in ``lessons/locale/<language>.tsv`` (`tools.glossary`).
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.course_map import table_row
from tools.glossary import Glossary, matching
from tools.languages import ENGLISH, LOCALE, Language
from tools.lesson import (
    CODE_SPAN,
    FENCED,
    Cell,
    Lesson,
    LessonError,
    split_exercises,
)

SOURCE = "glossary.toml"

PLACE = "${glossary}"
"""What a lesson writes for the page's address."""

_MADE = "<!-- from lessons/glossary.toml and lessons/locale/: edit those -->"
_TEXTS = ("title", "introduction", "term", "meaning", "lesson")
UNKNOWN = "—"
"""What the page has where a term has no name in a language."""

# Words in bold; whole sentences in bold, and what begins a note, aren't terms.
_BOLD = re.compile(r"(?<![*\w])\*\*(?=\S)([^*]+?)(?<![\s.:!?])\*\*(?![*\w])")


@dataclass(frozen=True)
class Terms:
    """The file, read.

    Attributes:
        path: the file.
        texts: title, introduction and heads of columns.
        definitions: the definitions by term, by the number of the lesson.
    """

    path: Path
    texts: Mapping[str, str]
    definitions: Mapping[str, Mapping[str, str]]

    @classmethod
    def read(cls, path: Path) -> "Terms":
        """Read the file.

        Raises:
            LessonError: all problems of the file.
        """
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise LessonError(f"{path.name}: {error}") from None
        texts = {name: tables.pop(name, "") for name in _TEXTS}
        if problems := list(_problems(texts, tables)):
            raise LessonError("\n".join(f"{path.name}: {each}" for each in problems))
        return cls(path, texts, tables)

    def as_lesson(self) -> Lesson:
        """Return the texts to translate, as if they were the cells of a lesson."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        texts = [*self.texts.values()]
        texts += [text for its in self.definitions.values() for text in its.values()]
        cells = []
        for text in texts:
            begins = text.strip().splitlines()[0][:40].replace('"', r"\"")
            line = next((i for i, each in enumerate(lines, 1) if begins in each), 1)
            cells.append(Cell("markdown", text.strip(), f"line-{line}", line=line))
        return Lesson(self.path, cells)

    def lesson_of(self, term: str) -> str | None:
        """Return the number of the lesson that introduces a term; None if none does.

        Args:
            term: the term in any form that a lesson writes it in, such as the plural.
        """
        for number, its in self.definitions.items():
            if any(matching(each).fullmatch(term) for each in its):
                return number
        return None


def _problems(texts: dict, tables: dict) -> Iterator[str]:
    for name, text in texts.items():
        if not isinstance(text, str) or not text.strip():
            yield f"{name} must be a text"
    first: dict[str, str] = {}
    for number, its in tables.items():
        if not isinstance(its, dict) or not re.fullmatch(r"[0-9A-Z]\d", number):
            yield f"{number} must be a table, named by a lesson's number such as 03"
            continue
        for term, text in its.items():
            if not isinstance(text, str) or not re.fullmatch(r"[^\n|]+\.", text):
                yield (
                    f"the definition of {term!r} must be a sentence in one line, "
                    "without |"
                )
            if term.lower() in first:
                yield f"{term!r} is in lessons {first[term.lower()]} and {number}"
            first[term.lower()] = number


def bold_terms(lesson: Lesson) -> Iterator[tuple[int, str]]:
    """Yield the terms that a lesson introduces: what its text has in bold, with lines.

    Whole sentences in bold, and words that end in a punctuation mark, aren't terms.
    """
    body, _ = split_exercises(lesson.cells)
    for cell in body:
        if cell.kind != "markdown":
            continue
        source = CODE_SPAN.sub(_without_stars, FENCED.sub(_without_stars, cell.source))
        for found in _BOLD.finditer(source):
            line = cell.line + source.count("\n", 0, found.start())
            yield line, " ".join(found[1].split())


def introductions(terms: Terms, lessons: Iterable[Lesson]) -> dict[str, Lesson]:
    """Return the lesson that introduces each term.

    Args:
        terms: the terms.
        lessons: all lessons, the framework to prefer first. A term belongs to the first
            lesson that sets it in bold; if none does, to the first with its number.

    Raises:
        LessonError: there is no lesson with a number.
    """
    numbered: dict[str, Lesson] = {}
    found: dict[str, Lesson] = {}
    for lesson in lessons:
        numbered.setdefault(lesson.name.partition("_")[0], lesson)
        bold = {words for _, words in bold_terms(lesson)}
        for its in terms.definitions.values():
            for term in its:
                if term not in found and any(map(matching(term).fullmatch, bold)):
                    found[term] = lesson
    if unknown := [each for each in terms.definitions if each not in numbered]:
        raise LessonError(f"{SOURCE}: there is no lesson {', '.join(unknown)}")
    return {
        term: found.get(term, numbered[number])
        for number, its in terms.definitions.items()
        for term in its
    }


def _without_stars(code: re.Match) -> str:
    return code[0].replace("*", " ")


def page_of(root: Path, language: str) -> Path:
    """Return the path of a language's page."""
    name = "glossary.md" if language == ENGLISH else f"glossary.{language}.md"
    return root / "docs" / name


def page(
    terms: Terms,
    texts: Lesson,
    language: Language,
    languages: Mapping[str, Language],
    links: Mapping[str, str],
    others: str,
) -> str:
    """Return the page in a language, in Markdown.

    Args:
        terms: the terms and definitions in English.
        texts: `Terms.as_lesson`, translated.
        language: the page's language.
        languages: all languages, by code, English first.
        links: a link to the lesson that introduces it, by term.
        others: a line with links to this page in other languages; may be empty.

    Raises:
        ValueError: the names of the terms in a language can't be parsed.
    """
    title, introduction, *heads = (
        cell.source for cell in texts.cells[: len(terms.texts)]
    )
    # In English, the terms in all languages; in another language, in that one.
    shown = [
        each
        for each in languages.values()
        if each.code != ENGLISH and language.code in (ENGLISH, each.code)
    ]
    locale = terms.path.parent / LOCALE
    names = {each.code: Glossary.read(locale / f"{each.code}.tsv") for each in shown}
    definitions = iter(cell.source for cell in texts.cells[len(terms.texts) :])
    rows = {}
    for its in terms.definitions.values():
        for term in its:
            called = [names[each.code].name_of(term) or UNKNOWN for each in shown]
            rows[term] = [next(definitions), links[term], *called]
    head, meaning, lesson = heads
    table = [[head, meaning, lesson, *(each.name for each in shown)]]
    table.append(["---"] * len(table[0]))
    for term in sorted(rows, key=str.lower):
        table.append([f"**{term}**", *rows[term]])
    parts = [
        _MADE,
        f"# {title}",
        others,
        introduction,
        "\n".join(map(table_row, table)),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"
