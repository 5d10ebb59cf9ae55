"""Accounts of the memory of simulated devices: one for each allocation, and sums."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .machine import Machine

# CUDA's caching allocator hands out multiples of 512 bytes (kMinBlockSize in
# c10/cuda/CUDACachingAllocator.h), so a 24-byte tensor occupies 512.
BLOCK = 512


def in_blocks(nbytes: int) -> int:
    """Return the bytes of the whole blocks that nbytes occupy."""
    return nbytes + BLOCK - 1 & -BLOCK


class Count:
    """A sum that rises and falls.

    Attributes:
        current, peak: its value now, and the highest since the peak was reset.
        total: everything that was ever added, whether taken away since or not.
    """

    __slots__ = ("current", "peak", "total")

    def __init__(self):
        self.current = self.peak = self.total = 0


class Block(NamedTuple):
    """An allocation that lives.

    Attributes:
        index: of the device.
        address: of its first byte.
        nbytes: what it occupies; ``requested`` is what was asked for.
        frames: what the machine's history keeps with it.
    """

    index: int
    address: int
    nbytes: int
    requested: int
    frames: Sequence = ()


class Charge:
    """The account of one allocation, which ends when this object dies.

    Attributes:
        nbytes: what the allocation occupies. One of 0 bytes is none.
    """

    __slots__ = ("index", "machine", "nbytes")

    def __init__(self, machine: "Machine", index: int, nbytes: int, address: int = 0):
        self.machine, self.index, self.nbytes = machine, index, 0
        self.resize(nbytes, address)

    def resize(self, nbytes: int, address: int = 0) -> None:
        """Change the size of the allocation, and where it is.

        Raises out_of_memory if it doesn't fit.
        """
        # Nearly every operator comes here, so the sums are counted in place.
        machine, index, before = self.machine, self.index, self.nbytes
        rounded = nbytes + BLOCK - 1 & -BLOCK
        with machine.lock:
            used = machine.used[index] + rounded - before
            if used > machine.limits[index] and rounded > before:
                raise machine.overflow(index, rounded - before)
            if before:
                self._end()
            self.nbytes = rounded
            if machine.observers:
                self._tell(rounded)
            if not rounded:
                return
            machine.used[index] = used
            if used > machine.peak[index]:
                machine.peak[index] = used
            machine.taken[index] += rounded
            count = machine.requested[index]
            count.total += nbytes
            count.current += nbytes
            if count.current > count.peak:
                count.peak = count.current
            count = machine.allocations[index]
            count.total += 1
            count.current += 1
            if count.current > count.peak:
                count.peak = count.current
            frames = ()
            if machine.history is not None:
                frames = machine.history("alloc", index, address, rounded)
            if machine.notes_memory:
                machine.note_memory(index)
            machine.blocks[id(self)] = index, address, rounded, nbytes, frames

    @property
    def address(self) -> int | None:
        """Where a program is told that the memory is; None for where it really is."""
        return None

    def reserve(self, nbytes: int) -> None:
        """Raise out_of_memory unless the allocation can get this size."""
        self.machine.reserve(self.index, in_blocks(nbytes) - self.nbytes)

    def record_stream(self, stream: int) -> None:
        """Note that another stream works with the memory.

        There's nothing to do here: it's free again as soon as the account ends.
        """

    def _end(self) -> None:
        """Give the memory back."""
        machine, index = self.machine, self.index
        _, address, nbytes, requested, _ = machine.blocks.pop(id(self))
        machine.used[index] -= nbytes
        machine.requested[index].current -= requested
        machine.allocations[index].current -= 1
        if machine.history is not None:
            machine.history("free", index, address, nbytes)
        if machine.notes_memory:
            machine.note_memory(index)

    def _tell(self, nbytes: int | None) -> None:
        for observer in self.machine.observers:
            observer(id(self), self.index, nbytes)

    def __del__(self):
        with self.machine.lock:
            if self.nbytes:
                self._end()
            if self.machine.observers:
                self._tell(None)
