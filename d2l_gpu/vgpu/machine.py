"""The simulated machine: its devices, their memory, and the log of copies.

Pure Python, knows nothing of torch. A tensor library drives it through four calls:
``reserve`` before it allocates, ``charge`` when it has, and the two seams at which the
simulated clock listens, ``kernel_issued`` and ``bytes_moved``.
"""

import os
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .clock import HOST, NOTES, Clock, queues
from .commands import HostWaits, Transfer

# CUDA's caching allocator hands out multiples of 512 bytes (kMinBlockSize in
# c10/cuda/CUDACachingAllocator.h), so a 24-byte tensor occupies 512.
BLOCK = 512

DEFAULT_CAPACITY = 4 * 2**30

# Allocations from this size on are also compared with what the host has left.
LARGE = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes that crossed from one memory to another; ``HOST`` stands for the host."""

    nbytes: int
    source: int
    target: int
    pinned: bool = False  # the host's side is page-locked memory
    blocking: bool = True  # the host waits for its end


class Charge:
    """The account of one allocation, closed when this object dies."""

    __slots__ = ("index", "machine", "nbytes")

    def __init__(self, machine: "Machine", index: int, nbytes: int):
        self.machine, self.index, self.nbytes = machine, index, 0
        self.resize(nbytes)

    def resize(self, nbytes: int) -> None:
        """Change the size of the allocation; raises if it does not fit."""
        machine, index = self.machine, self.index
        nbytes = nbytes + BLOCK - 1 & -BLOCK
        with machine.lock:
            used = machine.used[index] + nbytes - self.nbytes
            if used > machine.capacities[index] and nbytes > self.nbytes:
                raise machine.overflow(index, nbytes - self.nbytes)
            machine.used[index] = used
            if used > machine.peak[index]:
                machine.peak[index] = used
            self.nbytes = nbytes

    def __del__(self):
        with self.machine.lock:
            self.machine.used[self.index] -= self.nbytes


class Machine:
    """``count`` devices with ``capacity`` bytes of memory each.

    Args:
        capacity: of all devices, or of each.
        out_of_memory: the error raised when a device, or the host behind it, cannot
            hold one more allocation.
        first: the index of the first device.
        has_values: whether the host keeps the tensors' values, and with them memory.
        clock: the simulated clock, None for a machine without.
    Attributes:
        used, peak: bytes allocated on each device, now and at most so far.
        kernels: number of kernels issued to each device.
    """

    def __init__(
        self,
        count: int,
        capacity: int | Sequence[int] | None = None,
        out_of_memory: type[Exception] = MemoryError,
        *,
        first: int = 0,
        has_values: bool = True,
        clock: Clock | None = None,
    ):
        if capacity is None:
            capacity = default_capacity(count)
        if isinstance(capacity, int):
            capacity = [capacity] * count
        self.count, self.first = count, first
        self.capacities = [0] * first + list(capacity)
        self.out_of_memory, self.has_values = out_of_memory, has_values
        self.clock = clock
        # By the index of the device; places before the first one stay empty.
        self.used = [0] * (first + count)
        self.peak, self.kernels = self.used[:], self.used[:]
        self.logs: list[list[Copy]] = []
        # Reentrant: the garbage collector may close an account while another is opened.
        self.lock = threading.RLock()

    # -------------------------------------------------------------- memory

    def free(self, index: int) -> int:
        """Return the bytes left on a device."""
        return self.capacities[index] - self.used[index]

    def reserve(self, index: int, nbytes: int) -> None:
        """Raise out_of_memory unless nbytes fit, before anything is allocated."""
        rounded = nbytes + BLOCK - 1 & -BLOCK
        if self.used[index] + rounded > self.capacities[index]:
            raise self.overflow(index, rounded)
        if rounded >= LARGE and self.has_values:
            left = host_memory_left()
            if left is not None and rounded > left:
                raise self.out_of_memory(
                    f"vgpu out of memory. Tried to allocate {size_text(rounded)}. "
                    f"GPU {index} is simulated in the host's memory, of which only "
                    f"{size_text(left)} is left."
                )

    def charge(self, index: int, nbytes: int) -> Charge:
        """Account for an allocation; keep the result for as long as it lives."""
        return Charge(self, index, nbytes)

    def overflow(self, index: int, nbytes: int) -> Exception:
        # Worded like CUDACachingAllocator.cpp's message, and labelled.
        return self.out_of_memory(
            f"vgpu out of memory. Tried to allocate {size_text(nbytes)}. "
            f"GPU {index} has a total capacity of "
            f"{size_text(self.capacities[index])} of which "
            f"{size_text(self.free(index))} is free. Of the allocated memory "
            f"{size_text(self.used[index])} is allocated by PyTorch. "
            "(Simulated memory of a virtual GPU.)"
        )

    # -------------------------------------------------------------- the two seams

    def kernel_issued(self, index: int, key: tuple) -> None:
        """An operator was issued to a device; ``work.py`` says what is in the key."""
        self.kernels[index] += 1
        clock = self.clock
        if clock is not None:  # clock.note(…), for less
            notes = clock.notes
            notes.append((key, index, queues.of.get(index, 0), queues.thread))
            if len(notes) >= NOTES:
                clock.work_off()

    def host_waits(self, index: int) -> None:
        """The host cannot go on before a device has done what it was given."""
        if self.clock is not None:
            self.clock.note(HostWaits([index]), index, queues.of.get(index, 0))

    def bytes_moved(
        self,
        source: int,
        target: int,
        nbytes: int,
        *,
        pinned: bool = False,
        blocking: bool = True,
    ) -> None:
        """nbytes were copied from one memory to another."""
        if not nbytes:
            return
        if self.clock is not None:
            streams = queues.of.get(source, 0), queues.of.get(target, 0)
            device = target if source == HOST else source
            self.clock.note(
                Transfer(nbytes, source, target, pinned, blocking, streams), device, 0
            )
        if self.logs:
            copy = Copy(nbytes, source, target, pinned, blocking)
            for log in self.logs:
                log.append(copy)

    @contextmanager
    def record_copies(self) -> Iterator[list[Copy]]:
        """Collect the copies made inside the ``with`` block, in order."""
        log: list[Copy] = []
        self.logs.append(log)
        try:
            yield log
        finally:
            # By identity: two logs with the same content are equal.
            self.logs[:] = [other for other in self.logs if other is not log]


# ------------------------------------------------------------------ sizes of memory


def parse_size(size: int | str) -> int:
    """Return a number of bytes from ``2**30`` or a text such as ``'512MiB'``.

    Raises:
        TypeError, ValueError: it is no such number or text, or not positive.
    """
    if isinstance(size, bool) or not isinstance(size, int | str):
        raise TypeError(
            "Memory is a number of bytes or a text such as '512MiB', not "
            f"{size!r} ({type(size).__name__})."
        )
    nbytes = size
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]i?)?B\s*", size)
        if not match:
            raise ValueError(
                f"Memory {size!r} is not understood: write '512MiB', '2GiB' or bytes."
            )
        number, unit = match.groups()
        base = 1024 if unit and unit.endswith("i") else 1000
        power = "KMGT".index(unit[0]) + 1 if unit else 0
        nbytes = int(float(number) * base**power)
    if nbytes <= 0:
        raise ValueError(f"A GPU's memory is at least one byte, not {size!r}.")
    return nbytes


def size_text(nbytes: int) -> str:
    """Return a size as PyTorch's allocators write it: ``'20.00 MiB'``."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if nbytes > unit:
            return f"{nbytes / unit:.2f} {name}"
    return f"{nbytes} bytes"


def default_capacity(count: int) -> int:
    """4 GiB for each of ``count`` devices, less where the host has less to give."""
    left = host_memory_left()
    return DEFAULT_CAPACITY if left is None else min(DEFAULT_CAPACITY, left // count)


def host_memory_left() -> int | None:
    """Return the bytes that the host can still give, None where it does not say."""
    if sys.platform == "linux":
        limits = [_meminfo("MemAvailable")]
        # A container's own limit (cgroup v2) can lie below the machine's memory.
        limit = _number("/sys/fs/cgroup/memory.max")
        usage = _number("/sys/fs/cgroup/memory.current")
        if limit is not None and usage is not None:
            limits.append(max(0, limit - usage))
        return min((x for x in limits if x is not None), default=None)
    if sys.platform == "win32":
        return _windows_memory_left()
    if "SC_PHYS_PAGES" in os.sysconf_names:  # macOS says what it has, not what is left
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
