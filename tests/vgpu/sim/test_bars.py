"""What the bars of a timeline say when somebody points at them."""

import re
import xml.dom.minidom
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2l_gpu.vgpu.sim import catalogue
from d2l_gpu.vgpu.sim.catalogue import LINKS, MODELS
from d2l_gpu.vgpu.sim.clock import HOST, PICO, Clock, Moment, Part, Work, pico
from d2l_gpu.vgpu.sim.commands import (
    CopyCommand,
    HostWaits,
    Record,
    StreamWaits,
    ring,
)
from d2l_gpu.vgpu.sim.timeline import RanksTimeline, Timeline, merged
from d2l_gpu.vgpu.sim.units import time_text
from d2l_gpu.vgpu.sim.worlds import Exchange, Reaches

MB = 10**6
START = pico(catalogue.START.value)
UNITS = {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
TITLE = re.compile(
    r"(?P<name>.+): at (?P<at>\S+ \w+) for (?P<lasts>\S+ \w+)"
    r"(, (?P<busy>\S+ \w+) of it busy)?(; (?P<why>.+))?"
)


def clock_of(model: str = "V100", gpus: int = 2) -> Clock:
    """A clock of devices whose kernels are called by their keys: name, megabytes."""
    return Clock(
        dict.fromkeys(range(gpus), MODELS[model]),
        LINKS["NVLink2"],
        lambda key: Work(key[0], [Part(0, "fp32", key[1] * MB)]),
    )


def said(timeline: Timeline, row: str | None = None) -> list[re.Match]:
    """What the bars say, of one row or of all; every bar has to say something."""
    document = xml.dom.minidom.parseString(timeline.svg())
    found = {}
    names = iter(timeline.rows)
    for group in document.getElementsByTagName("g"):
        if group.getAttribute("data-part") == "row":
            bars = group.getElementsByTagName("rect")
            name = next(x for x in names if timeline.rows[x])
            found[name] = [
                TITLE.fullmatch(bar.getElementsByTagName("title")[0].firstChild.data)
                for bar in bars
            ]
    assert {name: len(bars) for name, bars in found.items()} == {
        name: len(bars) for name, bars in timeline.rows.items() if bars
    }
    return found[row] if row else [each for bars in found.values() for each in bars]


def reasons(clock: Clock, row: str) -> list[str | None]:
    return [each["why"] for each in said(Timeline(clock, "simulated"), row)]


def seconds(text: str) -> float:
    value, unit = text.split()
    return float(value.replace(",", "")) * UNITS[unit]


KERNELS = st.tuples(
    st.just("kernel"), st.sampled_from("abcde"), st.integers(0, 50), st.integers(0, 1)
)
OTHERS = st.tuples(
    st.sampled_from(["in", "out", "across", "reduce", "beside", "wait", "event"]),
    st.just(""),
    st.integers(1, 20),
    st.integers(0, 1),
)


def programs(kernels: int):
    return st.lists(st.one_of(*[KERNELS] * kernels, OTHERS), max_size=60)


def run(clock: Clock, program: list[tuple]) -> None:
    """Let a clock's two devices work; streams are those that PyTorch would use."""
    for kind, name, size, device in program:
        nbytes, stream = size * MB, size % 2
        ways = {
            "in": (HOST, device),
            "out": (device, HOST),
            "across": (device, 1 - device),
        }
        if kind == "kernel":
            clock.note((name, size), device, stream)
        elif kind in ways:
            pinned, blocking = size % 3 > 0, size % 5 == 0
            source, target = ways[kind]
            copy = CopyCommand(nbytes, source, target, pinned, blocking, (0, stream))
            clock.note(copy, device, stream)
        elif kind == "wait":
            clock.note(HostWaits([device]), device, stream)
        elif kind == "event":
            moment = Moment()
            clock.note(Record(moment), device, stream)
            clock.note(StreamWaits(moment), 1 - device, 0)
        else:
            beside = kind == "beside"
            command = ring("all_reduce", [0, 1], nbytes, 2, clock.link, beside)
            clock.note(command, device, 0)
            clock.note(StreamWaits(command.done), device, stream)


@given(program=st.one_of(programs(1), programs(20)))
def test_bars_say_what_ran_when_and_for_how_long(program):
    clock = clock_of()
    run(clock, program)
    timeline = Timeline(clock, "simulated")
    for bar in said(timeline):
        begin, lasts = seconds(bar["at"]), seconds(bar["lasts"])
        assert begin >= 0
        rounding = 0.005 * lasts + 0.001 * timeline.seconds
        assert begin + lasts <= timeline.seconds + rounding
        assert seconds(bar["busy"] or bar["lasts"]) <= lasts
    for i in clock.models:
        bars = timeline.rows.get(f"GPU {i} compute", [])
        assert sum(bar.busy for bar in bars) == clock.compute[i].busy
        names = sum((bar.names for bar in bars), Counter())
        expected = Counter(x[1] for x in program if x[0] == "kernel" and x[3] == i)
        assert names == expected
        texts = said(timeline, f"GPU {i} compute") if bars else []
        for bar, text in zip(bars, texts, strict=True):
            told = re.findall(r"(?:^|[ (])(?:(\d+) × )?(\w)(?=[,)]|$)", text["name"])
            others = re.search(r"(\d+) others", text["name"])
            count = sum(int(number or 1) for number, _ in told)
            assert count + int(others[1] if others else 0) == bar.names.total()


@given(program=programs(3))
def test_every_reason_is_true(program):
    clock = clock_of()
    run(clock, program)
    timeline = Timeline(clock, "simulated")
    spans = timeline.trace.spans
    for row, bars in timeline.rows.items():
        if row == "host":
            continue
        for bar, text in zip(bars, said(timeline, row), strict=True):
            span, why = bar.spans[0], text["why"]
            ended = [x for x in spans if x.end == span.start and x.index != HOST]
            if why == "just issued by the host":
                assert span.start == span.issued + START
                continue
            # Nothing else can hold up these devices, so there's always a reason.
            taken, name = re.fullmatch(
                r"(?:queued|waited) (\S+ \w+)(?:,| for) (.*?)(?: to end)?", why
            ).groups()
            assert 0 <= seconds(taken) <= 1.005 * (span.start - span.issued) / PICO
            if taken_from := re.search(r" on GPU (\d)", name):
                ended = [x for x in ended if x.index == int(taken_from[1])]
            else:
                ended = [x for x in ended if x.index == span.index]
            what = re.sub(r"behind | on GPU \d|the copy |the ", "", name)
            assert what in {x.name.partition(",")[0] for x in ended}


def test_a_kernel_waits_for_the_host_or_for_the_kernel_before_it():
    clock = clock_of()
    for _ in range(3):
        clock.note(("mm", 50), 0, 0)
    _, second, third = Timeline(clock, "simulated").trace.spans
    assert reasons(clock, "GPU 0 compute") == [
        "just issued by the host",
        *(
            f"queued {time_text((x.start - x.issued) / PICO)}, behind mm"
            for x in (second, third)
        ),
    ]


def test_a_kernel_waits_for_a_collective_that_its_stream_waits_for():
    clock = clock_of()
    command = ring("all_reduce", [0, 1], 50 * MB, 2, clock.link, beside=True)
    clock.note(("backward", 10), 0, 0)
    clock.note(command, 0, 0)
    clock.note(StreamWaits(command.done), 0, 0)
    clock.note(("step", 10), 0, 0)
    clock.work_off()
    *_, step = Timeline(clock, "simulated").trace.spans
    alone = clock.compute[0].gaps[-1][0]  # when the kernel before it was done
    assert alone > step.issued + START
    waited = time_text((step.start - alone) / PICO)
    assert (
        reasons(clock, "GPU 0 compute")[1]
        == f"waited {waited} for the all-reduce to end"
    )


def test_a_copy_and_a_collective_wait_for_the_kernel_that_makes_their_data():
    clock = clock_of()
    clock.note(("mm", 50), 0, 0)
    clock.note(CopyCommand(MB, 0, HOST, True, False, (0, 0)), 0, 0)
    clock.note(ring("all_reduce", [0, 1], MB, 2, clock.link), 0, 0)
    found = {row: reasons(clock, row) for row in ("GPU 0 out", "GPU 1 in")}
    assert re.fullmatch(r"waited .+ for mm to end", found["GPU 0 out"][0])
    away = "GPU 0 → host on GPU 0"
    assert re.fullmatch(rf"waited .+ for the copy {away} to end", found["GPU 1 in"][0])


def test_a_device_waits_for_another_from_when_its_own_work_is_done():
    clock = clock_of()
    clock.note(("long", 90), 0, 0)
    clock.note(("short", 40), 1, 0)
    clock.note(ring("all_reduce", [0, 1], MB, 2, clock.link), 0, 0)
    clock.work_off()
    long, short = (Timeline(clock, "").trace.spans[i].end for i in (0, 1))
    waited = time_text((long - short) / PICO)
    assert reasons(clock, "GPU 1 in") == [f"waited {waited} for long on GPU 0 to end"]


def test_a_rank_says_for_which_one_it_waits_and_how_long():
    clock = clock_of()
    reached = {0: Moment(), 1: Moment()}
    clock.note(("forward", 10), 0, 0)
    clock.note(Reaches(reached[0]), 0, 0)
    clock.note(("forward", 90), 1, 0)
    clock.note(Reaches(reached[1]), 1, 0)
    clock.note(Exchange("all_reduce", [0, 1], MB, reached), 1, 0)
    clock.work_off()
    waited = time_text((reached[1].time - reached[0].time) / PICO)
    assert reasons(clock, "GPU 0 in") == [f"waited {waited} for GPU 1"]
    assert reasons(clock, "GPU 1 in") == ["right after forward"]


def test_what_is_not_known_is_not_said():
    clock = clock_of()
    clock.note(StreamWaits(Moment(pico(1e-3))), 0, 0)  # nothing ends then
    clock.note(("mm", 10), 0, 0)
    assert reasons(clock, "GPU 0 compute") == [None]

    clock = clock_of("Xeon E5-2698 v4", 1)
    clock.note(("mm", 10), 0, 0)
    assert reasons(clock, "CPU compute") == [None]


@pytest.mark.parametrize("names, told", [(2, "1,000 × a"), (4, "others")])
def test_bars_that_are_joined_say_what_they_hold(names, told):
    clock = clock_of(gpus=1)
    for i in range(2000):
        clock.note(("abcd"[i % names], 0), 0, 0)
    (bar,) = said(Timeline(clock, "simulated"), "GPU 0 compute")
    assert re.search(told.replace(",", ",?"), bar["name"])
    if names > 3:
        assert bar["name"].startswith("2000 operators (500 × a, 500 × b, ")


def test_ranks_that_end_work_at_the_same_time_have_not_waited_for_each_other():
    clock = clock_of()
    moment = Moment()
    clock.note(("mm", 50), 0, 0)
    clock.note(Record(moment), 0, 0)
    clock.note(StreamWaits(moment), 1, 0)
    clock.note(("mm", 50), 1, 0)
    clock.work_off()
    (why,) = reasons(clock, "GPU 1 compute")
    assert why.endswith("for mm on GPU 0 to end")
    ranks = merged({i: (clock, i) for i in (0, 1)}, 0, clock.host())
    drawing = RanksTimeline(ranks, "simulated").svg()
    assert "rank 1" in drawing and "on rank 0" not in drawing
