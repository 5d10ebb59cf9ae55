"""The record of solved exercises: one small JSON file for each.

A file for each exercise needs no lock when two notebooks pass something at the same
time, and a damaged one takes no other with it. The first pass is the one that's kept.
"""

import json
import os
import re
import sys
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from d2l_gpu import __version__
from d2l_gpu.common.files import write_atomically
from d2l_gpu.common.frameworks import FRAMEWORKS
from d2l_gpu.common.messages import say
from d2l_gpu.common.requirements import install
from d2l_gpu.common.settings import PROGRESS

BROKEN = ".broken"
"""What is added to the name of a file that can't be read."""

_NUMBER = re.compile(r"[0-9A-Z][0-9]\.[0-9]+", re.ASCII)


@dataclass(frozen=True)
class Solved:
    """An exercise that passed.

    Attributes:
        framework: the framework's tag.
        exercise: its number, such as ``03.1``.
        date: the day when it first passed, such as ``2026-03-09``.
        version: of this package, on that day.
    """

    framework: str
    exercise: str
    date: str
    version: str


def progress_folder() -> Path:
    """Return the folder with the record, which may not exist yet.

    The environment variable ``D2L_GPU_PROGRESS`` sets it; by default it's in the user's
    data folder, such as ``~/.local/share/d2l_gpu/progress``.

    Raises:
        ImportError: the variable isn't set, and platformdirs, which knows the data
            folder, isn't installed.
    """
    chosen = os.environ.get(PROGRESS, "").strip()
    if chosen and not _is_off(chosen):
        return Path(chosen).expanduser().absolute()
    try:
        from platformdirs import user_data_path
    except ImportError as error:
        raise ImportError(
            "Finding your data folder needs platformdirs, which is not installed: "
            f"{install('lessons')}.",
            name="platformdirs",
        ) from error
    return user_data_path("d2l_gpu", appauthor=False) / "progress"


def is_recording() -> bool:
    """Return whether passed exercises are recorded.

    ``D2L_GPU_PROGRESS=0`` turns that off. So does ``CI``, which services that run tests
    set, unless ``D2L_GPU_PROGRESS`` names a folder.
    """
    chosen = os.environ.get(PROGRESS, "").strip()
    if chosen:
        return not _is_off(chosen)
    return os.environ.get("CI", "").strip().lower() in ("", "0", "false")


def _is_off(chosen: str) -> bool:
    return chosen.lower() in ("0", "off", "no", "false")


def record(framework: str, exercise: str) -> str:
    """Write down that an exercise has passed, unless that's written down already.

    Args:
        framework: the framework's tag.
        exercise: its number.
    Returns:
        Why it couldn't be written, as a sentence; empty if all went well, or if
        nothing is recorded. A verdict doesn't depend on it, so nothing is raised.
    """
    if not is_recording():
        return ""
    try:
        path = _path(progress_folder(), framework, exercise)
        if _read(path) is None:
            today = date.today().isoformat()
            solved = Solved(framework, exercise, today, __version__)
            write_atomically(path, json.dumps(asdict(solved), indent=1) + "\n")
    except (OSError, ImportError) as error:
        return f"Your progress isn't recorded: {error}"
    return ""


def solved_exercises() -> list[Solved]:
    """Return what is recorded, sorted by framework and number.

    A file that can't be read is set aside, with a sentence on stderr.

    Raises:
        ImportError: the data folder is needed, and platformdirs isn't installed.
        OSError: the record can't be read.
    """
    folder = progress_folder()
    found = [
        _read(path)
        for each in FRAMEWORKS
        for path in sorted((folder / each.tag).glob("*.json"))
        if _NUMBER.fullmatch(path.stem)
    ]
    return [solved for solved in found if solved]


def _path(folder: Path, framework: str, exercise: str) -> Path:
    return folder / framework / f"{exercise}.json"


def _read(path: Path) -> Solved | None:
    """Return what a file says; None if it isn't there, or was set aside."""
    try:
        text = path.read_bytes().decode("utf-8")
        fields = json.loads(text)
        names = Solved.__dataclass_fields__
        solved = Solved(**{name: fields[name] for name in names})
        if not all(isinstance(value, str) for value in asdict(solved).values()):
            raise ValueError
        date.fromisoformat(solved.date)
        if (solved.framework, solved.exercise) != (path.parent.name, path.stem):
            raise ValueError
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError):
        _set_aside(path)
        return None
    return solved


def _set_aside(path: Path) -> None:
    """Rename a file that can't be read, so that it's kept, and say so."""
    aside = path.with_name(path.name + BROKEN)
    count = 2
    while aside.exists():
        aside = path.with_name(f"{path.name}{BROKEN}{count}")
        count += 1
    number = f"{path.parent.name} {path.stem}"
    try:
        path.replace(aside)
    except FileNotFoundError:  # another process was faster
        return
    except OSError as error:
        say(f"The record of {number} can't be read: {path} ({error})", file=sys.stderr)
        return
    say(
        f"The record of {number} can't be read. It's now at {aside}; pass the exercise "
        "again to record it.",
        file=sys.stderr,
    )
