"""The packages that the course needs: the extras of ``pyproject.toml``, as installed.

They are read with the standard library alone, since the doctor looks at them where
nothing else may be installed, ``packaging`` included.
"""

import importlib.metadata
import re

from d2l_gpu.common.settings import OURS

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
    except importlib.metadata.PackageNotFoundError:
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
