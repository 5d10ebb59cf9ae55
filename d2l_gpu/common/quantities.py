"""Numbers and units as a language writes them, such as ``1 234,5 Go`` in French.

Numbers arise as English writes them. They are written anew in what is translated and in
tables and pictures, never in what a program of the reader's prints by itself.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

SAMPLE = "1,234.5"
"""The message whose translation shows how a language writes numbers; ``1 GB`` shows how
it writes a unit."""

_NUMBER = re.compile(
    r"""
    (?<! [\w.,\u2060] )
    (?P<number> (?! 0\d )
        (?: [1-9]\d{0,2} (?: ,\d{3} )+ | \d+ ) (?: \.\d+ )? )
    (?! [.,\u2060]?\d ) (?P<unit> \ ?% | \ [^\W\d_]+ (?: /s )? )?
    (?! [\w/] | \ \d+[BM]\b )  # Llama 3.1 8B is a name
    """,
    re.VERBOSE,
)
_SIGN = re.compile(r"[-+−±≈~<>≤≥×]? ?")
_CODE = re.compile(r"[\[\]{}=_`\"'\\]")
# A comma or point before three digits might be taken for the English one when a text is
# translated that contains this one: an invisible word joiner tells them apart.
_AMBIGUOUS = re.compile(r"(?<=\d[.,])(?=\d{3}(?!\d))")
_JOINER = "\u2060"


def is_sample(message: str) -> bool:
    """Return whether a message shows how numbers or a unit are written."""
    return bool(re.fullmatch(rf"{re.escape(SAMPLE)}|1%|1 [^\W\d_]+(?:/s)?", message))


@dataclass(frozen=True)
class Style:
    """How a language writes numbers.

    Attributes:
        thousands, decimal: the separators.
        units: what stands behind a number in place of an English unit, which has a
            space before it unless it's ``%``.
    """

    thousands: str = ","
    decimal: str = "."
    units: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, messages: Mapping[str, str]) -> "Style":
        """Return the style that a catalogue's messages show."""
        units = {
            english[1:]: its[1:]
            for english, its in messages.items()
            if is_sample(english) and english != SAMPLE
        }
        sample = messages.get(SAMPLE, SAMPLE)
        return cls(sample[1:-5], sample[-2], units)

    def written(self, text: str) -> str:
        """Return a text with its numbers and their units as the language writes them.

        What looks like code is left alone, and so are versions, such as 2.13.0.
        """
        if (self._is_english and not self.units) or _CODE.search(text):
            return text
        return _NUMBER.sub(self._anew, text)

    @property
    def _is_english(self) -> bool:
        return (self.thousands, self.decimal) == (",", ".")

    def _anew(self, found: re.Match) -> str:
        whole, point, part = found["number"].partition(".")
        text = whole.replace(",", self.thousands)
        text += self.decimal + part if point else ""
        unit = found["unit"] or ""
        if whole != "0" and not self._is_english:
            text = _AMBIGUOUS.sub(_JOINER, text)
        return text + self.units.get(unit, unit)


def is_number(text: str) -> bool:
    """Return whether a text is a number, with or without a unit."""
    return _NUMBER.fullmatch(_SIGN.sub("", text, count=1)) is not None
