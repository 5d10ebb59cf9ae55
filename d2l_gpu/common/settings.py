"""The package's name and environment variables, available without PyTorch."""

import locale
import os
import re
from pathlib import Path
from types import ModuleType

OURS = "d2l-gpu"  # this package's name for pip

DATA = "D2L_GPU_DATA"
EXERCISES = "D2L_GPU_EXERCISES"
HIDDEN = "D2L_GPU_HIDDEN"
LANGUAGE = "D2L_GPU_LANGUAGE"
PROGRESS = "D2L_GPU_PROGRESS"
VARIANT = "D2L_GPU_VARIANT"
VIRTUAL = "D2L_GPU_VIRTUAL"


def spoken_languages() -> list[str]:
    """Return the languages that the reader asks programs for, the best first.

    That of ``D2L_GPU_LANGUAGE``, then as gettext reads them: ``LANGUAGE`` is a list,
    the others hold one locale each, as ``pt_BR.UTF-8``; where none is set, it is the
    system's.
    """
    variables = ("LC_ALL", "LC_MESSAGES", "LANG")
    chosen = next((os.environ[name] for name in variables if os.environ.get(name)), "")
    chosen = chosen or locale.getlocale()[0] or ""
    ours = os.environ.get(LANGUAGE, "")
    names = [ours, *os.environ.get("LANGUAGE", "").split(":"), chosen]
    return [re.split(r"[_.@-]", name)[0].lower() for name in names if name]


def data_folder() -> Path:
    """Return the folder for downloaded data, which may not exist yet.

    The environment variable ``D2L_GPU_DATA`` sets it; by default it's in the system's
    cache folder, such as ``~/.cache/d2l_gpu``.

    Raises:
        ImportError: the variable isn't set, and pooch, which finds the cache folder,
            can't be imported.
    """
    chosen = os.environ.get(DATA, "").strip()
    if chosen:
        return Path(chosen).expanduser().absolute()
    return import_pooch().os_cache("d2l_gpu")


def import_pooch() -> ModuleType:
    """Import pooch, which only downloads need, and return it.

    Raises:
        ImportError: pooch, or requests, which it downloads with, is not installed.
    """
    try:
        import pooch
        import requests  # noqa: F401
    except ImportError as error:
        from d2l_gpu.common.requirements import install

        raise ImportError(
            f"Downloading needs {error.name}, which is not installed: "
            f"{install('lessons')}.",
            name=error.name,
        ) from error
    return pooch


def virtual_limit() -> int | None:
    """Return the value of ``D2L_GPU_VIRTUAL``, or None if it isn't set.

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
