"""What a check has to say, and the commands that it recommends."""

import importlib.util
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from d2l_gpu.common.requirements import command

OK, NOTE, PROBLEM = "ok", "note", "problem"

ISSUES = "https://github.com/d2l-gpu/d2l-gpu/issues"


@dataclass(frozen=True)
class Finding:
    """One thing that a check has found.

    Attributes:
        name: of the check, as ``pytorch``.
        status: ``ok``, ``note`` (worth knowing, nothing is broken) or ``problem``.
        what: what was found, in one sentence.
        what_to_do: what mends it, with the command where there is one; empty where
            there is nothing to do.
    """

    name: str
    status: str
    what: str
    what_to_do: str = ""


def pip(*arguments: str) -> str:
    """Return a command of pip that acts on the environment of this very Python."""
    python = this_python()
    if importlib.util.find_spec("pip"):
        words = [python, "-m", "pip", *arguments]
    elif shutil.which("uv"):  # whose environments have no pip
        words = ["uv", "pip", arguments[0], "--python", sys.executable, *arguments[1:]]
    else:
        first = command(python, "-m", "ensurepip")
        return f"{first} && {command(python, '-m', 'pip', *arguments)}"
    return command(*words)


def this_python() -> str:
    """Return ``python`` where a terminal finds this one by that name, else its path."""
    found = shutil.which("python")
    # Not what links point to: all virtual environments point to the same Python.
    folders = {Path(each).parent.resolve() for each in (found, sys.executable) if each}
    if found and len(folders) == 1:
        return "python"
    return sys.executable


def unset(variable: str) -> str:
    """Return what removes an environment variable from a terminal."""
    return f"set {variable}=" if os.name == "nt" else f"unset {variable}"


def assign(variable: str, value: object) -> str:
    """Return what sets an environment variable in a terminal."""
    return f"{'set' if os.name == 'nt' else 'export'} {variable}={value}"


def release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, as (2, 13, 0) for ``2.13.0+cpu``.

    Also of a driver or of CUDA, and where ``packaging`` may not be installed.
    """
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(x) for x in numbers.group().split(".")) if numbers else ()


def dotted(numbers: tuple[int, ...]) -> str:
    """Return numbers as a version, as ``2.10``."""
    return ".".join(map(str, numbers))


def one_line(error: BaseException | str) -> str:
    """Return an error as its type and the first line of what it says, not too long."""
    text = str(error).strip()
    line = text.splitlines()[0].strip() if text else ""
    if isinstance(error, BaseException):
        name = type(error).__name__
        line = f"{name}: {line}" if line else name
    return line if len(line) <= 200 else line[:199] + "…"
