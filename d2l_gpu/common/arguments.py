"""Checks of arguments that several functions share."""

import ipaddress
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
    """Raise TypeError or ValueError unless a value is an integer of at least that.

    Args:
        name: what the value is, as the sentence begins.
        value: the value.
        least: the smallest that makes sense; None where the caller looks at that.
        example: one that makes sense, for the sentence; default ``least``.
        advice: how the sentence ends, up to the point.
    """
    example = least if example is None else example
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            f"{name} is an integer such as {example}, not {value!r} "
            f"({type(value).__name__}){advice}."
        )
    if least is not None and value < least:
        raise ValueError(f"{name} is at least {least}, not {value}{advice}.")


def check_script(script: str | Path) -> Path:
    """Return the path of a script; raise FileNotFoundError if there is none."""
    path = Path(script)
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no script {str(script)!r} in {Path.cwd()}: check its name, or "
            "write it first."
        )
    return path


def check_arguments(args: Sequence[Any]) -> list[str]:
    """Return the arguments of a script as texts; raise TypeError if it is no list."""
    if isinstance(args, str | bytes) or not isinstance(args, Iterable):
        raise TypeError(
            "The arguments of a script are a list such as ['--epochs', 3], not "
            f"{args!r}."
        )
    return [str(value) for value in args]


def check_name(what: str, name: str) -> str:
    """Return a name; raise ValueError if it needs quoting anywhere."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"{what} is a name of letters, digits, '.', '_' and '-' such as "
            f"'digits-2', not {name!r}."
        )
    return name


def check_host(what: str, host: str) -> str:
    """Return the name or the address of a host; raise ValueError if it is neither."""
    try:
        if not isinstance(host, str):
            raise ValueError
        if not _HOST.fullmatch(host):
            ipaddress.IPv6Address(host)
    except ValueError:
        raise ValueError(
            f"{what} is the name or the address of a machine such as 'node-a' or "
            f"'10.0.0.1', not {host!r}."
        ) from None
    return host


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
