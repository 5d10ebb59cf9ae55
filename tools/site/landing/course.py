"""The map of the course and the table of its editions, for the landing page."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from tools.course_map import by_part, parts_of
from tools.edition import Project
from tools.site.book import INDEX, Book, Edition
from tools.site.landing.texts import Texts
from tools.site.source import lesson_rows


@dataclass(frozen=True)
class Lesson:
    """A lesson on the map.

    Attributes:
        number: as in its name, such as ``03``.
        title: in the edition's language.
        aims: what one can do after it, in the same language; empty if it doesn't say.
        minutes: how long it takes.
        link: where it is.
    """

    number: str
    title: str
    aims: str
    minutes: int
    link: str


@dataclass(frozen=True)
class Part:
    """A part of the course.

    Attributes:
        title: in the edition's language; empty if the course has no parts.
        lessons: its lessons, in order.
    """

    title: str
    lessons: list[Lesson]

    @property
    def minutes(self) -> int:
        """How long all its lessons take."""
        return sum(lesson.minutes for lesson in self.lessons)


def edition_of(book: Book, language: str) -> Edition:
    """Return the edition that a language's landing page begins with.

    That is the first one built, or the first of all if the language isn't built.
    """
    mine = [each for each in book.built if each.language == language]
    return mine[0] if mine else Edition(language, next(iter(book.frameworks)))


def parts(project: Project, book: Book, edition: Edition, folder: str) -> list[Part]:
    """Return the map of an edition.

    Args:
        project: the project.
        book: its pages.
        edition: which lessons to list.
        folder: where the links are, relative to the root of the site.
    """
    rows = lesson_rows(project, book, edition)
    notebooks = project.root / "notebooks" / edition.folder
    lessons = {
        name: Lesson(
            number,
            title,
            _aims(notebooks / f"{name}.ipynb", edition.language),
            int(minutes or 0),
            book.link(edition, name, folder),
        )
        for name, (number, title, minutes) in rows.items()
    }
    names = parts_of(project.header_in(edition.language))
    return [
        Part(title, [lessons[name] for name in its])
        for title, its in by_part(lessons, names)
    ]


def _aims(path: Path, language: str) -> str:
    """Return what a notebook says one can do after it."""
    text = "".join(json.loads(path.read_text("utf-8"))["cells"][0]["source"])
    # A line may end anywhere, but French needs its spaces that don't break.
    line = re.sub("[ \n]+", " ", text.replace("*", ""))
    found = re.search(Texts(language)["aims"], line)
    return found[1][0].upper() + found[1][1:] if found else ""


@dataclass(frozen=True)
class Row:
    """The editions in a language.

    Attributes:
        code, name: of the language.
        editions: a link and the number of lessons by framework, for those built.
    """

    code: str
    name: str
    editions: dict[str, tuple[str, int]]


def frameworks_of(book: Book) -> list[str]:
    """Return the tags of the frameworks that are built, in order."""
    built = {edition.framework for edition in book.built}
    return [tag for tag in book.frameworks if tag in built]


def editions(book: Book, folder: str) -> list[Row]:
    """Return the table of editions: a row for each language that is built.

    Args:
        book: the pages.
        folder: where the links are, relative to the root of the site.
    """
    rows = []
    for code, name in book.languages.items():
        its = {
            edition.framework: (
                book.link(edition, INDEX, folder),
                len(book.lessons(edition)),
            )
            for edition in book.built
            if edition.language == code
        }
        if its:
            rows.append(Row(code, name, its))
    return rows
