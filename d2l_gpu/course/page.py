"""One HTML page of executed lessons that needs no network to be read."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell, new_notebook

from d2l_gpu.common.messages import localized
from d2l_gpu.course.formulas import WithFormulas
from d2l_gpu.course.kernel import CellFailure, Failure

# The page of nbconvert without the scripts that it would fetch from the network, and
# with what pictures say to those who do not see them, which nbconvert 7 leaves out.
# The policy keeps browsers from fetching what a reader's own cells may ask for. Cells
# that are folded in the notebook are folded here, with their first line to be seen.
_TEMPLATE = """
{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js -%}
<meta http-equiv="Content-Security-Policy" content="default-src data: 'unsafe-inline'">
<meta name="color-scheme" content="light dark">
{%- endblock -%}
{%- block notebook_css -%}
{{ super() }}
{{ resources.include_css('static/theme-dark.css')
   | replace('<style', '<style media="(prefers-color-scheme: dark)"', 1) }}
<style>
.jp-RenderedMarkdown table { margin-left: 0; }
.jp-RenderedMarkdown :is(td, th) { text-align: left; }
summary { color: var(--jp-content-font-color2); cursor: pointer; padding: 5px; }
@media (prefers-color-scheme: dark) {
  .jp-Notebook :is(img, .jp-RenderedSVG svg) { background: white; }
}
</style>
{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block input_group -%}
{%- if cell.metadata.get('jupyter', {}).get('source_hidden') -%}
<details><summary>{{ cell.source.split('\n')[0] | replace('# @title ', '# ')
                     | replace('# ', '', 1) | escape_html }}</summary>{{ super() }}
</details>
{%- else -%}{{ super() }}{%- endif -%}
{%- endblock -%}
{%- block data_png scoped -%}
{%- set alt = output | get_metadata('alt', 'image/png') or '' -%}
{{ super() | replace('<img ', '<img alt="' ~ alt | escape_html ~ '" ', 1) }}
{%- endblock -%}
"""


# The cell that installs the course; in a report, there's nothing left to install.
_SETUP = "header-install"


@dataclass
class LessonResult:
    """What came of executing one lesson.

    Attributes:
        name: full name of the lesson, as ``01_devices``.
        notebook: the notebook with the outputs that it got.
        seconds: how long that took.
        failure: the cell that failed, or why there was none to execute; or None.
    """

    name: str
    notebook: NotebookNode
    seconds: float
    failure: Failure | None = None

    @property
    def status(self) -> str:
        if self.failure is None:
            return "passed"
        if isinstance(self.failure, CellFailure):
            return f"failed at cell {self.failure.index + 1}"
        return "failed"


def report_html(results: Sequence[LessonResult]) -> str:
    """Return one page with a table of the lessons and, below it, each of them."""
    cells = [new_markdown_cell(_contents(results), id="contents")]
    for result in results:
        anchor = f'<a id="{result.name}"></a>\n\n---\n\n*{result.name}*'
        cells.append(new_markdown_cell(anchor, id=f"lesson-{result.name}"))
        for number, cell in enumerate(result.notebook.cells):
            # Ids are unique within a lesson only.
            copy = NotebookNode(cell, id=f"{result.name}-{number}")
            if cell.get("id") == _SETUP:
                copy.metadata = NotebookNode(jupyter={"source_hidden": True})
            cells.append(copy)
    title = localized("d2l-gpu: report")
    return page_of(new_notebook(cells=cells, metadata={"title": title}))


def page_of(notebook: NotebookNode, **options: bool) -> str:
    """Return a notebook as a page that needs no network, titled as its metadata say.

    Args:
        notebook: what to show.
        options: of nbconvert's exporter, such as ``exclude_input``.
    """
    exporter = WithFormulas(raw_template=_TEMPLATE, embed_images=True, **options)
    page, _ = exporter.from_notebook_node(notebook)
    return page


def _contents(results: Sequence[LessonResult]) -> str:
    heading = " | ".join(map(localized, ("Lesson", "Result", "Time")))
    lines = [f"# {localized('d2l-gpu: report')}", ""]
    lines += [f"| {heading} |", "|---|---|---:|"]
    for result in results:
        status = localized(result.status)
        if result.failure is not None:
            status += f": {html.escape(result.failure.summary)}".replace("|", "&#124;")
        link = f"[{result.name}](#{result.name})"
        lines.append(f"| {link} | {status} | {result.seconds:.1f} s |")
    return "\n".join(lines)
