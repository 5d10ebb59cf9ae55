"""The words of pictures, tables and reports, which a program may translate.

Everything here is written in English. Where it's shown, it passes through `shown`, so
a program in another language gives `translate_with` a function that translates what it
knows and returns the rest as it is.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unicodedata import east_asian_width

_translate: Callable[[str], str] = str


def translate_with(function: Callable[[str], str]) -> None:
    """Have everything that is shown from now on pass through a function."""
    global _translate
    _translate = function


@contextmanager
def translated_with(function: Callable[[str], str]) -> Iterator[None]:
    """Have everything that is shown meanwhile pass through a function."""
    global _translate
    before, _translate = _translate, function
    try:
        yield
    finally:
        _translate = before


def in_english() -> AbstractContextManager[None]:
    """Show texts as they are meanwhile, where others can't be drawn."""
    return translated_with(str)


def columns(text: str) -> int:
    """Return how many columns a text takes in a font of fixed width."""
    return sum(1 + (east_asian_width(letter) in "WF") for letter in text)


def padded(text: str, width: int, right: bool = False) -> str:
    """Return a text with spaces behind it, or before it, so that it's as wide."""
    spaces = " " * (width - columns(text))
    return spaces + text if right else text + spaces


def sentences(texts: Iterable[str]) -> str:
    """Return texts that aren't empty as sentences, as they're to be shown."""
    return " ".join(f"{shown(text).rstrip('.')}." for text in texts if text)


def shown(text: str, **fields: str) -> str:
    """Return a text as it's to be shown.

    Args:
        text: a finished text, or one with fields, such as ``{low} to {high}``.
        fields: what is in the fields, which is translated, too.
    """
    text = _translate(text)
    its = {name: _translate(field) for name, field in fields.items()}
    return text.format(**its) if its else text
