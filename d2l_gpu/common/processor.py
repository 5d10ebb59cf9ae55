"""The machine's processor and memory, found without importing a framework."""

import os
import platform
from pathlib import Path


def cpu_model() -> str:
    """Return the processor's model name and its number of cores."""
    cores = os.cpu_count()
    counted = f"{cores} core{'s' * (cores != 1)}"
    return f"{cpu_name()}, {counted}"


def usable_cores() -> int:
    """Return how many cores this process may use, or all of them if unknown."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_name() -> str:
    """Return the processor's model name, as precisely as the system reports it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def host_memory() -> int | None:
    """Return the host's memory in bytes, or None if Python can't tell (Windows)."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def size_text(nbytes: int | None) -> str:
    """Return a size in bytes for reading, as ``'512 MiB'`` or ``'15.6 GiB'``.

    ``d2l_gpu.vgpu`` has its own, which writes as PyTorch's allocators do.

    Args:
        nbytes: the size; None is unknown.
    """
    if nbytes is None:
        return "unknown"
    if nbytes < 2**30:
        return f"{nbytes / 2**20:.0f} MiB"
    return f"{nbytes / 2**30:.1f} GiB"
