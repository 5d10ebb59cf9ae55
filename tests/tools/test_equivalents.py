"""The table of what is said how in each framework is made of the cells that say it."""

import nbformat
import pytest
from markdown_it import MarkdownIt

from d2l_gpu.common.frameworks import FRAMEWORKS, Framework, framework
from tests.helpers.paths import REPOSITORY
from tools.edition import Project
from tools.equivalents import PLACE, with_table
from tools.lesson import Cell, Lesson

KNOWN = [each.tag for each in FRAMEWORKS]
JAX, MXNET = (framework(tag) for tag in ("jax", "mxnet"))


def lesson(its: Framework, *cells: Cell) -> Lesson:
    path = REPOSITORY / "lessons" / its.tag / "A2_toy.md"
    return Lesson(path, list(cells))


def prose(text: str) -> Cell:
    return Cell("markdown", text, "prose")


def code(source: str, key: str = "add") -> Cell:
    return Cell("code", source, key, key=key)


def table(**lessons: list[Cell]) -> list[str]:
    """The lines of the table in the last cell of the lesson for JAX."""
    read = {
        each: lesson(each, *lessons[each.tag])
        for each in FRAMEWORKS
        if each.tag in lessons
    }
    return with_table(lessons["jax"], read)[-1].source.splitlines()


def test_a_row_is_the_heading_and_the_cells_below_it_up_to_an_empty_line():
    assert table(
        jax=[
            prose("## Add\n\nTwo things."),
            code("with here:\n    Z = X | Y"),
            prose(PLACE),
        ],
        pytorch=[code("Z = X + Y\n\nprint(Z)")],
    ) == [
        "|  |  |  |",
        "| --- | --- | --- |",
        "| **Add** | PyTorch | `Z = X + Y` |",
        r"|  | JAX | `with here:`<br>&emsp;&emsp;`Z = X \| Y` |",
    ]


def test_what_one_framework_lacks_is_no_row():
    assert table(
        jax=[
            prose("## Add"),
            code("2 + 2", key="double"),
            prose("## Multiply"),
            code("2 * 2", key="multiply"),
            prose(PLACE),
        ],
        pytorch=[code("1 + 1"), code("1 * 1", key="multiply")],
    )[2:] == [
        "| **Multiply** | PyTorch | `1 * 1` |",
        "|  | JAX | `2 * 2` |",
    ]


def test_cells_without_a_key_are_no_rows_even_if_they_are_equal():
    same = [prose("## Add"), Cell("code", "1 + 1", "1-1-abcdef01"), prose(PLACE)]
    assert len(table(jax=same, pytorch=same)) == 2


def test_rows_are_named_by_the_headings_of_the_edition():
    lessons = {each: lesson(each, code("1")) for each in (JAX, MXNET)}
    cells = [prose("## Additionner"), code("1"), prose(PLACE)]  # as translated
    assert "| **Additionner** | JAX | `1` |" in with_table(cells, lessons)[-1].source


def test_solutions_are_no_rows():
    cells = [
        prose(f"{PLACE}\n\n## Add"),
        code("1"),
        prose("### A2.1 Exercises"),
        code("2", key="answer"),
    ]
    lessons = {each: lesson(each, *cells) for each in (JAX, MXNET)}
    shown = with_table(cells, lessons)[0].source
    assert "| **Add** | JAX | `1` |" in shown
    assert "Exercises" not in shown


def test_lesson_without_the_place_stays_as_it_is():
    cells = [prose("## Add"), code(f"'{PLACE}'")]
    assert with_table(cells, {JAX: lesson(JAX, *cells)})[1].source == f"'{PLACE}'"


@pytest.mark.parametrize("tag", KNOWN)
def test_table_of_the_appendix_is_made_of_executed_cells(tag):
    """What the table of every edition says in a column was run in that edition."""
    editions = REPOSITORY / "notebooks" / "en"
    notebook = nbformat.read(editions / tag / "A2_equivalents.ipynb", as_version=4)
    (shown,) = [cell.source for cell in notebook.cells if "| **" in cell.source]
    rendered = MarkdownIt().enable("table").parse(shown)
    kinds = [token.type for token in rendered]
    table = rendered[kinds.index("table_open") : kinds.index("table_close")]
    inline = [token.content for token in table if token.type == "inline"]
    rows = [inline[i : i + 3] for i in range(3, len(inline), 3)]
    titles = [each.title for each in FRAMEWORKS]
    assert [title for _, title, _ in rows] == titles * (len(rows) // len(titles))
    for each in FRAMEWORKS:
        run = nbformat.read(editions / each.tag / "A2_equivalents.ipynb", as_version=4)
        executed = "\n".join(
            cell.source for cell in run.cells if cell.cell_type == "code"
        )
        for code in (code for _, title, code in rows if title == each.title):
            for line in code.replace("&emsp;", "").split("<br>"):
                assert line.strip("`").replace(r"\|", "|") in executed
    headings = [heading for heading, *_ in rows if heading]
    assert len(headings) == len(rows) / len(titles) >= 8
    wanted = ["device", "there", "another", "already", "two devices", "Wait", "batch"]
    for words in wanted:
        assert any(words in heading for heading in headings)
    read = Project(REPOSITORY).read(["A2"])
    assert [lesson.framework for lesson in read] == KNOWN
