"""Read the faults from the TOML files."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Fault:
    """A mistake in one place of one file.

    Attributes:
        name: lower case, with hyphens.
        what: what goes wrong for the user, in one sentence.
        file: the file's path in the project.
        old: the correct code, which must occur exactly once.
        new: the mistaken code.
        tests: the test files that should catch it.
        survives: why no test catches it, if that is known; else empty.
    """

    name: str
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str = ""

    def planted_in(self, project: Path) -> str:
        """Return the content of the fault's file in a project, with the fault in it.

        Raises:
            ValueError: there is no such file, or `old` doesn't occur exactly once.
        """
        try:
            text = (project / self.file).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ValueError(
                f"The fault {self.name} belongs in {self.file}, which does not exist: "
                "adapt the fault to the code."
            ) from None
        count = text.count(self.old)
        if count != 1:
            raise ValueError(
                f"The fault {self.name} replaces a text that occurs {count} times in "
                f"{self.file}, but it must occur exactly once: adapt the fault to the "
                "code."
            )
        return text.replace(self.old, self.new)

    def plant(self, project: Path) -> None:
        """Plant the fault in a copy of the project.

        Raises:
            ValueError: as for `planted_in`.
        """
        text = self.planted_in(project)
        (project / self.file).write_text(text, encoding="utf-8", newline="\n")


def read_faults(folder: Path = FOLDER) -> list[Fault]:
    """Return all faults, in the order of the files and of their entries.

    Raises:
        ValueError: a file or an entry is malformed, or two faults share a name.
    """
    faults: dict[str, Fault] = {}
    for path in sorted(folder.glob("*.toml")):
        try:
            entries = tomllib.loads(path.read_text(encoding="utf-8"))["fault"]
        except (KeyError, tomllib.TOMLDecodeError) as error:
            raise ValueError(
                f"{path.name} holds no faults that can be read ({error}): write each "
                "as an entry [[fault]]."
            ) from error
        for entry in entries:
            fault = _checked(entry, path.name)
            if fault.name in faults:
                raise ValueError(
                    f"{path.name} has a fault {fault.name!r}, but that name is "
                    "already taken: choose another."
                )
            faults[fault.name] = fault
    return list(faults.values())


def chosen(faults: Sequence[Fault], names: Sequence[str]) -> list[Fault]:
    """Return the faults with these names; all if no names are given.

    Raises:
        ValueError: there is no fault of that name.
    """
    known = {fault.name for fault in faults}
    for name in names:
        if name not in known:
            raise ValueError(
                f"There is no fault {name!r}: see python -m tools.faults --list."
            )
    return [fault for fault in faults if not names or fault.name in names]


def _checked(entry: dict, where: str) -> Fault:
    told = entry.get("name", "without a name")
    needed = {field.name for field in fields(Fault)} - {"survives"}
    if not needed <= entry.keys() <= needed | {"survives"}:
        wrong = sorted((needed ^ entry.keys()) - {"survives"})
        raise ValueError(
            f"The fault {told} in {where} must have the keys "
            f"{', '.join(sorted(needed))}, and may have only survives besides: check "
            f"{', '.join(wrong)}."
        )
    tests = entry["tests"]
    texts = [value for key, value in entry.items() if key != "tests"]
    if not isinstance(tests, list) or not tests:
        raise ValueError(
            f"The fault {told} in {where} must have a list of tests: name some."
        )
    if not all(isinstance(text, str) for text in [*texts, *tests]):
        raise ValueError(
            f"The fault {told} in {where} must consist of strings: quote them."
        )
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", told):
        raise ValueError(
            f"The fault {told!r} in {where} must have a name in lower case with "
            "hyphens."
        )
    return Fault(**entry | {"tests": tuple(tests)})
