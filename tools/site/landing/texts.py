"""The words of the landing page, and how a language writes numbers and times."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from d2l_gpu.vgpu.sim.units import time_text
from tools.languages import ENGLISH
from tools.site.book import words

_TEXTS = Path(__file__).with_name("texts.toml")
_NO_BREAK = "\N{NO-BREAK SPACE}"


@cache
def _tables() -> dict[str, dict[str, Any]]:
    return tomllib.loads(_TEXTS.read_text("utf-8"))


@dataclass(frozen=True)
class Texts:
    """The texts in a language; what it lacks is in English.

    Attributes:
        language: its code.
    """

    language: str

    def __getitem__(self, name: str) -> str:
        own = words(self.language) | _tables().get(self.language, {})
        return own.get(name) or _tables()[ENGLISH][name]

    def name(self, network: str) -> str:
        """Return what a network is called."""
        return (
            _tables().get(self.language, {}).get("networks", {}).get(network, network)
        )

    def number(self, value: float, digits: int = 0) -> str:
        """Return a number with so many digits after its decimal mark."""
        return self.marked(f"{value:,.{digits}f}")

    def percent(self, share: float, sign: bool = False) -> str:
        """Return a share as a percentage.

        Args:
            share: 0.12 for 12 %.
            sign: whether to write a plus sign, too.
        """
        number = f"{abs(share) * 100:.0f}"
        mark = ""
        if number != "0":
            mark = "\N{MINUS SIGN}" if share < 0 else "+" * sign
        return f"{mark}{number}{self['percent']}"

    def time(self, seconds: float) -> str:
        """Return a time with three digits and its unit."""
        return self.marked(time_text(seconds))

    def marked(self, text: str) -> str:
        """Return an English number, perhaps with a unit, as the language writes it."""
        marks = {",": self["thousands"], ".": self["decimal"], " ": _NO_BREAK}
        return "".join(marks.get(letter, letter) for letter in text)
