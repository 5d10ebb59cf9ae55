"""The simulated machine: its devices, their memory, and the log of copies.

It's pure Python and doesn't know about torch. A tensor library drives it by four calls:
``reserve`` before it allocates, ``charge`` after, and ``kernel_issued`` and
``bytes_moved``, which also inform the simulated clock.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from .clock import HOST, NOTES, Clock, queues
from .commands import CopyCommand, HostWaits
from .units import size_text

# CUDA's caching allocator hands out multiples of 512 bytes (kMinBlockSize in
# c10/cuda/CUDACachingAllocator.h), so a 24-byte tensor occupies 512.
BLOCK = 512

# Allocations of at least this size must also fit in the host's remaining memory.
LARGE = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes that crossed from one memory to another; ``HOST`` means the host's."""

    nbytes: int
    source: int
    target: int
    pinned: bool = False  # the host's side is page-locked memory
    blocking: bool = True  # the host waits until the copy ends


class Charge:
    """The account of one allocation, which ends when this object dies."""

    __slots__ = ("index", "machine", "nbytes")

    def __init__(self, machine: "Machine", index: int, nbytes: int):
        self.machine, self.index, self.nbytes = machine, index, 0
        self.resize(nbytes)
        with machine.lock:
            machine.allocations[index] += 1

    def resize(self, nbytes: int) -> None:
        """Change the size of the allocation; raise out_of_memory if it doesn't fit."""
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
    """Simulated devices with a memory each.

    Args:
        count: number of devices.
        capacity: bytes of memory of every device, or a list with one for each.
        out_of_memory: the error to raise, or what returns it for a message, when a
            device, or the host whose memory holds the values, has no room left.
        first: the index of the first device.
        has_values: whether tensors on the devices have values, or only shapes.
        memory_left: returns the bytes that the host has left for values, or None if
            it can't tell. None if there are no values to hold.
        clock: the simulated clock, None for a machine without one.
    Attributes:
        used, peak: bytes allocated on each device, now and at the peak.
        kernels: number of kernels issued to each device.
        allocations, overflows: how often each device gave memory, and how often it had
            too little.
    """

    def __init__(
        self,
        count: int,
        capacity: int | Sequence[int],
        out_of_memory: Callable[[str], Exception] = MemoryError,
        *,
        first: int = 0,
        has_values: bool = True,
        memory_left: Callable[[], int | None] | None = None,
        clock: Clock | None = None,
    ):
        if isinstance(capacity, int):
            capacity = [capacity] * count
        self.count, self.first = count, first
        self.capacities = [0] * first + list(capacity)
        self.out_of_memory, self.has_values = out_of_memory, has_values
        self.memory_left, self.clock = memory_left, clock
        # Indexed by device; entries before the first device stay 0.
        self.used = [0] * (first + count)
        self.peak, self.kernels = self.used[:], self.used[:]
        self.allocations, self.overflows = self.used[:], self.used[:]
        self.logs: list[list[Copy]] = []
        # Reentrant: the garbage collector may close an account while another is opened.
        self.lock = threading.RLock()

    # -------------------------------------------------------------- memory

    def free(self, index: int) -> int:
        """Return the bytes left on a device."""
        return self.capacities[index] - self.used[index]

    def reserve(self, index: int, nbytes: int) -> None:
        """Raise out_of_memory unless nbytes more fit; allocates nothing."""
        rounded = nbytes + BLOCK - 1 & -BLOCK
        if self.used[index] + rounded > self.capacities[index]:
            raise self.overflow(index, rounded)
        if rounded >= LARGE and self.memory_left is not None:
            left = self.memory_left()
            if left is not None and rounded > left:
                raise self.out_of_memory(
                    f"vgpu out of memory. Tried to allocate {size_text(rounded)}. "
                    f"GPU {index} is simulated in the host's memory, of which only "
                    f"{size_text(left)} is left."
                )

    def charge(self, index: int, nbytes: int) -> Charge:
        """Account for an allocation; keep the result for as long as that lives."""
        return Charge(self, index, nbytes)

    def overflow(self, index: int, nbytes: int) -> Exception:
        self.overflows[index] += 1
        # Worded like the message of CUDACachingAllocator.cpp, plus a label.
        return self.out_of_memory(
            f"vgpu out of memory. Tried to allocate {size_text(nbytes)}. "
            f"GPU {index} has a total capacity of "
            f"{size_text(self.capacities[index])} of which "
            f"{size_text(self.free(index))} is free. Of the allocated memory "
            f"{size_text(self.used[index])} is allocated by PyTorch. "
            "(Simulated memory of a virtual GPU.)"
        )

    # -------------------------------------------------------------- kernels and copies

    def kernel_issued(self, index: int, key: tuple) -> None:
        """Note that a kernel was issued to a device; ``work.py`` explains the key."""
        self.kernels[index] += 1
        clock = self.clock
        if clock is not None:  # clock.note(…), inlined for speed
            notes = clock.notes
            notes.append((key, index, queues.of.get(index, 0), queues.thread))
            if len(notes) >= NOTES:
                clock.work_off()

    def host_waits(self, index: int) -> None:
        """Note that the host waits until a device has done all its work."""
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
        """Note that nbytes were copied from one memory to another."""
        if not nbytes:
            return
        if self.clock is not None:
            streams = queues.of.get(source, 0), queues.of.get(target, 0)
            device = target if source == HOST else source
            self.clock.note(
                CopyCommand(nbytes, source, target, pinned, blocking, streams),
                device,
                0,
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
