"""What the package says, in the reader's language.

Texts are written in English where they arise, and translated where they're shown:
``localized`` looks a finished text up in the catalogue of the reader's language. So a
grader may run in another process, and a record of what it said can be read in any
language.

A message of the catalogue may have fields, as in ``{copies} copies took {time}``. It
stands for all texts that have something there, and its fields are translated in turn,
numbers too, except those whose names end with an underscore, which contain code.
The catalogues are gettext's, ``d2l_gpu/locale/<language>.mo``; ``tools.messages`` makes
them from the code and from the translations.
"""

import builtins
import functools
import itertools
import os
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unicodedata import east_asian_width

from d2l_gpu.common.alignment import aligned
from d2l_gpu.common.quantities import Style, is_number
from d2l_gpu.common.settings import LANGUAGE, spoken_languages

FOLDER = Path(__file__).resolve().parents[1] / "locale"

FIELD = re.compile(r"\{(\w+)\}")
"""A field of a message; braces that stand for themselves are doubled."""

_print = builtins.print  # which `d2l_gpu.common.speaking` replaces
_LETTER = re.compile(r"[^\W\d_]")
_LETTERS, _WEIGHT = 4, 12
_ITEM, _PART, _COLON, _SENTENCE = ", ", "; ", ": ", r"(?<=[.?!]) "
# Fields with numbers that aren't quantities: of exercises and versions, say.
_VERBATIM = re.compile(r"\w+_|(\w+_)?(number|version|python|path|shape)s?\d*")
_GAP = re.compile(r"( {2,})")
_BETWEEN = re.compile(r"(, |: | and | or )")
# What a field may contain: nothing that ends a column, an item or a sentence.
_NO_COLUMN = r"(?:(?<![.?! ]) |[,:](?! )|[^\n;,: ])"
_NO_ITEM = r"(?:(?<![.?!]) |[,:](?! )|[^\n;,: ])"
_NO_SENTENCE = r"(?:(?<![.?!]) |[^\n; ])"
# Of errors that are shown as a text; they keep their words.
_ERROR = re.compile(
    r"out of memory\.\s+Tried to allocate|Expected all tensors to be"
    r"|Out of memory allocating|holds no parameters, or only some"
)
_NUMERIC = re.compile(r"[-+−±≈(]?\d|–$")  # begins a cell with a number
# Of a function, whose arguments are no labels; not as in Intel(R).
_CALL = re.compile(r"[a-z_]\w*\((?!R\)|TM\))\w")
_WIDE = ("。", "！", "？")  # which no space follows
_TEXTS_KEPT = 4096
_LONGEST = 200  # letters of a text made of labels; a longer one is somebody's prose
_MAGIC = 0x950412DE


def localized(text: str, language: str | None = None, **fields: str) -> str:
    """Return a text in the reader's language; in English if it isn't translated.

    Args:
        text: a text in English, such as a sentence, a label or several lines; or a
            message with fields.
        language: such as ``fr``; by default what ``D2L_GPU_LANGUAGE`` names, or in a
            command what the system speaks.
        fields: what is in the fields.
    """
    catalogue = _catalogue(_chosen() if language is None else language)
    text = catalogue.localized(text) if catalogue else text
    return text.format(**fields) if fields else text


_TAGS = {"pt": "pt-BR", "zh": "zh-CN"}


def language_tag(language: str | None = None) -> str:
    """Return a language as HTML names it, such as ``pt-BR``.

    Args:
        language: such as ``pt``; by default the one of `localized`.
    """
    if language is None:
        language = _chosen() if has_catalogue() else "en"
    return _TAGS.get(language, language)


def shown_text(text: str) -> str:
    """Return what a table or a picture has, in the reader's language.

    Args:
        text: as for `localized`, or a number.
    """
    catalogue = _catalogue(_chosen())
    return catalogue.shown(text) if catalogue else text


def say(*values: Any, **options: Any) -> None:
    """Print values as Python does, but those that are the course's in translation.

    An error keeps its words, by which readers look it up. A number that was formatted
    is written anew beside a text of the course, and in the row of a table.
    """
    said = [x if _is_error(x) else localized(str(x)) for x in values]
    formatted = [isinstance(x, str) and is_number(x.strip()) for x in values]
    known = any(isinstance(x, str) and x not in said for x in values)
    row = len(values) > 2 and formatted == [False, *[True] * (len(values) - 1)]
    if (known or row) and (catalogue := _catalogue(_chosen())):
        for i in itertools.compress(range(len(said)), formatted):
            said[i] = catalogue.style.written(said[i])
    _print(*said, **options)


def tell(text: object) -> None:
    """Print what is in the reader's language already.

    In a second translation, words that look English would be taken for it.
    """
    _print(text)


def _is_error(value: Any) -> bool:
    return isinstance(value, BaseException) or _ERROR.search(str(value)) is not None


def has_catalogue() -> bool:
    """Return whether there is a catalogue of the reader's language."""
    return _catalogue(_chosen()) is not None


def speak_as_the_system() -> None:
    """Use the system's language where ``D2L_GPU_LANGUAGE`` names none.

    For the commands. In a notebook, the language is the notebook's.
    """
    global _of_the_system
    spoken = spoken_languages()
    _of_the_system = next((x for x in spoken if x == "en" or _catalogue(x)), "")


_of_the_system = ""


def _chosen() -> str:
    return os.environ.get(LANGUAGE, "").strip() or _of_the_system


@dataclass(frozen=True)
class _Template:
    """A message with fields.

    Attributes:
        english: the message.
        translation: the same with the same fields, in any order.
    """

    english: str
    translation: str

    @functools.cached_property
    def literal(self) -> str:
        """The longest part between its fields: texts without it can't match."""
        return max(map(plain, FIELD.split(self.english)[::2]), key=len)

    @functools.cached_property
    def weight(self) -> int:
        """How much of it is fixed: of several that match, the heaviest is meant."""
        return sum(map(len, FIELD.split(self.english)[::2]))

    @property
    def begins(self) -> bool:
        """Whether it begins with a word of its own."""
        return len(_LETTER.findall(FIELD.split(self.english)[0])) >= _LETTERS

    def fields(self, text: str, inside: str) -> dict[str, str] | None:
        """Return what a text has in the fields; None if it isn't such a text.

        Args:
            text: the text.
            inside: the pattern of a character that a field may contain.
        """
        if self.literal not in text:
            return None
        # Where a text has columns, a wide gap separates what one space does otherwise.
        for wide in (True, False) if _GAP.search(text) else (False,):
            if found := _pattern(self.english, inside, wide).fullmatch(text):
                return found.groupdict()
        return None

    def filled(self, fields: Mapping[str, str]) -> str:
        """Return the translation with its fields filled in."""
        pieces = FIELD.split(self.translation)
        pieces[::2] = map(plain, pieces[::2])
        pieces[1::2] = [fields[name] for name in pieces[1::2]]
        return "".join(pieces)


@functools.cache
def _pattern(message: str, inside: str, wide: bool) -> re.Pattern:
    pieces, seen = FIELD.split(message), set()
    for i, piece in enumerate(pieces):
        if i % 2 == 0:
            pieces[i] = re.escape(plain(piece))
        elif piece in seen:
            pieces[i] = f"(?P={piece})"
        else:
            spaces = " +" if wide and pieces[i - 1] == r"\ " else " *"
            pieces[i] = f"(?P<{piece}>{spaces}{inside}*?)"
            seen.add(piece)
    return re.compile("".join(pieces))


def is_telling(message: str) -> bool:
    """Return whether a message with fields says enough to be found in a finished text.

    Those that don't, such as ``{low} to {high}``, are looked up before they're filled.
    """
    pieces = FIELD.split(message)
    letters = len(_LETTER.findall("".join(pieces[::2])))
    inside = not (pieces[0] or pieces[-1])  # as in "{what} against {other}"
    weight = sum(map(len, pieces[::2]))
    return letters >= _LETTERS and (not inside or weight >= _WEIGHT)


def plain(literal: str) -> str:
    """Return a part of a message between its fields as it is in a text."""
    return literal.replace("{{", "{").replace("}}", "}")


class Catalogue:
    """The messages of a language.

    Args:
        messages: translations by English text; those with fields in either have the
            same in both.

    Attributes:
        style: how numbers are written.
    """

    def __init__(self, messages: Mapping[str, str]):
        self._exact = {
            plain(english): plain(its)
            for english, its in messages.items()
            if not FIELD.search(english)
        }
        templates = [
            _Template(english, its)
            for english, its in messages.items()
            if FIELD.search(english)
        ]
        self._exact |= {each.english: each.translation for each in templates}
        self.style = Style.of(self._exact)
        telling = [each for each in templates if is_telling(each.english)]
        self._templates = sorted(telling, key=lambda each: -each.weight)
        self._found = functools.lru_cache(_TEXTS_KEPT)(self._translation)

    def localized(self, text: str) -> str:
        """Return a text's translation, or the text."""
        found = self._found(text)
        return text if found is None else aligned(found, text)

    def shown(self, text: str) -> str:
        """Return a text's translation, a number as the language writes it, or the text.

        Where a number stands alone it's clear who wrote it: in tables and pictures.
        """
        found = self.localized(text)
        return self.style.written(text) if found == text and is_number(text) else found

    def _translation(self, text: str) -> str | None:
        """Return a text's translation; None if there is none."""
        if not text or text.isspace():
            return None
        if text in self._exact:
            return self._exact[text]
        bare = text.strip()
        if bare != text:
            found = self._found(bare)
            return found and text.replace(bare, found, 1)
        # A field that may contain anything would swallow what separates two messages,
        # so what it may contain becomes more from one try to the next.
        may_fit = [each for each in self._templates if each.literal in text]
        separating = [each for each in may_fit if _PART in each.english]
        begun = [each for each in may_fit if each.begins]
        return (
            self._filled(text, may_fit, _NO_COLUMN)
            or self._filled(text, may_fit, _NO_ITEM)
            or self._joined(text, "\n", every=False)
            or self._items(text)
            or self._filled(text, may_fit, _NO_SENTENCE)
            or self._joined(text, _PART, every=True)
            or self._sentences(text)
            or self._filled(text, may_fit, "[^\n;]")
            or self._filled(text, separating, "[^\n]")
            or self._filled(text, begun, "[^\n]")
            or self._joined(text, _PART, every=False)
            or self._filled(text, may_fit, "[^\n]")
            or self._with_stop(text)
            or self._with_colon(text)
            or self._joined(text, _SENTENCE, every=False)
            or self._cells(text)
            or self._labels(text)
        )

    def _filled(
        self, text: str, templates: Sequence[_Template], inside: str
    ) -> str | None:
        for template in templates:
            fields = template.fields(text, inside)
            if fields is not None:
                its = {
                    name: field if _VERBATIM.fullmatch(name) else self._part(field)
                    for name, field in fields.items()
                }
                return template.filled(its)
        return None

    def _part(self, text: str) -> str:
        """Return a part of a text that is translated."""
        found = self._found(text)
        return self.style.written(text) if found is None else found

    def _mark(self, text: str) -> str:
        """Return what stands between two parts of a text."""
        return self._exact.get(text, text)

    def _cells(self, text: str) -> str | None:
        """Translate the cells of a line with columns, such as ``one pass  3.1 ms``."""
        parts = _GAP.split(text)
        row = len(parts) > 1 and all(map(_NUMERIC.match, parts[2::2]))
        return self._parts(parts, sure=row)

    def _labels(self, text: str) -> str | None:
        """Translate whole labels in a text that is no sentence, such as ``a, V100``."""
        if len(text) > _LONGEST or text[-1] in ".?!" or _CALL.search(text):
            return None
        parts = _BETWEEN.split(text)
        if len(parts) == 1:
            return None
        for i in range(1, len(parts), 2):
            if parts[i] == _COLON and (found := self._exact.get(f"{parts[i - 1]}:")):
                parts[i - 1 : i + 1] = [found, " "]
        said = {f" {x} ": f" {self._exact.get(x, x)} " for x in ("and", "or")}
        joined = any(part in said for part in parts[1::2])
        names = all(" " not in part for part in parts[::2])
        parts[1::2] = [said.get(each) or self._mark(each) for each in parts[1::2]]
        numbers = all(map(is_number, parts[::2])) and any(" " in x for x in parts[::2])
        return self._parts(parts, sure=(joined and names) or numbers)

    def _parts(self, parts: Sequence[str], sure: bool) -> str | None:
        """Translate parts of a text, between which is what's shown between them.

        Args:
            parts: they and what is between them, in turn.
            sure: whether the text is the course's even if no part is known.
        """
        if len(parts) == 1:
            return None
        found = [self._found(part) for part in parts[::2]]
        if not sure and all(its is None for its in found):
            return None
        said = list(parts)
        for i, its in enumerate(found):
            said[2 * i] = self.style.written(parts[2 * i]) if its is None else its
        return "".join(said)

    def _whole(self, text: str, inside: str) -> str | None:
        """Return the translation of a text that is a single message."""
        return self._exact.get(text) or self._filled(text, self._templates, inside)

    def _items(self, text: str) -> str | None:
        """Translate a list if each of its items is a message."""
        items = text.split(_ITEM)
        said = [self._whole(item, _NO_ITEM) for item in items]
        enough = len(items) > 1 and all(said)
        return self._mark(_ITEM).join(said) if enough else None

    def _sentences(self, text: str) -> str | None:
        """Translate a text's sentences, of which a message may have several."""
        parts = re.split(_SENTENCE, text)
        said, i = "", 0
        if len(parts) == 1:
            return None
        while i < len(parts):
            for j in range(len(parts), i, -1):
                run = " ".join(parts[i:j])
                one = j == i + 1
                found = self._found(run) if one else self._whole(run, _NO_SENTENCE)
                if found:
                    break
            else:
                return None
            said += found if not said or said.endswith(_WIDE) else f" {found}"
            i = j
        return said

    def _with_stop(self, text: str) -> str | None:
        """Translate a text with a full stop by a message without, or the reverse."""
        if not text.endswith("."):
            found = self._whole(f"{text}.", _NO_SENTENCE)
            return found and found.rstrip(".。")
        found = self._found(text[:-1])
        if not found or found[-1] in ".!?。！？":
            return found
        return found + ("。" if east_asian_width(found[-1]) in "WF" else ".")

    def _with_colon(self, text: str) -> str | None:
        """Translate a message before a colon, such as ``tensor and sequence:``."""
        found = self._found(text[:-1]) if text.endswith(":") else None
        return found and found + self._mark(_COLON).rstrip(" ")

    def _joined(self, text: str, by: str, every: bool) -> str | None:
        """Translate a text's parts if any, or ``every`` one, has a translation."""
        parts = re.split(by, text)
        if len(parts) == 1:
            return None
        found = [self._found(part) for part in parts]
        known = [its is not None for its in found]
        if not (all(known) if every else any(known)):
            return None
        pairs = zip(parts, found, strict=True)
        said = [part if its is None else its for part, its in pairs]
        between = [*map(self._mark, re.findall(by, text)), ""]
        return "".join(itertools.chain(*zip(said, between, strict=True)))


@functools.cache
def _catalogue(language: str) -> Catalogue | None:
    path = FOLDER / f"{language}.mo"
    if not language.isalpha() or not path.is_file():
        return None
    return Catalogue(read_mo(path.read_bytes()))


def read_mo(content: bytes) -> dict[str, str]:
    """Return the messages of a compiled catalogue.

    Python's ``gettext`` only looks messages up, and cannot list those that have fields.

    Args:
        content: of a file as GNU gettext describes it, "The Format of GNU MO Files", in
            UTF-8.

    Raises:
        ValueError: it isn't such a file.
    """
    order = next((o for o in "<>" if content[:4] == struct.pack(o + "I", _MAGIC)), "")
    if not order:
        raise ValueError("this is not a compiled catalogue of messages")
    count, *tables = struct.unpack_from(f"{order}3I", content, 8)

    def text(table: int, index: int) -> str:
        size, start = struct.unpack_from(f"{order}2I", content, table + 8 * index)
        return content[start : start + size].decode()

    pairs = ([text(table, i) for table in tables] for i in range(count))
    return {english: its for english, its in pairs if english}
