"""The text of an exercise in a variant.

``texts.toml`` has *places*, texts with what varies in braces, as ``"B³ + {b} B²"``.
With the ordinary values, a place reads as in the notebook. There it's replaced by the
same with the variant's values. Where a sentence has to change, a place is two texts:
``{ordinary = "counts twice", variant = "counts {weight} times"}``.
"""

import functools
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from d2l_gpu.exercises.registry import Exercise

ANY, SOLUTION = "any", "solution"
"""Places in the exercise in each language, and in its solution only."""


@functools.cache
def _places() -> dict[str, dict[str, list]]:
    path = Path(__file__).with_name("texts.toml")
    return tomllib.loads(path.read_text("utf-8"))


def places(exercise: Exercise, kind: str) -> list[tuple[str, str]]:
    """Return pairs of what an exercise says, and what its variants say, with braces.

    Args:
        exercise: the exercise.
        kind: a language, `ANY` or `SOLUTION`.
    """
    found = _places().get(exercise.number, {}).get(kind, [])
    ordinary = exercise.drawn(None)
    return [
        (each["ordinary"], each["variant"])
        if isinstance(each, dict)
        else (filled(each, ordinary), each)
        for each in found
    ]


def of_variant(exercise: Exercise, text: str, language: str, variant: str) -> str:
    """Return a text of an exercise, such as one of its cells, as a variant has it.

    Args:
        exercise: the exercise.
        text: what the notebook says.
        language: of the text.
        variant: its name.
    """
    values = exercise.drawn(variant)
    pairs = [
        (ordinary, filled(place, values))
        for kind in (ANY, language, SOLUTION)
        for ordinary, place in places(exercise, kind)
    ]
    if not pairs:
        return text
    # All at once, so that nothing is replaced twice; the longest first.
    new = dict(pairs) | {in_formula(old): in_formula(said) for old, said in pairs}
    longest = sorted(new, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest)), lambda m: new[m.group()], text)


def in_formula(text: str) -> str:
    """Return a text as a formula has it where decimals have a comma: ``0{,}9``."""
    return re.sub(r"(?<=\d)\.(?=\d)", "{,}", text)


def filled(place: str, values: Mapping[str, Any]) -> str:
    """Return a place with values for the names in braces; other braces stay."""

    def value(found: re.Match) -> str:
        return found.group().format(**values) if found[1] in values else found.group()

    return re.sub(r"\{([a-z_]+)(?:[.\[:][^{}]*)?\}", value, place)
