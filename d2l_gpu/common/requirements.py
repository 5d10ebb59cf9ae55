"""The packages that the course needs: the extras of ``pyproject.toml``, as installed.

And the command that installs them, which depends on where this package came from.

They are read with the standard library alone, since the doctor looks at them where
nothing else may be installed, ``packaging`` included.
"""

import importlib.metadata
import json
import os
import re
import shlex
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from urllib.parse import urlsplit

from d2l_gpu.common.settings import OURS

_HERE = Path(__file__).resolve().parents[2]  # the folder with the package
_REPOSITORY = "https://github.com/d2l-gpu/d2l-gpu"

# Packages that are imported by another name than their own.
_MODULES = {"scikit-learn": "sklearn"}


def requirements(extra: str) -> dict[str, str]:
    """Return the packages that an extra asks for, each with its lowest version.

    They stand in the metadata as ``pooch>=1.8; extra == 'course'``; this project has
    lower bounds only, and the build writes out the extras that others take in.

    Args:
        extra: its name, as ``course``.
    Returns:
        Versions by the names of packages, sorted; nothing where this package is found
        without being installed.
    """
    try:
        lines = importlib.metadata.requires(OURS) or []
    except PackageNotFoundError:
        return {}
    found = {}
    for line in lines:
        requirement, _, marker = line.partition(";")
        if re.search(rf"""extra == ["']{extra}["']""", marker):
            name, least = re.match(r"([\w.-]+)\D*([\d.]*)", requirement).groups()
            found[name] = least
    return dict(sorted(found.items()))


def module_of(package: str) -> str:
    """Return what programs import of a package, as ``sklearn`` of ``scikit-learn``."""
    return _MODULES.get(package, package.replace("-", "_"))


def modules(extra: str) -> list[str]:
    """Return what programs import of the packages that an extra asks for."""
    return [module_of(package) for package in requirements(extra)]


# ------------------------------------------------------------------ installing them


def clone_root() -> Path | None:
    """Return the folder of the clone in which this package lies, or None."""
    return _HERE if (_HERE / "pyproject.toml").is_file() else None


def install(extras: str) -> str:
    """Return the command that installs this package with some extras.

    Args:
        extras: as ``jupyter,jax``.
    """
    return command("pip", "install", *install_words(extras))


def install_words(extras: str) -> list[str]:
    """Return what pip gets this package and some extras by, from where it came.

    In a clone that is the clone. An installed package comes from an index only if pip
    has not written down another origin; without any, the repository has it.

    Source: PEP 610 for ``direct_url.json``.
    """
    clone = clone_root()
    if clone:
        here = "." if clone == Path.cwd() else str(clone)
        return ["-e", f"{here}[{extras}]"]
    repository = f"{OURS}[{extras}] @ git+{_REPOSITORY}"
    try:
        installed = importlib.metadata.distribution(OURS)
    except PackageNotFoundError:
        return [repository]
    if Path(installed.locate_file("d2l_gpu")).resolve() != _HERE / "d2l_gpu":
        return [repository]
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    if not origin:
        return [f"{OURS}[{extras}]"]
    address = urlsplit(origin["url"])
    if address.scheme == "file" and "vcs_info" not in origin:
        from urllib.request import url2pathname  # which imports much

        path = Path(url2pathname(address.path))
        return [f"{path}[{extras}]" if path.exists() else repository]
    url = origin["url"]
    if version := origin.get("vcs_info"):
        revision = version.get("requested_revision") or version["commit_id"]
        url = f"{version['vcs']}+{url}@{revision}"
    return [f"{OURS}[{extras}] @ {url}"]


def install_in_clone(file: str) -> str:
    """Return the command that installs what a file of a clone lists.

    Args:
        file: path in the clone, as ``environments/mxnet.txt``.
    """
    # The file names the clone by where the command is run.
    last, clone = command("pip", "install", "-r", file), clone_root()
    if clone is None:
        return f"git clone {_REPOSITORY} && cd {OURS} && {last}"
    return last if clone == Path.cwd() else f"{command('cd', str(clone))} && {last}"


def command(*words: str) -> str:
    """Return words as they are typed at a prompt."""
    if os.name == "nt":
        return " ".join(f'"{w}"' if re.search(r"[\s<>=&|^]", w) else w for w in words)
    return shlex.join(words)
