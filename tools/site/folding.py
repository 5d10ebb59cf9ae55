"""What is folded on a page, and opens with a click or a key: setup and solutions.

They are ``<details>``, which need no script. Printed pages show what's in them.
"""

from docutils import nodes
from sphinx.application import Sphinx

from d2l_gpu.course import SOLUTIONS
from tools.site.book import words

SETUP = "setup"
"""The tag of the cell whose code is folded."""


class Folded(nodes.Element):
    """Nodes shown once the reader opens them; ``summary`` says what they are."""


def _visit(writer, node: Folded) -> None:
    writer.body.append(writer.starttag(node, "details"))
    writer.body.append(f"<summary>{writer.encode(node['summary'])}</summary>\n")


def _depart(writer, node: Folded) -> None:
    writer.body.append("</details>\n")


def fold(app: Sphinx, doctree: nodes.document) -> None:
    """Fold the code of the setup and, on pages of solutions, each solution."""
    its = words(app.config.d2l_edition.language)
    for cell in doctree.findall(nodes.container):
        if f"tag_{SETUP}" in cell["classes"]:
            _fold(cell, 0, 1, its["setup"], "setup")
    if not app.env.docname.startswith(f"{SOLUTIONS}/"):
        return
    mark = app.config.d2l_solution_mark
    for section in doctree.findall(nodes.section):
        for place, child in enumerate(section):
            if isinstance(child, nodes.paragraph) and child.astext() == mark:
                del section[place]
                _fold(section, place, len(section), mark, "solution")
                break


def _fold(parent: nodes.Element, start: int, end: int, summary: str, kind: str) -> None:
    """Put some of a node's children behind a summary."""
    parent[start:end] = [
        Folded("", *parent[start:end], summary=summary, classes=[kind])
    ]


def setup(app: Sphinx) -> None:
    """Add the node to Sphinx, and fold pages when they're read."""
    app.add_node(Folded, html=(_visit, _depart))
    app.connect("doctree-read", fold)
