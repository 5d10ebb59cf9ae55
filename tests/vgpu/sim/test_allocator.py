"""PyTorch's caching allocator, simulated: its rules hold on any trace of requests."""

import contextlib
import gc
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from d2l_gpu.vgpu.sim.allocator import CachingAllocator, OutOfMemory
from d2l_gpu.vgpu.sim.allocator_config import IGNORED, Config
from d2l_gpu.vgpu.sim.caching import CachingMachine
from tests.helpers import properties  # noqa: F401  (hypothesis runs as it says)

MB = 2**20
CAPACITY = 256 * MB

CONFIGS = st.sampled_from(
    [
        "",
        "expandable_segments:True",
        "max_split_size_mb:21",
        "max_split_size_mb:32,max_non_split_rounding_mb:24",
        "roundup_power2_divisions:4",
        "roundup_power2_divisions:[1:8,16:2,>:1]",
        "large_segment_size_mb:48",
        "expandable_segments:True,large_segment_size_mb:12,roundup_power2_divisions:8",
        "garbage_collection_threshold:0.3,per_process_memory_fraction:0.5",
        "context_mb:77,max_split_size_mb:20",
        "expandable_segments:True,per_process_memory_fraction:0.4",
    ]
)

# Sizes around each limit of the rules, and others.
SIZES = st.one_of(
    st.integers(0, 3000),
    st.integers(1, 2 * MB),
    st.integers(1, 64 * MB),
    st.sampled_from([512, MB, 2 * MB, 10 * MB, 20 * MB, 21 * MB, 32 * MB]).flatmap(
        lambda size: st.integers(size - 1, size + 1)
    ),
)
STREAMS = st.integers(0, 2)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("malloc"), SIZES, STREAMS),
        st.tuples(st.just("malloc"), SIZES, STREAMS),
        st.tuples(st.just("free"), st.integers(0, 99), st.just(0)),
        st.tuples(st.just("use"), st.integers(0, 99), STREAMS),
        st.tuples(st.just("prepare"), st.lists(SIZES, max_size=3), STREAMS),
        st.tuples(st.just("pass"), STREAMS, st.just(0)),
        st.tuples(st.just("empty"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


class Streams:
    """Other streams, whose work is done when a test says so."""

    def __init__(self):
        self.done, self.asked = [0, 0, 0], [0, 0, 0]

    def record(self, stream):
        self.asked[stream] += 1
        return stream, self.asked[stream]

    def passed(self, event):
        return self.done[event[0]] >= event[1]

    def wait(self, event):
        self.done[event[0]] = max(self.done[event[0]], event[1])

    def finish(self, stream):
        self.done[stream] = self.asked[stream]

    def allocator(self, config: str, capacity: int = CAPACITY, **options):
        options |= {"record": self.record, "passed": self.passed, "wait": self.wait}
        return CachingAllocator(capacity, config, **options)


def check(allocator: CachingAllocator, living: dict, config: Config) -> None:
    """Assert what must hold at any time; living maps blocks to their sizes."""
    segments, stats = allocator.segments(), allocator.statistics()
    allocated = sum(block.size for block in living)
    assert allocator.allocated == allocated <= allocator.reserved
    assert allocator.reserved + allocator.device_free + config.context == CAPACITY
    assert allocator.device_free >= 0
    if allocator.limit is not None and not config.expandable:
        assert allocator.reserved <= allocator.limit
    assert sum(segment.size for segment in segments) == allocator.reserved
    found, end = {}, 0
    for segment in segments:
        assert segment.address >= end
        end = segment.address
        for before, block in zip([None, *segment.blocks], segment.blocks, strict=False):
            assert block.address == end and block.size > 0 and block.mapped
            assert block.stream == segment.stream
            if before is not None:  # free neighbours are merged
                assert before.is_active or block.is_active
            end += block.size
            found[block.address] = block
        assert end == segment.address + segment.size
    for block, size in living.items():
        assert found[block.address] is block and block.allocated
        assert block.requested == size <= block.size
    pending = [b for b in found.values() if b.is_active and not b.allocated]
    assert {b for b in found.values() if b.allocated} == set(living)
    split = [
        block
        for segment in segments
        for block in segment.blocks
        if len(segment.blocks) > 1 and not block.is_active and not segment.expandable
    ]
    expected = {
        "allocation": len(living),
        "allocated_bytes": allocated,
        "requested_bytes": sum(living.values()) + sum(b.requested for b in pending),
        "active": len(living) + len(pending),
        "active_bytes": allocated + sum(b.size for b in pending),
        "segment": sum(not segment.expandable for segment in segments),
        "reserved_bytes": allocator.reserved,
        "inactive_split": len(split),
        "inactive_split_bytes": sum(block.size for block in split),
    }
    for name, value in expected.items():
        for pool in ("all", "large_pool", "small_pool"):
            stat = {
                when: stats[f"{name}.{pool}.{when}"]
                for when in ("current", "peak", "allocated", "freed")
            }
            assert stat["allocated"] - stat["freed"] == stat["current"] >= 0
            assert stat["peak"] >= stat["current"]
        assert stats[f"{name}.all.current"] == value, name
        pools = (stats[f"{name}.{p}_pool.current"] for p in ("small", "large"))
        assert sum(pools) == value
    oversize = [block for block in living if block.size >= config.max_split]
    assert stats["oversize_allocations.current"] == len(oversize)


@settings(max_examples=200)
@given(steps=STEPS, text=CONFIGS)
@example(
    steps=[("malloc", 30 * MB, 0), ("free", 0, 0), ("malloc", 250 * MB, 1)], text=""
)
def test_blocks_fill_segments_and_counts_add_up_on_any_trace(steps, text):
    config, streams = Config.parse(text), Streams()
    allocator, living = streams.allocator(text), {}
    for what, value, stream in steps:
        blocks = list(living)
        if what == "malloc":
            try:
                block = allocator.malloc(value, stream)
                living[block] = value
                assert block.stream == stream
                assert block.pool.small == (config.rounded(value) <= MB)
            except OutOfMemory:
                pass
        elif what == "prepare":
            before = allocator.statistics()
            try:
                allocator.prepare(value, stream)
            except OutOfMemory:
                pass
            else:
                ooms = allocator.ooms
                living |= {allocator.malloc(n, stream): n for n in value}
                assert allocator.ooms == ooms
                key = "allocation.all.allocated"
                assert allocator.statistics()[key] - before[key] == len(value)
        elif what == "pass":
            streams.finish(value)
        elif what == "empty":
            allocator.empty_cache()
        elif blocks and what == "use":
            allocator.record_stream(blocks[value % len(blocks)], stream)
        elif blocks and what == "free":
            block = blocks[value % len(blocks)]
            del living[block]
            allocator.free(block)
        check(allocator, living, config)
    for block in living:
        allocator.free(block)
    allocator.empty_cache()
    check(allocator, {}, config)
    assert allocator.reserved == 0 and not allocator.segments()


# ------------------------------------------------------------------ single rules


@given(nbytes=SIZES)
def test_what_a_first_request_reserves(nbytes):
    allocator = CachingAllocator(CAPACITY)
    block = allocator.malloc(nbytes)
    rounded = max(512, -(-nbytes // 512) * 512)
    if rounded <= MB:
        reserved = 2 * MB
    elif rounded < 10 * MB:
        reserved = 20 * MB
    else:
        reserved = -(-rounded // (2 * MB)) * 2 * MB
    assert allocator.reserved == reserved
    rest = reserved - rounded
    cut = rest >= 512 if rounded <= MB else rest > MB
    assert block.size == (rounded if cut else reserved)


def test_a_byte_more_than_a_mebibyte_reserves_twenty():
    allocator = CachingAllocator(CAPACITY)
    allocator.malloc(MB)
    assert allocator.reserved == 2 * MB
    allocator.malloc(MB + 1)
    assert allocator.reserved == 22 * MB


def test_three_blocks_of_seven_mebibytes_need_a_second_segment():
    allocator = CachingAllocator(CAPACITY)
    a, b = (allocator.malloc(7 * MB) for _ in range(2))
    assert b.address == a.address + 7 * MB and allocator.reserved == 20 * MB
    allocator.malloc(7 * MB)  # 6 MiB are left in the first one
    assert allocator.reserved == 40 * MB
    allocator.malloc(6 * MB)
    assert allocator.reserved == 40 * MB


def test_the_smallest_block_that_fits_is_taken_and_of_equal_ones_the_lowest():
    allocator = CachingAllocator(CAPACITY)
    blocks = [allocator.malloc(size * MB) for size in (40, 30, 50, 30)]
    addresses = [block.address for block in blocks]
    for block in blocks:
        allocator.free(block)
    taken = [allocator.malloc(29 * MB) for _ in range(3)]
    assert [block.address for block in taken] == [addresses[i] for i in (1, 3, 0)]
    # In the large pool, a rest up to 1 MiB isn't worth a cut.
    assert [block.size // MB for block in taken] == [30, 30, 29]


def test_a_cached_block_serves_its_own_stream_only():
    allocator = CachingAllocator(CAPACITY)
    address = allocator.malloc(30 * MB, 1).address
    (block,) = allocator.segments()[0].blocks
    allocator.free(block)
    assert allocator.malloc(30 * MB, 2).address != address
    assert allocator.malloc(30 * MB, 1).address == address


def test_small_blocks_are_cut_to_the_last_one():
    allocator = CachingAllocator(CAPACITY)
    sizes = [MB, MB - 512, 512, 1]
    blocks = [allocator.malloc(nbytes) for nbytes in sizes]
    begin = blocks[0].address
    assert [block.address - begin for block in blocks[:3]] == [0, MB, 2 * MB - 512]
    assert allocator.reserved == 4 * MB


def test_an_expandable_segment_keeps_its_end_for_what_is_larger():
    allocator = CachingAllocator(CAPACITY, "expandable_segments:True")
    middle, kept = allocator.malloc(12 * MB), allocator.malloc(2 * MB)
    address = middle.address
    allocator.free(middle)
    # 6 MiB at the end would fit better, but that block can grow.
    assert allocator.malloc(5 * MB).address == address
    assert allocator.malloc(30 * MB).address == kept.address + 2 * MB
    assert allocator.reserved == 60 * MB


def test_pages_that_are_free_as_a_whole_are_given_back():
    allocator = CachingAllocator(CAPACITY, "expandable_segments:True")
    blocks = [allocator.malloc(size * MB) for size in (10, 70, 10)]
    allocator.free(blocks[1])
    allocator.empty_cache()  # pages 1 to 3 of 0 to 4
    assert allocator.reserved == 40 * MB
    assert [segment.size for segment in allocator.segments()] == [20 * MB, 20 * MB]
    assert allocator.malloc(65 * MB).address == blocks[0].address + 10 * MB
    assert allocator.reserved == 100 * MB  # the same pages, mapped again


def test_addresses_without_any_memory_are_given_back_too():
    allocator = CachingAllocator(CAPACITY, "expandable_segments:True")
    addresses = []
    for _ in range(3):
        block = allocator.malloc(30 * MB)
        addresses.append(block.address)
        allocator.free(block)
        allocator.empty_cache()
    assert sorted(set(addresses)) == addresses


def test_fragmented_memory_cannot_serve_what_expandable_segments_can():
    for config, expandable in (("", False), ("expandable_segments:True", True)):
        allocator = CachingAllocator(160 * MB, config)
        for block in [allocator.malloc(60 * MB) for _ in range(2)]:
            allocator.free(block)
        # A small block at the beginning of each half keeps it from being given back.
        allocator.malloc(2 * MB)
        between = allocator.malloc(58 * MB)
        allocator.malloc(2 * MB)
        allocator.free(between)
        assert (allocator.allocated, allocator.reserved) == (4 * MB, 120 * MB)
        if expandable:
            allocator.malloc(70 * MB)  # 58 MiB are free at the end, and it grows
            assert allocator.reserved == 140 * MB and allocator.retries == 0
        else:
            with pytest.raises(OutOfMemory, match=r"only 40\.00 MiB left\. 4\.00 MiB"):
                allocator.malloc(70 * MB)
            assert allocator.retries == allocator.ooms == 1
            # It comes in pieces.
            for size in (58, 58, 40):
                allocator.malloc(size * MB)
            assert allocator.allocated == allocator.reserved == 160 * MB


def test_what_is_cached_is_given_back_before_memory_runs_out():
    events = []
    allocator = CachingAllocator(100 * MB, trace=lambda *event: events.append(event))
    for size in (60, 30):
        allocator.free(allocator.malloc(size * MB))
    assert allocator.reserved == 60 * MB  # the second block was cut off the first
    allocator.malloc(80 * MB)
    assert allocator.reserved == 80 * MB and allocator.ooms == 0
    assert allocator.retries == allocator.syncs == 1
    actions = [action for action, *_ in events]
    assert actions[-3:] == ["segment_free", "segment_alloc", "alloc"]


def test_oversize_blocks_are_neither_split_nor_wasted():
    allocator = CachingAllocator(400 * MB, "max_split_size_mb:100")
    block = allocator.malloc(150 * MB)
    allocator.free(block)
    small = allocator.malloc(50 * MB)
    assert small.address != block.address
    assert allocator.malloc(130 * MB + 1) is block  # less than 20 MiB are wasted
    allocator.free(block)
    allocator.malloc(130 * MB)
    assert allocator.reserved == (150 + 50 + 130) * MB
    # Only as much is given back as is needed, and that isn't a retry.
    allocator.malloc(120 * MB)
    assert allocator.reserved == (120 + 50 + 130) * MB and allocator.retries == 0


def test_old_blocks_are_given_back_above_the_threshold():
    config = "garbage_collection_threshold:0.6,per_process_memory_fraction:0.5"
    allocator = CachingAllocator(400 * MB, config)  # so above 120 MiB
    old, young = (allocator.malloc(size * MB) for size in (60, 40))
    allocator.free(old)
    for _ in range(5):
        allocator.free(young)
        young = allocator.malloc(40 * MB)
    allocator.free(young)
    allocator.malloc(70 * MB)  # 100 MiB were reserved before
    assert allocator.reserved == 170 * MB
    allocator.malloc(64 * MB)  # the old block is enough
    assert allocator.reserved == (40 + 70 + 64) * MB
    allocator.malloc(62 * MB)
    assert allocator.reserved == (70 + 64 + 62) * MB
    assert allocator.retries == 0 and allocator.device_frees == 2


def test_a_fraction_limits_what_is_reserved():
    allocator = CachingAllocator(100 * MB, "per_process_memory_fraction:0.5")
    allocator.malloc(40 * MB)
    with pytest.raises(OutOfMemory, match=r"has only 60\.00 MiB left"):
        allocator.malloc(11 * MB)
    allocator.restrict(1.0)
    allocator.malloc(60 * MB)
    assert allocator.device_free == 0


def test_a_block_that_another_stream_uses_is_kept_until_that_has_finished():
    streams = Streams()
    allocator = streams.allocator("")
    block = allocator.malloc(30 * MB)
    address = block.address
    allocator.record_stream(block, 1)
    allocator.record_stream(block, 2)
    allocator.free(block)
    stats = allocator.statistics()
    assert stats["allocated_bytes.all.current"] == 0
    assert stats["active_bytes.all.current"] == 30 * MB
    streams.finish(1)
    assert allocator.malloc(30 * MB).address != address
    streams.finish(2)
    assert allocator.malloc(30 * MB).address == address
    # Before memory runs out, the host waits for the streams.
    block = allocator.malloc(100 * MB)
    allocator.record_stream(block, 1)
    allocator.free(block)
    allocator.malloc(110 * MB)
    assert streams.done[1] == streams.asked[1] == 2


def test_a_block_of_another_trace_is_refused():
    allocator = CachingAllocator(CAPACITY)
    block = allocator.malloc(1)
    allocator.free(block)
    with pytest.raises(ValueError, match="not in use"):
        allocator.free(block)


# ------------------------------------------------------------------ settings


@given(nbytes=st.integers(0, 2**36), divisions=st.sampled_from([2, 4, 8, 16]))
def test_sizes_are_rounded_to_divisions_of_powers_of_two(nbytes, divisions):
    size = Config.parse(f"roundup_power2_divisions:{divisions}").rounded(nbytes)
    assert size >= nbytes
    if nbytes <= 512 * divisions:
        assert size == max(512, -(-nbytes // 512) * 512)
    else:
        part = 2 ** (nbytes.bit_length() - 1) // divisions
        assert size % part == 0 and size - nbytes < part


def test_divisions_hold_for_intervals():
    # The example of c10/test/core/AllocatorConfig_test.cpp.
    text = "roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]"
    found = Config.parse(text).divisions
    assert found == (8,) * 7 + (2, 4, 2, 4) + (1,) * 5
    assert Config.parse("roundup_power2_divisions:[>:4]").divisions == (0,) + (4,) * 15
    # The example of PyTorch's notes on CUDA: 1200 with 4 divisions is 1280.
    config = Config.parse("roundup_power2_divisions:4")
    assert config.rounded(1200 * 1024) == 1280 * 1024


def test_settings_are_read_as_pytorch_reads_them():
    config = Config.parse(
        " max_split_size_mb: 40, garbage_collection_threshold:0.5,"
        "expandable_segments:True,pinned_use_background_threads:True,backend:native,"
    )
    assert (config.max_split, config.collect_above) == (40 * MB, 0.5)
    assert config.expandable
    for text, rounding in (("", 40), ("max_non_split_rounding_mb:50,", 50)):
        config = Config.parse(text + "large_segment_size_mb:40")
        assert (config.large_segment, config.max_rounding) == (40 * MB, rounding * MB)
    for name in IGNORED:
        assert Config.parse(f"{name}:True").divisions == Config().divisions


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("expandable_segments", "name:value, but got 'expandable_segments'"),
        ("expandable_segments:true", "expandable_segments must be True or False"),
        ("max_split_size_mb:19", "max_split_size_mb must be a number of MiB, at least"),
        ("large_segment_size_mb:10", "more than 10, but got '10'"),
        ("large_segment_size_mb:40,max_split_size_mb:30", "at least 40"),
        ("max_split_size_mb:30,large_segment_size_mb:40", "at least 40"),
        ("garbage_collection_threshold:1.0", "between 0 and 1"),
        ("roundup_power2_divisions:3", "power of two"),
        ("roundup_power2_divisions:[3:4]", "power of two"),
        ("roundup_power2_divisions:[64:8", "power of two"),
        ("backend:cudaMallocAsync", "backend must be native"),
        ("split_size:3", "no setting 'split_size': choose from expandable_segments"),
    ],
)
def test_what_is_no_setting_is_a_sentence(text, problem):
    with pytest.raises(ValueError, match=problem):
        CachingAllocator(CAPACITY, text)


# ------------------------------------------------------------------ a machine


def test_accounts_that_the_garbage_collector_ends_during_a_request_are_settled():
    """Collect garbage in the middle of requests, again and again."""
    machine = CachingMachine(1, CAPACITY, config=Config())
    allocator = machine.allocators[0]
    trace = allocator.trace

    def collecting(*event):
        if random.random() < 0.2:
            gc.collect(0)
        return trace(*event)

    random.seed(0)
    allocator.trace = collecting
    gc.collect()
    gc.freeze()  # so that only what is made here is looked at
    gc.disable()
    try:
        kept = []
        for _ in range(400):
            ring = [machine.charge(0, random.randrange(1, 12 * MB))]
            ring.append(ring)  # a cycle, which only the collector ends
            if allocator.reserved > CAPACITY // 2:
                kept.clear()
            elif random.random() < 0.1:
                kept.append(machine.charge(0, random.randrange(1, MB)))
            if allocator.device_free < 30 * MB:
                gc.collect()
        ring = None
        kept.clear()
        gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()
    assert machine.used == [0] and not machine.blocks
    check(allocator, {}, Config())
    machine.empty_cache()
    assert allocator.reserved == 0


def test_a_resized_account_holds_both_blocks_for_a_moment():
    machine = CachingMachine(1, CAPACITY, config=Config())
    charge = machine.charge(0, 100 * MB)
    charge.resize(120 * MB)
    assert machine.allocated(0) == (120 * MB, 220 * MB)
    with pytest.raises(MemoryError, match="is reserved by PyTorch but unallocated"):
        charge.resize(140 * MB)
    assert machine.used == [120 * MB] and charge.nbytes == 120 * MB
    charge.resize(0)
    assert machine.used == [0] and charge.address == 0
    charge.resize(7)
    assert machine.used == [512]


@given(
    taken=st.lists(SIZES, max_size=12),
    kept=st.integers(0, 3),
    sizes=st.lists(st.integers(1, 64 * MB), min_size=1, max_size=4),
    text=CONFIGS,
)
@example(taken=[60 * MB] * 3, kept=3, sizes=[70 * MB] * 2, text="")
def test_what_is_free_for_sure_is_free(taken, kept, sizes, text):
    machine = CachingMachine(1, CAPACITY, config=Config.parse(text))
    living = []
    for nbytes in taken:
        with contextlib.suppress(MemoryError):
            living.append(machine.charge(0, nbytes))
    del living[kept :: kept + 1]
    if sum(map(machine.allocators[0].config.rounded, sizes)) <= machine.free(0):
        charges = [machine.charge(0, nbytes) for nbytes in sizes]
        assert len(charges) == len(sizes)


def test_more_than_the_host_has_left_is_refused():
    machine = CachingMachine(1, 2**50, config=Config(), memory_left=lambda: 2**30)
    machine.reserve(0, 2**29)
    with pytest.raises(MemoryError, match=r"host's memory, of which only 1024.00 MiB"):
        machine.reserve(0, 2**30, 2**20)
