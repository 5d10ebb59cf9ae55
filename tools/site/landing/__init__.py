"""The pages at the root of the site, one in each language."""

import posixpath
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path, PurePosixPath

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tools.edition import Project
from tools.header import on_github
from tools.languages import ENGLISH
from tools.site.book import GLOSSARY, PLAYGROUND, TEACHING, Book, playground_of
from tools.site.landing import course, runs
from tools.site.landing.recordings import MISMATCH, STEPS, recorded
from tools.site.landing.steps import panels
from tools.site.landing.texts import Texts

_HERE = Path(__file__).parent
FILES = ("landing.css", "landing.js")
_STATIC = _HERE.parent / "static"
_SHARED = ("icon.svg", "return.js")
SHOWN = ("gpu(0)", "gpu(1)")
"""Where X and Y are before a visitor moves them."""

# Other sections of the site, and what stands in where one isn't built.
_SECTIONS = {
    "vgpu": on_github(PurePosixPath("d2l_gpu/vgpu/README.md")),
    PLAYGROUND: "",
}
_COPYING = "03_copying"
_PARALLEL = "07_data_parallel"


@dataclass(frozen=True)
class Door:
    """A way into the project, besides the first lesson.

    Attributes:
        name: what its texts are called.
        link: where it leads.
    """

    name: str
    link: str


def write_landing(project: Project, book: Book, site: Path) -> None:
    """Write the landing pages, after everything that they link to.

    English is at the root, and each other language that is built in its folder.

    Args:
        project: the project.
        book: its pages.
        site: the root of the site, with its sections.
    """
    for name in FILES:
        shutil.copy(_HERE / name, site)
    for name in _SHARED:
        shutil.copy(_STATIC / name, site)
    sections = {each for each in _SECTIONS if (site / each / "index.html").is_file()}
    for language in languages_of(book):
        path = site / folder_of(language) / "index.html"
        path.parent.mkdir(exist_ok=True)
        path.write_text(landing_page(project, book, language, sections), "utf-8")


def languages_of(book: Book) -> list[str]:
    """Return the codes of the languages that have a landing page."""
    built = {edition.language for edition in book.built}
    return [code for code in book.languages if code in built | {ENGLISH}]


def folder_of(language: str) -> str:
    """Return the folder of a language's landing page in the site."""
    return "" if language == ENGLISH else language


def landing_page(
    project: Project, book: Book, language: str, sections: set[str]
) -> str:
    """Return the landing page in a language, in HTML.

    Args:
        project: the project.
        book: its pages.
        language: its code.
        sections: which other sections the site has, such as ``vgpu``.
    """
    folder = folder_of(language)
    texts = Texts(language)
    edition = course.edition_of(book, language)
    names = book.lessons(edition)

    def link(path: str) -> str:
        return posixpath.relpath(path or ".", folder or ".")

    def lesson(name: str) -> str | None:
        return book.link(edition, name, folder) if name in names else None

    parts = course.parts(project, book, edition, folder)
    every = [each for part in parts for each in part.lessons]
    places = list(dict.fromkeys(each["x"] for each in recorded(MISMATCH)))
    worst = runs.worst_of_each_network()
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["inline"] = _inline
    return environment.get_template("page.html").render(
        t=texts,
        language=language,
        languages={
            code: (
                book.languages[code],
                link(posixpath.join(folder_of(code), "index.html")),
            )
            for code in languages_of(book)
        },
        link=link,
        lesson=lesson,
        first=every[0],
        course=every,
        hours=texts.number(sum(each.minutes for each in every) / 60),
        framework=book.frameworks[edition.framework],
        others=_listed(texts, list(book.frameworks.values())[1:]),
        doors=list(_doors(book, folder, sections)),
        places=places,
        shown=SHOWN,
        sums=recorded(MISMATCH),
        copying=_COPYING,
        parallel=_PARALLEL,
        panels=list(panels(texts)),
        model=recorded(STEPS)[0]["model"],
        runs=runs.runs(),
        conditions=runs.conditions,
        gpus_of=runs.gpus_of,
        worst=worst,
        median_error=runs.median_error(),
        median=texts.percent(runs.median_error()),
        described=runs.described(texts),
        dots=list(runs.dots(texts)),
        axis=runs.axis(),
        highest=runs.highest(),
        data=on_github(PurePosixPath("benchmarks/data/published_training.csv")),
        results=on_github(PurePosixPath("benchmarks/results/published.txt")),
        parts=parts,
        editions=course.editions(book, folder),
        tags=course.frameworks_of(book),
        names=book.frameworks,
        glossary=book.link(edition, GLOSSARY, folder),
        github=on_github(PurePosixPath("README.md")),
    )


def _listed(texts: Texts, names: list[str]) -> str:
    """Return names as a list in a sentence."""
    *before, last = names
    return texts["and"].join([texts["comma"].join(before), last])


def _doors(book: Book, folder: str, sections: set[str]) -> Iterator[Door]:
    """Yield the ways in, of which none leads nowhere."""
    english = course.edition_of(book, ENGLISH)
    yield Door("teach", book.link(english, TEACHING, folder))
    for name, instead in _SECTIONS.items():
        there = playground_of(folder or ENGLISH) if name == PLAYGROUND else name
        own = posixpath.relpath(f"{there}/index.html", folder or ".")
        if target := own if name in sections else instead:
            yield Door(name, target)


def _inline(text: str) -> Markup:
    """Return a line of Markdown, whose only marks are those of code, in HTML."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", escape(text)))
