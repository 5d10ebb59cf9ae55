"""A variant's name, and what it draws for an exercise.

A teacher's *seed* makes a *variant*, the seed's digest of eight digits, which is what
the students' notebooks contain. So a student who has the notebook doesn't have the seed
with which ``d2l-gpu variant`` would write the key.
"""

import hashlib
import os
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from d2l_gpu.common.settings import VARIANT

FRAMEWORK = "pytorch"
"""The framework whose exercises have variants."""

_FORM = re.compile(r"[0-9a-f]{8}", re.ASCII)


def variant_of(seed: str) -> str:
    """Return the variant that a seed makes, such as ``'3f9a1c72'``.

    Args:
        seed: any text.
    Raises:
        ValueError: it's empty.
    """
    if not seed.strip():
        raise ValueError("the seed is empty; use a text that your students don't know")
    return hashlib.sha256(f"d2l_gpu variant {seed}".encode()).hexdigest()[:8]


def checked(variant: Any) -> str:
    """Return a variant.

    Raises:
        ValueError: it isn't one.
    """
    if not isinstance(variant, str) or not _FORM.fullmatch(variant):
        raise ValueError(
            f"A variant is a string of eight digits from 0 to f, but got {variant!r}. "
            "Copy it from the notebook that you were given."
        )
    return variant


def current(framework: str) -> str | None:
    """Return the variant that this process's environment names; None for none.

    Args:
        framework: the framework's tag; only PyTorch's exercises have variants.
    Raises:
        ValueError: ``D2L_GPU_VARIANT`` is no variant.
    """
    chosen = os.environ.get(VARIANT, "").strip()
    return checked(chosen) if chosen and framework == FRAMEWORK else None


def choose(variant: str | None) -> None:
    """Let this process, and those that it starts, check exercises by a variant.

    Args:
        variant: its name; None for the ordinary exercises.
    Raises:
        ValueError: it's no variant.
    """
    if variant is None:
        os.environ.pop(VARIANT, None)
    else:
        os.environ[VARIANT] = checked(variant)


class Draw:
    """Random numbers that depend on a text only, not on the machine or the Python.

    Of the methods of `random.Random`, Python promises only for ``random`` that it
    returns the same numbers in all versions.
    """

    def __init__(self, text: str):
        self._random = random.Random(hashlib.sha256(text.encode()).digest()).random

    def number(self, low: float, high: float) -> float:
        """Return a number from `low` to `high`."""
        return low + (high - low) * self._random()

    def integer(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`, which may be either."""
        return low + int(self._random() * (high - low + 1))

    def choice(self, among: Sequence[Any]) -> Any:
        """Return one of a sequence."""
        return among[self.integer(0, len(among) - 1)]

    def sample(self, among: Sequence[Any], k: int) -> list[Any]:
        """Return k of a sequence, each at most once, in any order."""
        left = list(among)
        return [left.pop(self.integer(0, len(left) - 1)) for _ in range(k)]


@dataclass(frozen=True)
class Vary:
    """Something that a variant changes.

    Attributes:
        ordinary: its value without a variant.
        draw: returns its value in a variant; plain data, as `records` has it.
    """

    ordinary: Any
    draw: Callable[[Draw], Any]


def one_of(ordinary: Any, *others: Any) -> Vary:
    """Return what is one of `others` in a variant."""
    return Vary(ordinary, lambda draw: draw.choice(others))


def seeds(ordinary: int = 0) -> Vary:
    """Return a seed for an experiment's data."""
    return Vary(ordinary, lambda draw: draw.integer(1000, 999_999))


def drawn(
    number: str, vary: Mapping[str, Vary], variant: str | None = None
) -> dict[str, Any]:
    """Return what a grader gets: the ordinary values, or those of a variant.

    Args:
        number: the exercise; two exercises of a variant draw independently.
        vary: what varies, by name; each name is drawn independently of the others.
        variant: its name; None for the ordinary exercise.
    """
    if variant is None:
        return {name: each.ordinary for name, each in vary.items()}
    return {
        name: each.draw(Draw(f"{variant} {number} {name}"))
        for name, each in vary.items()
    }
