"""A Sphinx extension for readers: sections, folds, terms, and what the theme lacks.

The theme says everything in English, and labels little for screen readers; it has no
settings for either, so both are mended in what it writes.
"""

import functools
import re
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

from tools.site import folding
from tools.site.book import INDEX, words
from tools.site.sections import link_solutions, name_sections, shared
from tools.site.terms import link_terms, list_terms

FIRST, LAST = 100, 900
"""Priorities of handlers, before and after Sphinx's own and the theme's."""

_THEME = Path(__file__).with_name("theme.toml")
_TOGGLE = re.compile(r'aria-label="(Toggle (?:navigation of(?= )|[^"]+))')


@functools.cache
def _phrases(language: str) -> dict[str, str]:
    """Return what the theme's phrases are in a language; empty for English."""
    return tomllib.loads(_THEME.read_text("utf-8")).get(language, {})


def mended(html: str, language: str) -> str:
    """Return a page of the theme with all its labels, in the page's language."""
    phrases = _phrases(language)
    html = _TOGGLE.sub(lambda it: f'aria-label="{phrases.get(it[1], it[1])}', html)
    for kind, label in (
        ("sidebar-drawer", "Site navigation"),
        ("toc-drawer", "Sections of this page"),
    ):
        old = f'<aside class="{kind}'
        html = html.replace(
            old, f'<aside aria-label="{phrases.get(label, label)}" class="{kind}'
        )
    # The first press of the Tab key leads to the link to the text.
    html = _moved(html, r'<a class="skip-to-content.*?</a>', '<input type="checkbox"')
    # What's in the article is in the excerpts of the search, too.
    html = _moved(html, '<details class="switch">.*?</details>', '<article role="main"')
    # A heading needs a level.
    return html.replace('role="heading">', 'role="heading" aria-level="2">')


def _moved(html: str, piece: str, before: str) -> str:
    """Return HTML with a piece of it, if it's there, moved before something else."""
    if found := re.search(piece, html, re.DOTALL):
        html = html.replace(found[0], "", 1)
        html = html.replace(before, f"{found[0]}\n{before}", 1)
    return html


def _for_templates(app: Sphinx, pagename: str, templatename, context: dict, doctree):
    """Give the templates what they need beside Sphinx's own context."""
    edition, book = app.config.d2l_edition, app.config.d2l_book
    lessons = book.lessons(edition)
    found = shared(book, app.config.d2l_root / "notebooks", edition, pagename)
    phrases = _phrases(edition.language)
    translate = app.translator.gettext
    context |= {
        "its": words(edition.language),
        "edition": edition.folder,
        "first": f"{lessons[0] if lessons else INDEX}.html",
        "is_lesson": pagename in lessons,
        "sections": {name: " ".join(each) for name, each in found.items()},
        "gettext": lambda text: phrases.get(text) or translate(text),
        "mended": functools.partial(mended, language=edition.language),
    }


def setup(app: Sphinx) -> dict:
    """Add the extension to Sphinx."""
    app.add_config_value("d2l_root", None, "")
    app.add_config_value("d2l_solution_mark", "", "")
    folding.setup(app)
    app.connect("doctree-read", name_sections, priority=FIRST)
    app.connect("doctree-read", link_solutions)
    app.connect("doctree-read", list_terms, priority=FIRST)
    app.connect("doctree-resolved", link_terms)
    app.connect("html-page-context", _for_templates, priority=LAST)
    app.add_css_file("reading.css")
    app.add_js_file("reading.js", loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
