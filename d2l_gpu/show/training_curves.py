"""Curves drawn while a network trains: ProgressBoard and Animator.

Loss and accuracy are different quantities, so they get panels of their own.
"""

import re
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from d2l_gpu.common.classes import HyperParameters
from d2l_gpu.show.curves import Curves, draw_curve
from d2l_gpu.show.live import LiveFigure, in_jupyter
from d2l_gpu.show.panels import Panels
from d2l_gpu.show.sheet import Plot
from d2l_gpu.show.style import LABEL, Look, looks
from d2l_gpu.show.text_curves import TextCurves
from d2l_gpu.show.values import Value, listed, mean, single, to_host
from d2l_gpu.vgpu.sim.drawing import quantity
from d2l_gpu.vgpu.sim.words import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Point(NamedTuple):
    """A point of a curve."""

    x: float
    y: float


class GrowingCurves(LiveFigure):
    """What ProgressBoard and Animator have in common: how their curves are drawn.

    Attributes:
        xlabel, ylabel, xlim, ylim, xscale, yscale, figsize: as of a ProgressBoard.
    """

    xlabel: str | None
    ylabel: str | None
    xlim: Sequence[float] | None
    ylim: Sequence[float] | None
    xscale: str
    yscale: str
    figsize: tuple[float, float] | None

    def curves(self) -> dict[str, list[Point]]:
        """Return the points of each curve by its name; a subclass has them."""
        raise NotImplementedError

    def looks(self) -> Mapping[str, Look]:
        """Return the look of each curve."""
        return looks(self.curves(), None)

    def plot(self) -> Plot:
        """Return a figure of the curves as they are now."""
        curves = self.curves()
        accuracy = {name: points for name, points in curves.items() if _is_share(name)}
        others = {
            name: points for name, points in curves.items() if name not in accuracy
        }
        if accuracy and others:
            panels = self._panel(others, self.ylim), self._panel(accuracy, None)
            return Panels(panels, "", "", self._width())
        return self._panel(curves, self.ylim)

    def _panel(
        self, curves: Mapping[str, list[Point]], limits: Sequence[float] | None
    ) -> Curves:
        """Return a figure of curves that show one quantity."""
        label = self.ylabel
        if not label or len(curves) < len(self.curves()):
            label = _quantity(curves)
        values = [point.y for points in curves.values() for point in points]
        share = all(map(_is_share, curves)) or _is_share(label)
        share = share and all(0 <= value <= 1 for value in values)
        x = {"label": self.xlabel or "", "scale": self.xscale, "limits": self.xlim}
        y = {"label": label, "scale": self.yscale, "limits": limits}
        x["whole"] = self.xlabel == "epoch"
        y["unit"] = "%" if share and curves else ""
        looks = {name: look for name, look in self.looks().items() if name in curves}
        return Curves(curves, x, y, looks=looks, width=self._width())

    def _width(self) -> float | None:
        return self.figsize[0] if self.figsize else None

    def _paint(self, figure: "Figure") -> None:
        if self._given is not None:
            self._draw_on(self.axes or figure.gca())
        else:
            self.plot().paint(figure)

    def _draw_on(self, axes: "Axes") -> None:
        """Draw all curves on the user's own axes, whose layout isn't ours."""
        axes.clear()
        plot = self._panel(self.curves(), self.ylim)
        for which in "xy":
            plot.axis("xy".index(which)).set(axes, which)
        for name, points in plot.curves.items():
            draw_curve(axes, points, plot.looks[name], label=shown(name))
        axes.set_xlabel(shown(self.xlabel or ""))
        axes.set_ylabel(shown(self.ylabel or ""))
        if plot.curves:
            axes.legend(frameon=False, fontsize=LABEL)

    def _description(self) -> str:
        """Return the alternative text: what the curves are, and how each has gone."""
        parts = []
        for name, points in self.curves().items():
            if points:
                first, last = (quantity(point.y) for point in (points[0], points[-1]))
                parts.append(
                    shown(
                        "{name} from {first} to {last}",
                        name=shown(name),
                        first=first,
                        last=last,
                    )
                )
        title = shown(self._title())
        return f"{title}: {', '.join(parts)}." if parts else title


def _is_share(name: str) -> bool:
    """Return whether a curve of this name shows accuracy, a share of all."""
    return bool(re.search(r"(?i)(^|[\W_])(acc|accuracy|accuracies)\b", name))


def _quantity(names: Iterable[str]) -> str:
    """Return what curves show: the words that all of their names end in."""
    words = [re.split(r"[\s_]+", name) for name in names]
    if len(words) == 1:
        return " ".join(words[0])
    shared = []
    for last in zip(*(each[::-1] for each in words), strict=False):
        if len(set(last)) > 1:
            break
        shared.append(last[0])
    return " ".join(shared[::-1])


class ProgressBoard(GrowingCurves, HyperParameters):
    """A figure that draws points as they come, one curve per label.

    The arguments become attributes and can be changed at any time. Outside Jupyter, or
    with ``display=False``, points are collected and nothing is shown.

    Args:
        xlabel, ylabel: labels of the axes.
        xlim, ylim: limits of the axes, as pairs.
        xscale, yscale: ``'linear'`` or ``'log'``.
        ls: line styles, one per curve; repeated if there are too few. Default: those of
            all figures.
        colors: colours, likewise.
        fig, axes: Matplotlib figure and axes to draw on; default: new ones.
        figsize: width and height in inches, of which the height follows from what is
            drawn; default: those of all figures.
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
        ls: Sequence[str] | None = None,
        colors: Sequence[str] | None = None,
        fig: "Figure | None" = None,
        axes: "Axes | None" = None,
        figsize: tuple[float, float] | None = None,
        display: bool = True,
    ):
        super().__init__(fig, axes, display)
        self.figsize = figsize
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

    def curves(self) -> dict[str, list[Point]]:
        return self.data

    def looks(self) -> dict[str, Look]:
        found = super().looks()
        for i, (name, look) in enumerate(found.items()):
            if self.ls:
                look = look._replace(line=self.ls[i % len(self.ls)])
            if self.colors:
                colour = self.colors[i % len(self.colors)]
                look = look._replace(edge=colour, words=colour)
            found[name] = look
        return found

    def _title(self) -> str:
        return shown(
            "{what} against {other}",
            what=shown(self.ylabel or "progress"),
            other=shown(self.xlabel or "x"),
        )


class Animator(GrowingCurves):
    """A figure that grows by one point on each of several curves at a time.

    Outside Jupyter, it prints the values instead, at most one line per epoch, unless
    its attribute ``display`` is False.

    Args:
        xlabel, ylabel: labels of the axes.
        legend: names of the curves.
        xlim, ylim: limits of the axes, as pairs.
        xscale, yscale: ``'linear'`` or ``'log'``.
        fmts: Matplotlib formats, one per curve; repeated if there are too few. Default:
            the lines and colours of all figures.
        nrows, ncols: accepted as by the book's class; panels are added as needed.
        figsize: width and height in inches, of which the height follows from what is
            drawn; default: those of all figures.
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
        fmts: Sequence[str] | None = None,
        nrows: int = 1,
        ncols: int = 1,
        figsize: tuple[float, float] | None = None,
    ):
        super().__init__()
        self.figsize = figsize
        self.xlabel, self.ylabel = xlabel, ylabel
        self.xlim, self.ylim = xlim, ylim
        self.xscale, self.yscale = xscale, yscale
        self.legend = list(legend or ())
        self.fmts = fmts
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

    def curves(self) -> dict[str, list[Point]]:
        return {self._name(i): points for i, points in enumerate(self.data)}

    def looks(self) -> dict[str, Look]:
        found = super().looks()
        for i, (name, look) in enumerate(found.items()):
            if self.fmts:
                found[name] = _with_format(look, self.fmts[i % len(self.fmts)])
        return found

    def _title(self) -> str:
        what = ", ".join(self.legend) or self.ylabel or "y"
        other = shown(self.xlabel or "x")
        return shown("{what} against {other}", what=shown(what), other=other)


def _with_format(look: Look, fmt: str) -> Look:
    """Return a look with the line, marker and colour of a Matplotlib format."""
    from matplotlib.colors import to_hex
    from matplotlib.figure import Figure

    (line,) = Figure().subplots().plot([], [], fmt)
    colour = to_hex(line.get_color())
    look = look._replace(edge=colour, words=colour, line=line.get_linestyle())
    marker = line.get_marker()
    return look if marker == "None" else look._replace(marker=marker)
