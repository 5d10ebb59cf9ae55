"""``plot``: curves over the same x values, each labelled where it ends."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from d2l_gpu.show import style
from d2l_gpu.show.axis import Axis
from d2l_gpu.show.sheet import Plot, Sheet, high, lines_of, wide
from d2l_gpu.show.style import LABEL, TEXT, Look
from d2l_gpu.vgpu.sim.drawing import INK, PAPER, SOFT, spread
from d2l_gpu.vgpu.sim.words import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GAP = 0.09  # between a curve's end and its name, in inches
TALL, SHORT = 2.6, 1.7  # height of the axes of a wide and a narrow figure, in inches
MARKERS_PER_CURVE = 12
RING = 11  # diameter of the ring around a marked point, in points


class Curves(Plot):
    """A figure of curves, as ``plot`` returns it.

    Args:
        curves: the points of each curve, by name. What can't be drawn is left out:
            infinite values, and those that aren't positive on a log scale.
        x, y: arguments of the two axes, apart from their values.
        title, subtitle: as of a `Plot`.
        kinds: what some of the curves show, as in `looks`.
        marks: points to put a ring around.
        looks: how the curves look, instead of what their kinds are.
        width: of the figure in inches; default: that of all figures.
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
        looks: Mapping[str, Look] | None = None,
        width: float | None = None,
    ):
        super().__init__(title, subtitle, width)
        self.looks, self.marks = looks or style.looks(curves, kinds), list(marks)
        kept = {
            name: [point for point in points if _can_be_drawn(point, x, y)]
            for name, points in curves.items()
        }
        self.curves = {name: points for name, points in kept.items() if points}
        self._points = [*itertools.chain(*self.curves.values())]
        self._settings = (x, {"zero": True} | dict(y))
        # A single curve needs no name if the axis says what it shows.
        self._named = len(curves) > 1 or not y.get("label")

    def axis(self, which: int) -> Axis:
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
            end = place.end(name)
            to = place.across + 0.7 * GAP, middle
            if abs(to[1] - end[1]) >= 0.1 or to[0] - end[0] >= 4 * GAP:
                corner = left + place.left, top + place.above
                sheet.line(corner, end, to, look.edge)

    # ---------------------------------------------------------------- words

    def _title(self) -> str:
        x = self._settings[0].get("label") or "x"
        names = ", ".join(map(shown, self.looks))
        return self.title or shown("{what} against {other}", what=names, other=shown(x))

    def _contents(self) -> str:
        x, y = self.axis(0), self.axis(1)
        names = ", ".join(map(shown, self.looks))
        if y.label:
            names = shown("{quantity} of {names}", quantity=shown(y.label), names=names)
        xs, ys = ([point[i] for point in self._points] for i in (0, 1))
        return shown(
            "{what}, {range}, against {other}, {other_range}",
            what=names,
            range=y.range(ys),
            other=shown(x.label or "x"),
            other_range=x.range(xs),
        )


class _Layout:
    """Where the parts of a figure of curves are, in inches from its top left corner.

    Attributes:
        left, above: where the axes begin.
        across, up: how large they are.
        ticks: how much room the ticks need below them.
        height: of everything.
    """

    def __init__(self, plot: Curves, width: float):
        self.plot, self.x, self.y = plot, plot.axis(0), plot.axis(1)
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
        self.up = max(min(0.36 * width, TALL), SHORT, sum(self.room))
        self.y.thin(self.up, upright=True)
        self.ticks = high(1, TEXT) + 0.08
        self.height = self.above + self.up + self.ticks + high(len(self.xlabel), TEXT)

    def end(self, name: str) -> tuple[float, float]:
        """Return where a curve ends, from the top left corner of the axes."""
        x, y = self.plot.curves[name][-1]
        return self.x.place(x) * self.across, (1 - self.y.place(y)) * self.up

    def name_places(self) -> dict[str, float]:
        """Return the middles of the curves' names, from the top of the axes."""
        # Curves that end in the same place are named in the order of their course.
        course = {
            name: sum(self.y.place(y) for _, y in points) / len(points)
            for name, points in self.plot.curves.items()
        }
        wanted = [self.end(name)[1] - 1e-6 * course[name] for name in self.names]
        places = spread(wanted, self.room, 0, self.up)
        return dict(zip(self.names, places, strict=True))


def draw_curve(
    axes: "Axes",
    points: Sequence[tuple[float, float]],
    look: Look,
    label: str | None = None,
) -> None:
    """Draw a curve with markers that tell it from others without colour."""
    axes.plot(
        *zip(*points, strict=True),
        linestyle=look.line,
        color=look.edge,
        linewidth=2,
        marker=look.marker,
        markersize=5.5,
        markeredgecolor=PAPER,
        markeredgewidth=0.7,
        markevery=max(1, len(points) // MARKERS_PER_CURVE),
        label=label,
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
            for 4 kB, 2 MB …, ``'iB'`` for 4 KiB, 2 MiB …; ``'%'`` for fractions, shown
            as 50%; ``'year'``; any other word is appended.
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
    known = {name: [y for y in ys if y is not None] for name, ys in curves.items()}
    if yscale == "log":
        for name, values in known.items():
            _check_positive(values, f"the curve {name!r}")
        _check_positive([y for _, y in marks], "marks")
    if xscale == "log":
        _check_positive(x, "x")
        _check_positive([a for a, _ in marks], "marks")
    points = {
        name: [
            (float(a), float(b)) for a, b in zip(x, ys, strict=True) if b is not None
        ]
        for name, ys in curves.items()
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


def _can_be_drawn(
    point: tuple[float, float], x: Mapping[str, Any], y: Mapping[str, Any]
) -> bool:
    return all(
        math.isfinite(value) and (axis.get("scale") != "log" or value > 0)
        for value, axis in zip(point, (x, y), strict=True)
    )


def _check_positive(values: Sequence[float], what: str) -> None:
    for value in values:
        if value <= 0:
            raise ValueError(
                f"A log scale has only positive values, but {what} has {value:g}."
            )
