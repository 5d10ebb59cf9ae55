"""Slides of the lessons, as `d2l-gpu slides` makes them."""

from pathlib import Path

import nbformat

from d2l_gpu.course.slides.write import slides_page
from tools.edition import Project
from tools.site.book import Book, Edition

FOLDER = "slides"
"""The folder of all slides, relative to the root of the site."""


def address(edition: Edition, name: str) -> str:
    """Return where the slides of a lesson are, relative to the root of the site."""
    return f"{FOLDER}/{edition.folder}/{name}.html"


def write_slides(project: Project, book: Book, edition: Edition, site: Path) -> None:
    """Write the slides of an edition's lessons.

    Args:
        project: the project.
        book: its pages.
        edition: the edition.
        site: the root of the site.
    """
    notebooks = project.root / "notebooks" / edition.folder
    for name in book.lessons(edition):
        lesson = nbformat.read(notebooks / f"{name}.ipynb", as_version=4)
        path = site / address(edition, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(slides_page(lesson, name, notebooks), "utf-8")
