"""What no program changes: the books of memory and bytes are right, time adds up.

Not for the browser: hypothesis is compiled code.
"""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d2l_gpu.vgpu.sim import catalogue, commands
from d2l_gpu.vgpu.sim import machine as m
from d2l_gpu.vgpu.sim.catalogue import LINKS
from d2l_gpu.vgpu.sim.clock import HOST, PICO, pico, seconds_of
from tests.helpers.clocks import (
    ISSUE,
    LAUNCH,
    LINK,
    START,
    V100,
    WAIT,
    a_clock,
    kernel,
    work_of,
)
from tests.helpers.properties import sizes

# ------------------------------------------------------------------ memory

BLOCK = 512


def in_blocks(nbytes: int) -> int:
    return -(-nbytes // BLOCK) * BLOCK


# What a program does with memory, and on which device, with how many bytes, and with
# which of its allocations.
STEP = st.tuples(
    st.sampled_from(["new", "new", "resize", "free"]),
    sizes(most=2),
    sizes(most=5 * BLOCK) | sizes(most=5).map(lambda blocks: blocks * BLOCK),
    sizes(),
)


@settings(max_examples=100)
@given(
    capacities=st.lists(sizes(1, 9), min_size=1, max_size=3),
    odd=sizes(most=BLOCK - 1),
    first=sizes(most=2),
    steps=st.lists(STEP, max_size=20),
)
def test_the_account_is_that_of_all_that_lives(capacities, odd, first, steps):
    capacities = [BLOCK * capacity + odd for capacity in capacities]
    n, living = len(capacities), []
    machine = m.Machine(n, capacities, first=first)
    peak = [0] * (first + n)

    def used() -> list[int]:
        found = [0] * (first + n)
        for _, i, nbytes in living:
            found[i] += in_blocks(nbytes)
        return found

    def fits(i: int, nbytes: int, instead_of: int = 0) -> bool:
        more = in_blocks(nbytes) - in_blocks(instead_of)
        return more <= 0 or used()[i] + more <= capacities[i - first]

    for what, i, nbytes, which in steps:
        i, place = first + i % n, which % (len(living) or 1)
        if what == "new" and fits(i, nbytes):
            machine.reserve(i, nbytes)
            living.append((machine.charge(i, nbytes), i, nbytes))
        elif what == "new":
            for refuses in (machine.reserve, machine.charge):
                with pytest.raises(MemoryError):
                    refuses(i, nbytes)
        elif what == "resize" and living:
            charge, i, old = living[place]
            if fits(i, nbytes, old):
                charge.resize(nbytes)
                living[place] = charge, i, nbytes
            else:
                with pytest.raises(MemoryError):
                    charge.resize(nbytes)
            del charge
        elif living:
            del living[place]
        peak = list(map(max, peak, used()))
        assert machine.used == used()
        assert machine.peak == peak
        for i in range(first, first + n):
            sizes_here = [nbytes for _, j, nbytes in living if j == i and nbytes]
            assert machine.requested[i].current == sum(sizes_here)
            assert machine.allocations[i].current == len(sizes_here)
            assert machine.taken[i] >= peak[i]
            blocks = [block for block in machine.blocks.values() if block[0] == i]
            assert sorted(block[3] for block in blocks) == sorted(sizes_here)
            for count in (machine.requested[i], machine.allocations[i]):
                assert count.current <= count.peak <= count.total
        assert [machine.free(first + i) for i in range(n)] == [
            capacity - used()[first + i] for i, capacity in enumerate(capacities)
        ]
    living.clear()
    assert machine.used == [0] * (first + n) and not machine.blocks


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["open", "copy", "close"]), sizes()), max_size=20
    )
)
def test_each_log_has_the_copies_made_while_it_was_open(steps):
    machine = m.Machine(1, capacity=1024)
    blocks, logs = [], []  # that are open; of all blocks, and what belongs in them
    for what, n in [*steps, *[("copy", 1), ("close", -1)] * len(steps)]:
        if what == "open":
            block, expected = machine.record_copies(), []
            blocks.append((block, expected))
            logs.append((block.__enter__(), expected))
        elif what == "close" and blocks:  # in any order, as threads would
            block, _ = blocks.pop(n % len(blocks))
            block.__exit__(None, None, None)
        elif what == "copy":
            machine.bytes_moved(m.HOST, 0, n)
            for _, expected in blocks:
                expected += [m.Copy(n, m.HOST, 0)] * bool(n)
        for log, expected in logs:
            assert log == expected


# ------------------------------------------------------------------ time and bytes


N = 3  # devices
STREAM, DEVICE, BYTES = sizes(most=2), sizes(most=N - 1), sizes(1, 10**8)
COMMAND = st.one_of(
    st.tuples(st.just("kernel"), DEVICE, STREAM, sizes(2, 500)),
    st.tuples(
        st.just("copy"),
        st.permutations([HOST, *range(N)]),
        st.tuples(STREAM, STREAM),
        BYTES,
        st.booleans(),
        st.booleans(),
    ),
    st.tuples(st.just("wait"), DEVICE),
    st.tuples(st.just("all-reduce"), BYTES, st.booleans()),
)


def copy_duration(source: int, target: int, nbytes: int, pinned: bool) -> int:
    """What a copy takes: only one from or to the host can be of pageable memory."""
    if HOST not in (source, target):
        return pico(commands.copy_seconds(nbytes, LINK))
    return pico(commands.copy_seconds(nbytes, LINKS[V100.link], pinned))


def work_done(earlier, i: int, start: int, stop: int) -> float:
    """Return the time that a kernel would take alone, given when it ran.

    Beside a collective that was issued earlier, it has all multiprocessors but one for
    each channel.
    """
    beside = sum(
        max(0, min(stop, end) - max(start, begin))
        for index, lane, begin, end, name, *_ in earlier
        if (index, lane) == (i, "in") and name.startswith("all-reduce")
    )
    return stop - start - beside * LINK.channels / V100.units


@settings(max_examples=120)
@given(program=st.lists(COMMAND, max_size=15), used=st.booleans())
def test_time_and_bytes_are_neither_lost_nor_won(program, used):
    clock = a_clock(*range(N))
    if used:
        clock.note(kernel(700), 1, 2)
        clock.note(commands.CopyCommand(10**7, HOST, 0, False, False, (0, 0)), 0, 0)
        clock.reset()
    begins = clock.host()
    parts = 0  # all, one after the other
    crossed = dict.fromkeys(clock.links, 0)
    done = []  # for each: the streams that do it in their order, and how long it takes
    for what, *how in program:
        if what == "kernel":
            i, stream, microseconds = how
            key = kernel(microseconds)
            clock.note(key, i, stream)
            duration = pico(seconds_of(work_of(key).parts[0], V100)) + LAUNCH
            done.append(([(i, stream)], ["compute"], duration))
            parts += microseconds * PICO // 10**6 + 1 + ISSUE + START
        elif what == "copy":
            (source, target, *_), streams, nbytes, pinned, blocking = how
            index = target if source == HOST else source
            clock.note(
                commands.CopyCommand(nbytes, source, target, pinned, blocking, streams),
                index,
                0,
            )
            duration = copy_duration(source, target, nbytes, pinned)
            peer = "host" if HOST in (source, target) else "device"
            ends = [(source, streams[0], "out"), (target, streams[1], "in")]
            ends = [end for end in ends if end[0] != HOST]
            for i, _, side in ends:
                crossed[i, side, peer] += nbytes
            done.append(([end[:2] for end in ends], [end[2] for end in ends], duration))
            parts += duration + ISSUE + START + WAIT
        elif what == "wait":
            clock.note(commands.HostWaits(how), how[0], 0)
            parts += WAIT
        else:
            nbytes, beside = how
            command = commands.ring("all_reduce", range(N), nbytes, N, LINK, beside)
            clock.note(command, 0, 0)
            for i in range(N):
                for side in ("in", "out"):
                    crossed[i, side, "device"] += command.nbytes
            streams = [(i, commands.COMMUNICATION) for i in range(N)]
            if not beside:
                streams += [(i, 0) for i in range(N)]
            done.append((streams, ["in", "out"] * N, pico(command.duration)))
            parts += pico(command.duration) + ISSUE + START
    end = clock.elapsed() * PICO
    lanes = {**clock.compute, **clock.links}
    # Never longer than all in turn, nor shorter than what one engine or the host does.
    assert max(lane.busy for lane in lanes.values()) <= end + 1
    assert len(done) * ISSUE - 1 <= clock.now() * PICO <= end + 1
    assert end <= parts + 1
    assert {key: lane.nbytes for key, lane in clock.links.items()} == crossed
    for (i, _, peer), lane in clock.links.items():
        link = LINKS[clock.models[i].link] if peer == "host" else LINK
        assert lane.busy * link.bandwidth >= lane.nbytes * PICO
    # Everything is drawn, takes its time, and comes after what its streams did before.
    work = iter([s for s in clock.spans if s[1] not in ("wait", "issue")])
    ready = {}
    engines = {}
    for streams, sides, duration in done:
        found = [next(work) for _ in sides]
        assert [span[1] for span in found] == sides
        assert len({span[2:4] for span in found}) == 1
        start, stop = found[0][2:4]
        if sides == ["compute"]:
            earlier = clock.spans[: clock.spans.index(found[0])]
            alone = work_done(earlier, found[0][0], start, stop)
            assert alone == pytest.approx(duration, abs=len(program))
        else:
            assert stop - start == duration
        assert start >= max([begins, *(ready.get(each, 0) for each in streams)])
        ready.update(dict.fromkeys(streams, stop))
        for i, side, _, _, name, *_ in found:
            engines.setdefault((i, side, "host" in name), []).append((start, stop))
    assert next(work, None) is None
    for busy in engines.values():  # an engine does one thing at a time
        busy.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(busy))


@given(
    ends=st.permutations([HOST, 0, 1]),
    nbytes=BYTES,
    pinned=st.booleans(),
    blocking=st.booleans(),
)
def test_pageable_memory_of_the_host_is_copied_twice_and_keeps_it(
    ends, nbytes, pinned, blocking
):
    clock, (source, target, _) = a_clock(0, 1), ends
    crosses = HOST in (source, target)
    command = commands.CopyCommand(nbytes, source, target, pinned, blocking, (0, 0))
    clock.note(command, target if source == HOST else source, 0)
    link = LINKS["PCIe3"] if crosses else LINK
    seconds = link.step + nbytes / (link.bandwidth * catalogue.LINK.value)
    if crosses and not pinned:
        seconds += nbytes / catalogue.STAGING.value
    end = seconds + (ISSUE + START) / PICO
    now = ISSUE / PICO
    if crosses and (blocking or not pinned):
        now = end + WAIT / PICO * blocking
    assert clock.now() == pytest.approx(now)
    assert clock.elapsed() == pytest.approx(max(now, end))


# ------------------------------------------------------------------ collectives


def ring_of(kind: str, n: int) -> tuple[int, int]:
    """Pass parts of a tensor around a ring of n devices, until all have what they need.

    Returns:
        The number of steps, and of the parts, an nth of the tensor each, that a device
        has sent.
    """
    if kind == "all_reduce":
        first, second = ring_of("reduce_scatter", n), ring_of("all_gather", n)
        return first[0] + second[0], first[1] + second[1]
    steps = sent = 0
    if kind == "all_gather":
        has = [{i} for i in range(n)]
        passed = list(range(n))
        while any(len(parts) < n for parts in has):
            passed = [passed[i - 1] for i in range(n)]  # device i - 1 sends to i
            for i, part in enumerate(passed):
                has[i].add(part)
            steps, sent = steps + 1, sent + 1
        return steps, sent
    # Each part travels around once, and gains the summand of each device that it meets.
    summands = [{i} for i in range(n)]  # of the part that device i has at the moment
    while any(len(met) < n for met in summands):
        summands = [summands[i - 1] | {i} for i in range(n)]
        steps, sent = steps + 1, sent + 1
    return steps, sent


@given(n=sizes(1, 17), nbytes=sizes(0, 10**9))
@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce"])
def test_a_ring_takes_the_steps_and_the_bytes_that_it_needs(kind, n, nbytes):
    steps, parts = ring_of(kind, n)
    seconds = commands.ring_seconds(kind, nbytes, n, LINK)
    moving = parts * nbytes / n / (LINK.bandwidth * catalogue.LINK.value)
    expected = catalogue.COLLECTIVE.value + steps * LINK.step + moving
    assert seconds == pytest.approx(expected)
    command = commands.ring(kind, range(n), nbytes, n, LINK)
    assert command.nbytes == round(parts * nbytes / n)
    assert command.duration == pytest.approx(seconds)


@given(n=sizes(2, 17), nbytes=sizes(1, 10**9))
@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
def test_a_tensor_passes_each_link_of_a_ring_once(kind, n, nbytes):
    command = commands.ring(kind, range(n), nbytes, n, LINK)
    assert command.nbytes == nbytes
    alone = commands.ring_seconds(kind, 0, n, LINK)
    assert alone == pytest.approx(catalogue.COLLECTIVE.value + (n - 1) * LINK.step)
    moving = nbytes / (LINK.bandwidth * catalogue.LINK.value)
    assert command.duration == pytest.approx(alone + moving)


# ------------------------------------------------------------------ matrix products


def undivided(units: int, batch: int, m: int, n: int, k: int) -> float:
    """Return the share of a device that tiles with the whole inner dimension use."""
    best = 0.0
    for rows, columns in catalogue.TILES:
        tiles = batch * -(-m // rows) * -(-n // columns)
        rounds = -(-tiles // units)
        best = max(best, batch * m * n / (rounds * units * rows * columns))
    return best


@given(
    units=sizes(1, 150),
    batch=sizes(1, 5),
    m=sizes(1, 1000),
    n=sizes(1, 1000),
    k=sizes(1, 2000),
)
def test_products_are_only_divided_into_pieces_that_are_long_enough(
    units, batch, m, n, k
):
    share = catalogue.quantization(units, batch, m, n, k)
    whole = undivided(units, batch, m, n, k)
    assert whole * (1 - 1e-9) <= share <= 1 + 1e-9
    if k < 2 * catalogue.LEAST_INNER:
        assert share == pytest.approx(whole)
    # No more pieces than are long enough, and so no more than that is gained.
    pieces = max(1, k // catalogue.LEAST_INNER)
    assert share <= whole * pieces * (1 + 1e-9)


@given(log=sizes(1, 5), k=sizes(2 * catalogue.LEAST_INNER, 3000))
def test_a_single_tile_is_divided_among_units_that_have_nothing_to_do(log, k):
    units, (rows, columns) = 2**log, catalogue.TILES[-1]
    share = catalogue.quantization(units, 1, rows, columns, k)
    assert share > 1.5 * undivided(units, 1, rows, columns, k)
