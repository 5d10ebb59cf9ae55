"""Keeping columns in line when the words in them become longer or shorter."""

import re

from d2l_gpu.common.quantities import is_number
from d2l_gpu.vgpu.sim.words import columns

_CELL = re.compile(r"[^ ]+(?: [^ ]+)*")  # with no-break spaces in it
_GAP = 2  # spaces, by which cells of a line are told apart


def aligned(text: str, original: str) -> str:
    """Return a text with its columns where they are in its original.

    Args:
        text: translated, with the cells of each line in the same order.
        original: what it was translated from.

    Returns:
        The text, in which cells begin, or numbers end, in the columns of the original
        if there's room, and are two spaces apart otherwise.
    """
    if " " * _GAP not in original.strip():
        return text
    lines, originals = text.split("\n"), original.split("\n")
    if len(lines) != len(originals):
        return text
    return "\n".join(map(_line, lines, originals))


def _line(line: str, original: str) -> str:
    cells, originals = _CELL.findall(line), list(_CELL.finditer(original))
    if len(cells) < 2 or len(cells) != len(originals):
        return line
    said = line[: len(line) - len(line.lstrip(" "))]
    for i, (cell, its) in enumerate(zip(cells, originals, strict=True)):
        column = columns(original[: its.start()])
        if is_number(its[0]):
            column += columns(its[0]) - columns(cell)
        room = column - columns(said)
        said += (" " * max(room, _GAP) if i else "") + cell
    return said + line[len(line.rstrip(" ")) :]
