"""What Sphinx reads for an edition: notebooks without their header, and an index."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from html import unescape
from pathlib import Path, PurePosixPath

from d2l_gpu.common.settings import LANGUAGE
from d2l_gpu.course import SOLUTIONS
from d2l_gpu.quizzes import find_quiz
from d2l_gpu.quizzes.shown import as_html
from tools.course_map import by_part, parts_of, table_row, with_parts
from tools.edition import Project
from tools.glossary_page import page_of
from tools.header import (
    INTRODUCTION,
    MARK,
    PLATFORMS,
    QUIZ,
    on_github,
    platform_links,
)
from tools.languages import ENGLISH
from tools.lesson import aims_and_minutes
from tools.readme import readme_of
from tools.site.answering import inlined
from tools.site.book import (
    GLOSSARY,
    INDEX,
    TEACHING,
    Book,
    Edition,
    playground_of,
    titles,
    words,
)
from tools.site.folding import SETUP
from tools.site.slides import address
from tools.site.teaching import write_teaching

_OPEN = "header-open"
# Cells of the header that a page doesn't need: the switch and a note have their links,
# and nothing runs here that would have to be installed.
_LEFT_OUT = {"header-languages", "header-frameworks", "header-alone", "header-install"}
_LEFT_OUT.add(_OPEN)
# What a lesson leads to in the playground.
_PLAYED = {"17_puzzle": "puzzle.html"}

# What a notebook says one can do after it, if that comes first, and the rest.
_START = re.compile(r"(# [^\n]+\n\n\*(?!\*).+?\*(?=\n\n|$)|.+)(.*)", re.DOTALL)
_EMBEDDED = re.compile(r"\]\(data:image/(\w+);base64,([^)\s]+)\)")
_PICTURES = "pictures"


def write_source(project: Project, book: Book, edition: Edition, folder: Path) -> None:
    """Write what Sphinx reads for an edition.

    Args:
        project: the project.
        book: its pages.
        edition: the edition.
        folder: an empty folder.
    """
    (folder / SOLUTIONS).mkdir()
    (folder / _PICTURES).mkdir()
    for name in pages_of(book, edition):
        path = project.root / "notebooks" / edition.folder / f"{name}.ipynb"
        notebook = json.loads(path.read_text("utf-8"))
        cells = _cells(notebook["cells"], project, edition, name, folder)
        notebook["cells"] = list(cells)
        text = json.dumps(notebook, ensure_ascii=False)
        (folder / f"{name}.ipynb").write_text(text, "utf-8")
    its = words(edition.language)
    has_glossary = page_of(project.root, edition.language).is_file()
    if has_glossary:
        text = _glossary(project, book, edition)
        (folder / f"{GLOSSARY}.md").write_text(text, "utf-8")
    teaching = project.root / "docs" / f"{TEACHING}.md"
    more = {SOLUTIONS: its["solutions"]} if book.solved(edition) else {}
    more |= {GLOSSARY: its["glossary"]} if has_glossary else {}
    if book.has(edition, TEACHING) and teaching.is_file():
        write_teaching(project.root, edition, folder)
        more[TEACHING] = its["teaching"]
    if solved := book.solved(edition):
        heads = titles(project.root / "notebooks", edition, solved)
        pages = {f"{SOLUTIONS}/{name}": _numbered(name, heads[name]) for name in solved}
        text = f"# {its['solutions']}\n\n{_toctree(pages)}\n"
        (folder / f"{SOLUTIONS}.md").write_text(text, "utf-8")
    index = _index(project, book, edition, more)
    (folder / f"{INDEX}.md").write_text(index, "utf-8")


def pages_of(book: Book, edition: Edition) -> list[str]:
    """Return the names of an edition's pages that are notebooks."""
    solved = (f"{SOLUTIONS}/{name}" for name in book.solved(edition))
    return [*book.lessons(edition), *solved]


def solution_mark(project: Project, language: str) -> str:
    """Return the word above each solution, such as ``Solution``."""
    header = project.header_in(language)
    cells = header.cells if header else ()
    return next((each.source.strip("*") for each in cells if each.key == MARK), "")


def _cells(
    cells: list, project: Project, edition: Edition, name: str, folder: Path
) -> Iterator[dict]:
    """Yield the cells of a notebook as the site shows them."""
    to_run = _to_run(project, edition, name, any(c.get("id") == _OPEN for c in cells))
    speaks = any(LANGUAGE in "".join(each["source"]) for each in cells)
    english = edition.language != ENGLISH and not speaks
    its = words(edition.language)
    setup = True  # is still to come
    for place, cell in enumerate(cells):
        key = cell.get("id", "")
        if key in _LEFT_OUT:
            continue
        text = "".join(cell["source"])
        if cell["metadata"].get("jupyter", {}).get("source_hidden"):
            if not cell.get("outputs"):
                continue  # one of the course's own tests
            cell = {**cell, "metadata": {"tags": ["remove-input"]}}
        if cell["cell_type"] == "markdown":
            text = _with_files(text, name, folder)
            if place == 0:
                start, rest = _START.fullmatch(text).groups()
                says = [its["shown"], to_run]
                if not name.startswith(f"{SOLUTIONS}/"):
                    slides = f"../../{address(edition, name)}"
                    says.append(its["slides"].format(slides=slides))
                note = _note(its["space"].join(says))
                text = f"{start}\n\n{note}\n\n{rest}"
            elif key == INTRODUCTION:
                text += f"\n\n{_note(to_run)}"
            elif key == QUIZ:
                text = _quiz(text, project, edition, name)
        elif setup:
            setup = False
            if "print(" not in text:
                cell = {**cell, "metadata": {"tags": [SETUP]}}
        if alt := _description(cell, edition):
            described = {**cell["metadata"], "mystnb": {"image": {"alt": alt}}}
            cell = {**cell, "metadata": described}
        yield inlined({**cell, "source": text}, english)


def _quiz(text: str, project: Project, edition: Edition, name: str) -> str:
    """Return the heading of the cell that offers the quiz, and the quiz itself."""
    notebooks = project.root / "notebooks"
    quiz = find_quiz(edition.framework, name, edition.language, notebooks)
    heading = text.partition("\n")[0]
    return f"{heading}\n\n```{{raw}} html\n{as_html(quiz, title=False)}\n```"


def _note(text: str) -> str:
    """Return a paragraph that is about the page, not the lesson."""
    return f"```{{div}} to-run no-search\n{text}\n```"


def _description(cell: dict, edition: Edition) -> str | None:
    """Return what a cell's picture shows, in words; None if it has no picture."""
    for output in cell.get("outputs", ()):
        data = {kind: "".join(text) for kind, text in output.get("data", {}).items()}
        if drawing := re.search("<desc>(.+?)</desc>", data.get("image/svg+xml", "")):
            return unescape(drawing[1])
        if "image/png" in data:
            figure = re.match("<Figure: (.+)>", data["text/plain"])
            return figure[1] if figure else words(edition.language)["chart"]
    return None


def _to_run(project: Project, edition: Edition, name: str, hosted: bool) -> str:
    """Return sentences that say where a notebook runs, and where its file is.

    Args:
        project: the project.
        edition: the notebook's edition.
        name: its name.
        hosted: whether platforms can run it.
    """
    its = words(edition.language)
    path = PurePosixPath(f"notebooks/{edition.folder}/{name}.ipynb")
    links = platform_links(path)
    places = (f"[{title}]({links[key]})" for key, (title, _) in PLATFORMS.items())
    sentences = [
        its["run" if hosted else "run_own"].format(
            places=" · ".join(places), install=_installation(project, edition.language)
        )
    ]
    if name in _PLAYED:
        puzzle = f"../../{playground_of(edition.language)}/{_PLAYED[name]}"
        sentences.append(its["play"].format(puzzle=puzzle))
    sentences.append(its["files"].format(file=path.name, github=on_github(path)))
    return its["space"].join(sentences)


def _installation(project: Project, language: str) -> str:
    """Return the link to what a README says first: how to install the course."""
    path = readme_of(project, language)
    heading = re.search("^## (.+)$", path.read_text("utf-8"), re.MULTILINE)
    anchor = re.sub(r"[^\w -]", "", heading[1].lower()).replace(" ", "-")
    return f"{on_github(PurePosixPath(path.name))}#{anchor}"


def _with_files(text: str, name: str, folder: Path) -> str:
    """Return Markdown with its embedded pictures written to files."""
    up = "../" * name.count("/")

    def written(match: re.Match) -> str:
        data = base64.b64decode(match[2])
        file = f"{_PICTURES}/{hashlib.sha256(data).hexdigest()[:16]}.{match[1]}"
        (folder / file).write_bytes(data)
        return f"]({up}{file})"

    return _EMBEDDED.sub(written, text)


def _glossary(project: Project, book: Book, edition: Edition) -> str:
    """Return the page of terms, with links to this edition's lessons if it has them."""
    text = page_of(project.root, edition.language).read_text("utf-8")
    paragraphs = [each for each in text.split("\n\n") if "](glossary" not in each]

    def link(match: re.Match) -> str:
        own = f"{edition.folder}/{match[2]}"
        name = own if own in book.notebooks else f"{match[1]}/{match[2]}"
        return f"]({on_github(PurePosixPath(f'notebooks/{name}.ipynb'))})"

    lessons = re.compile(r"\]\(\.\./notebooks/(\w+/\w+)/(\w+)\.ipynb\)")
    return lessons.sub(link, "\n\n".join(paragraphs))


def _index(
    project: Project, book: Book, edition: Edition, more: Mapping[str, str]
) -> str:
    """Return the page with the map of the course.

    Args:
        project: the project.
        book: its pages.
        edition: the edition.
        more: the titles of the pages after the lessons, by name.
    """
    its = words(edition.language)
    text = [f"# {its['title']}", f"## {its['map']}", _map(project, book, edition)]
    heads = titles(project.root / "notebooks", edition, book.lessons(edition))
    pages = [
        ({name: _numbered(name, heads[name]) for name in names}, part)
        for part, names in by_part(heads, parts_of(project.header_in(edition.language)))
    ]
    pages.append((more, its["more"]))
    text += [_toctree(*each) for each in pages if each[0]]
    return "\n\n".join(text) + "\n"


def _map(project: Project, book: Book, edition: Edition) -> str:
    """Return the table of an edition's lessons, with links and minutes."""
    its = words(edition.language)
    rows = lesson_rows(project, book, edition)
    cells = {
        name: (number, f"[{title}]({name}.ipynb)", minutes)
        for name, (number, title, minutes) in rows.items()
    }
    parts = parts_of(project.header_in(edition.language))
    table = with_parts(cells, parts, column=1, total=2)
    head = [("", its["number"], its["minutes"]), ("---", "---", "---:")]
    return "\n".join(map(table_row, [*head, *table]))


def lesson_rows(
    project: Project, book: Book, edition: Edition
) -> dict[str, tuple[str, str, str]]:
    """Return number, title and minutes of an edition's lessons.

    Returns:
        a row for each lesson by its name, in order; the minutes are empty for lessons
        that don't say them.
    """
    names = book.lessons(edition)
    rows = {}
    for name, title in titles(project.root / "notebooks", edition, names).items():
        source = project.lessons / edition.framework / f"{name}.md"
        _, minutes = aims_and_minutes([source.read_text("utf-8")]) or ("", "")
        rows[name] = (name.partition("_")[0], title, minutes)
    return rows


def _numbered(name: str, title: str) -> str:
    """Return a lesson's title, behind the number by which other lessons refer to it."""
    return f"{name.partition('_')[0]} {title}"


def _toctree(pages: Mapping[str, str], caption: str | None = None) -> str:
    """Return the directive that puts pages in order, and into the sidebar.

    Args:
        pages: the title of each page by its name.
        caption: for the sidebar; None to list the pages on this page, too.
    """
    options = [] if caption is None else [":hidden:"]
    options += [f":caption: {caption}"] if caption else []
    lines = [f"{title} <{name}>" for name, title in pages.items()]
    return "\n".join(["```{toctree}", *options, "", *lines, "```"])
