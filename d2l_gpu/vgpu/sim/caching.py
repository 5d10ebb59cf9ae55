"""A machine whose devices have PyTorch's caching allocator.

`Machine` counts bytes: a program can use all memory to the last of them. Here it gets
memory as on a real GPU, in blocks of segments (``allocator.py``).
"""

from collections.abc import Callable, Hashable, Sequence

from .allocator import MIN_LARGE, CachingAllocator, OutOfMemory
from .allocator_config import MB, Config
from .clock import Moment, Part, queues
from .commands import HostWaits, Record
from .machine import Machine
from .memory import Charge, in_blocks
from .units import size_text

# As many results of an operator as these may need a segment each; see `free`.
RESULTS = 4


class CachedCharge(Charge):
    """The account of one allocation, in a block of the device's allocator."""

    __slots__ = ("block",)

    def resize(self, nbytes: int, address: int = 0) -> None:
        """Move the allocation to a block of another size.

        As in PyTorch, the old block is free only after the new one was found
        (``resize_bytes_cuda`` of ATen/native/cuda/Resize.cpp). The address is the
        allocator's, whatever is given.
        """
        machine, index = self.machine, self.index
        machine.catch_up(index)
        with machine.lock:
            block = machine.take(index, nbytes) if nbytes else None
            if self.nbytes:
                self._end()
            self.nbytes = 0 if block is None else block.size
            if machine.observers:
                self._tell(self.nbytes)
            if block is None:
                return
            self.block = block
            machine.used[index] += block.size
            machine.peak[index] = max(machine.peak[index], machine.used[index])
            entry = index, block.address, block.size, nbytes, block.frames
            machine.blocks[id(self)] = entry
            if machine.notes_memory:
                machine.note_memory(index)

    @property
    def address(self) -> int:
        return self.block.address if self.nbytes else 0

    def reserve(self, nbytes: int) -> None:
        self.machine.reserve(self.index, nbytes)

    def record_stream(self, stream: int) -> None:
        """Note that another stream works with the memory.

        Once this account ends, the block can be used again only when that stream has
        done its work so far, on the simulated clock.
        """
        with self.machine.lock:
            if self.nbytes:
                allocator = self.machine.allocators[self.index]
                allocator.record_stream(self.block, stream)

    def _end(self) -> None:
        machine, index = self.machine, self.index
        del machine.blocks[id(self)]
        machine.used[index] -= self.nbytes
        machine.allocators[index].free(self.block)
        if machine.notes_memory:
            machine.note_memory(index)


class CachingMachine(Machine):
    """Simulated devices, each with a caching allocator.

    ``used`` and ``peak`` are the bytes of tensors. What is allocated also includes the
    workspaces of cuBLAS.

    Args:
        config: the allocators' settings.
        handle: returns the cuBLAS handle that a kernel is issued with. Each thread has
            its own, and so has the thread that runs backward.
    The others are those of `Machine`.
    """

    def __init__(
        self,
        *args,
        config: Config,
        handle: Callable[[], Hashable] = lambda: queues.thread,
        **options,
    ):
        super().__init__(*args, **options)
        self.handle = handle
        self.allocators = [
            CachingAllocator(
                capacity,
                config,
                start=(i + 1) << 44,
                trace=self._tracer(i),
                record=self._recorder(i),
                passed=self._has_passed,
                wait=self._waiter(i),
            )
            for i, capacity in enumerate(self.capacities)
        ]
        for i in range(self.first, len(self.capacities)):
            self.limit(i, config.memory_fraction)
        self.workspaces: dict[tuple, object] = {}
        self._products: dict[tuple, bool] = {}
        self._time = 0

    # -------------------------------------------------------------- memory

    def allocated(self, index: int) -> tuple[int, int]:
        stat = self.allocators[index].total.allocated_bytes
        return stat.current, stat.peak

    def reserved(self, index: int) -> tuple[int, int]:
        stat = self.allocators[index].total.reserved_bytes
        return stat.current, stat.peak

    def occupied(self, index: int) -> int:
        return self.capacities[index] - self.allocators[index].device_free

    def empty_cache(self) -> None:
        with self.lock:
            for allocator in self.allocators[self.first :]:
                allocator.empty_cache()

    def free(self, index: int) -> int:
        """Return bytes that a device can give for sure, to at most four results.

        Each of them may need a segment of its own. Whether more fit depends on how the
        memory is fragmented: ``reserve`` finds out.
        """
        allocator = self.allocators[index]
        left = allocator.device_free
        if allocator.limit is not None:
            left = min(left, allocator.limit - allocator.reserved)
        return left - RESULTS * max(MIN_LARGE, allocator.config.large_segment)

    def limit(self, index: int, fraction: float) -> None:
        super().limit(index, fraction)
        self.allocators[index].restrict(fraction)

    def reserve(self, index: int, *sizes: int) -> None:
        self.catch_up(index)
        wanted = [nbytes for nbytes in sizes if nbytes > 0]
        with self.lock:
            try:
                self.allocators[index].prepare(wanted, queues.of.get(index, 0))
            except OutOfMemory as error:
                raise self.overflow(index, error.nbytes) from None
        self.check_host(index, sum(map(in_blocks, wanted)))

    def charge(self, index: int, nbytes: int, address: int = 0) -> CachedCharge:
        return CachedCharge(self, index, nbytes)

    def take(self, index: int, nbytes: int):
        """Return a block for the stream that this thread uses."""
        try:
            return self.allocators[index].malloc(nbytes, queues.of.get(index, 0))
        except OutOfMemory as error:
            raise self.overflow(index, error.nbytes) from None

    def overflow(self, index: int, nbytes: int) -> Exception:
        self.overflows[index] += 1
        allocator = self.allocators[index]
        left = allocator.device_free
        if allocator.limit is not None:
            left = min(left, allocator.limit - allocator.reserved)
        self.missing = nbytes - left
        allowed = ""
        if allocator.limit is not None:
            allowed = f"{size_text(allocator.limit)} allowed; "
        # Worded like the message of CUDACachingAllocator.cpp since PyTorch 2.10, plus a
        # label. Of a simulator's devices, the first is GPU 0, as for its gpu(0).
        return self.out_of_memory(
            f"vgpu out of memory. Tried to allocate {size_text(nbytes)}. "
            f"GPU {index - self.first} has a total capacity of "
            f"{size_text(self.capacities[index])} of which "
            f"{size_text(allocator.device_free)} is free. Including non-PyTorch "
            f"memory, this process has {size_text(self.occupied(index))} memory in "
            f"use. {allowed}Of the allocated memory {size_text(allocator.allocated)} "
            "is allocated by PyTorch, and "
            f"{size_text(allocator.reserved - allocator.allocated)} is reserved by "
            "PyTorch but unallocated. If reserved but unallocated memory is large try "
            "setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid "
            f"fragmentation. {self.largest(index)}(Simulated memory of a virtual GPU.)"
        )

    def reset_peak(self, index: int) -> None:
        with self.lock:
            super().reset_peak(index)
            self.allocators[index].reset_peaks()

    def reset_totals(self, index: int) -> None:
        with self.lock:
            super().reset_totals(index)
            self.allocators[index].reset_totals()

    # -------------------------------------------------------------- cuBLAS

    def kernel_issued(self, index: int, key: tuple) -> None:
        """Note that a kernel was issued; a product needs a workspace first.

        There's one for each handle and stream, and it's never given back
        (``setCublasWorkspace`` of ATen/cuda/CublasHandlePool.cpp).
        """
        product = self._products.get(key)
        if product is None:
            product = self._products[key] = self._is_product(key)
        if product:
            place = index, queues.of.get(index, 0), self.handle()
            if place not in self.workspaces:
                nbytes = self._workspace_bytes(index)
                self.catch_up(index)
                with self.lock:
                    block = self.take(index, nbytes) if nbytes else None
                    self.workspaces[place] = block
        super().kernel_issued(index, key)

    def _is_product(self, key: tuple) -> bool:
        """Whether cuBLAS runs a kernel; convolutions and attention have others."""
        return self.clock is not None and any(
            isinstance(part, Part) and part.product is not None and not part.algorithm
            for part in self.clock.work_of(key).parts
        )

    def _workspace_bytes(self, index: int) -> int:
        chosen = self.allocators[index].config.workspace
        model = self.clock.models[index]
        if not model.asynchronous:  # it's a CPU
            return 0
        return workspace_bytes(model.capability) if chosen is None else chosen

    # -------------------------------------------------------------- events

    def catch_up(self, index: int) -> None:
        """Find out what time it is, if blocks wait for other streams.

        Call it without holding the lock: the clock has its own.
        """
        if self.clock is not None and self.allocators[index].pending:
            self._time = self.clock.host()

    def _has_passed(self, moment: Moment) -> bool:
        return self.clock is None or self.clock.is_over(moment, self._time)

    # These run with the lock held, so they leave notes that are worked off later.

    def _recorder(self, index: int) -> Callable[[int], Moment]:
        def record(stream: int) -> Moment:
            moment = Moment()
            if self.clock is not None:
                note = Record(moment), index, stream, queues.thread
                self.clock.notes.append(note)
            return moment

        return record

    def _waiter(self, index: int) -> Callable[[Moment], None]:
        def wait(moment: Moment) -> None:
            if self.clock is not None:
                note = HostWaits(moment=moment), index, 0, queues.thread
                self.clock.notes.append(note)

        return wait

    def _tracer(self, index: int) -> Callable[[str, int, int, int], Sequence]:
        def trace(action: str, address: int, nbytes: int, stream: int) -> Sequence:
            if self.history is None:
                return ()
            return self.history(action, index, address, nbytes, stream)

        return trace


def workspace_bytes(capability: tuple[int, int]) -> int:
    """Return the bytes of a cuBLAS workspace, as PyTorch chooses them.

    They are 32 MiB from Hopper on, and 2 × 4096 KiB and 8 × 16 KiB before
    (``parseChosenWorkspaceSize`` of ATen/cuda/CublasHandlePool.cpp, whose workspaces
    cuBLASLt shares).
    """
    return 32 * MB if capability[0] >= 9 else (2 * 4096 + 8 * 16) * 1024
