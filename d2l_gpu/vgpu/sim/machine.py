"""The simulated machine: its devices, their memory, and the log of copies.

It's pure Python and doesn't know about torch. A tensor library drives it by four calls:
``reserve`` before it allocates, ``charge`` after, and ``kernel_issued`` and
``bytes_moved``, which also inform the simulated clock.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .clock import HOST, NOBODY, NOTES, Clock, queues
from .commands import CopyCommand, HostWaits, MemoryChanged
from .memory import Charge, Count, in_blocks
from .units import size_text

if TYPE_CHECKING:
    from .allocator import CachingAllocator
    from .memory_use import MemoryUse

# Allocations of at least this size must also fit in the host's remaining memory.
LARGE = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes that crossed from one memory to another.

    Attributes:
        nbytes: how many.
        source: the index of the device that they came from, -1 for the host.
        target: the index of the device that they went to, -1 for the host.
        pinned: whether the host's side is page-locked memory.
        blocking: whether the host waits until the copy ends.
    """

    nbytes: int
    source: int
    target: int
    pinned: bool = False
    blocking: bool = True


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
        taken: bytes that each device has ever given, whether freed since or not.
        requested: the bytes that were asked for, before rounding to whole blocks.
        allocations: the number of allocations.
        overflows: how often each device had too little memory.
        missing: how many bytes more were needed the last time.
        blocks: what lives on all devices, each like a `Block`, by the identity of its
            account.
        fractions: the share of its memory that each device may give.
        limits: the bytes which that is.
        history: None, or what is told of each change of memory: the action
            (``"alloc"``, ``"free"`` or ``"oom"``), the device's index, the address (of
            ``"oom"`` the bytes that are free) and the bytes. It returns what to keep
            with a new block.
        allocators: None, or the caching allocator of each device, by index.
        observers: what is told of each account that changes: its identity, the device's
            index, and the bytes that it holds from now on, None if it ends. Each is a
            ``MemoryUse``, which also knows what the memory is used for.
        notes_memory: whether the clock is told of each change of memory.
        kernels: number of kernels issued to each device.
    """

    allocators: "Sequence[CachingAllocator] | None" = None

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
        self.taken, self.overflows, self.missing = self.used[:], self.used[:], 0
        self.requested = [Count() for _ in self.used]
        self.allocations = [Count() for _ in self.used]
        self.blocks: dict[int, tuple] = {}
        self.fractions = [1.0] * len(self.used)
        self.limits = self.capacities[:]
        self.history: Callable[[str, int, int, int], Sequence] | None = None
        self.observers: tuple[MemoryUse, ...] = ()
        self.notes_memory = False
        self.logs: list[list[Copy]] = []
        # Reentrant: the garbage collector may close an account while another is opened.
        self.lock = threading.RLock()

    # -------------------------------------------------------------- memory

    def free(self, index: int) -> int:
        """Return the bytes that a device can still give."""
        return self.limits[index] - self.used[index]

    def limit(self, index: int, fraction: float) -> None:
        """Let a device give at most a fraction of its memory, from 0 to 1."""
        self.fractions[index] = fraction
        self.limits[index] = int(fraction * self.capacities[index])

    def allocated(self, index: int) -> tuple[int, int]:
        """Return the bytes that are allocated on a device, now and at the peak."""
        return self.used[index], self.peak[index]

    def reserved(self, index: int) -> tuple[int, int]:
        """Return the bytes taken from a device to allocate from, now and at the peak.

        Without a caching allocator these are the same.
        """
        return self.used[index], self.peak[index]

    def occupied(self, index: int) -> int:
        """Return the bytes that a device can't give to anybody else now."""
        return self.used[index]

    def empty_cache(self) -> None:
        """Give back what is reserved and not in use: without a cache, nothing."""

    def reserve(self, index: int, *sizes: int) -> None:
        """Raise out_of_memory unless allocations of these sizes fit; makes none."""
        rounded = sum(map(in_blocks, sizes))
        if rounded > 0 and self.used[index] + rounded > self.limits[index]:
            raise self.overflow(index, rounded)
        self.check_host(index, rounded)

    def check_host(self, index: int, nbytes: int) -> None:
        """Raise out_of_memory if the host lacks the memory for so many values."""
        if nbytes >= LARGE and self.memory_left is not None:
            left = self.memory_left()
            if left is not None and nbytes > left:
                raise self.out_of_memory(
                    f"vgpu out of memory. Tried to allocate {size_text(nbytes)}. "
                    f"GPU {index - self.first} is simulated in the host's memory, of "
                    f"which only {size_text(left)} is left."
                )

    def charge(self, index: int, nbytes: int, address: int = 0) -> Charge:
        """Account for an allocation; keep the result for as long as that lives."""
        return Charge(self, index, nbytes, address)

    def overflow(self, index: int, nbytes: int) -> Exception:
        self.overflows[index] += 1
        self.missing = nbytes - self.free(index)
        limit, capacity = self.limits[index], self.capacities[index]
        if self.history is not None:
            self.history("oom", index, capacity - self.used[index], nbytes)
        allowed = f"{size_text(limit)} allowed; " if limit < capacity else ""
        # Worded like the message of CUDACachingAllocator.cpp, plus a label.
        return self.out_of_memory(
            f"vgpu out of memory. Tried to allocate {size_text(nbytes)}. "
            f"GPU {index - self.first} has a total capacity of "
            f"{size_text(capacity)} of which "
            f"{size_text(capacity - self.used[index])} is free. {allowed}Of the "
            f"allocated memory {size_text(self.used[index])} is allocated by PyTorch. "
            f"{self.largest(index)}(Simulated memory of a virtual GPU.)"
        )

    def largest(self, index: int) -> str:
        """Return a sentence on what a device's memory is used for, if that's known."""
        return "".join(observer.largest(index) for observer in self.observers)

    def reset_peak(self, index: int) -> None:
        """Let the peaks of a device's memory be what is in use now."""
        with self.lock:
            self.peak[index] = self.used[index]
            for count in (self.requested[index], self.allocations[index]):
                count.peak = count.current

    def reset_totals(self, index: int) -> None:
        """Restart what a device has ever given at what is in use now."""
        with self.lock:
            self.taken[index], self.overflows[index] = self.used[index], 0
            for count in (self.requested[index], self.allocations[index]):
                count.total = count.current

    def record_memory(self, on: bool) -> None:
        """Let the clock note how many bytes are allocated, or stop it."""
        with self.lock:
            self.notes_memory = on and self.clock is not None
            if self.notes_memory:
                for index in self.clock.models:
                    self.note_memory(index)

    def note_memory(self, index: int) -> None:
        # Not clock.note(…): the garbage collector may come here from the clock's work.
        change = MemoryChanged(self.used[index])
        self.clock.notes.append((change, index, 0, NOBODY))

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
