"""What the simulation shows of itself: reports, timelines and tables."""

import xml.dom.minidom

import pytest

from d2l_gpu.vgpu.sim import commands
from d2l_gpu.vgpu.sim.catalogue import LINKS, MODELS
from d2l_gpu.vgpu.sim.clock import HOST, SPANS, Clock, Part, Work
from d2l_gpu.vgpu.sim.report import Report
from d2l_gpu.vgpu.sim.table import Table
from d2l_gpu.vgpu.sim.timeline import Timeline

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
    document = xml.dom.minidom.parseString(timeline.svg())
    texts = {node.firstChild.data for node in document.getElementsByTagName("text")}
    assert {*timeline.rows, "mm", "wait", "kernel", "copy"} <= texts
    assert any("simulated time" in text for text in texts)
    assert max(map(len, repr(timeline).splitlines())) <= 79


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


def test_an_empty_clock_can_be_shown():
    clock = Clock({0: MODELS["V100"]}, LINKS["NVLink2"], lambda _: ("k", []))
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
