"""The book's own package alongside this one: whether it is there, and how to get it.

Dive into Deep Learning comes with a package, d2l. Its version 1.0.3 pins what it needs,
including numpy 1.23.5, so it can't be a dependency of this package. It works with newer
versions if it is installed without its dependencies.
"""

import importlib
from importlib import metadata

VERSION = "1.0.3"
INSTALL = f"pip install --no-deps d2l=={VERSION}"


def require_book() -> None:
    """Check that the book's package d2l 1.0.3 is installed and can be imported.

    This imports what the package needs, but not the package itself, which looks for
    GPUs when it is imported: decide on virtual ones before you import it.

    Raises:
        ImportError: the package, or something it needs, is missing or doesn't fit; the
            message says what to do.
    """
    try:
        found = metadata.version("d2l")
    except metadata.PackageNotFoundError:
        raise ImportError(
            f"The book's package d2l {VERSION} is not installed: install what it "
            f"needs with `{_install_needs()}`, then the package itself with "
            f"`{INSTALL}`."
        ) from None
    if found != VERSION:
        raise ImportError(
            f"d2l {VERSION} is needed, but version {found} is installed: replace it "
            f"with `{INSTALL}`."
        )
    for name in ("pandas", "requests", "scipy"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ImportError(
                f"d2l {VERSION} needs {name}, which cannot be imported ({error}): "
                f"install what it needs with `{_install_needs()}`."
            ) from None
    _check_torchvision()


def _check_torchvision() -> None:
    import torch

    try:
        importlib.import_module("torchvision")
    except ModuleNotFoundError:
        raise ImportError(
            f"d2l {VERSION} needs torchvision, which is not installed: install what "
            f"it needs with `{_install_needs()}`."
        ) from None
    # A torchvision from another build fails to load, in various ways.
    except (AttributeError, ImportError, OSError, RuntimeError) as error:
        raise ImportError(
            f"torchvision {metadata.version('torchvision')} does not match PyTorch "
            f"{torch.__version__} ({str(error).splitlines()[0]}): install both from "
            "the same source, as described on "
            "https://pytorch.org/get-started/locally/."
        ) from None


def _install_needs() -> str:
    """Return the command that installs d2l's other requirements for this PyTorch."""
    import torch

    return f"pip install pandas torchvision torch=={torch.__version__.split('+')[0]}"
