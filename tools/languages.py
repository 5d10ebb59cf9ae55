"""What depends on a language: its name, number format and punctuation.

``lessons/locale/languages.toml`` has a table for each language, so that adding one
needs no code::

    [es]
    name = "Español"
    numbers.thousands = '[\\u202f\\u00a0]'
    numbers.decimal = ","
    numbers.powers = { millones = 6 }
    written."1,234.5" = "1 234,5"

    [[es.typography]]
    wrong = '\\s[;:!?](?=\\s|$)'
    because = "a space before a punctuation mark"

``written`` has what is written in other ways than in English where code says it: a
number, units behind a number (``"1 GB"``), and the punctuation between parts of a text
(``"; "``). ``thousands``, the names of ``powers`` and ``wrong`` are regular
expressions. ``wrong`` is searched for in a message's prose, where a word joiner,
U+2060, replaces code, formulas and placeholders.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path

LOCALE = "locale"
FILE = "languages.toml"
ENGLISH = "en"

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_KNOWN = {"name", "numbers", "typography", "written"}


@dataclass(frozen=True)
class Rule:
    """A rule of punctuation.

    Attributes:
        wrong: matches what must not be in a message's prose.
        because: what is wrong with it.
    """

    wrong: re.Pattern
    because: str

    def problems(self, prose: Sequence[str]) -> Iterator[str]:
        """Yield each violation of the rule.

        Args:
            prose: a text for each block of the message.
        """
        for text in prose:
            for match in self.wrong.finditer(text):
                around = text[max(0, match.start() - 15) : match.end() + 15]
                yield f"{self.because}: …{' '.join(around.split())}…"


@dataclass(frozen=True)
class Language:
    """A language of the lessons.

    Attributes:
        code: such as ``fr``.
        name: its own name for itself.
        thousands: matches the thousands separator.
        decimal: the decimal separator.
        powers: powers of ten, by the words for them that follow a number.
        written: a number, units and punctuation, by how English writes them.
        rules: its rules of punctuation.
    """

    code: str
    name: str
    thousands: str = ","
    decimal: str = "."
    powers: Mapping[str, int] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()

    def with_english_numbers(self, text: str) -> str:
        """Return a text with its numbers as in English, but without separators."""
        text = text.replace("\u2060", "")  # see d2l_gpu.common.quantities
        text = re.sub(rf"(?<=\d)(?:{self.thousands})(?=\d{{3}}(?!\d))", "", text)
        return re.sub(rf"(?<=\d){re.escape(self.decimal)}(?=\d)", ".", text)

    def numbers(self, prose: str) -> Counter:
        """Return the numbers in a text, in English format without separators."""
        prose = self.with_english_numbers(prose)
        for word, power in self.powers.items():
            in_words = rf"(\d+(?:\.\d+)?)\s?(?:{word})"
            prose = re.sub(in_words, partial(_in_digits, power), prose)
        return Counter(_NUMBER.findall(prose))


def _in_digits(power: int, found: re.Match) -> str:
    return f"{Decimal(found[1]).scaleb(power):f}"


def read_languages(lessons: Path) -> dict[str, Language]:
    """Return a project's languages by code, English first.

    Args:
        lessons: the folder of the sources.

    Raises:
        ValueError: the file can't be parsed, or a table is wrong.
    """
    found = {ENGLISH: Language(ENGLISH, "English")}
    path = lessons / LOCALE / FILE
    if not path.is_file():
        return found
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        for code, table in tables.items():
            found[code] = _language(code, table)
    except (tomllib.TOMLDecodeError, TypeError, KeyError, re.error) as error:
        raise ValueError(f"{LOCALE}/{FILE}: {error}") from None
    return found


def _language(code: str, table: dict) -> Language:
    """Return the language that a table of the file describes.

    Raises:
        TypeError, KeyError, re.error: the table is wrong.
    """
    if not isinstance(table, dict) or "name" not in table or set(table) - _KNOWN:
        raise TypeError(
            f"{code} must be a table with a name, and with numbers and typography "
            "where they differ from English"
        )
    rules = table.get("typography", ())
    return Language(
        code,
        table["name"],
        written=table.get("written", {}),
        rules=tuple(Rule(re.compile(each["wrong"]), each["because"]) for each in rules),
        **table.get("numbers", {}),
    )
