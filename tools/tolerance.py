"""Compare outputs whose numbers differ between machines, number by number.

In a cell tagged ``approx``, numbers may differ from the committed ones by up to 10 %;
with ``approx-50``, by up to 50 %, and so on. Everything else must be identical: the
words, how many numbers there are, and their units. Only the white space around a
number, and the length of a rule below a table's heading, may change with its width.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from nbformat import NotebookNode

USUAL = 10  # per cent, for a cell tagged `approx`
MOST = 50  # per cent; a looser comparison would mean too little

_TAG = re.compile(r"approx(?:-([1-9]\d?))?")

# Numbers in words (float32, V100), versions (2.13.0) and device names (cuda:1) don't
# count; those are compared exactly. A minus is a sign unless it follows a word, a
# number or a closing bracket.
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
    """Return the tolerance that a cell's tags set, in per cent; None if they set none.

    Args:
        tags: the cell's tags.

    Raises:
        ValueError: a tag allows more than `MOST` per cent.
    """
    for tag in tags:
        if match := _TAG.fullmatch(tag):
            percent = int(match[1] or USUAL)
            if percent > MOST:
                raise ValueError(f"{tag} is looser than the maximum, {MOST} %")
            return percent
    return None


def is_tolerance(tag: str) -> bool:
    """Return whether a tag sets a tolerance, valid or not."""
    return _TAG.fullmatch(tag) is not None


def deviations(new: str, old: str, percent: float) -> Iterator[str]:
    """Yield the deviations of a text that exceed the tolerance, one sentence each.

    Args:
        new: the new output.
        old: the committed output.
        percent: the tolerance, relative to the committed number.
    """
    if _masked(new) != _masked(old):
        yield "more than the numbers differ"
        return
    for one, other in zip(_numbers(new), _numbers(old), strict=True):
        a, b = _value(one), _value(other)
        if not abs(a - b) <= abs(b) * percent / 100:
            yield f"{one[0]} differs by more than {percent} % from {other[0]}"


def _masked(text: str) -> str:
    text = _RULE.sub(r"\1", _NUMBER.sub("\ue000", text))
    text = re.sub("[ \t]*\ue000[ \t]*", "\ue000", text)
    # What a wider number pushed aside: columns, and spaces at the end of a line.
    return re.sub(r"[ \t]+", " ", re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE))


def numbers(text: str) -> list[float]:
    """Return the numbers in a text, in order."""
    return list(map(_value, _numbers(text)))


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
    """Return outputs in which texts within the tolerance are replaced by the committed.

    Comparing the result with the committed outputs finds the other differences.

    Args:
        new: the cell's new outputs, with streams joined.
        old: its committed outputs, likewise.
        percent: the tolerance, relative to the committed number.
        sanitize: replaces whatever may differ between machines in any cell.

    Returns:
        The outputs, and the deviations that exceed the tolerance.
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
