"""The interpreter, and files that hide packages from it."""

import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from d2l_gpu.common.frameworks import FRAMEWORKS
from d2l_gpu.common.requirements import modules

from .facts import Facts
from .findings import NOTE, OK, PROBLEM, Finding, dotted

OLDEST = (3, 11)
NEWEST_TESTED = (3, 13)

DOWNLOADS = "https://www.python.org/downloads/"

# What the notebooks import, beside the frameworks and the extra `lessons`.
IMPORTED = ("IPython", "d2l", "d2l_gpu", "numpy")

# What comes with Python and is imported by no other program.
UNUSED = {"antigravity", "idlelib", "lib2to3", "test", "this", "turtle", "turtledemo"}


def check_python(facts: Facts) -> list[Finding]:
    """Is this a Python for which there is a PyTorch, and on which the course is run?"""
    version, here = platform.python_version(), f"{sys.prefix}"
    if sys.version_info[:2] < OLDEST:
        return [
            Finding(
                "python",
                PROBLEM,
                f"Python {version} is too old: {dotted(OLDEST)} or newer is needed.",
                f"Install Python {dotted(NEWEST_TESTED)} from {DOWNLOADS}, make a "
                "virtual environment with it, and install the course there.",
            )
        ]
    reason = _no_torch_for()
    if reason:
        return [Finding("python", PROBLEM, *reason)]
    if sys.version_info[:2] > NEWEST_TESTED:
        return [
            Finding(
                "python",
                NOTE,
                f"Python {version} is newer than the versions on which the course is "
                f"tested, {dotted(OLDEST)} to {dotted(NEWEST_TESTED)}.",
            )
        ]
    if Path(sys.prefix, "conda-meta").is_dir():
        what = f"Python {version} in the conda environment {here}."
    elif sys.prefix != sys.base_prefix:
        what = f"Python {version} in the virtual environment {here}."
    else:
        what = f"Python {version}, installed in {here}."
    return [Finding("python", OK, what)]


def _no_torch_for() -> tuple[str, str] | None:
    """Return why there is no PyTorch for this kind of Python, and what to do."""
    install = f"Install the 64-bit Python from {DOWNLOADS}."
    if sys.implementation.name != "cpython":
        name = sys.implementation.name
        return f"This Python is {name}: PyTorch is built for CPython only.", install
    if sys.maxsize < 2**32:
        return (
            "This Python is a 32-bit program, but PyTorch is built for 64 bits only.",
            install,
        )
    if sys.platform == "darwin" and platform.machine() == "x86_64":
        if _translated():
            return (
                "This Python was built for Intel and is translated by Rosetta: PyTorch "
                "has no new builds for it, and would not see the GPU.",
                f"Install the universal Python from {DOWNLOADS}, or a conda for arm64.",
            )
        return (
            "This Mac has an Intel processor, for which PyTorch stopped making "
            "builds with version 2.2.",
            "Use another machine or a hosted notebook, or see whether conda-forge has "
            "a build: conda install -c conda-forge 'pytorch>=2.10'",
        )
    return None


def _translated() -> bool:
    """Whether macOS on Apple silicon runs this process as one for Intel."""
    done = subprocess.run(
        ["sysctl", "-n", "sysctl.proc_translated"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() == "1"


def check_names(facts: Facts) -> list[Finding]:
    """Does a file of the working folder hide a package from notebooks in it?"""
    found = list(hiding(Path.cwd()))
    return [
        Finding(
            "names",
            PROBLEM,
            _hidden(path),
            "Rename the file.",
        )
        for path in found
    ] or [Finding("names", OK, "No file here has the name of a package.")]


def _hidden(path: Path) -> str:
    name = path.stem
    if name in sys.stdlib_module_names:
        return (
            f"Notebooks in this folder import {path} instead of Python's own module "
            f"{name}."
        )
    return f"Notebooks in this folder import {path} instead of the package {name}."


def hiding(folder: Path) -> Iterator[Path]:
    """Yield what has the name of a package, or of a module that comes with Python."""
    in_clone = (folder / "d2l_gpu" / "doctor").is_dir()  # d2l_gpu itself is here
    frameworks = [each.module for each in FRAMEWORKS]
    standard = sorted(sys.stdlib_module_names - set(sys.builtin_module_names) - UNUSED)
    for name in (*IMPORTED, *modules("lessons"), *frameworks, *standard):
        for path in (folder / f"{name}.py", folder / name / "__init__.py"):
            if path.is_file() and not (in_clone and name == "d2l_gpu"):
                yield path if path.parent == folder else path.parent
