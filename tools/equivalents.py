"""Build a table of equivalent code in each framework from the lessons' cells.

In a lesson, ``${equivalents}`` is replaced by a table of the code cells whose key
occurs in all frameworks. Each is introduced by the heading above it, with a row per
framework. The table shows a cell's lines up to the first empty one; the lines below
demonstrate the code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from d2l_gpu.common.frameworks import Framework
from tools.course_map import table_row
from tools.lesson import Cell, Lesson, split_exercises

PLACE = "${equivalents}"


def with_table(
    cells: Sequence[Cell], lessons: Mapping[Framework, Lesson]
) -> list[Cell]:
    """Return the cells of a notebook, with the table in place of ``${equivalents}``.

    Args:
        cells: the cells of one edition; its headings name the rows.
        lessons: the same lesson for each framework that has it, in order.
    """
    if not any(PLACE in cell.source for cell in cells):
        return list(cells)
    body, _ = split_exercises(cells)  # exercises have the same keys everywhere, too
    table = _table(body, lessons)
    return [
        replace(cell, source=cell.source.replace(PLACE, table))
        if cell.kind == "markdown"
        else cell
        for cell in cells
    ]


def _table(cells: Sequence[Cell], lessons: Mapping[Framework, Lesson]) -> str:
    code = {
        each: {cell.key: cell for cell in lesson.cells if cell.kind == "code"}
        for each, lesson in lessons.items()
    }
    # One row per framework: four columns of code would be wider than a page.
    rows = [["", "", ""], ["---"] * 3]
    heading, shown = "", set()
    for cell in cells:
        if cell.kind == "markdown":
            for line in cell.source.splitlines():
                if line.startswith("## "):
                    heading = line.removeprefix("## ")
        elif heading and heading not in shown and _in_all(cell.key, code):
            shown.add(heading)
            names = [f"**{heading}**", *[""] * (len(code) - 1)]
            for name, each in zip(names, code, strict=True):
                idiom = _idiom(code[each][cell.key].source)
                rows.append([name, each.title, idiom])
    return "\n".join(map(table_row, rows))


def _in_all(key: str, code: Mapping[Framework, Mapping[str, Cell]]) -> bool:
    return bool(key) and all(key in cells for cells in code.values())


def _idiom(source: str) -> str:
    """Return a cell's lines up to the first empty one, for a Markdown table."""
    lines = source.strip().partition("\n\n")[0].splitlines()
    return "<br>".join(_line(line) for line in lines).replace("|", r"\|")


def _line(line: str) -> str:
    code = line.lstrip()  # browsers drop leading spaces in code
    return "&emsp;" * ((len(line) - len(code)) // 2) + f"`{code}`"
