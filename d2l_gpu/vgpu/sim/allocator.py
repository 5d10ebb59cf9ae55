"""PyTorch's caching allocator for one simulated GPU.

A real GPU hands out memory slowly, so PyTorch takes *segments* from it, cuts them into
*blocks*, and keeps what is freed for the next request. So a program *reserves* more
than it has *allocated*, and memory can be free and yet too fragmented to be used.

The rules are those of PyTorch 2.13: ``c10/cuda/CUDACachingAllocator.cpp`` with the
constants of ``c10/core/AllocatorConfig.h``. Comments name the function of the first
file that a rule comes from. Left out are CUDA graphs and memory pools of one's own.

Two things are ours. CUDA chooses addresses as it likes; here, each new segment lies
behind all earlier ones. And getting memory from the GPU takes no simulated time.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from .allocator_config import MB, Config
from .units import size_text

SMALL_SIZE = MB  # kSmallSize: larger requests are served by the large pool
SMALL_SEGMENT = 2 * MB  # kSmallBuffer: what the small pool takes from the GPU
MIN_LARGE = 10 * MB  # kMinLargeAlloc: larger requests get a segment of their own size
ROUND_LARGE = 2 * MB  # kRoundLarge: of which that size is a multiple
MIN_BLOCK = 512  # kMinBlockSize

# Where the addresses of a device begin if nobody says otherwise.
START = 1 << 44


class OutOfMemory(MemoryError):
    """A request that the allocator couldn't serve.

    Attributes:
        nbytes: what it asked the GPU for: the size of a segment, as in PyTorch's error.
    """

    def __init__(self, nbytes: int, free: int, allocated: int, reserved: int):
        self.nbytes = nbytes
        super().__init__(
            f"Tried to allocate {size_text(nbytes)}, but the GPU has only "
            f"{size_text(free)} left. {size_text(allocated)} are allocated, and "
            f"{size_text(reserved - allocated)} are reserved but unallocated."
        )


class Stat:
    """A sum that rises and falls.

    Attributes:
        current, peak: its value now, and the highest since the peak was reset.
        allocated, freed: what was ever added, and taken away, since that was reset.
    """

    __slots__ = ("allocated", "current", "freed", "peak")

    def __init__(self):
        self.current = self.peak = self.allocated = self.freed = 0

    def up(self, amount: int) -> None:
        self.allocated += amount
        self.current += amount
        if self.current > self.peak:
            self.peak = self.current

    def down(self, amount: int) -> None:
        self.freed += amount
        self.current -= amount


class Stats:
    """What PyTorch counts for a pool, or for both together (``DeviceStats``)."""

    __slots__ = NAMES = (
        "active",
        "active_bytes",
        "allocated_bytes",
        "allocation",
        "inactive_split",
        "inactive_split_bytes",
        "requested_bytes",
        "reserved_bytes",
        "segment",
    )

    def __init__(self):
        for name in self.NAMES:
            setattr(self, name, Stat())


class Block:
    """A piece of a segment, in use or free.

    Attributes:
        address, size: of the piece; ``requested`` is what was asked for.
        stream: the stream that it was allocated on, the only one that may get it again.
        allocated: whether it's in use.
        mapped: whether there's memory behind its addresses; see `Expandable`.
        prev, next: its neighbours in the segment.
        uses: the other streams that work with it (``record_stream``).
        events: how many of them haven't finished yet, once it's freed.
        frames, segment_frames: what the trace returned for the block, and, for a
            segment's first block, for the segment.
    """

    __slots__ = (
        "address",
        "allocated",
        "events",
        "expandable",
        "frames",
        "mapped",
        "next",
        "pool",
        "prev",
        "requested",
        "searches",
        "segment_frames",
        "size",
        "stream",
        "uses",
    )

    def __init__(self, pool: "Pool", stream: int, address: int, size: int):
        self.pool, self.stream, self.address, self.size = pool, stream, address, size
        self.requested = self.events = self.searches = 0
        self.allocated, self.mapped = False, True
        self.prev: Block | None = None
        self.next: Block | None = None
        self.expandable: Expandable | None = None
        self.uses: set[int] = set()
        self.frames: Sequence = ()
        self.segment_frames: Sequence = ()

    @property
    def is_split(self) -> bool:
        return self.prev is not None or self.next is not None

    @property
    def is_active(self) -> bool:
        """Whether it's allocated, or freed while another stream still works with it."""
        return self.allocated or self.events > 0

    def __repr__(self) -> str:
        state = "allocated" if self.allocated else "free"
        return f"<Block {self.address:#x}, {size_text(self.size)}, {state}>"

    def put_between(self, before: "Block | None", after: "Block | None") -> None:
        self.prev, self.next = before, after
        if before is not None:
            before.next = self
        if after is not None:
            after.prev = self


class Expandable(NamedTuple):
    """Addresses for a whole GPU, of which only some have memory behind them.

    Memory is mapped to them in pages as the program needs it, so one segment for each
    pool and stream grows in place of many segments.
    """

    address: int
    size: int
    page: int

    def pages(self, address: int, size: int) -> tuple[int, int]:
        """Return the first address of the pages that a range touches, and their end."""
        begin, end = address - self.address, address + size - self.address
        return (
            self.address + begin // self.page * self.page,
            self.address - -end // self.page * self.page,
        )

    def pages_inside(self, address: int, size: int) -> tuple[int, int]:
        """Return the first address of the pages that lie in a range, and their end."""
        begin, end = address - self.address, address + size - self.address
        return (
            self.address - -begin // self.page * self.page,
            self.address + end // self.page * self.page,
        )


class Pool:
    """The free blocks for small or for large requests, smallest first (``BlockPool``).

    Attributes:
        free: stream, size, address and block of each free block that has memory.
        unmapped: stream, address and block of each that has none.
        stats: what is counted for both pools, and for this one.
        searches: how often a free block was looked for, to tell how old they are.
    """

    def __init__(self, small: bool, total: Stats):
        self.small, self.stats = small, (total, Stats())
        self.free: list[tuple[int, int, int, Block]] = []
        self.unmapped: list[tuple[int, int, Block]] = []
        self.searches = 0

    def insert(self, block: Block) -> None:
        block.searches = self.searches
        insort(self.free, (block.stream, block.size, block.address, block))

    def remove(self, block: Block) -> None:
        del self.free[bisect_left(self.free, (block.stream, block.size, block.address))]

    def insert_unmapped(self, block: Block) -> None:
        insort(self.unmapped, (block.stream, block.address, block))

    def remove_unmapped(self, block: Block) -> None:
        del self.unmapped[bisect_left(self.unmapped, (block.stream, block.address))]


class Segment(NamedTuple):
    """Memory that the allocator has taken from the GPU, and what is in it.

    Attributes:
        blocks: in the order of their addresses; they fill the segment.
    """

    address: int
    size: int
    stream: int
    small: bool
    expandable: bool
    blocks: list[Block]
    frames: Sequence


class CachingAllocator:
    """Hands out the memory of one GPU as PyTorch does.

    It doesn't lock anything: callers from several threads have to. A block may be freed
    by the garbage collector in the middle of another call; it's freed at the end then.

    Args:
        capacity: bytes of the GPU's memory.
        config: settings as in ``PYTORCH_CUDA_ALLOC_CONF``, such as
            ``'expandable_segments:True'``; see `Config`.
        start: the first address.
        trace: is told of each event: the action, named as in PyTorch's snapshots, the
            address, the bytes and the stream; for ``"oom"``, the bytes that the GPU has
            left in place of the address. Returns what to keep with a block or segment.
        record: returns an event that comes once a stream has done its work so far.
        passed: whether such an event has come; without a clock, it always has.
        wait: waits for one.
    Attributes:
        limit: the bytes that may be reserved, None if the GPU's memory is the limit.
        pending: whether freed blocks wait for other streams.
        retries, ooms, syncs, device_allocs, device_frees: counts of events.
    Raises:
        ValueError: the settings make no sense.
    """

    def __init__(
        self,
        capacity: int,
        config: str | Config = "",
        *,
        start: int = START,
        trace: Callable[[str, int, int, int], Sequence] = lambda *event: (),
        record: Callable[[int], object] = lambda stream: None,
        passed: Callable[[object], bool] = lambda event: True,
        wait: Callable[[object], None] = lambda event: None,
    ):
        if isinstance(config, str):
            config = Config.parse(config)
        self.capacity, self.config = capacity, config
        self.limit: int | None = None
        self.trace, self.record, self.passed, self.wait = trace, record, passed, wait
        self.total = Stats()
        self.small, self.large = Pool(True, self.total), Pool(False, self.total)
        self.oversize_allocations, self.oversize_segments = Stat(), Stat()
        self.retries = self.ooms = self.syncs = 0
        self.device_allocs = self.device_frees = 0
        self._active: set[Block] = set()
        self._pending: dict[int, deque[tuple[object, Block]]] = {}
        self._next_address = start
        self._busy = False
        self._late: list[Block] = []
        self.restrict(config.memory_fraction)

    @property
    def allocated(self) -> int:
        """The bytes of all blocks in use."""
        return self.total.allocated_bytes.current

    @property
    def reserved(self) -> int:
        """The bytes that were taken from the GPU."""
        return self.total.reserved_bytes.current

    @property
    def device_free(self) -> int:
        """The bytes that the GPU has left."""
        return self.capacity - self.config.context - self.reserved

    @property
    def pending(self) -> bool:
        return bool(self._pending)

    def restrict(self, fraction: float) -> None:
        """Reserve at most a fraction of the GPU's memory (``setMemoryFraction``)."""
        self.limit = None if fraction >= 1 else int(fraction * self.capacity)

    # -------------------------------------------------------------- requests

    def malloc(self, nbytes: int, stream: int = 0) -> Block:
        """Return a block of at least nbytes for a stream.

        Raises:
            OutOfMemory: there is none, even without everything that is cached.
        """
        self._begin()
        try:
            self._process_events()
            block = self._take(self.config.rounded(nbytes), stream)
            block.allocated, block.requested = True, nbytes
            self._active.add(block)
            block.frames = self.trace("alloc", block.address, nbytes, stream)
            size = block.size
            for stats in block.pool.stats:
                stats.allocation.up(1)
                stats.allocated_bytes.up(size)
                stats.active.up(1)
                stats.active_bytes.up(size)
                stats.requested_bytes.up(nbytes)
            if size >= self.config.max_split:
                self.oversize_allocations.up(1)
            return block
        finally:
            self._end()

    def free(self, block: Block) -> None:
        """Take a block back.

        If other streams work with it, it's kept until they have done their work so far.

        Raises:
            ValueError: the block isn't in use.
        """
        if self._busy:  # the garbage collector runs in the middle of another call
            self._late.append(block)
            return
        if not block.allocated:
            raise ValueError(f"{block!r} is not in use, so it cannot be freed.")
        self._begin()
        try:
            block.allocated = False
            for stats in block.pool.stats:
                stats.allocation.down(1)
                stats.allocated_bytes.down(block.size)
            self.trace("free_requested", block.address, block.requested, block.stream)
            if block.size >= self.config.max_split:
                self.oversize_allocations.down(1)
            if block.uses:  # insert_events
                for stream in sorted(block.uses):
                    event = self.record(stream)
                    self._pending.setdefault(stream, deque()).append((event, block))
                block.events = len(block.uses)
                block.uses = set()
            else:
                self._complete(block)
        finally:
            self._end()

    def record_stream(self, block: Block, stream: int) -> None:
        """Note that another stream than its own works with a block."""
        if stream != block.stream:
            block.uses.add(stream)

    def empty_cache(self) -> None:
        """Give the segments back to the GPU in which no block is in use."""
        self._begin()
        try:
            self._release_cached()
        finally:
            self._end()

    def prepare(self, sizes: Iterable[int], stream: int = 0) -> None:
        """Make sure that requests of these sizes can be served now.

        They are counted when they come, but memory that they need is reserved here.

        Raises:
            OutOfMemory: they can't all be served.
        """
        self._begin()
        taken: list[Block] = []
        try:
            self._process_events()
            for nbytes in sizes:
                taken.append(self._take(self.config.rounded(nbytes), stream))
                self._active.add(taken[-1])
                taken[-1].allocated = True  # so that it isn't merged with others
        finally:
            for block in taken:
                block.allocated = False
                self._put_back(block)
            self._end()

    def _begin(self) -> None:
        if self._busy:
            raise RuntimeError("A finalizer needs memory while memory is allocated.")
        self._busy = True

    def _end(self) -> None:
        self._busy = False
        while self._late:
            self.free(self._late.pop())

    # -------------------------------------------------------------- taking blocks

    def _take(self, size: int, stream: int) -> Block:
        """Return a block of this size, cut off a larger one if the rest is worth it.

        It's the order of ``malloc``: a cached block; a new segment; a new segment in
        place of oversize blocks; a new segment in place of everything cached.
        """
        pool = self.small if size <= SMALL_SIZE else self.large
        block = self._cached(size, stream, pool)
        if block is None:
            if self.limit is not None and self.config.collect_above:
                self._collect_garbage()
            block = self._new(size, stream, pool)
            if block is None and self._release_oversize(size, stream, pool):
                block = self._new(size, stream, pool)
            if block is None:
                self._release_cached()
                self.retries += 1
                block = self._new(size, stream, pool)
            if block is None:
                self.ooms += 1
                free = self.device_free
                self.trace("oom", free, size, stream)
                nbytes = self.segment_size(size)
                raise OutOfMemory(nbytes, free, self.allocated, self.reserved)
        return self._split(block, size)

    def segment_size(self, size: int) -> int:
        """Return the bytes to ask the GPU for (``get_allocation_size``).

        A request of 1 to 10 MiB gets a segment of 20 MiB to share with others. That
        isn't a constant: ``large_segment_size_mb`` changes it.
        """
        if size <= SMALL_SIZE:
            return SMALL_SEGMENT
        if size < MIN_LARGE:
            return self.config.large_segment
        return -(-size // ROUND_LARGE) * ROUND_LARGE

    def _cached(self, size: int, stream: int, pool: Pool) -> Block | None:
        """Take the smallest free block of a stream that fits (``get_free_block``)."""
        if self.limit is not None and self.config.collect_above:
            pool.searches += 1
        free = pool.free
        i = bisect_left(free, (stream, size))
        if i == len(free) or free[i][0] != stream:
            return None
        block = free[i][3]
        if block.expandable is not None:
            # A block that can grow counts with all the room that it can grow into. So
            # a larger block is better if there's less room behind it.
            while i + 1 < len(free) and free[i + 1][0] == stream:
                other = free[i + 1][3]
                if _room(other) >= _room(block):
                    break
                i, block = i + 1, other
        # A block that's too large to be split serves only requests that are too.
        most = self.config.max_split
        if size < most <= block.size:
            return None
        if size >= most and block.size >= size + self.config.max_rounding:
            return None
        del free[i]
        return block

    def _split(self, block: Block, size: int) -> Block:
        """Cut a block off, if the rest is worth it (``alloc_found_block``)."""
        pool, was_split = block.pool, block.is_split
        counted = pool.stats if block.expandable is None else ()
        if self._is_worth_splitting(block, size):
            rest, block = block, Block(pool, block.stream, block.address, size)
            block.expandable = rest.expandable
            block.segment_frames, rest.segment_frames = rest.segment_frames, ()
            rest.address += size
            rest.size -= size
            block.put_between(rest.prev, rest)
            pool.insert(rest)
            for stats in counted:
                if was_split:
                    stats.inactive_split_bytes.down(size)
                else:
                    stats.inactive_split_bytes.up(rest.size)
                    stats.inactive_split.up(1)
        elif was_split:
            for stats in counted:
                stats.inactive_split_bytes.down(block.size)
                stats.inactive_split.down(1)
        return block

    def _is_worth_splitting(self, block: Block, size: int) -> bool:
        """Follow ``should_split``: in the large pool, a rest up to 1 MiB is wasted."""
        rest = block.size - size
        if block.pool.small or self.config.expandable:
            return rest >= MIN_BLOCK
        return size < self.config.max_split and rest > SMALL_SIZE

    def _new(self, size: int, stream: int, pool: Pool) -> Block | None:
        """Take memory from the GPU (``alloc_block``); None if there isn't enough."""
        nbytes = self.segment_size(size)
        # Also where segments are expandable, and need less than that.
        if self.limit is not None and self.reserved + nbytes > self.limit:
            return None
        if self.config.expandable:
            return self._grow(size, stream, pool)
        if nbytes > self.device_free:
            return None
        block = Block(pool, stream, self._addresses(nbytes), nbytes)
        for stats in pool.stats:
            stats.segment.up(1)
            stats.reserved_bytes.up(nbytes)
        if nbytes >= self.config.max_split:
            self.oversize_segments.up(1)
        self.device_allocs += 1
        block.segment_frames = self.trace(
            "segment_alloc", block.address, nbytes, stream
        )
        return block

    def _addresses(self, nbytes: int) -> int:
        address = self._next_address
        self._next_address += nbytes
        return address

    # -------------------------------------------------------------- freeing blocks

    def _complete(self, block: Block) -> None:
        """Free a block that no stream works with any more."""
        self.trace("free_completed", block.address, block.requested, block.stream)
        for stats in block.pool.stats:
            stats.active.down(1)
            stats.active_bytes.down(block.size)
            stats.requested_bytes.down(block.requested)
        self._put_back(block)

    def _put_back(self, block: Block) -> None:
        """Merge a block with its free neighbours, and keep it (``free_block``)."""
        pool = block.pool
        self._active.discard(block)
        block.requested, block.frames = 0, ()
        merged = [self._merge(block, block.prev), self._merge(block, block.next)]
        pool.insert(block)
        if block.expandable is not None:
            return  # as their pages can be given back, they don't count as split
        number = block.is_split - sum(size > 0 for size in merged)
        nbytes = block.is_split * block.size - sum(merged)
        for stats in pool.stats:
            _change(stats.inactive_split, number)
            _change(stats.inactive_split_bytes, nbytes)

    def _merge(self, block: Block, other: Block | None) -> int:
        """Let a block take in a free neighbour (``try_merge_blocks``).

        Returns:
            The bytes of the neighbour, 0 if it isn't free.
        """
        if other is None or other.is_active or other.mapped != block.mapped:
            return 0
        if other.mapped:
            other.pool.remove(other)
        else:
            other.pool.remove_unmapped(other)
        if block.prev is other:
            block.address, block.segment_frames = other.address, other.segment_frames
            block.put_between(other.prev, block.next)
        else:
            block.put_between(block.prev, other.next)
        block.size += other.size
        return other.size

    # -------------------------------------------------------------- other streams

    def _process_events(self) -> None:
        """Free the blocks that other streams have finished with, in their order."""
        for stream, waiting in list(self._pending.items()):
            while waiting and self.passed(waiting[0][0]):
                self._event_passed(waiting.popleft()[1])
            if not waiting:
                del self._pending[stream]

    def _wait_for_events(self) -> None:
        """Wait until other streams have finished (``synchronize_and_free_events``)."""
        self.syncs += 1
        for waiting in self._pending.values():
            while waiting:
                event, block = waiting.popleft()
                self.wait(event)
                self._event_passed(block)
        self._pending.clear()

    def _event_passed(self, block: Block) -> None:
        block.events -= 1
        if not block.events:
            self._complete(block)

    # -------------------------------------------------------------- giving memory back

    def _release_cached(self) -> None:
        """Give back each segment that is one free block (``release_cached_blocks``)."""
        self._wait_for_events()
        for pool in (self.large, self.small):
            for *_, block in pool.free[:]:
                if block.expandable is not None:
                    self._unmap(block)
                elif not block.is_split:
                    self._release(block)

    def _release(self, block: Block) -> None:
        """Give a segment back that is one free block (``release_block``)."""
        pool = block.pool
        self.device_frees += 1
        self.trace("segment_free", block.address, block.size, block.stream)
        for stats in pool.stats:
            stats.segment.down(1)
            stats.reserved_bytes.down(block.size)
        if block.size >= self.config.max_split:
            self.oversize_segments.down(1)
        pool.remove(block)

    def _release_oversize(self, size: int, stream: int, pool: Pool) -> bool:
        """Give back oversize blocks of a stream, enough for a request if possible.

        That's one that is large enough, or else the largest ones
        (``release_available_cached_blocks``).

        Returns:
            Whether they are enough.
        """
        most = self.config.max_split
        if most == Config.UNLIMITED:
            return False
        wanted = max(size, most)
        i = bisect_left(pool.free, (stream, wanted))
        if i < len(pool.free) and pool.free[i][0] == stream:
            block = pool.free[i][3]
            if block.expandable is None:
                self._release(block)
                return True
        released = 0
        while i > 0 and released < wanted:
            i -= 1
            owner, nbytes, _, block = pool.free[i]
            if owner != stream or nbytes < most:
                break
            if block.expandable is None:
                released += nbytes
                self._release(block)
        return released >= wanted

    def _collect_garbage(self) -> None:
        """Give back large segments that nothing has used for long.

        (``garbage_collect_cached_blocks``; it does so only where the program may use a
        fraction of the GPU's memory.)
        """
        excess = self.reserved - int(self.config.collect_above * self.limit)
        if excess <= 0:
            return
        blocks = [block for *_, block in self.large.free if not block.is_split]
        ages = {block: self.large.searches - block.searches for block in blocks}
        reclaimed = 0
        while reclaimed < excess and ages:
            average = sum(ages.values()) / len(ages)
            old = [block for block, age in ages.items() if age >= average]
            for block in old:
                del ages[block]
                reclaimed += block.size
                self._release(block)

    # -------------------------------------------------------------- expandable segments

    def _grow(self, size: int, stream: int, pool: Pool) -> Block | None:
        """Take a block by mapping pages (``try_allocate_expandable_block``)."""
        block = self._find_addresses(size, stream, pool)
        if not block.mapped and not self._map(block, min(block.size, size)):
            return None
        while block.size < size:
            following = block.next
            if not self._map(following, min(size - block.size, following.size)):
                return None
            block = following
        pool.remove(block)
        return block

    def _find_addresses(self, size: int, stream: int, pool: Pool) -> Block:
        """Return the first of free blocks with enough addresses in a row.

        It's the lowest one at which pages have to be mapped, and it may have memory
        already (``find_expandable_block``).
        """
        i = bisect_left(pool.unmapped, (stream,))
        for owner, _, block in pool.unmapped[i:]:
            if owner != stream:
                break
            if block.prev is not None and not block.prev.is_active:
                block = block.prev
            room, other = 0, block
            while room < size and other is not None and not other.is_active:
                room, other = room + other.size, other.next
            if room >= size:
                return block
        page = SMALL_SEGMENT if pool.small else self.config.large_segment
        # Addresses for an eighth more than the GPU has, so that pages can move
        # (the constructor of ExpandableSegment).
        nbytes = -(-(self.capacity + self.capacity // 8) // page) * page
        expandable = Expandable(self._addresses(nbytes), nbytes, page)
        block = Block(pool, stream, expandable.address, nbytes)
        block.mapped, block.expandable = False, expandable
        pool.insert_unmapped(block)
        return block

    def _map(self, block: Block, size: int) -> bool:
        """Map whole pages to the beginning of a block (``map_block``)."""
        pool, stream = block.pool, block.stream
        begin, end = block.expandable.pages(block.address, size)
        nbytes = end - begin
        if nbytes > self.device_free:
            return False
        pool.remove_unmapped(block)
        block.mapped = True
        if nbytes < block.size:
            rest = Block(pool, stream, block.address + nbytes, block.size - nbytes)
            rest.mapped, rest.expandable = False, block.expandable
            rest.put_between(block, block.next)
            pool.insert_unmapped(rest)
            block.size = nbytes
        self._merge(block, block.prev)
        self._merge(block, block.next)
        pool.insert(block)
        for stats in pool.stats:
            stats.reserved_bytes.up(nbytes)
        self.device_allocs += 1
        frames = self.trace("segment_map", begin, nbytes, stream)
        if block.prev is None and not block.segment_frames:
            block.segment_frames = frames
        return True

    def _unmap(self, block: Block) -> None:
        """Give back the pages that are free as a whole (``unmap_block``)."""
        pool, stream = block.pool, block.stream
        begin, end = block.expandable.pages_inside(block.address, block.size)
        nbytes = end - begin
        if nbytes <= 0:
            return
        pool.remove(block)
        before, after = begin - block.address, block.address + block.size - end
        if before:
            rest = Block(pool, stream, block.address, before)
            rest.expandable = block.expandable
            rest.segment_frames, block.segment_frames = block.segment_frames, ()
            rest.put_between(block.prev, block)
            pool.insert(rest)
        if after:
            rest = Block(pool, stream, end, after)
            rest.expandable = block.expandable
            rest.put_between(block, block.next)
            pool.insert(rest)
        block.address, block.size, block.mapped = begin, nbytes, False
        block.segment_frames = ()
        self._merge(block, block.prev)
        self._merge(block, block.next)
        # If that is the whole of its addresses, they are given back as well.
        if block.is_split:
            pool.insert_unmapped(block)
        for stats in pool.stats:
            stats.reserved_bytes.down(nbytes)
        self.device_frees += 1
        self.trace("segment_unmap", begin, nbytes, stream)

    # -------------------------------------------------------------- what there is

    def segments(self) -> list[Segment]:
        """Return everything that was taken from the GPU, in the order of addresses.

        Of an expandable segment, each part with memory behind it is a segment.
        """
        free = [block for pool in (self.small, self.large) for *_, block in pool.free]
        found = []
        for block in [*free, *self._active]:
            if block.prev is not None and block.prev.mapped:
                continue
            blocks = [block]
            while blocks[-1].next is not None and blocks[-1].next.mapped:
                blocks.append(blocks[-1].next)
            found.append(
                Segment(
                    block.address,
                    sum(each.size for each in blocks),
                    block.stream,
                    block.pool.small,
                    block.expandable is not None,
                    blocks,
                    block.segment_frames,
                )
            )
        return sorted(found, key=lambda segment: segment.address)

    def statistics(self) -> dict[str, int]:
        """Return bytes and counts under the names of ``torch.cuda.memory_stats``."""
        most = self.config.max_split
        found = {
            "max_split_size": -1 if most == Config.UNLIMITED else most,
            "num_alloc_retries": self.retries,
            "num_device_alloc": self.device_allocs,
            "num_device_free": self.device_frees,
            "num_oom_rejections": 0,
            "num_ooms": self.ooms,
            "num_sync_all_streams": self.syncs,
        }
        for name, stat in self._stats().items():
            for when in ("allocated", "current", "freed", "peak"):
                found[f"{name}.{when}"] = getattr(stat, when)
        return dict(sorted(found.items()))

    def reset_peaks(self) -> None:
        for stat in self._stats().values():
            stat.peak = stat.current

    def reset_totals(self) -> None:
        """Restart counts of events at 0, and what was ever added and taken away."""
        for stat in self._stats().values():
            stat.allocated = stat.freed = 0
        self.retries = self.ooms = self.syncs = 0
        self.device_allocs = self.device_frees = 0

    def _stats(self) -> dict[str, Stat]:
        pools = {
            "all": self.total,
            "large_pool": self.large.stats[1],
            "small_pool": self.small.stats[1],
        }
        return {
            f"{name}.{pool}": getattr(stats, name)
            for pool, stats in pools.items()
            for name in Stats.NAMES
        } | {
            "oversize_allocations": self.oversize_allocations,
            "oversize_segments": self.oversize_segments,
        }


def _room(block: Block) -> int:
    """Return the size that a block can grow to."""
    following = block.next
    grows = following is not None and not following.mapped
    return block.size + (following.size if grows else 0)


def _change(stat: Stat, amount: int) -> None:
    if amount > 0:
        stat.up(amount)
    elif amount < 0:
        stat.down(-amount)
