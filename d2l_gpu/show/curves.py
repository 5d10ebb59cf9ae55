"""``plot``: curves over the same x values, each labelled where it ends."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from d2l_gpu.show.sheet import Plot, Sheet, high, lines_of, wide
from d2l_gpu.show.style import LABEL, TEXT, Look, looks
from d2l_gpu.vgpu.sim.drawing import (
    INK,
    PAPER,
    SOFT,
    linear_ticks,
    log_ticks,
    quantity,
    spread,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GAP = 0.09  # between a curve's end and its name, in inches
TALL = 2.6  # height of the axes of a figure of full width, in inches
MARKERS_PER_CURVE = 12
RING = 11  # diameter of the ring around a marked point, in points


class Axis:
    """One axis: its limits, and its ticks with their texts.

    Args:
        values: everything that must be visible.
        label: what the axis shows.
        scale: ``'linear'`` or ``'log'``.
        unit: as in `quantity`.
        base: of the logarithm.
        ticks: where to put ticks, as far as there's room; None: at round values.
        zero: whether to begin at zero if that leaves the values half of the axis.
        limits: first and last value to show; None: so that all values fit.
        room: whether to leave room for markers beyond the first and last value.
    """

    def __init__(
        self,
        values: Sequence[float],
        label: str = "",
        scale: str = "linear",
        unit: str = "",
        base: int = 10,
        ticks: Sequence[float] | None = None,
        zero: bool = False,
        limits: Sequence[float] | None = None,
        room: bool = True,
    ):
        self.label, self.scale, self.base = label, scale, base
        self.unit = unit or ("year" if _are_years(values, label) else "")
        if scale == "log" and (lowest := min(values, default=1)) <= 0:
            raise ValueError(
                f"A log scale has only positive values, but got {lowest:g} for "
                f"{label or 'an axis'}."
            )
        low, high_ = limits or (min(values, default=0), max(values, default=1))
        if scale == "linear" and zero and limits is None and 0 <= low <= high_ / 2:
            low = 0
        self.low, self.high = self._with_room(low, high_) if room else (low, high_)
        if ticks is not None:
            self.ticks = [(value, self.text(value)) for value in sorted(set(ticks))]
        elif scale == "log":
            self.ticks = log_ticks(self.low, self.high, self.unit, base)
        else:
            whole = all(float(value).is_integer() for value in values)
            whole = whole and self.unit not in ("s", "B", "%")
            self.ticks = linear_ticks(self.low, self.high, self.unit, whole=whole)
        first, last = self.low, self.high
        self.ticks = [(v, text) for v, text in self.ticks if first <= v <= last]

    def _with_room(self, low: float, high: float) -> tuple[float, float]:
        """Return limits with room around the values for their markers."""
        if self.scale == "log":
            factor = (high / low) ** 0.04 if high > low else 1.5
            return low / factor, high * factor
        room = 0.04 * (high - low) or 0.1 * abs(high) or 1
        return low - room, high + room

    def text(self, value: float) -> str:
        return quantity(value, self.unit, 6)

    def place(self, value: float) -> float:
        """Return where a value is, from 0 at the beginning to 1 at the end."""
        if self.scale == "log":
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def thin(self, length: float, size: float = TEXT) -> None:
        """Leave out ticks until their texts fit side by side."""
        for step in itertools.count(1):
            kept = self.ticks[::step]
            ends = [
                (self.place(v) * length, wide(text, size) / 2 + 0.05)
                for v, text in kept
            ]
            pairs = itertools.pairwise(ends)
            if all(a + half < b - other for (a, half), (b, other) in pairs):
                self.ticks = kept
                return

    def set(self, axes: "Axes", which: str) -> None:
        """Give this scale, these limits and ticks to an axis of Matplotlib."""
        if self.scale == "log":
            getattr(axes, f"set_{which}scale")("log", base=self.base)
        getattr(axes, f"set_{which}lim")(self.low, self.high)
        values, texts = zip(*self.ticks, strict=True) if self.ticks else ((), ())
        getattr(axes, f"set_{which}ticks")(values, texts)
        axes.minorticks_off()

    def range(self, values: Sequence[float]) -> str:
        """Return the range of the values in words."""
        if not values:
            return "no values"
        texts = [quantity(value, self.unit) for value in (min(values), max(values))]
        return texts[0] if texts[0] == texts[1] else " to ".join(texts)


class Curves(Plot):
    """A figure of curves, as ``plot`` returns it.

    Args:
        curves: the points of each curve, by name.
        x, y: arguments of the two axes, apart from their values.
        title, subtitle: as of a `Plot`.
        kinds: what some of the curves show, as in `looks`.
        marks: points to put a ring around.
    """

    def __init__(
        self,
        curves: Mapping[str, Sequence[tuple[float, float]]],
        x: Mapping[str, Any],
        y: Mapping[str, Any],
        title: str = "",
        subtitle: str = "",
        kinds: Mapping[str, str] | None = None,
        marks: Sequence[tuple[float, float]] = (),
    ):
        super().__init__(title, subtitle)
        self.looks, self.marks = looks(curves, kinds), list(marks)
        self.curves = {name: list(points) for name, points in curves.items() if points}
        self._points = [*itertools.chain(*self.curves.values())]
        self._settings = (x, {"zero": True} | dict(y))
        # A single curve needs no name if the axis says what it shows.
        self._named = len(curves) > 1 or not y.get("label")

    def _axis(self, which: int) -> Axis:
        values = [point[which] for point in (*self._points, *self.marks)]
        return Axis(values, **self._settings[which])

    # ---------------------------------------------------------------- layout

    def body_height(self, width: float) -> float:
        return _Layout(self, width).height

    def draw_body(self, sheet: Sheet, left: float, top: float, width: float) -> None:
        place = _Layout(self, width)
        axes = sheet.axes(left + place.left, top + place.above, place.across, place.up)
        place.x.set(axes, "x")
        place.y.set(axes, "y")
        sheet.write(left, top, place.ylabel, TEXT, SOFT)
        below = top + place.above + place.up + place.ticks
        middle = left + place.left + place.across / 2
        sheet.write(middle, below, place.xlabel, TEXT, SOFT, align="center")
        for name, points in self.curves.items():
            draw_curve(axes, points, self.looks[name])
        if self.marks:
            axes.plot(
                *zip(*self.marks, strict=True),
                linestyle="none",
                marker="o",
                markersize=RING,
                markerfacecolor="none",
                markeredgecolor=INK,
                markeredgewidth=1.3,
                clip_on=False,
                zorder=5,
            )
        for name, middle in place.name_places().items():
            look, lines = self.looks[name], place.names[name]
            x, y = left + place.left + place.across + GAP, top + place.above + middle
            up = high(len(lines), LABEL) / 2
            sheet.write(x, y - up, lines, LABEL, look.words, bold=True)
            self._lead(axes, place, name, middle)

    def _lead(self, axes: "Axes", place: "_Layout", name: str, middle: float) -> None:
        """Draw a thin line from a curve's end to its name, if they're apart."""
        x, y = place.end(name)
        end = place.across + 0.7 * GAP
        if abs(middle - y) < 0.1 and end - x < 4 * GAP:
            return
        along = [x / place.across, end / place.across]
        axes.plot(
            along,
            [1 - y / place.up, 1 - middle / place.up],
            transform=axes.transAxes,
            color=self.looks[name].colour,
            linewidth=0.7,
            clip_on=False,
            zorder=1,
        )

    # ---------------------------------------------------------------- words

    def _title(self) -> str:
        x = self._settings[0].get("label") or "x"
        return self.title or f"{', '.join(self.looks)} against {x}"

    def _contents(self) -> str:
        x, y = self._axis(0), self._axis(1)
        names = ", ".join(self.looks)
        what = f"{y.label} of {names}" if y.label else names
        xs, ys = ([point[i] for point in self._points] for i in (0, 1))
        return f"{what}, {y.range(ys)}, against {x.label or 'x'}, {x.range(xs)}"


class _Layout:
    """Where the parts of a figure of curves are, in inches from its top left corner.

    Attributes:
        left, above: where the axes begin.
        across, up: how large they are.
        ticks: how much room the ticks need below them.
        height: of everything.
    """

    def __init__(self, plot: Curves, width: float):
        self.plot, self.x, self.y = plot, plot._axis(0), plot._axis(1)
        names = plot.curves if plot._named else ()
        self.names = {n: lines_of(n, 0.3 * width, LABEL, bold=True) for n in names}
        texts = [wide(line, LABEL, True) for x in self.names.values() for line in x]
        right = GAP + max(texts) if texts else 0.0
        last = self.x.ticks[-1][1] if self.x.ticks else ""
        right = max(right, wide(last, TEXT) / 2)
        self.left = 0.08 + max(
            (wide(text, TEXT) for _, text in self.y.ticks), default=0
        )
        self.across = width - self.left - right
        self.x.thin(self.across)
        self.ylabel = lines_of(self.y.label, width, TEXT)
        self.xlabel = lines_of(self.x.label, self.across, TEXT)
        self.above = high(len(self.ylabel), TEXT) + 0.08
        self.room = [high(len(lines), LABEL) for lines in self.names.values()]
        self.up = max(min(0.36 * width, TALL), sum(self.room))
        self.ticks = high(1, TEXT) + 0.08
        self.height = self.above + self.up + self.ticks + high(len(self.xlabel), TEXT)

    def end(self, name: str) -> tuple[float, float]:
        """Return where a curve ends, from the top left corner of the axes."""
        x, y = self.plot.curves[name][-1]
        return self.x.place(x) * self.across, (1 - self.y.place(y)) * self.up

    def name_places(self) -> dict[str, float]:
        """Return the middles of the curves' names, from the top of the axes."""
        wanted = [self.end(name)[1] for name in self.names]
        places = spread(wanted, self.room, 0, self.up)
        return dict(zip(self.names, places, strict=True))


def draw_curve(axes: "Axes", points: Sequence[tuple[float, float]], look: Look) -> None:
    """Draw a curve with markers that tell it from others without colour."""
    axes.plot(
        *zip(*points, strict=True),
        linestyle=look.line,
        color=look.colour,
        linewidth=2,
        marker=look.marker,
        markersize=5.5,
        markeredgecolor=PAPER,
        markeredgewidth=0.7,
        markevery=max(1, len(points) // MARKERS_PER_CURVE),
        clip_on=False,
    )


def plot(
    x: Sequence[float],
    curves: Mapping[str, Sequence[float | None]],
    xlabel: str = "",
    ylabel: str = "",
    *,
    title: str = "",
    subtitle: str = "",
    xscale: str = "linear",
    yscale: str = "linear",
    base: int = 2,
    xunit: str = "",
    yunit: str = "",
    kinds: Mapping[str, str] | None = None,
    marks: Sequence[tuple[float, float]] = (),
    xticks: bool = False,
    caption: str = "",
) -> Curves:
    """Return a figure of curves over the same x values, labelled where they end.

    Args:
        x: the x values.
        curves: the y values of each curve, by name; None leaves a point out.
        xlabel, ylabel: what the axes show, with the unit if the ticks don't have it.
        title: what the figure shows, as a finding.
        subtitle: the conditions.
        xscale, yscale: ``'linear'`` or ``'log'``.
        base: base of the logarithm of x.
        xunit, yunit: unit of the ticks: ``'s'``, whose ticks are 10 µs, 1 ms …; ``'B'``
            for 4 kB, 2 MB …; ``'%'`` for fractions, shown as 50%; ``'year'``; any other
            word is appended.
        kinds: what some of the curves show, each kind in the colour that it has in the
            whole course: ``'compute'``, ``'copy'``, ``'wait'``, ``'communicate'``,
            ``'host'``, ``'reference'``.
        marks: points ``(x, y)`` to put a ring around.
        xticks: whether to put ticks at the values of x, as far as they fit. If x is on
            a log scale, that's where they are anyway.
        caption: an older name of ``subtitle``.
    Raises:
        ValueError: a curve doesn't have one value for each x, a value on a log scale
            isn't positive, or ``kinds`` has an unknown kind or curve.
    """
    for name, values in curves.items():
        if len(values) != len(x):
            raise ValueError(
                f"The curve {name!r} has {len(values)} values, but there are {len(x)} "
                "values of x."
            )
    points = {
        name: [
            (float(a), float(b))
            for a, b in zip(x, values, strict=True)
            if b is not None and math.isfinite(b)
        ]
        for name, values in curves.items()
    }
    at = sorted({float(value) for value in x})
    ticks = at if xticks or (xscale == "log" and len(at) <= 16) else None
    return Curves(
        points,
        {"label": xlabel, "scale": xscale, "unit": xunit, "base": base, "ticks": ticks},
        {"label": ylabel, "scale": yscale, "unit": yunit},
        title,
        subtitle or caption,
        kinds,
        marks,
    )


def _are_years(values: Sequence[float], label: str) -> bool:
    """Return whether values are years, which have no thousands separators."""
    return "year" in label.split() and all(1800 <= value < 2200 for value in values)
