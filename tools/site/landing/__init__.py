"""The page at the root of the site."""

import re
import string
from html import escape
from pathlib import Path

from tools.course_map import parts_of, with_parts
from tools.edition import Project
from tools.languages import ENGLISH
from tools.site.book import INDEX, Book, Edition, words
from tools.site.source import lesson_rows

PICTURE = "figures/overview.png"
"""The picture, relative to the folder of lessons."""

_TEMPLATE = Path(__file__).with_name("templates") / "landing.html"


def landing_page(project: Project, book: Book) -> str:
    """Return the landing page, in HTML."""
    first = book.built[0]
    names = book.lessons(first)
    its = words(ENGLISH)
    return string.Template(_TEMPLATE.read_text("utf-8")).substitute(
        title=its["title"],
        start=f"{first.folder}/{names[0] if names else INDEX}.html",
        framework=book.frameworks[first.framework],
        picture=Path(PICTURE).name,
        map=_map(project, book, first),
        editions=_editions(book),
    )


def _map(project: Project, book: Book, edition: Edition) -> str:
    """Return the rows of the table of lessons."""
    rows = {
        name: (
            number,
            f'<a href="{edition.folder}/{name}.html">{escape(title)}</a>',
            _inline(aims),
            minutes,
        )
        for name, (number, title, aims, minutes) in lesson_rows(
            project, book, edition
        ).items()
    }
    lines = []
    for cells in with_parts(rows, parts_of(project.header), column=1, total=3):
        if cells[0]:
            number, title, aims, minutes = cells
            lines.append(
                f'<tr><td>{number}</td><th scope="row">{title}</th>'
                f'<td class="aims">{aims}</td><td>{minutes}</td></tr>'
            )
        else:
            part, minutes = cells[1].strip("*"), cells[3].strip("*")
            lines.append(
                f'<tr class="part"><th colspan="2" scope="rowgroup">{escape(part)}</th>'
                f'<td class="aims"></td><td>{minutes}</td></tr>'
            )
    return "\n".join(lines)


def _inline(text: str) -> str:
    """Return a line of Markdown, whose only marks are those of code, in HTML."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _editions(book: Book) -> str:
    """Return the rows of the table of editions: languages by frameworks."""
    tags = [
        tag
        for tag in book.frameworks
        if any(each.framework == tag for each in book.built)
    ]
    lines = []
    for code, name in book.languages.items():
        its = [each for each in book.built if each.language == code]
        if not its:
            continue
        cells = []
        for tag in tags:
            edition = Edition(code, tag)
            number = len(book.lessons(edition))
            title = book.frameworks[tag]
            link = f'<a href="{edition.folder}/{INDEX}.html" hreflang="{code}">'
            cells.append(
                f"<td>{link}{title}</a> <small>{number}</small></td>"
                if edition in its
                else "<td></td>"
            )
        head = f'<th scope="row" lang="{code}">{escape(name)}</th>'
        lines.append(f"<tr>{head}{''.join(cells)}</tr>")
    return "\n".join(lines)
