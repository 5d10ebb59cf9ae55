"""One HTML page of executed lessons that needs no network to be read."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

from nbconvert import HTMLExporter
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell, new_notebook

from d2l_gpu.course.kernel import CellFailure

# The page of nbconvert without the scripts that it would fetch from the network, and
# with what pictures say to those who do not see them, which nbconvert 7 leaves out.
_TEMPLATE = """
{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block data_png scoped -%}
{%- set alt = output | get_metadata('alt', 'image/png') or '' -%}
{{ super() | replace('<img ', '<img alt="' ~ alt | escape_html ~ '" ', 1) }}
{%- endblock -%}
"""


@dataclass
class LessonResult:
    """What came of executing one lesson.

    Attributes:
        name: full name of the lesson, as ``01_devices``.
        notebook: the notebook with the outputs that it got.
        seconds: how long that took.
        failure: the cell that failed, or None.
    """

    name: str
    notebook: NotebookNode
    seconds: float
    failure: CellFailure | None = None

    @property
    def status(self) -> str:
        if self.failure is None:
            return "passed"
        return f"failed at cell {self.failure.index + 1}"


def report_html(results: Sequence[LessonResult]) -> str:
    """Return one page with a table of the lessons and, below it, each of them."""
    cells = [new_markdown_cell(_contents(results), id="contents")]
    for result in results:
        anchor = f'<a id="{result.name}"></a>\n\n---\n\n*{result.name}*'
        cells.append(new_markdown_cell(anchor, id=f"lesson-{result.name}"))
        for number, cell in enumerate(result.notebook.cells):
            # Ids are unique within a lesson only.
            cells.append(NotebookNode(cell, id=f"{result.name}-{number}"))
    exporter = HTMLExporter(raw_template=_TEMPLATE, embed_images=True)
    notebook = new_notebook(cells=cells, metadata={"title": "d2l-gpu: report"})
    page, _ = exporter.from_notebook_node(notebook)
    return page


def _contents(results: Sequence[LessonResult]) -> str:
    lines = ["# d2l-gpu: report", "", "| Lesson | Result | Time |", "|---|---|---|"]
    for result in results:
        status = result.status
        if result.failure is not None:
            status += f": {html.escape(result.failure.summary)}".replace("|", "&#124;")
        link = f"[{result.name}](#{result.name})"
        lines.append(f"| {link} | {status} | {result.seconds:.1f} s |")
    return "\n".join(lines)
