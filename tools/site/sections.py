"""Anchors of sections, the same in all languages.

A section's anchor comes from its English heading, so a link to a section works in every
language, and the switch can keep the reader's place. Frameworks have lessons of their
own; there, sections with the same English heading, the exercises of the same number,
and the summaries count as the same.
"""

import functools
import json
import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

from d2l_gpu.course import SOLUTIONS
from tools.languages import ENGLISH
from tools.lesson import FENCED
from tools.site.book import Book, Edition

_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*$", re.MULTILINE)
_EXERCISE = re.compile(r"(\w\d)\.(\d+)\s")
_SUMMARIES = {"what-to-remember", "summary"}

_log = logging.getLogger(__name__)


@functools.cache
def anchors(notebook: Path) -> tuple[str, ...]:
    """Return an anchor for each heading of an English notebook, in order.

    Args:
        notebook: the notebook's path.
    """
    found: list[str] = []
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        if cell["cell_type"] != "markdown":
            continue
        text = FENCED.sub("", "".join(cell["source"]))
        for heading in _HEADING.findall(text):
            anchor = _anchor(heading)
            again = found.count(anchor) + 1
            found.append(anchor if again == 1 else f"{anchor}-{again}")
    return tuple(found)


def _anchor(heading: str) -> str:
    if exercise := _EXERCISE.match(heading):
        return nodes.make_id(f"exercise-{exercise[1]}-{exercise[2]}")
    anchor = nodes.make_id(heading)
    return "summary" if anchor in _SUMMARIES else anchor


def shared(
    book: Book, notebooks: Path, edition: Edition, name: str
) -> dict[str, list[str]]:
    """Return which sections of a lesson other frameworks have, too.

    Args:
        book: the pages.
        notebooks: the folder of the notebooks.
        edition: the lesson's edition.
        name: the lesson's name; there may be no such notebook.

    Returns:
        the anchors of the sections, by the framework's name.
    """
    own = notebooks / ENGLISH / edition.framework / f"{name}.ipynb"
    if not own.is_file():
        return {}
    found = {}
    for tag, title in book.frameworks.items():
        other = notebooks / ENGLISH / tag / f"{name}.ipynb"
        if tag != edition.framework and other.is_file():
            found[title] = [each for each in anchors(own) if each in anchors(other)]
    return found


def name_sections(app: Sphinx, doctree: nodes.document) -> None:
    """Give the sections of a notebook's page their anchors."""
    edition = app.config.d2l_edition
    folder = app.config.d2l_root / "notebooks" / ENGLISH / edition.framework
    notebook = folder / f"{app.env.docname}.ipynb"
    if not notebook.is_file():
        return
    names, sections = anchors(notebook), list(doctree.findall(nodes.section))
    if len(names) != len(sections):
        _log.warning(
            "%s has %d sections, but the English notebook has %d",
            app.env.docname,
            len(sections),
            len(names),
        )
        return
    for name, section in zip(names, sections, strict=True):
        # The first one is the anchor that tables of contents and the search use.
        section["ids"] = [name, *(each for each in section["ids"] if each != name)]


def link_solutions(app: Sphinx, doctree: nodes.document) -> None:
    """End each exercise of a lesson with a link to its solution."""
    name, edition = app.env.docname, app.config.d2l_edition
    if name not in app.config.d2l_book.solved(edition):
        return
    for section in doctree.findall(nodes.section):
        anchor = section["ids"][0]
        if anchor.startswith("exercise-"):
            link = nodes.reference(
                "",
                app.config.d2l_solution_mark,
                refuri=f"{SOLUTIONS}/{name}.html#{anchor}",
                internal=True,
            )
            # The last exercise's section goes on with what ends the page.
            codes = [
                place
                for place, each in enumerate(section)
                if isinstance(each, nodes.container) and "cell" in each["classes"]
            ]
            place = codes[-1] + 1 if codes else len(section)
            paragraph = nodes.paragraph("", "", link, classes=["to-solution"])
            section.insert(place, paragraph)
