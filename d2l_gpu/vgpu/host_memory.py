"""How much memory this computer can still give to virtual GPUs.

Their values are kept in it, so their capacities must not promise more.
"""

import os
import sys
from pathlib import Path

DEFAULT_CAPACITY = 4 * 2**30


def default_capacity(count: int) -> int:
    """Return bytes for each of ``count`` devices: 4 GiB, less if the host has less."""
    left = host_memory_left()
    return DEFAULT_CAPACITY if left is None else min(DEFAULT_CAPACITY, left // count)


def host_memory_left() -> int | None:
    """Return the bytes of memory that the host has left, None if it can't tell."""
    if sys.platform == "linux":
        limits = [_meminfo("MemAvailable")]
        # A container's limit (cgroup v2) can be lower than the machine's memory.
        limit = _number("/sys/fs/cgroup/memory.max")
        usage = _number("/sys/fs/cgroup/memory.current")
        if limit is not None and usage is not None:
            limits.append(max(0, limit - usage))
        return min((x for x in limits if x is not None), default=None)
    if sys.platform == "win32":
        return _windows_memory_left()
    if "SC_PHYS_PAGES" in os.sysconf_names:  # macOS: in all, not left
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return None


def _meminfo(field: str) -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    values = (line.split()[1] for line in lines if line.startswith(field + ":"))
    return next((int(value) * 1024 for value in values), None)


def _number(path: str) -> int | None:
    try:
        text = Path(path).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _windows_memory_left() -> int:
    import ctypes

    class Status(ctypes.Structure):  # MEMORYSTATUSEX of winbase.h
        _fields_ = [("length", ctypes.c_ulong), ("load", ctypes.c_ulong)] + [
            (name, ctypes.c_ulonglong)
            for name in (
                "total_phys",
                "avail_phys",
                "total_page",
                "avail_page",
                "total_virtual",
                "avail_virtual",
                "avail_extended",
            )
        ]

    status = Status(length=ctypes.sizeof(Status))
    ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
    return status.avail_phys
