"""The frameworks that the course has editions for, as their helpers tell.

A helper, ``d2l_gpu/<name>.py`` or ``d2l_gpu/<name>/__init__.py``, that assigns a
literal to ``FRAMEWORK`` makes a framework known: to the build, to the checks and to
the command ``d2l-gpu``. It is read without importing it, since hardly anybody has all
frameworks installed.
"""

import ast
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from d2l_gpu.settings import OURS


@dataclass(frozen=True, order=True)
class Framework:
    """A framework, sorted as they are listed.

    Attributes:
        order: its place among the others.
        tag: the name of the folders with its lessons and with its notebooks.
        title: its name.
        module: what programs import.
        hosted: whether the hosted platforms' Python can have it.
        extras: of this package, that install it and what the course needs; where it
            is not given, ``jupyter`` and the one with the name of the module. One
            that is not hosted has an environment of its own instead.
    """

    order: int
    tag: str
    title: str
    module: str
    hosted: bool = True
    extras: str = ""

    @property
    def all_extras(self) -> str:
        """The extras of this package that its readers install."""
        return self.extras or f"jupyter,{self.module}"

    @property
    def install(self) -> str:
        """The command that installs it, and what its notebooks need."""
        if self.hosted:
            return f"pip install '{OURS}[{self.all_extras}]'"
        return f"pip install -r environments/{self.tag}.txt"

    @property
    def is_installed(self) -> bool:
        """Whether this Python can import it."""
        return find_spec(self.module) is not None


@functools.cache
def frameworks(package: Path = Path(__file__).parent) -> tuple[Framework, ...]:
    """Return the frameworks that the helpers in a folder are for, in order.

    Raises:
        ValueError: a helper's ``FRAMEWORK`` is not what it has to be.
    """
    helpers = sorted([*package.glob("*.py"), *package.glob("*/__init__.py")])
    found = map(_told_by, helpers)
    return tuple(sorted(each for each in found if each is not None))


def framework(tag: str, among: Sequence[Framework] = ()) -> Framework:
    """Return the framework with a tag; raise ValueError if there is none.

    Args:
        tag: of the framework.
        among: those that there are; default those of this package.
    """
    among = among or frameworks()
    for each in among:
        if each.tag == tag:
            return each
    known = ", ".join(each.tag for each in among)
    raise ValueError(f"there is no framework {tag!r}; the frameworks are: {known}")


def not_installed(tag: str, error: ImportError) -> ImportError:
    """Return what a helper raises where its framework cannot be imported.

    Args:
        tag: of the framework.
        error: what importing it raised.
    """
    it = framework(tag)
    if it.is_installed:
        return ImportError(f"{it.title} cannot be imported: {error}", name=error.name)
    return ImportError(f"{it.title} is not installed: {it.install}", name=it.module)


def _told_by(path: Path) -> Framework | None:
    text = path.read_text(encoding="utf-8")
    if "\nFRAMEWORK" not in f"\n{text}":
        return None  # most files are none, and parsing takes time
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "FRAMEWORK"
            for target in node.targets
        ):
            try:
                return Framework(**ast.literal_eval(node.value))
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"FRAMEWORK in {path} is a literal dict with order, tag, title and "
                    f"module: {error}"
                ) from None
    return None
