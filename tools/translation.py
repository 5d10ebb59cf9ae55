"""Translate the lessons with PO files that have one message per paragraph.

``lessons/locale/<language>.po`` has each distinct paragraph once, however many lessons
it occurs in. If a lesson needs a different translation, a second entry has the lesson
as its context, as in ``msgctxt "jax/03_copying"``. If a message is missing or fuzzy,
its paragraph stays in English, with a notice in the cell.
"""

import re
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import Path

import polib

from d2l_gpu.common.files import write_atomically
from tools.languages import ENGLISH, Language
from tools.lesson import Cell, Lesson
from tools.paragraphs import paragraphs, replaced

# Keys of the header's notices for cells that aren't fully translated.
MISSING, STALE = "notice-missing", "notice-stale"

# How similar a changed paragraph must be to an old one to inherit its translation
# (1: identical). gettext uses the same threshold.
_ALIKE = 0.6

_PLACEHOLDER = re.compile(r"\$\{\w+\}")
_LETTER = re.compile(r"[^\W\d_]")


@dataclass(frozen=True)
class Message:
    """A paragraph to translate.

    Attributes:
        text: the English text.
        places: the lessons that contain it, such as ``pytorch/03_copying``.
        line: the line where it begins in the first of them.
    """

    text: str
    places: tuple[str, ...] = ()
    line: int = 0

    def __str__(self) -> str:
        words = " ".join(self.text.split())
        begins = words if len(words) <= 50 else f"{words[:49]}…"
        return f"{file_of(self.places[0])}:{self.line} “{begins}”"


def place_of(lesson: Lesson) -> str:
    """Return a lesson's name in the PO files."""
    return lesson.label.removesuffix(".md")


def file_of(place: str) -> str:
    """Return the path of the file that a name stands for."""
    if place.endswith((".py", ".j2")):  # of the package
        return place
    whole = place.endswith((".toml", ".svg"))
    return f"lessons/{place}" if whole else f"lessons/{place}.md"


def messages(lessons: Sequence[Lesson]) -> list[Message]:
    """Return all messages to translate, in the order of the lessons."""
    found: dict[str, Message] = {}
    for lesson in lessons:
        place = place_of(lesson)
        for line, text in texts_of(lesson.cells):
            known = found.get(text)
            if known is None:
                found[text] = Message(text, (place,), line)
            elif place not in known.places:
                found[text] = replace(known, places=(*known.places, place))
    return list(found.values())


def texts_of(cells: Sequence[Cell]) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs to translate in some cells, as pairs of line and text."""
    for cell in cells:
        if cell.kind == "markdown":
            for each in paragraphs(cell.source):
                if _is_message(each.text):
                    yield cell.line + each.begin, each.text


def _is_message(text: str) -> bool:
    return _LETTER.search(_PLACEHOLDER.sub("", text)) is not None


def key_of(entry: polib.POEntry) -> tuple[str, str]:
    """Return an entry's context, empty if it has none, and its English text."""
    return entry.msgctxt or "", entry.msgid


@dataclass(frozen=True)
class Translation:
    """The translation into one language.

    Attributes:
        language: the language.
        path: the PO file, which need not exist yet.
        wanted: all messages to translate.
    """

    language: Language
    path: Path
    wanted: Sequence[Message] = ()

    @cached_property
    def file(self) -> list[polib.POEntry]:
        """The entries in the file; empty if there is no file.

        Raises:
            ValueError: the file can't be parsed, or has an entry twice.
        """
        if not self.path.is_file():
            return []
        where = f"{self.path.parent.name}/{self.path.name}"
        try:
            found = list(polib.pofile(str(self.path), encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{where}: {error}") from None
        seen = set()
        for entry in found:
            if entry.obsolete:
                continue
            if key_of(entry) in seen:
                raise ValueError(f"{where}: two entries translate {entry.msgid!r}")
            seen.add(key_of(entry))
        return found

    @cached_property
    def entries(self) -> dict[tuple[str, str], polib.POEntry]:
        """The entries for the wanted messages, by context and English text.

        These are the merged entries, which may differ from those in the file.
        """
        return {key_of(entry): entry for entry in self.merged() if not entry.obsolete}

    def entry(self, text: str, place: str = "") -> polib.POEntry | None:
        """Return the entry for a paragraph of a lesson; None if there is none."""
        return self.entries.get((place, text)) or self.entries.get(("", text))

    def problem(self, text: str, place: str = "") -> str:
        """Return `MISSING` or `STALE` if a paragraph stays in English, else empty."""
        entry = self.entry(text, place)
        if entry is None or not entry.msgstr.strip():
            return MISSING
        return STALE if entry.fuzzy else ""

    def of_text(self, text: str) -> str:
        """Return a text's translation, which has no fields; English if it has none."""
        message = text.replace("{", "{{").replace("}", "}}")
        if self.problem(message):
            return text
        return self.entry(message).msgstr.replace("{{", "{").replace("}}", "}")

    def share(self, texts: Sequence[str], place: str = "") -> int:
        """Return the percentage of paragraphs that are translated, rounded down."""
        done = sum(not self.problem(text, place) for text in texts)
        return 100 * done // len(texts) if texts else 100

    def translated(self, lesson: Lesson, header: Lesson | None) -> Lesson:
        """Return a lesson in this language; English where it isn't translated.

        Args:
            lesson: the lesson in English.
            header: the header, with the notices for cells that aren't fully translated;
                None for no notices.
        """
        place = place_of(lesson)
        notices = {
            cell.key: self._text(cell.source, place_of(header))
            for cell in (header.cells if header is not None else ())
            if cell.key in (MISSING, STALE)
        }
        cells = [self._cell(cell, place, notices) for cell in lesson.cells]
        return replace(lesson, cells=cells)

    def _text(self, source: str, place: str) -> str:
        def translate(text: str) -> str:
            if not _is_message(text) or self.problem(text, place):
                return text
            return self.entry(text, place).msgstr

        return replaced(source, translate)

    def _cell(self, cell: Cell, place: str, notices: dict[str, str]) -> Cell:
        if cell.kind != "markdown":
            return cell
        parts = [self._text(cell.source, place)]
        problems = {self.problem(text, place) for _, text in texts_of([cell])}
        for each in STALE, MISSING:
            if each in problems and each in notices:
                parts.append(notices[each])
                break
        return replace(cell, source="\n\n".join(parts))

    def merged(self) -> polib.POFile:
        """Return the PO file with exactly the wanted messages, in order.

        Entries whose English text has changed become fuzzy, and keep the text that they
        were translated from. Unused ones become obsolete and move to the end; they come
        back if their text does.
        """
        merged = polib.POFile(wrapwidth=0)
        merged.metadata = {
            "Language": self.language.code,
            "MIME-Version": "1.0",
            "Content-Type": "text/plain; charset=UTF-8",
            "Content-Transfer-Encoding": "8bit",
        }
        # Active entries last, so that they override obsolete ones.
        there = sorted(self.file, key=lambda entry: not entry.obsolete)
        old = {key_of(entry): entry for entry in there}
        kept = {
            key
            for message in self.wanted
            for key in [("", message.text), *_contexts(message, old)]
        }
        unused = {
            key: entry for key, entry in old.items() if key not in kept and entry.msgstr
        }
        for message in self.wanted:
            for key in [("", message.text), *_contexts(message, old)]:
                merged.append(_entry(message, key, old.get(key)))
        changed = {key: entry for key, entry in unused.items() if not entry.obsolete}
        for entry in merged:
            if not entry.msgstr and not entry.msgctxt:
                unused.pop(_take_nearest(entry, changed), None)
        for old_entry in unused.values():
            entry = copy(old_entry)
            entry.obsolete = True
            merged.append(entry)
        return merged

    def write(self) -> bool:
        """Bring the file up to date with the lessons; return whether it changed."""
        text = str(self.merged()).rstrip("\n") + "\n"
        if self.path.is_file() and self.path.read_text(encoding="utf-8") == text:
            return False
        write_atomically(self.path, text)
        return True


def _contexts(
    message: Message, old: dict[tuple[str, str], polib.POEntry]
) -> list[tuple[str, str]]:
    """Return the keys of a message's entries that are specific to one lesson."""
    keys = [(place, message.text) for place in message.places]
    return [key for key in keys if key in old]


def _entry(
    message: Message, key: tuple[str, str], old: polib.POEntry | None
) -> polib.POEntry:
    context, text = key
    entry = polib.POEntry(
        msgctxt=context or None,
        msgid=text,
        occurrences=[(file_of(place), "") for place in message.places],
    )
    if old is not None:
        entry.msgstr, entry.tcomment = old.msgstr, old.tcomment
        if old.fuzzy and old.msgstr:
            entry.flags, entry.previous_msgid = ["fuzzy"], old.previous_msgid
    return entry


def _take_nearest(
    entry: polib.POEntry, changed: dict[tuple[str, str], polib.POEntry]
) -> tuple[str, str] | None:
    """Give an entry the translation of the most similar text that is gone.

    Only compares texts of the same lessons: comparing all pairs would take minutes
    after a rewrite of the whole course.

    Args:
        entry: an entry without a translation.
        changed: translations whose English text is gone; the chosen one is removed.

    Returns:
        The key of the chosen translation; None if none is similar enough.
    """
    best, score = None, _ALIKE
    for key, old in changed.items():
        if not set(old.occurrences) & set(entry.occurrences):
            continue
        matcher = SequenceMatcher(None, old.msgid, entry.msgid, autojunk=False)
        if matcher.real_quick_ratio() > score and matcher.quick_ratio() > score:
            ratio = matcher.ratio()
            if ratio > score:
                best, score = key, ratio
    if best is not None:
        old = changed.pop(best)
        entry.msgstr, entry.tcomment = old.msgstr, old.tcomment
        # The text it was translated from, however often the English has changed since.
        before = (old.fuzzy and old.previous_msgid) or old.msgid
        if before != entry.msgid:
            entry.flags, entry.previous_msgid = ["fuzzy"], before
    return best


def translations_in(
    folder: Path, languages: Sequence[Language], wanted: Sequence[Message]
) -> dict[str, Translation]:
    """Return translations by language code, one for each language but English.

    Args:
        folder: the folder of their PO files.
        languages: the project's languages.
        wanted: all messages to translate.
    """
    return {
        language.code: Translation(language, folder / f"{language.code}.po", wanted)
        for language in languages
        if language.code != ENGLISH
    }
