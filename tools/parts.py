"""The parts of the course, which tables of lessons show.

A part is a prose cell of ``lessons/header.md`` whose key names its first lesson, such
as ``part-07``. The cell's text is the part's title, translated like all of that file. A
part ends where the next one begins.
"""

from collections.abc import Mapping, Sequence

from tools.lesson import Lesson

KEY = "part-"
"""What the keys of these cells begin with."""


def parts_of(header: Lesson | None) -> dict[str, str]:
    """Return the titles of the parts by the number of the first lesson, as in its key.

    Args:
        header: the header, in the language of the titles; None for no parts.
    """
    cells = () if header is None else header.cells
    return {
        cell.key.removeprefix(KEY): cell.source
        for cell in cells
        if cell.key.startswith(KEY)
    }


def with_parts(
    rows: Mapping[str, Sequence[str]], parts: Mapping[str, str], column: int
) -> list[list[str]]:
    """Return the rows of a table of lessons, with a row above each part for its title.

    Args:
        rows: a row for each lesson, by its name and in the order of the names.
        parts: the titles of the parts, as from `parts_of`.
        column: the column to put titles in, from 0.
    """
    found, current = [], None
    for name, row in rows.items():
        number = name.partition("_")[0].lower()
        begun = [first for first in parts if first <= number]
        if begun and (part := max(begun)) != current:
            current = part
            titles = [""] * len(row)
            titles[column] = f"**{parts[part]}**"
            found.append(titles)
        found.append(list(row))
    return found
