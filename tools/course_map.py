"""Tables of lessons: the parts of the course, and the map of it in lessons.

A part is a prose cell of ``lessons/header.md`` whose key names its first lesson, such
as ``part-07``. The cell's text is the part's title, translated like all of that file. A
part ends where the next one begins. In a lesson, ``${lessons}`` is replaced by a table
of all lessons of its framework, below the head that the cell `HEAD` has.
"""

from collections.abc import Iterable, Mapping, Sequence

from tools.lesson import Lesson

PLACE = "${lessons}"

_PART = "part-"
HEAD = "lessons-head"
"""The key of the cell with the head of the table, which has three columns."""


def parts_of(header: Lesson | None) -> dict[str, str]:
    """Return the titles of the parts by the number of the first lesson, as in its key.

    Args:
        header: the header, in the language of the titles; None for no parts.
    """
    cells = () if header is None else header.cells
    return {
        cell.key.removeprefix(_PART): cell.source
        for cell in cells
        if cell.key.startswith(_PART)
    }


def keys_of(header: Lesson | None) -> set[str]:
    """Return the keys of the header's cells that are for tables of lessons only."""
    return {HEAD, *(f"{_PART}{first}" for first in parts_of(header))}


def by_part(
    names: Iterable[str], parts: Mapping[str, str]
) -> list[tuple[str, list[str]]]:
    """Return the title of each part, and the names of its lessons.

    Args:
        names: the names of lessons, in order.
        parts: the titles of the parts, as from `parts_of`.

    Returns:
        the parts that have lessons, in order; the title is empty for lessons that come
        before the first part.
    """
    found: dict[str, list[str]] = {}
    for name in names:
        number = name.partition("_")[0].lower()
        begun = [first for first in parts if first <= number]
        found.setdefault(parts.get(max(begun, default=""), ""), []).append(name)
    return list(found.items())


def with_parts(
    rows: Mapping[str, Sequence[str]],
    parts: Mapping[str, str],
    column: int,
    total: int | None = None,
) -> list[list[str]]:
    """Return the rows of a table of lessons, with a row above each part for its title.

    Args:
        rows: a row for each lesson, by its name and in the order of the names.
        parts: the titles of the parts, as from `parts_of`.
        column: the column to put titles in, from 0.
        total: a column of numbers to add up for each part; None for none.
    """
    found = []
    for part, names in by_part(rows, parts):
        its = [list(rows[name]) for name in names]
        if part:
            title = [""] * len(its[0])
            title[column] = f"**{part}**"
            if total is not None:
                title[total] = f"**{sum(int(row[total] or 0) for row in its)}**"
            found.append(title)
        found += its
    return found


def course_map(rows: Mapping[str, Sequence[str]], header: Lesson | None) -> str:
    """Return the table that replaces `PLACE`, in Markdown.

    Args:
        rows: number, title and minutes of each lesson, by its name and in order.
        header: the header, in the language of the table.
    """
    cells = () if header is None else header.cells
    head = [cell.source for cell in cells if cell.key == HEAD]
    table = with_parts(rows, parts_of(header), column=1, total=2)
    return "\n".join([*(head or ["|  |  |  |\n|---|---|---|"]), *map(table_row, table)])


def table_row(cells: Sequence[str]) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(cells)} |"
