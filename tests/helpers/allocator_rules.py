"""The rules of PyTorch's caching allocator, transcribed: slow, simple and independent.

Tests compare the allocator of the virtual GPUs with this one. It was written from
PyTorch's source alone, before looking at that allocator: from
c10/cuda/CUDACachingAllocator.cpp at commit eb42ad6eca0c, and, where PyTorch 2.13
differs (`per_process_memory_fraction`, `large_segment_size_mb` and
`max_non_split_rounding_mb`), from c10/core/AllocatorConfig.h, c10/core/
AllocatorConfig.cpp and the later CUDACachingAllocator.cpp. A comment names the function
that each rule comes from.

Every block is an object in the list of its segment; every search goes through all of
them. Addresses begin at 0, and a new segment lies behind every earlier one, released or
not, because where cudaMalloc puts memory is up to the driver. Left out: CUDA graphs,
private pools, uses by other streams (`record_stream`), several devices, and options
that change while the allocator is in use.
"""

from dataclasses import dataclass, field

MB = 2**20
MIN_BLOCK = 512  # kMinBlockSize
SMALL = MB  # kSmallSize: the largest request of the small pool
SMALL_SEGMENT = 2 * MB  # kSmallBuffer
MIN_LARGE = 10 * MB  # kMinLargeAlloc: from here on, segments are as big as requests
ROUND_LARGE = 2 * MB  # kRoundLarge
INTERVALS = 16  # kRoundUpPowerOfTwoIntervals: from 1 MB to 64 GB
NEVER = 2**64 - 1

USED, FREE, UNMAPPED = "used", "free", "unmapped"


@dataclass(eq=False)
class Block:
    address: int
    size: int
    segment: "Segment"
    state: str = FREE
    since: int = 0  # gc_count_base: how many searches its pool had seen when it came in


@dataclass(eq=False)
class Segment:
    """One cudaMalloc, or the address space of one expandable segment."""

    stream: int
    large: bool
    page: int  # what an expandable segment maps at a time; 0 if it isn't expandable
    blocks: list[Block] = field(default_factory=list)


class Rules:
    """A caching allocator for one device with `capacity` bytes; sizes are in bytes.

    `roundup_power2_divisions` is one number for all sizes or a list like
    `[(64, 8), (256, 4), (">", 1)]`, where the keys are megabytes.
    `garbage_collection_threshold` works only together with
    `per_process_memory_fraction` below 1, as in PyTorch.
    """

    def __init__(
        self,
        capacity: int,
        *,
        max_split_size: int | None = None,
        roundup_power2_divisions=None,
        garbage_collection_threshold: float | None = None,
        expandable_segments: bool = False,
        per_process_memory_fraction: float | None = None,
        large_segment_size: int = 20 * MB,
        max_non_split_rounding: int | None = None,
    ):
        self.capacity = capacity
        self.max_split = NEVER if max_split_size is None else max_split_size
        self.divisions = divisions_table(roundup_power2_divisions)
        self.threshold = garbage_collection_threshold or 0.0
        self.expandable = expandable_segments
        fraction = per_process_memory_fraction
        # setMemoryFraction (2.13): a fraction of 1 sets no limit.
        limited = fraction is not None and fraction < 1
        self.allowed = int(fraction * capacity) if limited else None
        self.large_segment = large_segment_size
        # AcceleratorAllocatorConfig::parseArgs (2.13)
        self.rounding = max_non_split_rounding or large_segment_size
        self.memory: list[Segment] = []
        self.end = 0  # of the highest segment so far
        self.searches = {True: 0, False: 0}  # get_free_blocks_call_count, by `large`

    # What users call.

    def malloc(self, nbytes: int, stream: int = 0) -> int:
        """The address of a new block; MemoryError if there is no room."""
        size = self.round_size(nbytes)
        large = size > SMALL  # get_pool
        block = self.get_free_block(size, large, stream)
        if block is None:
            if self.collects():
                self.garbage_collect_cached_blocks()
            block = self.alloc_block(size, large, stream)
            if block is None and self.release_available(size, large, stream):
                block = self.alloc_block(size, large, stream)
            if block is None:
                self.empty_cache()
                block = self.alloc_block(size, large, stream)
            if block is None:
                raise MemoryError(f"{nbytes} bytes don't fit.")
        if self.should_split(block, size):
            self.split(block, size)  # alloc_found_block
        block.state = USED
        return block.address

    def free(self, address: int) -> None:
        """Return the block at `address` to its pool, merged with free neighbours."""
        for block in self.blocks(USED):
            if block.address == address:
                block.state = FREE
                self.merge(block)  # free_block
                self.insert(block)
                return
        raise ValueError(f"No block is in use at {address}.")

    def empty_cache(self) -> None:
        """Release all that isn't in use: release_cached_blocks, release_blocks."""
        for block in self.blocks(FREE):
            if block.segment.page:
                self.unmap_block(block)
            elif len(block.segment.blocks) == 1:
                self.release_block(block)

    @property
    def reserved(self) -> int:
        return sum(block.size for block in self.blocks(USED, FREE))

    @property
    def allocated(self) -> int:
        return sum(block.size for block in self.blocks(USED))

    def segments(self) -> list[tuple]:
        """`(address, size, is_large, stream, [(offset, size, allocated), ...])` each.

        As in snapshot(), each contiguous mapped part of an expandable segment counts
        as a segment.
        """
        found = []
        for segment in self.memory:
            part = None
            for block in segment.blocks:
                if block.state == UNMAPPED:
                    part = None
                    continue
                if part is None:
                    part = [block.address, 0, segment.large, segment.stream, []]
                    found.append(part)
                part[4].append((part[1], block.size, block.state == USED))
                part[1] += block.size
        return sorted(map(tuple, found))

    # Sizes.

    def round_size(self, size: int) -> int:
        """round_size and roundup_power2_next_division."""
        if size < MIN_BLOCK:
            return MIN_BLOCK
        # AcceleratorAllocatorConfig::roundup_power2_divisions(size)
        interval = min(max(size.bit_length() - 1 - 20, 0), INTERVALS - 1)
        divisions = self.divisions[interval]
        if divisions > 0 and size > MIN_BLOCK * divisions:
            floor = 2 ** (size.bit_length() - 1)
            if divisions == 1 or size == floor:
                return size  # with one division not even a multiple of 512
            return round_up(size, floor // divisions)
        return round_up(size, MIN_BLOCK)

    def get_allocation_size(self, size: int) -> int:
        if size <= SMALL:
            return SMALL_SEGMENT
        if size < MIN_LARGE:
            return self.large_segment
        return round_up(size, ROUND_LARGE)

    def should_split(self, block: Block, size: int) -> bool:
        remaining = block.size - size
        if not block.segment.large or self.expandable:
            return remaining >= MIN_BLOCK
        return size < self.max_split and remaining > SMALL

    # Pools.

    def blocks(self, *states: str) -> list[Block]:
        every = [block for segment in self.memory for block in segment.blocks]
        return [block for block in every if block.state in states]

    def pool(self, large: bool, stream: int, state: str = FREE) -> list[Block]:
        """Its blocks for one stream, by size and address: BlockComparatorSize."""
        blocks = [
            block
            for block in self.blocks(state)
            if block.segment.large == large and block.segment.stream == stream
        ]
        return sorted(blocks, key=lambda block: (block.size, block.address))

    def insert(self, block: Block) -> None:
        """insert_into_blocks: the age of a free block begins anew."""
        block.since = self.searches[block.segment.large]

    def get_free_block(self, size: int, large: bool, stream: int) -> Block | None:
        if self.collects():
            self.searches[large] += 1
        fitting = [b for b in self.pool(large, stream) if b.size >= size]
        if not fitting:
            return None
        best = fitting.pop(0)
        # What counts for expandable segments is the size that a block can grow to.
        while best.segment.page and fitting and room(fitting[0]) < room(best):
            best = fitting.pop(0)
        if size < self.max_split <= best.size:
            return None  # oversize blocks aren't for small requests
        if size >= self.max_split and best.size >= size + self.rounding:
            return None  # nor for those that would waste too much of them
        return best

    def split(self, block: Block, size: int) -> Block:
        """Shorten `block` to `size`; the remainder behind it is in the state it had."""
        rest = Block(
            block.address + size, block.size - size, block.segment, block.state
        )
        block.size = size
        beside = block.segment.blocks
        beside.insert(beside.index(block) + 1, rest)
        self.insert(rest)
        return rest

    def merge(self, block: Block) -> None:
        """try_merge_blocks with both neighbours, if they are in the same state."""
        beside = block.segment.blocks
        before, after = neighbours(block)
        if before and before.state == block.state:
            block.address = before.address
            block.size += before.size
            beside.remove(before)
        if after and after.state == block.state:
            block.size += after.size
            beside.remove(after)

    # Memory of the device.

    def alloc_block(self, size: int, large: bool, stream: int) -> Block | None:
        total = self.get_allocation_size(size)
        # Expandable segments have to keep to the limit as if they called cudaMalloc.
        if self.allowed is not None and self.reserved + total > self.allowed:
            return None
        if self.expandable:
            return self.try_allocate_expandable_block(size, large, stream)
        if self.reserved + total > self.capacity:
            return None  # cudaMalloc fails
        return self.new_segment(total, large, stream, 0, FREE)

    def new_segment(self, size, large, stream, page, state) -> Block:
        segment = Segment(stream, large, page)
        segment.blocks.append(Block(self.end, size, segment, state))
        self.memory.append(segment)
        self.end += size
        return segment.blocks[0]

    def release_block(self, block: Block) -> None:
        assert block.segment.blocks == [block] and not block.segment.page
        self.memory.remove(block.segment)

    def release_available(self, size: int, large: bool, stream: int) -> bool:
        """release_available_cached_blocks: whether enough oversize blocks went."""
        if self.max_split == NEVER:
            return False
        target = max(size, self.max_split)
        pool = self.pool(large, stream)
        fitting = [block for block in pool if block.size >= target]
        if fitting and not fitting[0].segment.page:
            self.release_block(fitting[0])
            return True
        released = 0
        for block in reversed(pool[: len(pool) - len(fitting)]):
            if released >= target or block.size < self.max_split:
                break
            if not block.segment.page:
                released += block.size
                self.release_block(block)
        return released >= target

    def collects(self) -> bool:
        return self.allowed is not None and self.threshold > 0

    def garbage_collect_cached_blocks(self) -> None:
        """Release large blocks of at least average age until there's enough room."""
        excess = self.reserved - int(self.threshold * self.allowed)
        while excess > 0:
            pool = [block for block in self.blocks(FREE) if block.segment.large]
            pool = [block for block in pool if len(block.segment.blocks) == 1]
            if not pool:
                return
            ages = [self.searches[True] - block.since for block in pool]
            average = sum(ages) / len(ages)
            for block, age in zip(pool, ages, strict=True):
                if age >= average:
                    excess -= block.size
                    self.release_block(block)

    # Expandable segments.

    def try_allocate_expandable_block(self, size, large, stream) -> Block | None:
        block = self.find_expandable_block(size, large, stream)
        if block.state == UNMAPPED and not self.map_block(block, size):
            return None
        while block.size < size:
            grown = neighbours(block)[1]
            if not self.map_block(grown, size - block.size):
                return None
            block = grown
        return block

    def find_expandable_block(self, size: int, large: bool, stream: int) -> Block:
        """The lowest block from which free and unmapped ones add up to `size`."""
        unmapped = self.pool(large, stream, UNMAPPED)
        for block in sorted(unmapped, key=lambda block: block.address):
            before = neighbours(block)[0]
            first = before if before and before.state != USED else block
            found, beside = 0, block.segment.blocks
            for each in beside[beside.index(first) :]:
                if each.state == USED:
                    break
                found += each.size
            if found >= size:
                return first
        page = self.large_segment if large else SMALL_SEGMENT
        # ExpandableSegment: addresses for 9/8 of the memory of the device
        space = round_up(self.capacity + self.capacity // 8, page)
        return self.new_segment(space, large, stream, page, UNMAPPED)

    def map_block(self, block: Block, size: int) -> bool:
        """Map the pages that `size` bytes, or the whole block, take at its front."""
        size = round_up(min(size, block.size), block.segment.page)
        if self.reserved + size > self.capacity:
            return False  # cuMemCreate fails; ExpandableSegment::map undoes the others
        if size < block.size:
            self.split(block, size)
        block.state = FREE
        self.merge(block)
        self.insert(block)
        return True

    def unmap_block(self, block: Block) -> None:
        """Unmap the pages that lie completely within a free block."""
        segment = block.segment
        start = segment.blocks[0].address  # pages are counted from here
        first = start + round_up(block.address - start, segment.page)
        last = (block.address + block.size - start) // segment.page * segment.page
        last += start
        if first >= last:
            return
        if first > block.address:
            block = self.split(block, first - block.address)
        if last < block.address + block.size:
            self.split(block, last - block.address)
        block.state = UNMAPPED
        self.merge(block)
        if segment.blocks == [block]:
            self.memory.remove(segment)  # release_expandable_segment


def neighbours(block: Block) -> tuple[Block | None, Block | None]:
    beside = [None, *block.segment.blocks, None]
    index = beside.index(block)
    return beside[index - 1], beside[index + 1]


def room(block: Block) -> int:
    """expandable_size: the block and the unmapped part behind it."""
    after = neighbours(block)[1]
    return block.size + (after.size if after and after.state == UNMAPPED else 0)


def round_up(size: int, step: int) -> int:
    return -(-size // step) * step


def divisions_table(divisions) -> list[int]:
    """parseRoundUpPower2Divisions: divisions for each of the intervals."""
    if divisions is None or isinstance(divisions, int):
        return [divisions or 0] * INTERVALS
    table = [0] * INTERVALS
    last, first = 0, True
    for key, value in divisions:
        if key == ">":
            table[last + 1 :] = [value] * (INTERVALS - last - 1)
            continue
        last = min(key.bit_length() - 1, INTERVALS - 1)
        if first:
            table[:last] = [value] * last
        table[last], first = value, False
    return table
