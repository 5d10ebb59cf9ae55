"""Colours that everybody can tell apart, texts that fit, ticks with units."""

import itertools
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from d2l_gpu.vgpu.sim import drawing
from d2l_gpu.vgpu.sim.drawing import (
    linear_ticks,
    log_ticks,
    number,
    quantity,
    spread,
    text_width,
    wrapped,
)
from tests.helpers.pictures import BLINDNESS, contrast, difference

ALL = drawing.COLOURS | dict(zip("1234", drawing.OTHERS, strict=True))

# ---------------------------------------------------------------- colours


@pytest.mark.parametrize("colour", [drawing.INK, drawing.SOFT, *drawing.OTHERS[:3]])
def test_text_stands_out_from_paper(colour):
    assert contrast(colour, drawing.PAPER) >= 4.5


@pytest.mark.parametrize("kind", drawing.COLOURS)
def test_each_kind_stands_out_from_paper(kind):
    edge = drawing.EDGES.get(kind, drawing.COLOURS[kind])
    assert contrast(edge, drawing.PAPER) >= 3
    assert contrast(drawing.WORDS[kind], drawing.PAPER) >= 4.5
    assert contrast(drawing.INSIDE[kind], drawing.COLOURS[kind]) >= 4.5


@pytest.mark.parametrize("blindness", BLINDNESS)
def test_any_two_colours_can_be_told_apart(blindness):
    # 2.3 is a difference that's just noticeable between large areas side by side
    # (Mahy, Van Eycken and Oosterlinck, 1994). Here it's at least six times as much.
    for (one, a), (other, b) in itertools.combinations(ALL.items(), 2):
        if a != b:
            assert difference(a, b, blindness) >= 14, (one, other)


# ---------------------------------------------------------------- lettering


@pytest.mark.parametrize("bold", [False, True])
def test_text_is_as_wide_as_in_matplotlibs_font(bold):
    from matplotlib import get_data_path
    from matplotlib.ft2font import FT2Font, LoadFlags

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    font = FT2Font(f"{get_data_path()}/fonts/ttf/{name}")
    font.set_size(1000, 72)
    for letter in map(chr, range(ord(" "), ord("~") + 1)):
        glyph = font.load_char(ord(letter), flags=LoadFlags.NO_HINTING)
        width = glyph.linearHoriAdvance / 65536
        assert text_width(letter, 1000, bold) == pytest.approx(width, abs=0.6)
    for letter in "µ×–…²→≤°·":
        width = font.load_char(ord(letter), flags=LoadFlags.NO_HINTING)
        assert text_width(letter, 1000, bold) >= width.linearHoriAdvance / 65536
    for letter in "éèêàçùâîôûëïãõáíóúÉÀÇ":
        width = font.load_char(ord(letter), flags=LoadFlags.NO_HINTING)
        exact = pytest.approx(width.linearHoriAdvance / 65536, abs=0.6)
        assert text_width(letter, 1000, bold) == exact


@given(text=st.text("ab WM-", max_size=60), width=st.floats(12, 300))
def test_wrapped_lines_fit_and_lose_nothing(text, width):
    lines = wrapped(text, width, 12)
    assert all(text_width(line, 12) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@given(
    labels=st.lists(st.tuples(st.floats(-1, 11), st.floats(0.1, 1)), max_size=9),
)
def test_spread_labels_do_not_overlap_and_stay_inside(labels):
    wanted, sizes = map(list, zip(*labels, strict=True)) if labels else ([], [])
    places = spread(wanted, sizes, 0, 10)
    order = sorted(range(len(places)), key=places.__getitem__)
    for a, b in itertools.pairwise(order):
        assert places[b] - places[a] >= (sizes[a] + sizes[b]) / 2 - 1e-9
    for place, size in zip(places, sizes, strict=True):
        assert size / 2 - 1e-9 <= place <= 10 - size / 2 + 1e-9


def test_labels_with_room_stay_where_they_belong():
    assert spread([2, 8, 5], [1, 1, 1], 0, 10) == [2, 8, 5]
    assert spread([5, 5.5], [1, 1], 0, 10) == pytest.approx([4.75, 5.75])
    assert spread([], [], 0, 10) == []


# ---------------------------------------------------------------- quantities


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1e-5, "s", "10 µs"),
        (0.001, "s", "1 ms"),
        (0.0409, "s", "40.9 ms"),
        (0.9999, "s", "1 s"),
        (1234, "s", "1,234 s"),
        (0, "s", "0 s"),
        (4000, "B", "4 kB"),
        (45e6, "B", "45 MB"),
        (2**30, "iB", "1 GiB"),
        (0.5, "%", "50%"),
        (0.985, "%", "98.5%"),
        (15.7e12, "FLOP/s", "15.7 TFLOP/s"),
        (9e11, "B/s", "900 GB/s"),
        (1024, "", "1,024"),
        (1024, "images/s", "1,024 images/s"),
        (2016, "year", "2016"),
        (4.78, "×", "4.78×"),
        (0.1, "", "0.1"),
        (-2.5, "V", "-2.5 V"),
        (1e20, "", "1e+20"),
    ],
)
def test_a_quantity_is_written_with_its_unit(value, unit, text):
    assert quantity(value, unit) == text


@given(st.floats(1e-4, 1e14) | st.floats(-1e14, -1e-4))
def test_a_number_keeps_three_digits(value):
    assert float(number(value).replace(",", "")) == pytest.approx(value, rel=0.006)


# ---------------------------------------------------------------- ticks

UNITS = st.sampled_from(["", "s", "B", "%", "images/s", "FLOP/s", "iB"])


def check_ticks(ticks, low, high, unit):
    values = [value for value, _ in ticks]
    slack = 1e-6 * max(abs(low), abs(high))
    assert all(low - slack <= value <= high + slack for value in values)
    texts = [text for _, text in ticks]
    assert len(set(texts)) == len(texts) <= 6
    for text in texts:
        ending = {"iB": "B"}.get(unit, unit)
        assert text.endswith(ending) or text == "0"


@example(100.0, 1.225e-3, "s")  # ticks differ in their seventh digit
@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e9), UNITS)
def test_linear_ticks_are_few_round_and_carry_units(low, length, unit):
    high = low + length
    if length < 1e-6 * abs(low):
        return
    ticks = linear_ticks(low, high, unit)
    check_ticks(ticks, low, high, unit)
    assert len(ticks) >= 2
    steps = {round((b - a) / length, 6) for (a, _), (b, _) in itertools.pairwise(ticks)}
    assert len(steps) == 1


@given(st.floats(1e-9, 1e9), st.floats(1.05, 1e12), UNITS, st.sampled_from([2, 10]))
def test_log_ticks_are_few_and_carry_units(low, factor, unit, base):
    ticks = log_ticks(low, low * factor, unit, base)
    check_ticks(ticks, low, low * factor, unit)
    assert ticks


def test_ticks_of_known_axes():
    def texts(ticks):
        return [text for _, text in ticks]

    assert texts(linear_ticks(0, 0.0105, "s")) == [
        *("0", "2 ms", "4 ms", "6 ms", "8 ms", "10 ms")
    ]
    assert texts(linear_ticks(0, 1.6, "s")) == ["0", "0.5 s", "1 s", "1.5 s"]
    assert texts(log_ticks(8e-6, 1.2, "s")) == [
        *("10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s")
    ]
    assert texts(log_ticks(1, 60)) == ["1", "2", "5", "10", "20", "50"]
    assert texts(linear_ticks(0, 3, whole=True)) == ["0", "1", "2", "3"]
    assert math.isclose(linear_ticks(0, 1, "%")[1][0], 0.2)
