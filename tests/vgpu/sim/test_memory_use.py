"""A record of what memory is used for, and its table and picture, without PyTorch."""

import itertools
import re
import xml.dom.minidom

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2l_gpu.vgpu.sim.catalogue import LINKS, MODELS
from d2l_gpu.vgpu.sim.clock import Clock, Part, Work
from d2l_gpu.vgpu.sim.machine import Machine
from d2l_gpu.vgpu.sim.memory_picture import ROOM
from d2l_gpu.vgpu.sim.memory_use import (
    BACKWARD,
    BETWEEN,
    CATEGORIES,
    FORWARD,
    RECOMPUTING,
    STEP,
    MemoryUse,
)
from d2l_gpu.vgpu.sim.units import parse_size
from tests.helpers.pictures import svg_problems
from tests.helpers.properties import sizes

KIB = 2**10
PHASES = (BETWEEN, FORWARD, BACKWARD, RECOMPUTING, STEP)


class Program:
    """A machine with a clock, a record of it, and where the program is."""

    def __init__(self, with_clock: bool = True):
        clock = None
        if with_clock:
            work = Work("mm", [Part(10**9, "fp32", 10**6)])
            clock = Clock({0: MODELS["V100"]}, LINKS["NVLink2"], lambda _: work)
        self.machine = Machine(1, 2**40, clock=clock)
        self.phase, self.module = BETWEEN, ""
        self.use = MemoryUse(
            self.machine, 0, "a program", lambda: (self.phase, self.module)
        )

    def take(self, nbytes: int, phase: str, module: str = ""):
        self.phase, self.module = phase, module
        charge = self.machine.charge(0, nbytes)
        if self.machine.clock is not None:
            self.machine.kernel_issued(0, ("mm",))
        return charge


# What may happen: memory is taken, an account changes its size or ends.
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["take", "resize", "end", "tag"]),
        st.sampled_from(PHASES),
        sizes(most=2000),
        st.sampled_from(["parameters", "gradients", "optimizer state", "activations"]),
    ),
    max_size=30,
)


@given(events=EVENTS, before=sizes(most=3), with_clock=st.booleans())
def test_categories_and_modules_add_up_whatever_happens(events, before, with_clock):
    program = Program(with_clock)
    machine, use = program.machine, program.use
    living = [machine.charge(0, 1000 * i) for i in range(before)]
    use.start()
    expected = [machine.used[0]]
    for kind, phase, number, category in events:
        program.phase = phase
        if kind == "take":
            living.append(program.take(number, phase, f"module.{number % 3}"))
        elif living and kind == "resize":
            living[number % len(living)].resize(number)
        elif living and kind == "end":
            del living[number % len(living)]
        elif living:
            use.tag(id(living[number % len(living)]), category)
        if machine.used[0] != expected[-1]:
            expected.append(machine.used[0])
    use.stop()
    times, columns = use.series()
    sums = [sum(column) for column in zip(*columns.values(), strict=True)]
    merged = [sums[0], *(b for a, b in itertools.pairwise(sums) if a != b)]
    assert merged == expected
    assert all(nbytes >= 0 for column in columns.values() for nbytes in column)
    assert times == sorted(times) and len(times) == len(sums)
    assert sum(use.peak.values()) == max(sums)
    found = use.by_module()
    assert use.peak == {x: sum(m[x] for m in found.values()) for x in CATEGORIES}
    xml.dom.minidom.parseString(use.svg())
    assert repr(use)


def test_what_is_kept_for_backward_is_an_activation_and_the_rest_is_temporary():
    program = Program()
    batch = program.machine.charge(0, KIB)
    program.use.start()
    kept = program.take(2 * KIB, FORWARD)
    for phase in (FORWARD, BACKWARD, STEP):
        program.take(3 * KIB, phase)
    assert program.machine.used[0] == 3 * KIB
    gradient = program.take(4 * KIB, BACKWARD)
    del kept
    outlives = program.take(5 * KIB, BACKWARD)
    program.use.tag(id(gradient), "gradients", "layer")
    program.phase = STEP
    del gradient
    program.use.stop()
    _, columns = program.use.series()
    assert {name: max(column) for name, column in columns.items()} == {
        **dict.fromkeys(CATEGORIES, 0),
        "other": 6 * KIB,
        "activations": 2 * KIB,
        "gradients": 4 * KIB,
        "temporary": 3 * KIB,
    }
    assert program.use.by_module()["layer"]["gradients"] == 4 * KIB
    del batch, outlives


def test_recomputing_is_going_forward_in_the_middle_of_backward():
    program = Program()
    program.use.start()
    across = program.take(2 * KIB, BACKWARD)
    again = program.take(4 * KIB, RECOMPUTING)
    program.take(3 * KIB, BACKWARD)
    del across, again
    program.use.stop()
    _, columns = program.use.series()
    assert max(columns["activations"]) == 4 * KIB
    assert max(columns["temporary"]) == 5 * KIB
    assert max(columns["other"]) == 0
    assert [name for name, _, _ in program.use.phases()] == [BACKWARD]


def test_an_account_keeps_its_category_when_its_size_changes():
    # As when fully_shard frees gathered parameters and gathers them again.
    program = Program()
    program.use.start()
    gathered = program.take(2 * KIB, FORWARD)
    program.use.tag(id(gathered), "parameters", "layer")
    for nbytes in (0, 2 * KIB, 6 * KIB):
        program.phase = BACKWARD
        gathered.resize(nbytes)
    program.use.stop()
    _, columns = program.use.series()
    assert max(columns["parameters"]) == 6 * KIB
    assert sum(max(column) for column in columns.values()) == 6 * KIB


def test_moments_are_those_of_the_device():
    program = Program()
    clock = program.machine.clock
    program.use.start()
    begin = clock.now()
    kept = [program.take(KIB, FORWARD) for _ in range(10)]
    assert clock.now() < clock.elapsed() / 2  # the host is far ahead
    ends = clock.elapsed()
    del kept
    program.use.stop()
    times, _ = program.use.series()
    assert times[-1] == pytest.approx(ends - begin)
    assert times[-2] == pytest.approx(ends - begin)  # freed when all is done
    steps = [b - a for a, b in itertools.pairwise(times[2:11])]
    assert max(steps) == pytest.approx(min(steps))
    assert program.use.at(times[5])["activations"] == 0
    assert sum(program.use.at(times[5]).values()) == 5 * KIB


def test_what_does_not_fit_is_told_what_takes_most():
    program = Program()
    message = str(program.machine.overflow(0, KIB))
    living = [program.take(i * KIB, BETWEEN) for i in range(1, 6)]
    program.use.start()
    for charge, category in zip(living, CATEGORIES, strict=False):
        program.use.tag(id(charge), category if category != "other" else "gradients")
    during = str(program.machine.overflow(0, KIB))
    assert "Largest" not in message
    assert "Largest: gradients 9.00 KiB, optimizer state 3.00 KiB, " in during
    program.use.stop()
    assert "Largest" not in str(program.machine.overflow(0, KIB))


# ------------------------------------------------------------------ text and picture


@pytest.fixture
def use() -> MemoryUse:
    program = Program()
    parameters = program.machine.charge(0, 8 * 2**20)
    program.use.start()
    program.use.tag(id(parameters), "parameters", "net")
    kept = [program.take(3 * 2**20, FORWARD, f"net.{i}") for i in range(8)]
    program.phase = BACKWARD
    while kept:
        kept.pop()
        program.take(3 * 2**20, BACKWARD)
    program.take(8 * 2**20, STEP)
    program.use.stop()
    return program.use


def test_the_table_says_what_the_peak_consists_of(use):
    text = repr(use)
    assert text.startswith("Activations make up 75% of the peak of 32.00 MiB\n")
    assert "a program, " in text and "simulated (V100)" in text
    rows = dict(re.findall(r"^(\S+) +(\S+ MiB)", text, re.MULTILINE))
    assert rows["activations"] == "24.00 MiB" and rows["parameters"] == "8.00 MiB"
    assert rows["together"] == "32.00 MiB" and rows["net"] == "8.00 MiB"
    assert {f"net.{i}" for i in range(8)} <= set(text.split())


def texts(svg: str) -> list[str]:
    document = xml.dom.minidom.parseString(svg)
    return [x.firstChild.data for x in document.getElementsByTagName("text")]


def test_the_picture_names_its_categories_phases_and_conditions(use):
    found = texts(use.svg())
    assert found[0] == "Activations make up 75% of the peak of 32.00 MiB"
    assert "simulated (V100)" in found[1]
    assert {"activations 24 MiB", "parameters 8 MiB"} <= set(found)
    assert {"forward", "backward", "optimizer"} <= set(found)
    assert "30 MiB" in found and "0" in found


def test_each_phase_has_its_name_even_if_its_neighbours_leave_no_room():
    program = Program()
    program.use.start()
    kept = []
    for phase, operations in (FORWARD, 8), (BACKWARD, 2), (STEP, 2), (FORWARD, 8):
        kept += [program.take(KIB, phase) for _ in range(operations)]
    program.use.stop()
    svg = program.use.svg()
    assert sorted(set(texts(svg)) & {FORWARD, BACKWARD, STEP}) == [
        BACKWARD,
        FORWARD,
        STEP,
    ]
    assert texts(svg).count(FORWARD) == 2
    assert svg_problems(svg) == []


def test_the_picture_is_readable_on_a_page_of_any_colour(use):
    svg = use.svg()
    _, _, width, height = re.search('viewBox="(.*?)"', svg)[1].split()
    assert f'<rect width="{width}" height="{height}" fill="#FFFFFF"/>' in svg
    assert svg_problems(svg) == []


def test_the_picture_is_described(use):
    picture, metadata = use._repr_svg_()
    for text in metadata["alt"], picture.partition("<desc>")[2]:
        assert "Activations make up 75% of the peak of 32.00 MiB" in text
        assert "simulated (V100)" in text
    assert "activations 24 MiB" in picture.partition("<desc>")[2]


def bands(svg: str) -> tuple[dict[str, list[int]], list[float]]:
    """The bytes of each category at each pixel, as scripts read them from the picture.

    Returns:
        they and the matrix that puts them into the picture.
    """
    root = xml.dom.minidom.parseString(svg).documentElement
    unit, width = (int(root.getAttribute(f"data-{x}")) for x in ("unit", "width"))
    (group,) = (
        x
        for x in root.getElementsByTagName("g")
        if x.getAttribute("data-part") == "bands"
    )
    found, below = {}, [0] * width
    for path in reversed(group.getElementsByTagName("path")):
        edge = path.getAttribute("d")
        steps = re.findall(r"(?:H(\d+))?V(\d+)(?!Z)(?=[HV])", edge)
        above = [0] * width
        for begin, height in steps:
            begin = int(begin or 0)
            above[begin:] = [unit * int(height)] * (width - begin)
        name = path.getElementsByTagName("title")[0].firstChild.data
        found[name] = [a - b for a, b in zip(above, below, strict=True)]
        below = above
    matrix = group.getAttribute("transform").removeprefix("matrix(").rstrip(")")
    return found, [float(x) for x in matrix.split()]


def test_the_bands_reach_the_peak_and_stay_in_the_picture(use):
    found, (across, _, _, up, left, floor) = bands(use.svg())
    highest = max(map(sum, zip(*found.values(), strict=True)))
    assert highest == sum(use.peak.values())
    root = xml.dom.minidom.parseString(use.svg()).documentElement
    unit, top = (int(root.getAttribute(f"data-{x}")) for x in ("unit", "top"))
    assert floor + up * highest / unit == pytest.approx(top) == floor - ROOM
    assert top > 0 and floor < float(root.getAttribute("height"))
    assert left + across * len(next(iter(found.values()))) < 720


@given(events=EVENTS)
def test_the_bands_hold_the_bytes_of_each_moment(events):
    program = Program()
    program.use.start()
    living = [
        program.take(KIB * number, phase, category)
        for _, phase, number, category in events
    ]
    program.use.stop()
    use = program.use
    found, _ = bands(use.svg())
    times, columns = use.series()
    for text, held in found.items():
        name, _, most = text.partition(", at most ")
        # The label groups thousands: "1,000 KiB".
        most = parse_size(most.replace(",", ""))
        assert max(columns[name]) == pytest.approx(most, rel=0.01)
        for x, nbytes in enumerate(held):
            begin, end = (use.seconds * i / len(held) for i in (x, x + 1))
            inside = [
                column
                for time, column in zip(times, columns[name], strict=True)
                if begin <= time <= end
            ]
            assert nbytes in {*inside, use.at(begin)[name]}
    assert {text.partition(",")[0] for text in found} == {
        name for name, column in columns.items() if any(column)
    }
    assert len(living) == len(events)


def test_phases_say_when_they_were(use):
    document = xml.dom.minidom.parseString(use.svg())
    titles = [x.firstChild.data for x in document.getElementsByTagName("title")]
    said = [x for x in titles if ": at " in x]
    named = [phase for phase, begin, end in use.phases() if phase and begin < end]
    assert sorted(x.partition(":")[0] for x in said) == sorted(named)


def test_nothing_can_be_shown():
    program = Program()
    program.use.start()
    program.use.stop()
    assert repr(program.use).startswith("No memory in use")
    assert "No memory in use" in texts(program.use.svg())
    assert program.use.by_module() == {} and sum(program.use.peak.values()) == 0
