"""The simulated allocator agrees with rules that were transcribed independently.

The transcription itself (``tests/helpers/allocator_rules.py``) is tested on examples
worked out by hand.
"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d2l_gpu.vgpu.sim.allocator import CachingAllocator
from tests.helpers import properties  # noqa: F401  (hypothesis runs as it says)
from tests.helpers.allocator_rules import MB, Rules

# ------------------------------------------------------------------ both of them

# What the sizes of requests and of segments are compared with.
LIMITS = [512, 2048, MB, 2 * MB, 10 * MB, 20 * MB, 24 * MB, 40 * MB, 48 * MB]
NEAR = [-MB, -513, -512, -1, 0, 1, 511, 512, MB, MB + 1]
CAPACITIES = [21, 61, 100, 150, 200, 300, 500, 1000]
EXCESS = [0, 1, 2, 5, 11, 30]  # by how many MB a setting exceeds the least allowed


def some_size(random: Random) -> int:
    return random.choice(
        [
            lambda: random.randrange(3000),
            lambda: random.randint(1, 2 * MB),
            lambda: random.randint(1, 48) * MB,
            lambda: int(2 ** random.uniform(20, 26.5)),
            lambda: max(0, random.choice(LIMITS) + random.choice(NEAR)),
        ]
    )()


def some_options(random: Random) -> tuple[str, dict]:
    """The same options as a text of PyTorch's and as arguments of `Rules`."""
    texts, arguments = [], {}

    def option(name, argument, share, choices, factor=1):
        if random.random() < share:
            value = random.choice(choices)
            texts.append(f"{name}:{value}")
            arguments[argument] = value * factor

    option("large_segment_size_mb", "large_segment_size", 0.3, range(11, 49), MB)
    least = arguments.get("large_segment_size", 20 * MB) // MB
    sizes = [least + more for more in EXCESS]
    option("max_split_size_mb", "max_split_size", 0.5, sizes, MB)
    option("max_non_split_rounding_mb", "max_non_split_rounding", 0.3, sizes, MB)
    for name, share, choices in (
        ("garbage_collection_threshold", 0.4, [0.01, 0.3, 0.5, 0.8, 0.9]),
        ("per_process_memory_fraction", 0.5, [0, 0.4, 0.7, 0.9, 0.97, 1]),
        ("expandable_segments", 0.5, [True, True, False]),
    ):
        option(name, name, share, choices)
    name = "roundup_power2_divisions"
    option(name, name, 0.3, [1, 2, 4, 8, 16, 64])
    if name not in arguments and random.random() < 0.3:
        sizes, numbers = [1, 2, 4, 8, 16, 32, 2**20, ">"], [0, 1, 2, 8]
        count = random.randint(1, 4)
        pairs = [(random.choice(sizes), random.choice(numbers)) for _ in range(count)]
        texts.append(f"{name}:[{','.join(f'{size}:{n}' for size, n in pairs)}]")
        arguments[name] = pairs
    random.shuffle(texts)
    return ",".join(texts), arguments


def served(malloc, *request):
    """What a request returns, or None if memory runs out."""
    try:
        return malloc(*request)
    except MemoryError:
        return None


def tiles(allocator: CachingAllocator) -> list[tuple]:
    return [
        (
            segment.address,
            segment.size,
            not segment.small,
            segment.stream,
            [
                (block.address - segment.address, block.size, block.allocated)
                for block in segment.blocks
            ],
        )
        for segment in allocator.segments()
    ]


# Traces are drawn by `random` because `lists` draws few long ones. If one fails,
# hypothesis finds its shortest beginning that does.
@settings(max_examples=500)
@given(length=st.integers(1, 250), random=st.randoms(use_true_random=True))
def test_the_allocator_follows_the_rules_on_any_trace(length, random):
    text, arguments = some_options(random)
    capacity = random.choice(CAPACITIES) * MB + random.choice([0, 0, 12345])
    streams = random.choice([[0], [0, 0, 0, 1], [0, 1, 2]])
    frees = random.choice([0.35, 0.45, 0.5])
    allocator = CachingAllocator(capacity, text, start=0)
    rules = Rules(capacity, **arguments)
    living = []
    for _ in range(length):
        what = random.random()
        if what < 0.01:
            allocator.empty_cache()
            rules.empty_cache()
        elif what < frees and living:
            block = living.pop(random.randrange(len(living)))
            rules.free(block.address)
            allocator.free(block)
        else:
            request = some_size(random), random.choice(streams)
            block = served(allocator.malloc, *request)
            address = served(rules.malloc, *request)
            assert (block and block.address) == address, (text, capacity, request)
            if block is not None:
                living.append(block)
        assert allocator.reserved == rules.reserved
        assert allocator.allocated == rules.allocated
        assert tiles(allocator) == rules.segments()


# ------------------------------------------------------------------ the rules alone


def test_small_requests_share_a_segment_of_2_mb():
    rules = Rules(100 * MB)
    assert [rules.malloc(size) for size in (1, 513, 0, MB)] == [0, 512, 1536, 2048]
    assert (rules.reserved, rules.allocated) == (2 * MB, 2048 + MB)
    assert rules.malloc(MB) == 2 * MB  # less than 1 MB is left of the first segment
    tail = (2048 + MB, MB - 2048, False)
    assert rules.segments()[0][4][-1] == tail


def test_requests_below_10_mb_split_a_segment_of_20_mb():
    rules = Rules(100 * MB)
    assert [rules.malloc(size * MB) for size in (9, 10, 9)] == [0, 9 * MB, 20 * MB]
    # 11 MB were left for the 10. A remainder of 1 MB isn't split off.
    blocks = [(0, 9 * MB, True), (9 * MB, 11 * MB, True)]
    assert rules.segments()[0] == (0, 20 * MB, True, 0, blocks)
    assert rules.malloc(11 * MB + 1) == 40 * MB
    assert rules.segments()[2][1] == 12 * MB


def test_the_smallest_block_that_fits_is_taken_on_its_own_stream_only():
    rules = Rules(1000 * MB)
    big, mid, low = (rules.malloc(size * MB) for size in (40, 20, 30))
    for address in (big, mid, low):
        rules.free(address)
    assert rules.malloc(25 * MB, stream=1) == 90 * MB
    assert rules.malloc(25 * MB) == low
    assert rules.malloc(4 * MB) == low + 25 * MB
    assert rules.malloc(20 * MB) == mid


def test_neighbours_merge():
    rules = Rules(100 * MB)
    addresses = [rules.malloc(MB // 2) for _ in range(4)]
    for index in (0, 2, 3, 1):
        rules.free(addresses[index])
    assert rules.segments() == [(0, 2 * MB, False, 0, [(0, 2 * MB, False)])]
    rules.empty_cache()
    assert (rules.reserved, rules.segments()) == (0, [])
    assert rules.malloc(1) == 2 * MB


def test_cached_blocks_that_are_not_split_go_before_a_request_fails():
    rules = Rules(64 * MB)
    whole, part, kept = (rules.malloc(size * MB) for size in (20, 5, 5))
    rules.free(whole)
    rules.free(part)
    assert rules.malloc(30 * MB) == 40 * MB
    assert rules.reserved == 50 * MB
    with pytest.raises(MemoryError):
        rules.malloc(16 * MB)
    rules.free(kept)
    assert rules.malloc(16 * MB) == 20 * MB


def test_oversize_blocks_are_not_split():
    rules = Rules(1000 * MB, max_split_size=200 * MB)
    big = rules.malloc(300 * MB)
    rules.free(big)
    assert rules.malloc(100 * MB) == 300 * MB  # not from an oversize block
    assert rules.malloc(280 * MB) == 400 * MB  # 20 MB would be wasted
    assert rules.malloc(281 * MB) == big
    assert rules.allocated == 680 * MB


def test_oversize_blocks_go_before_all_others():
    rules = Rules(700 * MB, max_split_size=200 * MB)
    addresses = [rules.malloc(size * MB) for size in (300, 210, 100)]
    for address in addresses:
        rules.free(address)
    rules.malloc(250 * MB)  # 300 MB are the smallest block of at least 250 MB
    assert [segment[1] // MB for segment in rules.segments()] == [210, 100, 250]
    # No block has 400 MB. The largest goes, isn't enough, and then all of them go.
    rules.malloc(400 * MB)
    assert [segment[1] // MB for segment in rules.segments()] == [250, 400]


def test_divisions_between_powers_of_two():
    rules = Rules(100 * MB, roundup_power2_divisions=4)
    assert rules.round_size(1200 * 1024) == 1280 * 1024
    assert rules.round_size(1024 * 1024) == 1024 * 1024
    assert rules.round_size(1200) == 1536  # too small for 4 divisions
    table = Rules(1, roundup_power2_divisions=[(64, 8), (128, 2), (1024, 4), (">", 1)])
    expected = [8] * 7 + [2, 0, 0, 4] + [1] * 5
    assert table.divisions == expected
    assert table.round_size(130 * MB) == 192 * MB
    assert table.round_size(2**31 + 1) == 2**31 + 1


def test_garbage_is_collected_by_age_below_the_limit():
    options = {"garbage_collection_threshold": 0.8}
    limited = Rules(200 * MB, per_process_memory_fraction=0.5, **options)
    unlimited = Rules(200 * MB, **options)
    for rules in (limited, unlimited):
        old, young, _ = (rules.malloc(size * MB) for size in (20, 22, 24))
        rules.free(old)
        rules.malloc(1)  # from the small pool, so large blocks don't get older
        rules.free(rules.malloc(4 * MB, stream=1))  # here they do, before it's new
        rules.free(young)
        assert rules.reserved == 88 * MB
        rules.malloc(10 * MB, stream=2)
    # The first allocator held more than 80 of its 100 MB. Blocks of average age go.
    assert [segment[0] // MB for segment in limited.segments()] == [20, 42, 66, 68, 88]
    assert unlimited.reserved == 98 * MB
    with pytest.raises(MemoryError):
        limited.malloc(66 * MB)


def test_expandable_segments_grow_by_pages_and_give_back_empty_ones():
    rules = Rules(90 * MB, expandable_segments=True)
    assert rules.malloc(1) == 0
    large = 102 * MB  # behind addresses for 90 MB and an eighth, in pages of 2 MB
    first, second, third = (rules.malloc(size * MB) for size in (15, 30, 15))
    assert (first, second, third) == (large, large + 15 * MB, large + 45 * MB)
    assert rules.reserved == (2 + 60) * MB
    rules.free(second)
    # No page is left between 15 and 20 MB and between 40 and 45 MB: one goes.
    rules.empty_cache()
    assert rules.reserved == (2 + 40) * MB
    assert [segment[0] - large for segment in rules.segments()[1:]] == [0, 40 * MB]
    # The gap is filled before the segment grows at its end.
    assert rules.malloc(29 * MB) == second
    assert rules.reserved == (2 + 60) * MB
    with pytest.raises(MemoryError):
        rules.malloc(40 * MB)
    for address in (0, first, second, third):
        rules.free(address)
    rules.empty_cache()
    assert (rules.reserved, rules.segments()) == (0, [])
