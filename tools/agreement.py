"""Compare what a notebook puts out in two languages: same values, translated words.

Each language's notebook is executed when it's built, and from then on nothing is, so
that this is how a stale output shows. Numbers must be the same as in English, within
what the cell allows; what the English output says must be said as the catalogue
translates it.
"""

import functools
import itertools
import re
from collections.abc import Iterator, Sequence

from nbformat import NotebookNode

from d2l_gpu.common.messages import FIELD, Catalogue, plain
from tools.languages import ENGLISH, Language
from tools.messages import outputs_of_cell, pairs
from tools.notebook import cells_by_id
from tools.tolerance import numbers, tolerance
from tools.translation import Translation

_WORD = re.compile(r"[^\W\d_]+")
_MARKED = re.compile(r"^( *\[[x ]\] |)(.*)$", re.MULTILINE)  # of the checker
_OTHERWISE = re.compile(r"measured|^<Figure: ")  # on each machine, or in each language
_ENGLISH = Language(ENGLISH, "English")
_SHORT = 3  # words; such a label may occur in somebody else's sentence, too
_BEFORE, _BEHIND = r"(?:^|(?<=  |: |, )|(?<=\())", r"(?=$|  |[:,;.)])"
_GONE = "\ue000"  # in the place of what has been found


def disagreements(
    english: NotebookNode, other: NotebookNode, translation: Translation
) -> Iterator[str]:
    """Yield how a notebook's outputs disagree with the English ones, one line each.

    Args:
        english, other: notebooks of one lesson, of the same source.
        translation: of what code says, into the other's language.
    """
    in_english = cells_by_id(english)
    language = translation.language
    catalogue = tuple(sorted(pairs(translation), key=_weight))
    translated = _catalogue(catalogue, tuple(language.written.items()))
    for cell in other.cells:
        if cell.cell_type != "code" or cell.id not in in_english:
            continue
        texts = [
            "\n".join(outputs_of_cell(each)) for each in (in_english[cell.id], cell)
        ]
        for problem in _of_texts(*texts, cell, catalogue, translated, language):
            yield f"cell {cell.id}: {problem}; build this lesson again"


@functools.lru_cache(8)
def _catalogue(*messages: tuple[tuple[str, str], ...]) -> Catalogue:
    return Catalogue(dict(itertools.chain(*messages)))


def _of_texts(
    english: str,
    other: str,
    cell: NotebookNode,
    catalogue: Sequence[tuple[str, str]],
    translated: Catalogue,
    language: Language,
) -> Iterator[str]:
    tags = cell.metadata.get("tags", [])
    if "nbval-ignore-output" not in tags:
        percent = tolerance(tags) or 0
        # In the other language's own way to write them, where a message has numbers.
        wanted = "\n".join(
            mark + translated.localized(said) for mark, said in _MARKED.findall(english)
        )
        its = sorted(_numbers(other, english, language))
        # Not everything that is printed is written anew: what looks like code isn't.
        meant = sorted(_numbers(wanted, english, language))
        same = sorted(_numbers(english, english, _ENGLISH))
        if len(its) not in (len(meant), len(same)):
            yield f"{len(its)} numbers instead of {len(meant)}"
        elif not (_near(its, meant, percent) or _near(its, same, percent)):
            yield "other numbers than in English"
    for message, its in _said(english, catalogue):
        wanted = _WORD.findall(FIELD.sub(" ", its))
        # A short text may be part of a name or of code that's shown.
        telling = len(_WORD.findall(FIELD.split(message)[0])) > 1
        if telling and not all(word in other for word in wanted):
            yield f"“{message}” isn't translated as “{its}”"
            return


def _near(found: Sequence[float], wanted: Sequence[float], percent: float) -> bool:
    return len(found) == len(wanted) and all(
        abs(a - b) <= abs(a) * percent / 100 for a, b in zip(wanted, found, strict=True)
    )


def _numbers(text: str, english: str, language: Language) -> list[float]:
    """Return the numbers of a text, without those that are measured on each machine.

    Args:
        text: in some language.
        english: the same, line by line.
        language: in which the text is.
    """
    lines, originals = text.splitlines(), english.splitlines()
    if len(lines) == len(originals):
        pairs = zip(lines, originals, strict=True)
        lines = [line for line, original in pairs if not _OTHERWISE.search(original)]
    return list(numbers(language.with_english_numbers("\n".join(lines))))


def _said(text: str, catalogue: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the messages that a text consists of, with their translations.

    Args:
        text: what a cell puts out in English.
        catalogue: the messages, with the longest first.

    What has been found is no part of a shorter one, but its fields may contain others.
    """
    for message, its in catalogue:
        if _longest(message) in text and (found := _pattern(message)).search(text):
            text = found.sub(lambda match: _GONE.join(("", *match.groups(), "")), text)
            yield message, its


@functools.cache
def _longest(message: str) -> str:
    return max(map(plain, FIELD.split(message.strip())[::2]), key=len)


@functools.cache
def _pattern(message: str) -> re.Pattern:
    pieces = list(map(plain, FIELD.split(message.strip())[::2]))
    pattern = r"([^\n]*?)".join(map(re.escape, pieces))
    if len(pieces) == 1 and len(message.split()) <= _SHORT:
        behind = r"(?=\s|$)" if message.endswith(":") else _BEHIND
        return re.compile(_BEFORE + pattern + behind, re.MULTILINE)
    return re.compile(rf"(?<!\w){pattern}(?!\w)")


def _weight(pair: tuple[str, str]) -> int:
    return -sum(map(len, FIELD.split(pair[0])[::2]))
