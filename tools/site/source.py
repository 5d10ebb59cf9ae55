"""What Sphinx reads for an edition: notebooks without their header, and an index."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from html import unescape
from pathlib import Path, PurePosixPath

from d2l_gpu.course import SOLUTIONS
from tools.course_map import by_part, parts_of, table_row, with_parts
from tools.edition import Project
from tools.glossary_page import page_of
from tools.header import INTRODUCTION, MARK, PLATFORMS, on_github, platform_links
from tools.lesson import aims_and_minutes
from tools.site.answering import inlined
from tools.site.book import GLOSSARY, INDEX, Book, Edition, titles, words
from tools.site.folding import SETUP

# Cells of the header that a page doesn't need: the switch has their links, and nothing
# runs here that would have to be installed.
_LEFT_OUT = {"header-languages", "header-frameworks", "header-alone", "header-install"}
_OPEN = "header-open"

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
        notebook["cells"] = list(_cells(notebook["cells"], edition, name, folder))
        text = json.dumps(notebook, ensure_ascii=False)
        (folder / f"{name}.ipynb").write_text(text, "utf-8")
    its = words(edition.language)
    has_glossary = page_of(project.root, edition.language).is_file()
    if has_glossary:
        text = _glossary(project, book, edition)
        (folder / f"{GLOSSARY}.md").write_text(text, "utf-8")
    if solved := book.solved(edition):
        heads = titles(project.root / "notebooks", edition, solved)
        pages = {f"{SOLUTIONS}/{name}": _numbered(name, heads[name]) for name in solved}
        text = f"# {its['solutions']}\n\n{_toctree(pages)}\n"
        (folder / f"{SOLUTIONS}.md").write_text(text, "utf-8")
    index = _index(project, book, edition, has_glossary)
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


def _cells(cells: list, edition: Edition, name: str, folder: Path) -> Iterator[dict]:
    """Yield the cells of a notebook as the site shows them."""
    hosted = any(cell.get("id") == _OPEN for cell in cells)
    setup = True  # is still to come
    for cell in cells:
        key = cell.get("id", "")
        if key in _LEFT_OUT:
            continue
        text = "".join(cell["source"])
        if cell["metadata"].get("jupyter", {}).get("source_hidden"):
            if not cell.get("outputs"):
                continue  # one of the course's own tests
            cell = {**cell, "metadata": {"tags": ["remove-input"]}}
        if key == _OPEN:
            text = _open(edition, name, hosted)
        elif cell["cell_type"] == "markdown":
            text = _with_files(text, name, folder)
            if key == INTRODUCTION:
                text += f"\n\n{_open(edition, name, hosted)}"
        elif setup:
            setup = False
            if "print(" not in text:
                cell = {**cell, "metadata": {"tags": [SETUP]}}
        if alt := _description(cell, edition):
            shown = {**cell["metadata"], "mystnb": {"image": {"alt": alt}}}
            cell = {**cell, "metadata": shown}
        yield inlined({**cell, "source": text}, edition.language)


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


def _open(edition: Edition, name: str, hosted: bool) -> str:
    """Return links that open a notebook, or get it.

    Args:
        edition: the notebook's edition.
        name: its name.
        hosted: whether platforms can run it.
    """
    its = words(edition.language)
    own = f"{PurePosixPath(name).name}.ipynb"
    if not hosted:
        return f'<a href="{own}" download>{its["download_only"]}</a>'
    path = PurePosixPath(f"notebooks/{edition.folder}/{name}.ipynb")
    links = platform_links(path)
    opens = [f"[{title}]({links[key]})" for key, (title, _) in PLATFORMS.items()]
    opens.append(f"[GitHub]({on_github(path)})")
    download = f'<a href="{own}" download>{its["download"]}</a>'
    return its["open"].format(places=" · ".join(opens), download=download)


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


def _index(project: Project, book: Book, edition: Edition, has_glossary: bool) -> str:
    """Return the page with the map of the course."""
    its = words(edition.language)
    text = [f"# {its['title']}", f"## {its['map']}", _map(project, book, edition)]
    heads = titles(project.root / "notebooks", edition, book.lessons(edition))
    pages = [
        ({name: _numbered(name, heads[name]) for name in names}, part)
        for part, names in by_part(heads, parts_of(project.header_in(edition.language)))
    ]
    more = {SOLUTIONS: its["solutions"]} if book.solved(edition) else {}
    more |= {GLOSSARY: its["glossary"]} if has_glossary else {}
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
