"""What the simulation shows of itself: reports, timelines and tables."""

import xml.dom.minidom

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2l_gpu.vgpu.sim import commands
from d2l_gpu.vgpu.sim.catalogue import LINKS, MODELS
from d2l_gpu.vgpu.sim.clock import HOST, SPANS, Clock, Part, Work
from d2l_gpu.vgpu.sim.drawing import COLOURS
from d2l_gpu.vgpu.sim.report import Report
from d2l_gpu.vgpu.sim.table import Table
from d2l_gpu.vgpu.sim.timeline import KINDS, Bar, Timeline
from d2l_gpu.vgpu.sim.units import time_text
from tests.helpers.pictures import svg_problems, svg_texts

MB = 10**6


@pytest.fixture
def clock() -> Clock:
    """The clock of two GPUs, after a product of matrices, a copy and a wait."""
    product = Part(2 * 10**9, "fp32", 12 * MB, (1, 1000, 1000, 1000))
    clock = Clock(
        dict.fromkeys((0, 1), MODELS["V100"]),
        LINKS["NVLink2"],
        lambda _: Work("mm", [product]),
    )
    clock.note(("mm",), 0, 0)
    clock.note(commands.CopyCommand(4 * MB, 0, 1, False, False, (0, 0)), 1, 0)
    clock.note(commands.CopyCommand(4 * MB, 1, HOST, False, True, (0, 0)), 1, 0)
    return clock


def test_a_report_counts_work_and_bytes(clock):
    report = Report(clock, "simulated (V100)")
    first, second = report.devices
    assert (first.kernels, first.operations, first.nbytes) == (1, 2 * 10**9, 12 * MB)
    assert (second.kernels, second.operations, second.busy) == (0, 0, 0)
    assert first.share_of_peak == pytest.approx(2e9 / 15.7e12 / clock.elapsed())
    assert [(x.source, x.target, x.copies, x.nbytes) for x in report.links] == [
        ("GPU 0", "other GPUs", 1, 4 * MB),
        ("other GPUs", "GPU 1", 1, 4 * MB),
        ("GPU 1", "host", 1, 4 * MB),
    ]
    assert "simulated (V100)" in repr(report)
    xml.dom.minidom.parseString(f"<body>{report._repr_html_()}</body>")


def test_a_timeline_has_a_row_for_everything_that_worked(clock):
    timeline = Timeline(clock, "simulated (V100)")
    assert list(timeline.rows) == [
        *("host", "GPU 0 compute", "GPU 0 out"),
        *("GPU 1 in", "GPU 1 out"),
    ]
    for bars in timeline.rows.values():
        for bar in bars:
            assert 0 <= bar.start < bar.end <= timeline.seconds
    texts = {box.text for box in svg_texts(timeline.svg())}
    assert {*timeline.rows, "mm", "waits for the copy"} <= texts
    assert max(map(len, repr(timeline).splitlines())) <= 79


def test_a_timeline_tells_kinds_of_work_apart_and_names_them(clock):
    timeline = Timeline(clock, "simulated (V100)")
    drawn = {(row, bar.kind) for row, bars in timeline.rows.items() for bar in bars}
    assert drawn == {
        ("host", "issue"),
        ("host", "wait"),
        ("GPU 0 compute", "compute"),
        ("GPU 0 out", "communicate"),
        ("GPU 1 in", "communicate"),
        ("GPU 1 out", "copy"),
    }
    svg = timeline.svg()
    key = {
        *("host issues", "host waits", "kernel"),
        *("copy to or from host", "between GPUs"),
    }
    assert key <= {box.text for box in svg_texts(svg)}
    for kind in ("host", "wait", "compute", "communicate", "copy"):
        assert svg.count(f'fill="{COLOURS[kind]}"') >= 2  # once in the key
    for kind in key:
        assert kind in repr(timeline).splitlines()[-1]


def test_a_wait_says_what_it_waits_for(clock):
    for indices in ([0], [0, 1]):
        clock.note(("mm",), 0, 0)  # the last to be done
        clock.note(commands.HostWaits(indices), 0, 0)
    waits = [bar.name for bar in Timeline(clock, "").rows["host"] if bar.kind == "wait"]
    assert waits == ["waits for the copy", "waits for GPU 0", "waits for GPU 0"]


def test_a_timeline_has_a_title_a_subtitle_and_a_description(clock):
    timeline = Timeline(clock, "simulated (V100)", "The copy waits.", "Two GPUs")
    first, second, *_ = [box.text for box in svg_texts(timeline.svg())]
    taken = f"{time_text(timeline.seconds)}, simulated (V100)"
    assert (first, second) == ("The copy waits.", f"Two GPUs, {taken}")
    assert repr(timeline).startswith(f"The copy waits.\nTwo GPUs\n{taken}; one letter")
    picture, metadata = timeline._repr_svg_()
    for text in metadata["alt"], picture.partition("<desc>")[2]:
        assert "The copy waits" in text and "GPU 1 out" in text
        assert time_text(timeline.seconds) in text
    # Not an image, whose parts a screen reader would leave out.
    assert 'role="graphics-document document"' in picture

    plain = Timeline(clock, "simulated (V100)")
    assert svg_texts(plain.svg())[0].text == taken


NAMES = st.text("abcWM_ ,", min_size=1, max_size=40)
BARS = st.lists(
    st.tuples(st.sampled_from(list(KINDS)), st.floats(1e-9, 1), NAMES), max_size=12
)


@given(
    title=NAMES,
    rows=st.dictionaries(
        NAMES.map(str.strip).filter(bool), BARS, min_size=1, max_size=6
    ),
    unit=st.sampled_from([1e-8, 1e-3, 1, 1e4]),
)
def test_texts_of_a_timeline_are_inside_and_do_not_overlap(title, rows, unit):
    timeline = Timeline(empty_clock(), "simulated", title, title)
    timeline.rows, timeline.seconds = {}, 0.0
    for name, bars in rows.items():
        now, drawn = 0.0, []
        for kind, length, what in bars:
            drawn.append(Bar(kind, now, now + length * unit, what))
            now += length * unit * 1.1
        timeline.rows[f"{name} compute"] = drawn
        timeline.seconds = max(timeline.seconds, now)
    assert svg_problems(timeline.svg()) == []


@pytest.mark.parametrize(
    "work", [("mm",), commands.CopyCommand(MB, HOST, 0, True, False, (0, 0))]
)
def test_a_timeline_says_whether_only_its_beginning_is_drawn(clock, work):
    def says_so() -> bool:
        timeline = Timeline(clock, "simulated")
        texts = repr(timeline), timeline.svg()
        (answer,) = {"only its beginning is drawn" in text for text in texts}
        return answer

    clock.reset()
    assert not says_so()
    for _ in range(SPANS - 2):
        clock.note(("mm",), 0, 0)
    clock.note(work, 0, 0)
    assert not says_so()
    for _ in range(2):
        clock.note(work, 0, 0)
    assert says_so()
    clock.reset()
    assert not says_so()


def empty_clock() -> Clock:
    return Clock({0: MODELS["V100"]}, LINKS["NVLink2"], lambda _: ("k", []))


def test_an_empty_clock_can_be_shown():
    clock = empty_clock()
    assert "0 s" in repr(Report(clock, "simulated"))
    xml.dom.minidom.parseString(Timeline(clock, "simulated").svg())


def test_a_table_is_the_same_in_text_and_html():
    table = Table(["name", "n"], [["a & b", "1"], ["c", "20"]], ["n"])
    assert repr(table) == "name    n\na & b   1\nc      20"
    document = xml.dom.minidom.parseString(table._repr_html_())
    cells = [
        "".join(node.firstChild.data)
        for kind in ("th", "td")
        for node in document.getElementsByTagName(kind)
    ]
    assert cells == ["name", "n", "a & b", "1", "c", "20"]
