"""The name of the package and the environment variables, known without PyTorch."""

import os
from pathlib import Path
from types import ModuleType

OURS = "d2l-gpu"  # the name of this package, for pip

DATA = "D2L_GPU_DATA"
LANGUAGE = "D2L_GPU_LANGUAGE"
VIRTUAL = "D2L_GPU_VIRTUAL"


def data_folder() -> Path:
    """Return the folder in which downloaded data are kept; it may not exist yet.

    It is named by the environment variable ``D2L_GPU_DATA``; without that, it is the
    system's place for caches, such as ``~/.cache/d2l_gpu``.

    Raises:
        ImportError: the variable is not set, and pooch, which knows the system's
            place, is not installed.
    """
    chosen = os.environ.get(DATA, "").strip()
    if chosen:
        return Path(chosen).expanduser().absolute()
    return import_pooch().os_cache("d2l_gpu")


def import_pooch() -> ModuleType:
    """Return pooch, which is imported only where it is needed.

    Raises:
        ImportError: pooch, or requests with which it downloads, is not installed.
    """
    try:
        import pooch
        import requests  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"Downloading needs {error.name}, which is not installed: "
            'pip install "d2l-gpu[lessons]".',
            name=error.name,
        ) from error
    return pooch


def virtual_limit() -> int | None:
    """Return the value of ``D2L_GPU_VIRTUAL``, None where it is not set.

    Raises:
        ValueError: it is not a number.
    """
    text = os.environ.get(VIRTUAL, "").strip()
    if not text:
        return None
    if not text.isdecimal():
        raise ValueError(
            f"{VIRTUAL}={text!r} is not a number of GPUs: use 0 to forbid virtual "
            "GPUs, a positive number to force them, or unset it."
        )
    return int(text)
