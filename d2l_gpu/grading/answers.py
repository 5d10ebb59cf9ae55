"""The cells of a notebook that answer an exercise, and what reports call cells.

Nobody finds a cell by its number: Jupyter shows the order in which cells ran, and
counts no text. So reports name the exercise, or else quote a line.
"""

import re
from collections.abc import Collection, Mapping, Sequence

from d2l_gpu.exercises.registry import Exercise

# Code of an answer that is shown has at most so many lines and characters.
_LINES, _CHARACTERS = 80, 6000


def cells_of(
    exercise: Exercise, cells: Mapping[int, str], ours: Collection[int] = ()
) -> list[int]:
    """Return the places of the cells that define an answer, or check it.

    Args:
        exercise: the exercise.
        cells: the code cells of the notebook, by their places.
        ours: those that are the course's own, which don't count.
    """
    name = re.escape(exercise.name)
    its = re.compile(
        rf"\bcheck\(\s*['\"]{re.escape(exercise.number)}['\"]"
        rf"|^(?:async )?def {name}\b|^{name}\s*(?::[^=\n]*)?=(?!=)",
        re.MULTILINE,
    )
    return [i for i, text in cells.items() if i not in ours and its.search(text)]


def code_of(
    exercise: Exercise, cells: Mapping[int, str], ours: Collection[int] = ()
) -> str:
    """Return the code of an answer, for somebody to read; empty if there is none."""
    check = re.compile(r"^(\w+\.)?check\(.*\)\s*$", re.MULTILINE)
    code = [check.sub("", cells[i]).strip() for i in cells_of(exercise, cells, ours)]
    text = re.sub(r"\n{3,}", "\n\n", "\n\n".join(filter(None, code)))
    lines = text[:_CHARACTERS].splitlines()
    if len(text) > _CHARACTERS or len(lines) > _LINES:
        lines = [*lines[:_LINES], "…"]
    return "\n".join(lines)


def label(
    cell: int,
    cells: Mapping[int, str],
    exercises: Sequence[Exercise],
    ours: Collection[int] = (),
) -> str:
    """Return what a report calls a cell: by its exercise, or by how it begins."""
    numbers = [each.number for each in exercises if cell in cells_of(each, cells, ours)]
    if numbers and len(numbers) <= 3:
        *most, last = numbers
        several = f"exercises {', '.join(most)} and {last}"
        return f"your cell of {several if most else f'exercise {last}'}"
    lines = [each for each in map(on_one_line, cells[cell].splitlines()) if each]
    first = next((line for line in lines if line[0] != "#"), (lines or [""])[0])
    if len(first) > 40:
        first = f"{first[:40]}…"
    return f"the cell `{first}`" if first else "an empty cell"


def quoted(line: int, source: str) -> str:
    """Return the line of a cell as a report quotes it: ``line 2: `x = 1```."""
    lines = source.splitlines()
    text = on_one_line(lines[line - 1]) if 0 < line <= len(lines) else ""
    return f"line {line}: `{text}`" if text else f"line {line}"


def on_one_line(text: str, most: int = 300) -> str:
    """Return the beginning of a text on one line, without what moves a cursor."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= most else f"{text[:most]}…"
