"""The list of a class that a gradebook exports, and who of it handed in what."""

import csv
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from d2l_gpu.grading.names import Owner

# Names of columns, squeezed, as gradebooks and teachers write them in the languages of
# the course.
_COLUMNS = {
    "name": "name student fullname studentname learner nom nomcomplet nome aluno "
    "nomecompleto 姓名 全名 学生",
    "first": "firstname givenname prenom primeironome 名",
    "last": "lastname surname familyname nomdefamille sobrenome 姓",
    "id": "id identifier studentid idnumber number username login loginid sisuserid "
    "sisloginid orgdefinedid identifiant numerodidentification identificador matricula "
    "numerodeidentificacao 学号 标识符 编号",
    "email": "email emailaddress mail adressedecourriel courriel adresseemail "
    "enderecodeemail 电子邮件 邮箱 电子邮件地址",
}
_MEANS = {word: kind for kind, words in _COLUMNS.items() for word in words.split()}

# Rows in Canvas' exports that are no students.
_NOBODY = {"pointspossible", "studenttest"}


@dataclass(frozen=True)
class Entry:
    """A student on the list.

    Attributes:
        name: of the student.
        ids: what the list has to tell students apart, in the order of its columns.
        emails: addresses.
    """

    name: str
    ids: Sequence[str] = ()
    emails: Sequence[str] = ()

    @property
    def id(self) -> str:
        """What a gradebook knows the student by; empty if the list has only names."""
        return next(iter((*self.ids, *self.emails)), "")

    @cached_property
    def _names(self) -> set[str]:
        """The name squeezed, in any order that keeps first names together."""
        words = re.findall(r"\w+", _plain(self.name.replace("_", " ")))
        return {
            "".join(words[begin:] + words[:begin]) for begin in range(len(words))
        } - {""}

    def is_called(self, owner: Owner) -> bool:
        return _squeezed(owner.name) in self._names

    def has_id(self, owner: Owner) -> bool:
        """Return whether what tells students apart is the same.

        A Moodle participant's number is only meant by a cell such as "Participant 12":
        it isn't the number that a student has elsewhere.
        """
        if owner.system == "moodle":
            cells = [re.fullmatch(r"\D+ (\d+)", each) for each in self.ids]
            return owner.id in [found[1] for found in cells if found]
        known = {each.casefold() for each in (*self.ids, *self.emails)}
        known |= {each.partition("@")[0].casefold() for each in self.emails}
        return (owner.id or owner.name).casefold() in known


@dataclass(frozen=True)
class ClassList:
    """Everyone in a class.

    Attributes:
        path: of the file.
        entries: the students, in its order.
    """

    path: Path
    entries: Sequence[Entry]

    def find(self, owner: Owner) -> Entry | None:
        """Return who on the list a file belongs to; None if that can't be told.

        Names come first, for numbers of two systems may be the same by chance.
        """
        called = [each for each in self.entries if each.is_called(owner)]
        if len(called) != 1:
            called = [each for each in called or self.entries if each.has_id(owner)]
        return called[0] if len(called) == 1 else None


def read_class_list(path: Path) -> ClassList:
    """Read a list of students from a CSV file, such as a gradebook exports.

    Columns are known by their names, such as ``name``, ``first name`` and ``last
    name``, ``id`` or ``email``. If the first row has none of these, it's a student like
    all others, and each row begins with a name.

    Raises:
        ValueError: there's no such file, or nobody in it.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
        if "\0" in text:
            raise UnicodeError
    except UnicodeError:
        raise ValueError(
            f"{path} isn't a CSV file in UTF-8; in a spreadsheet, save the list as "
            '"CSV UTF-8"'
        ) from None
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error.strerror}") from None
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    try:
        rows = list(csv.reader(text.splitlines(), delimiter=delimiter))
    except csv.Error as error:
        raise ValueError(f"{path} isn't a CSV file: {error}") from None
    entries = list(dict.fromkeys(_entries(rows)))
    if not entries:
        raise ValueError(f"{path} names no student; give each a row of its own")
    return ClassList(path, entries)


def _entries(rows: list[list[str]]) -> Iterator[Entry]:
    kinds = [_MEANS.get(_squeezed(each)) for each in rows[0]] if rows else []
    if any(kinds):
        rows = rows[1:]
        # French "nom" beside "prénom", and Portuguese "nome" beside "sobrenome".
        for one, other in ("first", "last"), ("last", "first"):
            if one in kinds and other not in kinds:
                kinds = [other if each == "name" else each for each in kinds]
    else:
        kinds = ["name"]
    for row in rows:
        found: dict[str, list[str]] = {kind: [] for kind in _COLUMNS}
        for kind, cell in zip(kinds, row, strict=False):
            if kind and (text := " ".join(cell.split())):
                found[kind].append(text)
        names = found["name"][:1] or [*found["first"][:1], *found["last"][:1]]
        name = " ".join(names)
        if _squeezed(name) in _NOBODY:
            continue
        known = tuple(found["id"]), tuple(found["email"])
        if name := name or next(iter(known[0] + known[1]), ""):
            yield Entry(name, *known)


def _plain(text: str) -> str:
    """Return a text in small letters without accents."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def _squeezed(text: str) -> str:
    """Return a text's letters and digits only, which is how names are compared."""
    return "".join(c for c in _plain(text) if c.isalnum())
