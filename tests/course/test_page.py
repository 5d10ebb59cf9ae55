"""The report of `d2l-gpu run`: one page that needs nothing but a browser."""

import json
import re

import pytest
from nbconvert.filters.markdown_mistune import MarkdownWithMath
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from d2l_gpu.course import formulas, page
from d2l_gpu.course.kernel import CellFailure
from tests.helpers.paths import REPOSITORY


def report(*cells: NotebookNode) -> str:
    notebook = new_notebook(cells=list(cells))
    return page.report_html([page.LessonResult("01_toy", notebook, 1.0)])


def test_formulas_are_mathml():
    html = report(new_markdown_cell("Ring: $2(n-1)/n$ of it.\n\n$$\\frac{a}{b}$$"))
    assert len(re.findall("<math ", html)) == 2
    assert 'display="block"' in html
    assert "<mfrac>" in html
    assert "$" not in re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL)


def test_formula_that_is_none_is_shown_as_it_is_written():
    html = report(new_markdown_cell(r"Mine: $\left( a$, and $b$."))
    assert r"<code>\left( a</code>" in html
    assert html.count("<math ") == 1


def test_every_formula_of_the_lessons_can_be_shown(monkeypatch):
    found = []

    def strictly(formula: str, display: str) -> str:
        found.append(formula)
        return formulas.convert(formula, display=display)

    monkeypatch.setattr(formulas, "_mathml", strictly)
    for path in REPOSITORY.glob("notebooks/*/*/**/*.ipynb"):
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            text = "".join(cell["source"])
            if cell["cell_type"] == "markdown" and ("$" in text or "\\begin" in text):
                renderer = formulas._Renderer(escape=False)
                html = MarkdownWithMath(renderer=renderer).render(text)
                shown = re.sub("<annotation.*?</annotation>", "", html)
                assert not re.search(r">[^<]*\\[a-z]+[^<]*</m", shown), text
    assert len(found) > 50


@pytest.mark.parametrize("hidden", [True, False])
def test_cells_that_are_folded_in_the_notebook_are_folded(hidden):
    source = "# @title Setup: <nothing> to do.\nx = 1"
    cell = new_code_cell(source, metadata={"jupyter": {"source_hidden": hidden}})
    html = report(cell)
    summary = "<summary>Setup: &lt;nothing&gt; to do.</summary>"
    assert (summary in html) == ("<details>" in html) == hidden


def test_the_cell_that_sets_up_is_folded():
    html = report(new_code_cell("# Install it.\n%pip install it", id="header-install"))
    assert "<details><summary>Install it.</summary>" in html


def test_page_is_dark_where_the_reader_wants_that():
    html = report()
    assert 'name="color-scheme"' in html
    [dark] = re.findall(r'<style media="\(prefers-color-scheme: dark\)"', html)
    assert dark
    assert html.index("--jp-layout-color0: white") < html.index(dark)


def test_time_is_aligned_right_and_text_left():
    html = report()
    assert re.search(r'style="text-align: ?right;?">1\.0 s', html)
    assert re.search(r"<td><a [^>]*>01_toy</a></td>", html)


@pytest.mark.parametrize(
    "said", ["a | b", "|", "<b>|</b>", "*a* `b` $c$ [d](e)", "&#124; &amp;", "\\|"]
)
def test_a_lesson_has_one_row_of_three_cells_whatever_its_error_says(said):
    failure = CellFailure(0, said, said)
    results = [
        page.LessonResult("01_toy", new_notebook(), 1.0),
        page.LessonResult("02_toy", new_notebook(), 2.0, failure),
        page.LessonResult("03_toy", new_notebook(), 3.0),
    ]
    (table,) = re.findall("<tbody>.*?</tbody>", page.report_html(results), re.DOTALL)
    rows = [re.findall("<td.*?</td>", row, re.DOTALL) for row in table.split("</tr>")]
    assert [len(row) for row in rows if row] == [3, 3, 3]
    assert [re.sub("<.*?>", "", row[2]) for row in rows if row] == [
        "1.0 s",
        "2.0 s",
        "3.0 s",
    ]
