"""Curves drawn while a network trains: ProgressBoard and Animator."""

import itertools
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from d2l_gpu.common.classes import HyperParameters
from d2l_gpu.show.live import LiveFigure, in_jupyter
from d2l_gpu.show.style import (
    ANIMATOR_FORMATS,
    BOARD_COLORS,
    LINE_STYLES,
    LIVE_SIZE,
    MARKERS,
    MARKERS_PER_CURVE,
)
from d2l_gpu.show.text_curves import TextCurves
from d2l_gpu.show.values import Value, listed, mean, single, to_host

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Point(NamedTuple):
    """A point of a curve."""

    x: float
    y: float


class ProgressBoard(LiveFigure, HyperParameters):
    """A figure that draws points as they come, one curve per label.

    The arguments become attributes and can be changed at any time. Outside Jupyter, or
    with ``display=False``, points are collected and nothing is shown.

    Args:
        xlabel, ylabel: labels of the axes.
        xlim, ylim: limits of the axes, as pairs.
        xscale, yscale: ``'linear'`` or ``'log'``.
        ls: line styles, one per curve; repeated if there are too few.
        colors: colours, likewise.
        fig, axes: Matplotlib figure and axes to draw on; default: new ones.
        figsize: width and height in inches.
        display: whether to show the figure in Jupyter while it grows.
    Source: d2l 1.0.3 ``ProgressBoard``, section 3.2.1.
    """

    def __init__(
        self,
        xlabel: str | None = None,
        ylabel: str | None = None,
        xlim: Sequence[float] | None = None,
        ylim: Sequence[float] | None = None,
        xscale: str = "linear",
        yscale: str = "linear",
        ls: Sequence[str] = LINE_STYLES,
        colors: Sequence[str] = BOARD_COLORS,
        fig: "Figure | None" = None,
        axes: "Axes | None" = None,
        figsize: tuple[float, float] = LIVE_SIZE,
        display: bool = True,
    ):
        super().__init__(figsize, fig, axes, display)
        self.save_hyperparameters(ignore=["fig", "axes", "figsize", "display"])
        self.clear()

    def draw(
        self,
        x: Value,
        y: Value,
        label: str,
        every_n: int = 1,
    ) -> None:
        """Add a value to a curve; the mean of every n values becomes a point.

        Values on a device are averaged there, so the host fetches one number per point
        rather than one per value. Each fetch waits for all work queued on the device.

        Args:
            x: x coordinate, a number or a tensor of one element.
            y: the value, likewise, on any device.
            label: name of the curve.
            every_n: number of values per point, at least 1.
        Raises:
            ValueError: every_n is not a positive integer, or x or y is not a single
                value.
        Source: d2l 1.0.3 ``ProgressBoard.draw``.
        """
        if isinstance(every_n, bool) or not isinstance(every_n, int) or every_n < 1:
            raise ValueError(
                "every_n, the number of values for each point, must be at least 1, "
                f"but got {every_n}."
            )
        waiting = self._waiting.setdefault(label, [])
        waiting.append((single(x), single(y)))
        if len(waiting) < every_n:
            return
        xs, ys = zip(*waiting, strict=True)
        waiting.clear()
        self.data.setdefault(label, []).append(Point(mean(xs), mean(ys)))
        self._changed()

    def clear(self) -> None:
        """Remove all points; the next change in Jupyter opens a new display."""
        self._close_display()
        self.data: dict[str, list[Point]] = {}
        self._waiting: dict[str, list[tuple]] = {}

    def _title(self) -> str:
        return f"{self.ylabel or 'progress'} against {self.xlabel or 'x'}"

    def _description(self) -> str:
        return f"{', '.join(self.data) or self.ylabel} against {self.xlabel or 'x'}"

    def _paint(self, figure: "Figure") -> None:
        axes = self.axes or figure.gca()
        axes.clear()
        styles = zip(
            itertools.cycle(self.ls),
            itertools.cycle(self.colors),
            itertools.cycle(MARKERS),
            strict=False,
        )
        for (label, points), (ls, color, marker) in zip(
            self.data.items(), styles, strict=False
        ):
            axes.plot(
                [point.x for point in points],
                [point.y for point in points],
                linestyle=ls,
                color=color,
                label=label,
                **_markers(marker, len(points)),
            )
        if self.data:
            axes.legend()
        _configure(axes, self)


class Animator(LiveFigure):
    """A figure that grows by one point on each of several curves at a time.

    Outside Jupyter, it prints the values instead, at most one line per epoch, unless
    its attribute ``display`` is False.

    Args:
        xlabel, ylabel: labels of the axes.
        legend: names of the curves.
        xlim, ylim: limits of the axes, as pairs.
        xscale, yscale: ``'linear'`` or ``'log'``.
        fmts: Matplotlib formats, one per curve; repeated if there are too few.
        nrows, ncols: rows and columns of axes; the curves are drawn in the first.
        figsize: width and height in inches.
    Source: d2l 1.0.3 ``Animator``, section 3.1.
    """

    def __init__(
        self,
        xlabel: str | None = None,
        ylabel: str | None = None,
        legend: Sequence[str] | None = None,
        xlim: Sequence[float] | None = None,
        ylim: Sequence[float] | None = None,
        xscale: str = "linear",
        yscale: str = "linear",
        fmts: Sequence[str] = ANIMATOR_FORMATS,
        nrows: int = 1,
        ncols: int = 1,
        figsize: tuple[float, float] = LIVE_SIZE,
    ):
        super().__init__(figsize)
        self.xlabel, self.ylabel = xlabel, ylabel
        self.xlim, self.ylim = xlim, ylim
        self.xscale, self.yscale = xscale, yscale
        self.legend = list(legend or ())
        self.fmts = fmts
        self.nrows, self.ncols = nrows, ncols
        self.data: list[list[Point]] = []
        self._lines: TextCurves | None = None

    def add(
        self,
        x: Value | Sequence[Value | None],
        y: Value | Sequence[Value | None],
    ) -> None:
        """Add a point to each curve.

        Tensors may be on any device; the host fetches those of one call together.

        Args:
            x: x coordinate of all curves, or one per curve.
            y: one value per curve, or a single value if there is only one curve. None
                adds no point.
        Raises:
            ValueError: x and y differ in length, or a value is not a single number.
        Source: d2l 1.0.3 ``Animator.add``.
        """
        ys = listed(y)
        xs = listed(x)
        if len(xs) == 1:
            xs = xs * len(ys)
        if len(xs) != len(ys):
            raise ValueError(
                "Animator.add needs one value of x for each of y, or a single x, but "
                f"got {len(xs)} of x and {len(ys)} of y."
            )
        curves = [
            i
            for i, (a, b) in enumerate(zip(xs, ys, strict=True))
            if a is not None and b is not None
        ]
        values = to_host(
            [single(xs[i]) for i in curves] + [single(ys[i]) for i in curves]
        )
        self.data += [[] for _ in range(len(ys) - len(self.data))]
        for i, a, b in zip(
            curves, values[: len(curves)], values[len(curves) :], strict=True
        ):
            self.data[i].append(Point(a, b))
        self._changed()
        if curves and self.display and not in_jupyter():
            self._print({i: self.data[i][-1] for i in curves})

    def _print(self, points: dict[int, Point]) -> None:
        """Print new points, given by curve number, where no figure is shown."""
        if self._lines is None:
            self._lines = TextCurves(self.xlabel or "x", len(self.data))
            # Print the last line when the figure is deleted or the program ends.
            weakref.finalize(self, self._lines.finish)
        values = {self._name(i): point.y for i, point in points.items()}
        self._lines.add(max(point.x for point in points.values()), values)

    def _name(self, curve: int) -> str:
        if curve < len(self.legend):
            return self.legend[curve]
        name = self.ylabel or "y"
        return name if len(self.data) == 1 else f"{name} {curve + 1}"

    def __getstate__(self) -> dict:
        return super().__getstate__() | {"_lines": None}

    def _title(self) -> str:
        what = ", ".join(self.legend) or self.ylabel or "y"
        return f"{what} against {self.xlabel or 'x'}"

    def _paint(self, figure: "Figure") -> None:
        axes = figure.subplots(self.nrows, self.ncols, squeeze=False)[0, 0]
        fmts = itertools.cycle(self.fmts)
        for points, fmt, marker in zip(
            self.data, fmts, itertools.cycle(MARKERS), strict=False
        ):
            axes.plot(
                [point.x for point in points],
                [point.y for point in points],
                fmt,
                **_markers(marker, len(points)),
            )
        if self.legend and self.data:
            # Explicit handles: there may be fewer or more names than curves.
            axes.legend(axes.lines, self.legend[: len(axes.lines)])
        _configure(axes, self)


def _markers(marker: str, points: int) -> dict:
    """Return markers that tell curves apart in grey but leave the lines visible."""
    every = max(1, points // MARKERS_PER_CURVE)
    return {"marker": marker, "markersize": 4, "markevery": every}


def _configure(axes: "Axes", settings: "ProgressBoard | Animator") -> None:
    axes.set_xscale(settings.xscale)
    axes.set_yscale(settings.yscale)
    if settings.xlim is not None:
        axes.set_xlim(settings.xlim)
    if settings.ylim is not None:
        axes.set_ylim(settings.ylim)
    axes.set_xlabel(settings.xlabel or "")
    axes.set_ylabel(settings.ylabel or "")
    if settings.xlabel == "epoch" and settings.xscale == "linear":
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(color="0.9")
