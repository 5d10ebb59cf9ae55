"""Outputs whose numbers differ from machine to machine, compared number by number.

A cell tagged ``approx`` may put out numbers up to 10 % from those committed, one tagged
``approx-50`` up to 50 %, or whatever is named. Everything else compares exactly: the
words, how many numbers there are, and the units behind them. Only the white space
beside a number, and the length of a rule below a table's heading, may follow its width.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from nbformat import NotebookNode

USUAL = 10  # per cent, of a cell tagged `approx`
MOST = 50  # per cent; beyond that, a number says too little

_TAG = re.compile(r"approx(?:-([1-9]\d?))?")

# A number is no part of a word (float32, V100), of a version (2.13.0) or of the name of
# a device (cuda:1), all of which compare exactly. A minus is a sign unless it stands
# between two numbers.
_NUMBER = re.compile(
    r"""
    (?<![\w.]) (?<![cg]pu:)
    (?P<sign> (?<![\w)\].]) [-−] )?
    (?P<digits> (?> \d{1,3} (?: ,\d{3} )+ (?![\d,]) | \d+ ) (?> \.\d* )? )
    (?P<exponent> [eE] [-+]? \d+ )?
    (?! \.?\d )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_RULE = re.compile(r"([-=─━])\1{2,}")


def tolerance(tags: Iterable[str]) -> int | None:
    """Return how many per cent numbers may differ by; None if not at all.

    Args:
        tags: of a cell.

    Raises:
        ValueError: a tag that allows more than `MOST` per cent.
    """
    for tag in tags:
        if match := _TAG.fullmatch(tag):
            percent = int(match[1] or USUAL)
            if percent > MOST:
                raise ValueError(f"{tag} is looser than {MOST} %, the most there is")
            return percent
    return None


def is_tolerance(tag: str) -> bool:
    """Return whether a tag is one of these, whatever it allows."""
    return _TAG.fullmatch(tag) is not None


def deviations(new: str, old: str, percent: float) -> Iterator[str]:
    """Yield what in a text is too far from another one, a sentence each.

    Args:
        new: what a cell put out.
        old: what it put out when it was committed.
        percent: by how much a number may differ from the committed one.
    """
    if _masked(new) != _masked(old):
        yield "more than the numbers differs"
        return
    for one, other in zip(_numbers(new), _numbers(old), strict=True):
        a, b = _value(one), _value(other)
        if not abs(a - b) <= abs(b) * percent / 100:
            yield f"{one[0]} is more than {percent} % from {other[0]}"


def _masked(text: str) -> str:
    text = _RULE.sub(r"\1", _NUMBER.sub("\ue000", text))
    text = re.sub("[ \t]*\ue000[ \t]*", "\ue000", text)
    # What a wider number pushed aside: columns, and spaces at the end of a line.
    return re.sub(r"[ \t]+", " ", re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE))


def _numbers(text: str) -> list[re.Match]:
    return list(_NUMBER.finditer(text))


def _value(number: re.Match) -> float:
    digits = number["digits"].replace(",", "") + (number["exponent"] or "")
    return -float(digits) if number["sign"] else float(digits)


def settled(
    new: Sequence[NotebookNode],
    old: Sequence[NotebookNode],
    percent: float,
    sanitize: Callable[[str], str],
) -> tuple[list[NotebookNode], list[str]]:
    """Return outputs with committed texts in place of those that are near enough.

    Whoever compares the two afterwards finds the rest.

    Args:
        new: what a cell put out, its streams joined.
        old: what it put out when it was committed, likewise.
        percent: by how much a number may differ from the committed one.
        sanitize: makes equal what may differ between machines in any cell.

    Returns:
        The outputs, and what is wrong with those that are not near enough.
    """
    found, wrong = [], []
    for one, other in zip(new, old, strict=False):
        one = NotebookNode(one)
        if one.output_type == "stream" and one.name == other.get("name"):
            one.text = _near(one.text, other.text, percent, sanitize, wrong)
        elif "data" in one and "data" in other:
            one.data = NotebookNode(one.data)
            for mime, text in one.data.items():
                before = other.data.get(mime)
                if isinstance(text, str) and isinstance(before, str):
                    kept = _near(text, before, percent, sanitize, wrong)
                    one.data[mime] = kept
        found.append(one)
    return [*found, *new[len(found) :]], wrong


def _near(
    new: str,
    old: str,
    percent: float,
    sanitize: Callable[[str], str],
    wrong: list[str],
) -> str:
    problems = list(deviations(sanitize(new), sanitize(old), percent))
    wrong += problems
    return new if problems else old
