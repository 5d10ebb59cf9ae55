"""The book's own package beside this one: whether it is there, and how to get it.

Dive into Deep Learning comes with a package, d2l. Its version 1.0.3 names exact
versions of what it needs, numpy 1.23.5 among them, so it cannot be a dependency; it
works with newer ones when it is installed without them.
"""

import importlib
from importlib import metadata

VERSION = "1.0.3"
INSTALL = f"pip install --no-deps d2l=={VERSION}"


def require_book() -> None:
    """Make sure that the book's package d2l 1.0.3 is there and can be imported.

    What it imports is imported here, but not the package itself, since that looks for
    GPUs: decide on virtual ones first.

    Raises:
        ImportError: the package, or what it needs, is not installed or does not fit;
            the sentence says what to do.
    """
    try:
        found = metadata.version("d2l")
    except metadata.PackageNotFoundError:
        raise ImportError(
            f"The book's package d2l {VERSION} is not installed: get what it needs "
            f"with `{_install_needs()}`, and then itself with `{INSTALL}`."
        ) from None
    if found != VERSION:
        raise ImportError(
            f"The installed d2l is version {found}, and {VERSION} is wanted: replace "
            f"it with `{INSTALL}`."
        )
    for name in ("pandas", "requests", "scipy"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ImportError(
                f"d2l {VERSION} needs {name}, which cannot be imported ({error}): get "
                f"what it needs with `{_install_needs()}`."
            ) from None
    _check_torchvision()


def _check_torchvision() -> None:
    import torch

    try:
        importlib.import_module("torchvision")
    except ModuleNotFoundError:
        raise ImportError(
            f"d2l {VERSION} needs torchvision, which is not installed: get what it "
            f"needs with `{_install_needs()}`."
        ) from None
    # The library of another build does not load, and what comes of that varies.
    except (AttributeError, ImportError, OSError, RuntimeError) as error:
        raise ImportError(
            f"torchvision {metadata.version('torchvision')} does not fit PyTorch "
            f"{torch.__version__} ({str(error).splitlines()[0]}): install both from "
            "the same place, as https://pytorch.org/get-started/locally/ says."
        ) from None


def _install_needs() -> str:
    """The command for what d2l needs beside the course, and for no other PyTorch."""
    import torch

    return f"pip install pandas torchvision torch=={torch.__version__.split('+')[0]}"
