"""The table of what is said how in each framework is made of the cells that say it."""

from pathlib import Path

import nbformat
import pytest
from conftest import REPOSITORY
from markdown_it import MarkdownIt

from d2l_gpu.frameworks import frameworks
from tools.equivalents import PLACE, with_table
from tools.lesson import Cell, Lesson, read_lesson

KNOWN = [each.tag for each in frameworks()]


def lesson(*cells: Cell) -> Lesson:
    return Lesson(Path("A2_toy.md"), list(cells), KNOWN)


def prose(text: str, key: str = "title") -> Cell:
    return Cell("markdown", text, key)


def code(tag: str, source: str, key: str = "add") -> Cell:
    return Cell("code", source, key, (tag,))


def table(source: Lesson, tag: str = "jax") -> list[str]:
    """The lines of the table in the last cell."""
    cells = with_table(source.cells_for(tag), source, frameworks())
    return cells[-1].source.splitlines()


def test_a_row_is_the_heading_and_the_cells_below_it_up_to_an_empty_line():
    source = lesson(
        prose("## Add\n\nTwo things."),
        code("pytorch", "Z = X + Y\n\nprint(Z)"),
        code("jax", "with here:\n    Z = X | Y"),
        prose(PLACE),
    )
    assert table(source) == [
        "|  |  |  |",
        "| --- | --- | --- |",
        "| **Add** | PyTorch | `Z = X + Y` |",
        r"|  | JAX | `with here:`<br>&emsp;&emsp;`Z = X \| Y` |",
    ]


def test_what_one_framework_lacks_is_no_row():
    source = lesson(
        prose("## Add"),
        code("pytorch", "1 + 1"),
        code("jax", "2 + 2", key="double"),
        prose("## Multiply"),
        code("pytorch", "1 * 1", key="multiply"),
        code("jax", "2 * 2", key="multiply"),
        prose(PLACE),
    )
    assert table(source)[2:] == [
        "| **Multiply** | PyTorch | `1 * 1` |",
        "|  | JAX | `2 * 2` |",
    ]


def test_rows_are_named_by_the_headings_of_the_edition():
    source = lesson(prose("## Add"), code("jax", "1"), code("mxnet", "1"), prose(PLACE))
    cells = source.cells_for("jax")
    cells[0] = prose("## Additionner")  # as a translation has it
    assert "| **Additionner** | JAX | `1` |" in (
        with_table(cells, source, frameworks())[-1].source
    )


def test_solutions_are_no_rows():
    source = lesson(
        prose("## Add"),
        code("jax", "1"),
        code("mxnet", "1"),
        prose("## Exercises", key="exercise-1"),
        code("jax", "2", key="exercise-1-answer"),
        code("mxnet", "2", key="exercise-1-answer"),
    )
    cells = [prose(PLACE), *source.cells_for("jax")]
    shown = with_table(cells, source, frameworks())[0].source
    assert "| **Add** | JAX | `1` |" in shown
    assert "Exercises" not in shown


def test_lesson_without_the_place_stays_as_it_is():
    source = lesson(prose("## Add"), code("jax", f"'{PLACE}'"))
    assert with_table(source.cells_for("jax"), source, frameworks())[1].source == (
        f"'{PLACE}'"
    )


@pytest.mark.parametrize("tag", KNOWN)
def test_table_of_the_appendix_is_made_of_executed_cells(tag):
    """What the table of every edition says in a column was run in that edition."""
    path = REPOSITORY / "lessons" / "A2_equivalents.md"
    source = read_lesson(path, KNOWN)
    editions = REPOSITORY / "notebooks" / "en"
    notebook = nbformat.read(editions / tag / "A2_equivalents.ipynb", as_version=4)
    (shown,) = [cell.source for cell in notebook.cells if cell.id == "table"]
    rendered = MarkdownIt().enable("table").parse(shown)
    start = [token.type for token in rendered].index("table_open")
    inline = [token.content for token in rendered[start:] if token.type == "inline"]
    rows = [inline[i : i + 3] for i in range(3, len(inline), 3)]
    titles = [each.title for each in frameworks()]
    assert [title for _, title, _ in rows] == titles * (len(rows) // len(titles))
    for each in frameworks():
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
    assert source.frameworks() == KNOWN
