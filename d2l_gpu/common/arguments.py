"""Argument checks that several functions share."""

import ipaddress
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

PORTS = range(1, 2**16)
"""The TCP ports that a program can be told to use."""


def check_integer(
    name: str,
    value: int,
    least: int | None,
    example: int | None = None,
    advice: str = "",
) -> None:
    """Raise an error unless a value is an integer of at least ``least``.

    Args:
        name: what the value is; the error message starts with it.
        value: the value to check.
        least: the smallest allowed value; None if the caller checks that.
        example: a valid value for the error message; default: ``least``.
        advice: how the error message ends, before the full stop.
    Raises:
        TypeError: the value isn't an integer (a bool doesn't count as one).
        ValueError: the value is less than ``least``.
    """
    example = least if example is None else example
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            f"{name} must be an integer such as {example}, but got {value!r} "
            f"({type(value).__name__}){advice}."
        )
    if least is not None and value < least:
        raise ValueError(f"{name} must be at least {least}, but got {value}{advice}.")


def check_learning_rate(lr: float) -> None:
    """Raise an error unless a learning rate is a finite number greater than 0.

    Raises:
        TypeError: it isn't a number (a bool doesn't count as one).
        ValueError: it is negative, 0, infinite or not a number.
    """
    if isinstance(lr, bool) or not hasattr(lr, "__float__"):
        raise TypeError(
            f"A learning rate is a number such as 0.1, not {lr!r} "
            f"({type(lr).__name__})."
        )
    if not 0 < float(lr) < math.inf:
        raise ValueError(
            f"A learning rate is a finite number greater than 0, such as 0.1, not {lr}."
        )


def check_script(script: str | Path) -> Path:
    """Return the path of a script; raise an OSError if there's no such file."""
    path = Path(script)
    refuse_folder(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no script {str(script)!r} in {Path.cwd()}: check its name, or "
            "write it first."
        )
    return path


def refuse_folder(path: str | Path) -> None:
    """Raise IsADirectoryError if what is to be a file is a folder."""
    if Path(path).is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the name of a file.")


def check_arguments(args: Sequence[Any]) -> list[str]:
    """Return arguments as strings; raise TypeError for a string or a non-iterable."""
    if isinstance(args, str | bytes) or not isinstance(args, Iterable):
        raise TypeError(
            "The arguments of a script must be a list such as ['--epochs', 3], but "
            f"got {args!r}."
        )
    return [str(value) for value in args]


def check_name(what: str, name: str) -> str:
    """Return a name; raise ValueError if it might need quoting."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"{what} must consist of letters, digits, '.', '_' and '-', such as "
            f"'digits-2', but got {name!r}."
        )
    return name


def check_host(what: str, host: str) -> str:
    """Return a host name or IP address; raise ValueError if it is neither."""
    try:
        if not isinstance(host, str):
            raise ValueError
        if not _HOST.fullmatch(host):
            ipaddress.IPv6Address(host)
    except ValueError:
        raise ValueError(
            f"{what} must be the name or the address of a machine, such as 'node-a' "
            f"or '10.0.0.1', but got {host!r}."
        ) from None
    return host


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
