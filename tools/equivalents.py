"""The table of what is said how in each framework, made of the cells that say it.

In a lesson, ``${equivalents}`` stands for a table of the code cells that have the same
key in all frameworks, a row for each framework below the heading above its cell. Shown
are the lines of a cell up to the first empty one; what follows shows what they do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from d2l_gpu.common.frameworks import Framework
from tools.lesson import Cell, Lesson, split_exercises

PLACE = "${equivalents}"


def with_table(
    cells: Sequence[Cell], lessons: Mapping[Framework, Lesson]
) -> list[Cell]:
    """Return the cells of a notebook with the table where it is to stand.

    Args:
        cells: of one edition; its headings name the rows.
        lessons: the same lesson for each framework that has it, in order.
    """
    if not any(PLACE in cell.source for cell in cells):
        return list(cells)
    body, _ = split_exercises(cells)  # solutions are for all frameworks, too
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
    # Not a column for each framework: four columns of code are wider than a page.
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
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _in_all(key: str, code: Mapping[Framework, Mapping[str, Cell]]) -> bool:
    return bool(key) and all(key in cells for cells in code.values())


def _idiom(source: str) -> str:
    """Return the first lines of a cell, as a field of a Markdown table."""
    lines = source.strip().partition("\n\n")[0].splitlines()
    return "<br>".join(_line(line) for line in lines).replace("|", r"\|")


def _line(line: str) -> str:
    code = line.lstrip()  # browsers show no spaces at the beginning of code
    return "&emsp;" * ((len(line) - len(code)) // 2) + f"`{code}`"
