"""Which lessons a command is about, and what isn't installed for it."""

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from d2l_gpu.common.frameworks import framework
from d2l_gpu.common.messages import localized
from d2l_gpu.common.requirements import modules
from d2l_gpu.course import is_appendix, lesson_names, select_lessons

NOTEBOOKS = ("ipykernel", "latex2mathml", "nbclient", "nbconvert", "nbformat")
"""What runs notebooks and shows them, on top of what their lessons import.

All of it is in the extra ``jupyter``. Each command asks for its own only: on a hosted
platform there is no JupyterLab.
"""


def lessons_named(options: argparse.Namespace, notebooks: Path) -> list[str]:
    """Return the lessons that are named; if none is, all but the appendices."""
    lessons = select_lessons(options.lessons, lesson_names(notebooks))
    return [name for name in lessons if options.lessons or not is_appendix(name)]


def lacks(options: argparse.Namespace, its_modules: Sequence[str]) -> bool:
    """Say which modules a command and the notebooks need that are not installed."""
    its = framework(options.framework or "pytorch")
    needed = [*modules("lessons"), *its_modules]
    if options.framework:  # or notebooks tell
        needed.append(its.module)
    return missing(options, needed, its.install)


def missing(options: argparse.Namespace, needed: Sequence[str], command: str) -> bool:
    """Say which of these modules aren't installed, and what installs them."""
    absent = [name for name in needed if not importlib.util.find_spec(name)]
    if absent:
        said = (
            f"{', '.join(absent)} not installed; install what the course needs with: "
            f"{command}"
        )
        print(f"d2l-gpu {options.name}: {localized(said)}", file=sys.stderr)
    return bool(absent)
