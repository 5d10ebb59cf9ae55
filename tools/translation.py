"""Translations of the lessons: a message for each cell of prose, in PO files.

``lessons/locale/languages.toml`` names the languages, and ``<language>.po`` beside it
has the messages. The context of a message is its lesson and the key of its cell, so a
changed sentence is a changed message and no new one. A message that is missing, fuzzy
or was made from another English text is not shown: its cell stays English, and says so.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import polib

from d2l_gpu.course.files import write_atomically
from tools.lesson import Cell, Lesson

FOLDER = "locale"
ENGLISH = "en"

# Cells of the header that are appended to one that is not translated.
MISSING, STALE = "notice-missing", "notice-stale"

_PLACEHOLDER = re.compile(r"\$\{\w+\}")
_LETTER = re.compile(r"[^\W\d_]")


@dataclass(frozen=True)
class Message:
    """A cell of prose, to be translated.

    Attributes:
        context: names it for good: ``<lesson>/<key>``, and the frameworks where
            several cells of the lesson have the same key.
        text: in English.
        file: the source of the lesson, relative to the folder of lessons.
    """

    context: str
    text: str
    file: str


def languages(lessons: Path) -> dict[str, str]:
    """Return the languages of the translations, and what they call themselves.

    Args:
        lessons: the folder of the sources.

    Raises:
        ValueError: their list is not one.
    """
    path = lessons / FOLDER / "languages.toml"
    if not path.is_file():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{FOLDER}/{path.name}: {error}") from None


def messages(lessons: Sequence[Lesson]) -> list[Message]:
    """Return all that is to be translated, in the order of the lessons."""
    return [each for lesson in lessons for each in messages_of(lesson, lesson.cells)]


def messages_of(lesson: Lesson, cells: Sequence[Cell]) -> list[Message]:
    """Return what is to be translated of some cells of a lesson."""
    return [_message(lesson, cell) for cell in cells if _is_message(cell)]


def _message(lesson: Lesson, cell: Cell) -> Message:
    return Message(context_of(lesson, cell), cell.source, lesson.path.name)


def _is_message(cell: Cell) -> bool:
    text = _PLACEHOLDER.sub("", cell.source)
    return cell.kind == "markdown" and _LETTER.search(text) is not None


def context_of(lesson: Lesson, cell: Cell) -> str:
    """Return the context of the message that a cell of a lesson is."""
    same = [each for each in lesson.cells if each.key == cell.key]
    name = f"{lesson.name}/{cell.key}"
    if sum(_is_message(each) for each in same) == 1:
        return name
    return f"{name} ({', '.join(cell.frameworks) or 'all'})"


@dataclass(frozen=True)
class Translation:
    """The messages of one language.

    Attributes:
        language: as ``fr``.
        path: of the PO file; it need not be there yet.
    """

    language: str
    path: Path

    @cached_property
    def entries(self) -> dict[str, polib.POEntry]:
        """The messages by their contexts.

        Raises:
            ValueError: the file is no PO file, or a context stands there twice.
        """
        if not self.path.is_file():
            return {}
        try:
            file = polib.pofile(str(self.path), encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{FOLDER}/{self.path.name}: {error}") from None
        found = [entry for entry in file if not entry.obsolete]
        counts = Counter(entry.msgctxt for entry in found)
        if twice := sorted(name or "" for name, n in counts.items() if n > 1):
            where = f"{FOLDER}/{self.path.name}"
            raise ValueError(f"{where}: several messages are {', '.join(twice)}")
        return {entry.msgctxt: entry for entry in found}

    def problem(self, message: Message) -> str:
        """Return `MISSING` or `STALE` if a message cannot be shown, else nothing."""
        entry = self.entries.get(message.context)
        if entry is None or not entry.msgstr.strip():
            return MISSING
        return STALE if entry.fuzzy or entry.msgid != message.text else ""

    def share(self, wanted: Sequence[Message]) -> int:
        """Return how many of a hundred messages are translated, rounded down."""
        done = sum(not self.problem(message) for message in wanted)
        return 100 * done // len(wanted) if wanted else 100

    def translated(self, lesson: Lesson, header: Lesson | None) -> Lesson:
        """Return a lesson in this language, English where it is not translated.

        Args:
            lesson: in English.
            header: has the notices for cells that stay English; None: no notices.
        """
        notices = {}
        for cell in header.cells if header is not None else ():
            if cell.key in (MISSING, STALE):
                own = _message(header, cell)
                known = not self.problem(own)
                text = self.entries[own.context].msgstr if known else cell.source
                notices[cell.key] = f"\n\n{text}"
        cells = [self._cell(lesson, cell, notices) for cell in lesson.cells]
        return replace(lesson, cells=cells)

    def _cell(self, lesson: Lesson, cell: Cell, notices: dict[str, str]) -> Cell:
        if not _is_message(cell):
            return cell
        message = _message(lesson, cell)
        if problem := self.problem(message):
            return replace(cell, source=cell.source + notices.get(problem, ""))
        return replace(cell, source=self.entries[message.context].msgstr)

    def merged(self, wanted: Sequence[Message]) -> polib.POFile:
        """Return the PO file with exactly these messages, in order.

        A message whose English has changed becomes fuzzy and keeps the text that it was
        translated from. One that has a new context keeps its translation. Those that
        nobody wants any more stay at the end, as obsolete ones.
        """
        merged = polib.POFile(wrapwidth=0)
        merged.metadata = {
            "Language": self.language,
            "MIME-Version": "1.0",
            "Content-Type": "text/plain; charset=UTF-8",
            "Content-Transfer-Encoding": "8bit",
        }
        contexts = {message.context for message in wanted}
        unused = {
            context: entry
            for context, entry in self.entries.items()
            if context not in contexts
        }
        moved = {entry.msgid: entry for entry in unused.values() if entry.msgstr}
        for message in wanted:
            old = self.entries.get(message.context)
            if old is None and message.text in moved:
                old = moved[message.text]
                unused.pop(old.msgctxt, None)
            merged.append(_entry(message, old))
        for entry in unused.values():
            if entry.msgstr:
                entry.obsolete = True
                merged.append(entry)
        return merged

    def write(self, wanted: Sequence[Message]) -> bool:
        """Bring the file in line with the lessons; return whether it changed."""
        text = str(self.merged(wanted)).rstrip("\n") + "\n"
        if self.path.is_file() and self.path.read_text(encoding="utf-8") == text:
            return False
        write_atomically(self.path, text)
        return True


def _entry(message: Message, old: polib.POEntry | None) -> polib.POEntry:
    entry = polib.POEntry(
        msgctxt=message.context,
        msgid=message.text,
        occurrences=[(f"lessons/{message.file}", "")],
    )
    if old is None:
        return entry
    entry.msgstr, entry.tcomment = old.msgstr, old.tcomment
    if old.msgstr and (old.fuzzy or old.msgid != message.text):
        entry.flags = ["fuzzy"]
        changed = old.msgid != message.text
        entry.previous_msgid = old.previous_msgid or (old.msgid if changed else None)
    return entry


def of_project(lessons: Path) -> Iterator[Translation]:
    """Yield the translations of a project, each with its file.

    Args:
        lessons: the folder of the sources.
    """
    for language in languages(lessons):
        yield Translation(language, lessons / FOLDER / f"{language}.po")
