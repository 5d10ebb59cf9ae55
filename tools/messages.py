"""The texts that readers see beside the prose, for translation, and their catalogues.

They arise in the package, in the files that ``lessons/locale/messages.toml`` lists, and
in the code cells of lessons, if the English notebook puts them out. Their translations
are in ``lessons/locale/messages/<language>.po``, and `compiled` makes the catalogues of
them that `d2l_gpu.common.messages` reads.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
import polib
from nbformat import NotebookNode

from d2l_gpu.common.messages import FIELD, Catalogue, plain
from tools.lesson import Lesson, LessonError
from tools.shown_texts import Text, texts_in
from tools.translation import Message, Translation, place_of

FOLDER = "messages"
SOURCES = "messages.toml"
CATALOGUES = Path("d2l_gpu/locale")

_MAGIC = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)
_GRADERS = "d2l_gpu/exercises/"  # whose tables have texts as keys, too
_HIDDEN = "# For the course's own tests"


@dataclass(frozen=True)
class Sources:
    """Where texts arise in the package.

    Attributes:
        files: patterns of files, from the repository's root.
        errors: patterns of files whose errors readers see as sentences, such as those
            of a command; in a notebook, an error is in English.
        words: texts of a single word there, which otherwise aren't taken for texts.
    """

    files: Sequence[str] = ()
    errors: Sequence[str] = ()
    words: frozenset[str] = frozenset()

    @classmethod
    def read(cls, path: Path) -> "Sources":
        """Read the list of files; empty if there is none.

        Raises:
            ValueError: the file can't be parsed.
        """
        if not path.is_file():
            return cls()
        try:
            table = tomllib.loads(path.read_text("utf-8"))
            lists = (table.pop(each, ()) for each in ("files", "errors"))
            found = cls(*map(tuple, lists), frozenset(table.pop("words", ())))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path.name}: {error}") from None
        if table:
            raise ValueError(f"{path.name}: there is no {', '.join(table)}")
        return found

    def messages(self, root: Path) -> Iterator[Message]:
        """Yield the package's messages.

        Raises:
            ValueError: a pattern matches no file.
        """
        for pattern in (*self.files, *self.errors):
            paths = sorted(root.glob(pattern))
            if not paths:
                raise ValueError(f"{SOURCES}: no file is {pattern}")
            for path in paths:
                place = path.relative_to(root).as_posix()
                code = path.read_text("utf-8")
                if path.suffix == ".j2":
                    yield from _of_template(code, place)
                    continue
                errors = pattern in self.errors
                keys = place.startswith(_GRADERS)
                texts = texts_in(code, keys=keys, errors=errors, words=self.words)
                for text in texts:
                    if " " in text.message.strip() or text.message in self.words:
                        yield Message(text.message, (place,), text.line)


def _of_template(code: str, place: str) -> Iterator[Message]:
    """Yield the messages of a template of Jinja, which marks them."""
    environment = jinja2.Environment(extensions=["jinja2.ext.i18n"])
    for line, _, texts in environment.extract_translations(code):
        for text in [texts] if isinstance(texts, str) else filter(None, texts):
            with_fields = re.sub(r"%\((\w+)\)s", r"{\1}", text)
            yield Message(with_fields, (place,), line)


def of_lesson(lesson: Lesson, notebooks: Iterable[NotebookNode]) -> Iterator[Message]:
    """Yield the messages in the code cells of a lesson.

    Args:
        lesson: the lesson in English.
        notebooks: those built from it in English; if there is one, only texts that it
            puts out are messages.
    """
    put_out = [text for each in notebooks for text in outputs_of(each)]
    for cell in lesson.cells:
        if cell.kind != "code" or cell.source.startswith(_HIDDEN):
            continue
        for text in _texts(cell.source):
            if not put_out or is_put_out(text.message, put_out):
                line = cell.line + text.line - 1
                yield Message(text.message, (place_of(lesson),), line)


def _texts(source: str) -> list[Text]:
    try:
        return list(texts_in(_MAGIC.sub(r"\1pass", source), keys=True))
    except SyntaxError:  # such as a cell that shows one
        return []


def outputs_of(notebook: NotebookNode) -> Iterator[str]:
    """Yield the texts that a notebook puts out."""
    for cell in notebook.cells:
        yield from outputs_of_cell(cell)


def outputs_of_cell(cell: NotebookNode) -> Iterator[str]:
    """Yield the texts that a cell puts out."""
    for output in cell.get("outputs", ()):
        yield output.get("text") or output.get("data", {}).get("text/plain", "")


def is_put_out(message: str, outputs: Sequence[str]) -> bool:
    """Return whether a message occurs in some output."""
    pieces = FIELD.split(message.strip())
    fixed = list(map(plain, pieces[::2]))
    there = [text for text in outputs if max(fixed, key=len) in text]
    pattern = re.compile(".+?".join(map(re.escape, fixed)))
    return any(pattern.search(text) for text in there)


def merged(found: Iterable[Message]) -> list[Message]:
    """Return messages that each occur once, with all of their places."""
    by_text: dict[str, Message] = {}
    for each in found:
        known = by_text.get(each.text, each)
        places = dict.fromkeys((*known.places, *each.places))
        by_text[each.text] = Message(each.text, tuple(places), known.line)
    return list(by_text.values())


def fields_problem(message: str, translation: str) -> str:
    """Say how the fields of a translation differ; empty if they don't."""
    its, wanted = set(FIELD.findall(translation)), set(FIELD.findall(message))
    problems = [f"the field {{{name}}} is missing" for name in sorted(wanted - its)]
    problems += [f"there is no field {{{name}}}" for name in sorted(its - wanted)]
    return "; ".join(problems)


def pairs(translation: Translation) -> list[tuple[str, str]]:
    """Return the messages that are translated so far, with their translations."""
    return [
        (message.text, translation.entry(message.text).msgstr)
        for message in translation.wanted
        if not translation.problem(message.text)
    ]


def _in_code(message: Message) -> bool:
    """Return whether a program says it; what only drawings do is drawn by the build."""
    return not all(place.endswith(".svg") for place in message.places)


def compiled(translation: Translation) -> bytes:
    """Return the catalogue of a translation, with what is translated so far.

    Raises:
        LessonError: a translation doesn't have the fields of its message.
    """
    file, same = polib.POFile(wrapwidth=0), []
    file.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    for english, its in sorted(translation.language.written.items()):
        file.append(polib.POEntry(msgid=english, msgstr=its))
    for message in sorted(translation.wanted, key=lambda each: each.text):
        if translation.problem(message.text) or not _in_code(message):
            continue
        its = translation.entry(message.text).msgstr
        if problem := fields_problem(message.text, its):
            code = translation.language.code
            raise LessonError(f"{code}: {message}: {problem}")
        # A message that stays English may have fields that don't, such as numbers.
        if its != message.text or FIELD.search(its):
            file.append(polib.POEntry(msgid=message.text, msgstr=its))
        else:
            same.append(its)
    # Others needn't be there, unless their parts are messages that don't stay English.
    catalogue = Catalogue({each.msgid: each.msgstr for each in file})
    file += [
        polib.POEntry(msgid=text, msgstr=text)
        for text in same
        if catalogue.localized(text) != text
    ]
    return file.to_binary()
