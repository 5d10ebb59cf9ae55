"""Quantities as text, and sizes of memory from text."""

import re


def time_text(seconds: float) -> str:
    """Return a time, given in seconds, with three digits and a unit: ``'1.23 ms'``."""
    if not seconds:
        return "0 s"
    units = ((1, "s"), (1e-3, "ms"), (1e-6, "µs"))
    unit, name = next((u for u in units if seconds >= 0.9995 * u[0]), (1e-9, "ns"))
    value = seconds / unit
    return f"{value:.{max(0, 3 - _digits(value))}f} {name}"


def count_text(count: int, unit: str = "") -> str:
    """Return a number with three digits and a decimal prefix: ``'12.3 M'``."""
    for power, prefix in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        value = count / 10**power
        if value >= 0.9995:
            return f"{value:.{max(0, 3 - _digits(value))}f} {prefix}{unit}"
    return f"{count} {unit}".rstrip()


def _digits(value: float) -> int:
    """Return the number of digits before the decimal point, at least one."""
    return len(str(int(value)))


def parse_size(size: int | str) -> int:
    """Return a number of bytes from ``2**30`` or a text such as ``'512MiB'``.

    Raises:
        TypeError, ValueError: it isn't such a number or text, or isn't positive.
    """
    if isinstance(size, bool) or not isinstance(size, int | str):
        raise TypeError(
            "Memory must be a number of bytes or a string such as '512MiB', but got "
            f"{size!r} ({type(size).__name__})."
        )
    nbytes = size
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]i?)?B\s*", size)
        if not match:
            raise ValueError(
                f"Cannot parse the memory size {size!r}: write '512MiB', '2GiB' or a "
                "number of bytes."
            )
        number, unit = match.groups()
        base = 1024 if unit and unit.endswith("i") else 1000
        power = "KMGT".index(unit[0]) + 1 if unit else 0
        nbytes = int(float(number) * base**power)
    if nbytes <= 0:
        raise ValueError(f"A GPU's memory must be at least one byte, but got {size!r}.")
    return nbytes


def size_text(nbytes: int) -> str:
    """Return a number of bytes as PyTorch's allocators write it: ``'20.00 MiB'``."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if nbytes > unit:
            return f"{nbytes / unit:.2f} {name}"
    return f"{nbytes} bytes"
