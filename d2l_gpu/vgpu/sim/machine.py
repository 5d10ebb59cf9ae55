"""The simulated machine: its devices, their memory, and the log of copies.

Pure Python, knows nothing of torch. A tensor library drives it through four calls:
``reserve`` before it allocates, ``charge`` when it has, and the two seams at which the
simulated clock listens, ``kernel_issued`` and ``bytes_moved``.
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

# Allocations of at least this size are also checked against the memory that the
# process has left.
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
        has_values: whether the tensors on it have values, or shapes only.
        memory_left: returns the bytes that the memory behind the devices can still
            give, None where that isn't known; None if nothing is kept there.
        clock: the simulated clock, None for a machine without.
    Attributes:
        used, peak: bytes allocated on each device, now and at most so far.
        kernels: number of kernels issued to each device.
    """

    def __init__(
        self,
        count: int,
        capacity: int | Sequence[int],
        out_of_memory: type[Exception] = MemoryError,
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
        if rounded >= LARGE and self.memory_left is not None:
            left = self.memory_left()
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
