"""Figures of finished results: nothing is clipped, nothing overlaps, all is named."""

import base64
import io
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d2l_gpu import torch as d2l
from d2l_gpu.show.style import looks
from d2l_gpu.vgpu.sim.drawing import COLOURS, OTHERS, PAPER, WORDS
from tests.helpers.pictures import contrast, figure_problems

NAMES = st.text("ab WM,-$_é", min_size=1, max_size=40).filter(str.strip)
UNITS = st.sampled_from(["", "s", "B", "%", "images/s"])
KINDS = list(COLOURS)


def texts_of(plot) -> list[str]:
    return [text.get_text() for text in plot.fig.texts]


def colours_of(plot) -> list[str]:
    """Return the colours of the curves, by their order."""
    return [line.get_color() for line in plot.fig.axes[0].lines]


# ---------------------------------------------------------------- where texts are


@st.composite
def plots(draw):
    scales = st.sampled_from(["linear", "log"])
    count = draw(st.integers(1, 9))
    xscale, yscale = draw(scales), draw(scales)
    magnitude = 10.0 ** draw(st.integers(-9, 9))
    values = st.floats(0.01, 1e6) | st.sampled_from([1.0, 2.0])
    x = draw(st.lists(values, min_size=count, max_size=count, unique=True))
    names = draw(st.lists(NAMES, min_size=1, max_size=7, unique=True))
    ys = st.none() | values.map(lambda value: value * magnitude)
    curves = {
        name: draw(st.lists(ys, min_size=count, max_size=count)) for name in names
    }
    return d2l.plot(
        sorted(x),
        curves,
        *draw(st.tuples(NAMES | st.just(""), NAMES | st.just(""))),
        title=draw(st.sampled_from(["", "A finding", "A long finding " * 9])),
        subtitle=draw(st.sampled_from(["", "conditions", "conditions " * 20])),
        xscale=xscale,
        yscale=yscale,
        xticks=draw(st.booleans()),
        yunit=draw(UNITS),
        xunit=draw(UNITS),
    )


@given(plots())
@settings(max_examples=40)
def test_texts_of_a_plot_are_inside_and_do_not_overlap(plot):
    assert figure_problems(plot) == []


BARS = st.dictionaries(
    NAMES, st.floats(1e-9, 1e9) | st.just(1.0), min_size=1, max_size=8
)


@given(BARS, UNITS, st.sampled_from(["linear", "log"]))
@settings(max_examples=30)
def test_texts_of_bars_are_inside_and_do_not_overlap(values, unit, scale):
    plot = d2l.bars(values, unit, title="A finding", subtitle="how", scale=scale)
    assert figure_problems(plot) == []


@given(st.lists(plots(), min_size=1, max_size=4))
@settings(max_examples=12)
def test_texts_of_panels_are_inside_and_do_not_overlap(panels):
    assert figure_problems(d2l.panels(*panels, title="A finding")) == []


def test_curves_that_end_in_the_same_place_are_named_side_by_side():
    curves = {f"curve {i} with a long name": [i, 5] for i in range(12)}
    assert figure_problems(d2l.plot([1, 2], curves, "x", "y")) == []


@pytest.mark.parametrize("name", ["V100", "A100", "H100", "T4"])
@pytest.mark.parametrize("most", [1, 8])
def test_texts_of_a_roofline_are_inside_and_do_not_overlap(name, most):
    use = worked(name)
    wide = d2l.roofline(use, "some products", most, title="A finding")
    assert figure_problems(wide) == []
    assert figure_problems(d2l.panels(wide, wide)) == []


def worked(name: str):
    sim = d2l.simulator(1, name)
    X = torch.ones(512, 512, device=sim.gpu(0))
    large, other = torch.ones(2, 4096, 4096, device=sim.gpu(0))
    for _ in range(3):
        X = (X @ X).relu() + X.sum()
        large.copy_(other)
    (use,) = sim.report().devices
    return use


# ---------------------------------------------------------------- curves


def test_curves_are_named_where_they_end_and_have_no_legend():
    plot = d2l.plot([1, 2, 3], {"low": [3, 2, 1], "high": [1, 2, None]}, "x", "y")
    [axes] = plot.fig.axes
    assert axes.get_legend() is None
    places = {text.get_text(): text.get_position() for text in plot.fig.texts}
    assert places["low"][0] == places["high"][0] > axes.get_position().x1
    assert places["low"][1] < places["high"][1]


def test_a_missing_or_infinite_value_is_left_out():
    plot = d2l.plot(range(4), {"a": [1, None, float("inf"), 4], "b": [None] * 4})
    [line] = plot.fig.axes[0].lines
    assert list(line.get_xdata()) == [0, 3]


def test_a_curve_has_a_value_for_each_x():
    with pytest.raises(ValueError, match="'a' has 1 values, but there are 2"):
        d2l.plot([1, 2], {"a": [1]}, "x", "y")


def test_a_log_scale_cannot_show_zero():
    with pytest.raises(
        ValueError, match="only positive values, but the curve 'a' has 0"
    ):
        d2l.plot([1, 2], {"a": [1, 0]}, "x", "time", yscale="log")
    with pytest.raises(ValueError, match="log scale can't show 0, the value of 'a'"):
        d2l.bars({"a": 0}, scale="log")


def test_ticks_have_units():
    plot = d2l.plot(
        [32, 128, 1024],
        {"GPU": [1e-5, 2e-4, 0.9]},
        "n",
        xscale="log",
        yscale="log",
        yunit="s",
    )
    [axes] = plot.fig.axes
    ys = [label.get_text() for label in axes.get_yticklabels()]
    assert ys == ["10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s"]
    assert [x.get_text() for x in axes.get_xticklabels()] == ["32", "128", "1,024"]


def test_years_have_no_separators():
    for settings_ in ({}, {"xticks": True}, {"xunit": "year", "xlabel": "of sale"}):
        labels = {"xlabel": "year of the GPU"} | settings_
        plot = d2l.plot([2008, 2016, 2022], {"GPUs": [1, 2, 3]}, **labels)
        [axes] = plot.fig.axes
        texts = [label.get_text() for label in axes.get_xticklabels()]
        assert len(texts) > 1
        assert all(len(text) == 4 and text.startswith("20") for text in texts)


def test_marks_are_ringed():
    plot = d2l.plot([1, 2], {"a": [1, 2]}, marks=[(2, 2)])
    curve, rings = plot.fig.axes[0].lines
    assert rings.get_markerfacecolor() == "none"
    assert rings.get_markersize() > curve.get_markersize()
    assert list(rings.get_xdata()) == [2]


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_no_marker_is_clipped(scale):
    plot = d2l.plot([1, 8], {"a": [1, 100]}, xscale=scale, yscale=scale)
    figure = plot.fig
    [axes] = figure.axes
    [line] = axes.lines
    pixels = axes.transData.transform(line.get_xydata())
    box = axes.get_window_extent()
    radius = line.get_markersize() / 72 * figure.dpi / 2
    for x, y in pixels:
        assert box.x0 + radius < x < box.x1 - radius
        assert box.y0 + radius < y < box.y1 - radius


# ---------------------------------------------------------------- colours


def test_a_kind_has_its_colour_and_the_others_have_none_of_these():
    names = [*COLOURS, *(f"curve {i}" for i in range(len(OTHERS)))]
    plot = d2l.plot(
        [1, 2],
        {name: [i, i + 1] for i, name in enumerate(names)},
        kinds={kind: kind for kind in COLOURS},
    )
    colours = colours_of(plot)
    assert len(set(colours)) == len(names)
    assert colours[0] == COLOURS["compute"]
    assert set(colours[len(COLOURS) :]) == set(OTHERS)
    for colour in colours:
        assert contrast(colour, PAPER) >= 3
    words = {text.get_text(): text.get_color() for text in plot.fig.texts}
    assert all(words[kind] == WORDS[kind] for kind in COLOURS)


@given(st.lists(st.sampled_from([None, *KINDS]), min_size=1, max_size=12))
def test_curves_differ_without_colour_too(kinds):
    names = [f"curve {i}" for i in range(len(kinds))]
    chosen = looks(names, {n: k for n, k in zip(names, kinds, strict=True) if k})
    for a, b in itertools.combinations(chosen.values(), 2):
        assert (a.line, a.marker) != (b.line, b.marker)


@pytest.mark.parametrize("draw", [d2l.plot, d2l.bars])
def test_unknown_kinds_and_names_are_refused(draw):
    arguments = ([1], {"a": [1]}) if draw is d2l.plot else ({"a": 1},)
    with pytest.raises(ValueError, match=r"must be one of compute, .*'gpu'"):
        draw(*arguments, kinds={"a": "gpu"})
    with pytest.raises(ValueError, match="'b', which isn't one of 'a'"):
        draw(*arguments, kinds={"b": "copy"})


def test_a_picture_is_opaque_and_white():
    from PIL import Image

    for plot in (d2l.plot([1, 2], {"a": [1, 2]}), d2l.bars({"a": 1})):
        data, _ = plot._repr_mimebundle_()
        png = io.BytesIO(base64.b64decode(data["image/png"]))
        picture = Image.open(png).convert("RGBA")
        assert picture.getpixel((1, 1)) == (255, 255, 255, 255)


# ---------------------------------------------------------------- bars


def test_each_bar_has_its_value_at_its_end():
    plot = d2l.bars({"T4": 0.03, "H100": 0.0021}, "s", kinds={"T4": "compute"})
    figure = plot.fig
    [axes] = figure.axes
    t4, h100 = axes.patches
    assert t4.get_width() / h100.get_width() == pytest.approx(0.03 / 0.0021)
    ends = [axes.transData.transform((bar.get_width(), 0))[0] for bar in (t4, h100)]
    for end, text in zip(ends, ("30 ms", "2.1 ms"), strict=True):
        [written] = [x for x in figure.texts if x.get_text() == text]
        left = written.get_window_extent().x0
        assert end < left < end + 0.15 * figure.dpi


def test_bars_on_a_log_scale_have_ticks():
    plot = d2l.bars({"a": 1.3, "b": 0.0021}, "s", scale="log")
    texts = [label.get_text() for label in plot.fig.axes[0].get_xticklabels()]
    assert texts == ["1 ms", "10 ms", "100 ms", "1 s"]


def test_bars_need_values_that_are_not_negative():
    with pytest.raises(ValueError, match="at least one value"):
        d2l.bars({})
    with pytest.raises(ValueError, match="can't show -1, the value of 'a'"):
        d2l.bars({"a": -1})


# ---------------------------------------------------------------- panels


def test_panels_are_side_by_side_or_below_each_other():
    plots = [d2l.bars({"a": 1}, title=str(i)) for i in range(3)]
    first, second, third = [axes.get_position() for axes in d2l.panels(*plots).fig.axes]
    assert first.x1 < second.x0
    assert first.y0 == pytest.approx(second.y0)
    assert third.y1 < first.y0


def test_panels_are_figures():
    with pytest.raises(ValueError, match="at least one panel"):
        d2l.panels()
    with pytest.raises(TypeError, match="must be a figure of plot, bars or roofline"):
        d2l.panels(d2l.bars({"a": 1}), "text")


# ---------------------------------------------------------------- words


def test_a_figure_says_its_finding_its_conditions_and_its_range():
    plot = d2l.plot(
        [32, 8192],
        {"CPU": [1e-5, 0.93], "GPU": [1.7e-5, 0.08]},
        "n",
        title="A GPU is slower for small matrices",
        subtitle="One product, simulated",
        yunit="s",
    )
    text = (
        "A GPU is slower for small matrices. One product, simulated. "
        "CPU, GPU, 10 µs to 930 ms, against n, 32 to 8,192."
    )
    data, metadata = plot._repr_mimebundle_()
    assert metadata["image/png"]["alt"] == text
    assert data["text/plain"] == f"<Figure: {text}>"
    assert {plot.title, plot.subtitle, "n", "CPU", "GPU"} <= set(texts_of(plot))


def test_a_figure_of_bars_says_each_value():
    plot = d2l.bars({"T4": 0.03, "H100": 0.0021}, "s", title="One is faster")
    assert repr(plot) == "<Figure: One is faster. Bars: T4 30 ms, H100 2.1 ms.>"


def test_panels_say_what_each_of_them_says():
    one, other = d2l.bars({"a": 1}, title="One"), d2l.bars({"b": 2}, title="Other")
    text = repr(d2l.panels(one, other, title="Both"))
    assert text == "<Figure: Both. One. Bars: a 1. Other. Bars: b 2.>"


def test_an_older_caption_is_a_subtitle():
    plot = d2l.plot([1, 2], {"a": [1, 2]}, caption="how it was measured")
    assert plot.subtitle == "how it was measured"


# ---------------------------------------------------------------- rooflines


@pytest.mark.parametrize("most", [1, 2, 3, 8])
def test_a_roofline_says_each_operators_share_of_all_the_time(most):
    use = worked("A100")
    assert use.operators[0].operations == 0  # the longest only copies
    whole = sum(each.seconds for each in use.operators)
    drawn = [
        each
        for each in use.operators
        if each.operations and each.seconds / whole >= 0.005
    ][:most]
    plot = d2l.roofline(use, most=most)
    shares = [f"{each.name}, {each.seconds / whole:.0%}" for each in drawn]
    assert [x for x in texts_of(plot) if x.endswith("%")] == shares
    assert all(share in repr(plot) for share in shares)


def test_no_operator_is_above_the_roof():
    [axes] = d2l.roofline(worked("A100")).fig.axes
    *roofs, points = axes.lines
    assert {max(line.get_ydata()) for line in roofs} == {19.5e12, 312e12, 156e12}
    assert len(points.get_xdata()) > 2
    for x, y in points.get_xydata():
        assert y <= min(312e12, x * 1.555e12)
