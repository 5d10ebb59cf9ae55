"""A Sphinx extension: our drawings become part of the page, where scripts find them.

MyST-NB shows an SVG as an image in a file of its own, whose parts nobody can point at.
"""

import re

from sphinx.application import Sphinx

from tools.languages import ENGLISH

SCRIPTS = ("answers-base.js", "answers-kinds.js", "answers.js")
"""What lets timelines and pictures of memory answer, in the order to load."""

STYLE = "answers.css"

PHOTOGRAPHS = "photographs"
"""The tag of cells that show images, which would be negatives if they were inverted."""

_SVG, _HTML = "image/svg+xml", "text/html"


def inlined(cell: dict, english: bool = False) -> dict:
    """Return a cell of a notebook whose drawings are HTML, and photographs are tagged.

    A drawing with identifiers stays a file, because another one on the page may have
    the same.

    Args:
        cell: the cell, which stays as it is.
        english: whether drawings are in English on a page that isn't.
    """
    if "show_images(" in "".join(cell.get("source", "")):
        metadata = cell.get("metadata", {})
        tags = [*metadata.get("tags", ()), PHOTOGRAPHS]
        cell = {**cell, "metadata": {**metadata, "tags": tags}}
    outputs = []
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        drawing = "".join(data.get(_SVG, ()))
        if drawing and not re.search(r"\sid=", drawing):
            data = {kind: text for kind, text in data.items() if kind != _SVG}
            if english:
                drawing = drawing.replace("<svg ", f'<svg lang="{ENGLISH}" ', 1)
            output = {**output, "data": {_HTML: drawing, **data}}
        outputs.append(output)
    return {**cell, "outputs": outputs} if outputs else cell


def _add_scripts(app: Sphinx, pagename: str, templatename, context: dict, doctree):
    """Give the scripts and their style to pages that have a picture for them."""
    if "<svg" in (body := context.get("body", "")) and " data-picture=" in body:
        app.add_css_file(STYLE)
        for name in SCRIPTS:
            app.add_js_file(name, loading_method="defer")


def setup(app: Sphinx) -> dict:
    """Add the extension to Sphinx."""
    app.connect("html-page-context", _add_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
