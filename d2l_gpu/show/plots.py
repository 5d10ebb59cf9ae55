"""Figures of finished results: curves, and a device's roofline."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from d2l_gpu.show.live import LiveFigure
from d2l_gpu.show.style import (
    LINE_STYLES,
    MARKERS,
    PALETTE,
    PLOT_SIZE,
    ROOFLINE_SIZE,
)
from d2l_gpu.vgpu import DeviceUse

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Plot(LiveFigure):
    """A figure that draws itself in a notebook; ``savefig`` writes it to a file."""

    def __init__(self, title: str, caption: str, figsize: tuple[float, float]):
        super().__init__(figsize)
        self.title, self.caption = title, caption

    def _title(self) -> str:
        return self.title

    def _description(self) -> str:
        return f"{self.title}. {self.caption}" if self.caption else self.title

    def _write_caption(self, figure: "Figure") -> None:
        if self.caption:
            figure.suptitle(self.caption, fontsize=9, wrap=True)


class Curves(Plot):
    """The figure that ``plot`` returns."""

    def __init__(self, x, curves, settings: dict, caption: str, figsize):
        title = f"{', '.join(curves)} against {settings['xlabel']}"
        super().__init__(title, caption, figsize)
        self.x, self.curves, self.settings = x, curves, settings

    def _paint(self, figure: "Figure") -> None:
        axes = figure.gca()
        for (name, values), line, color, marker in zip(
            self.curves.items(),
            itertools.cycle(LINE_STYLES),
            itertools.cycle(PALETTE),
            itertools.cycle(MARKERS),
            strict=False,
        ):
            points = [
                (a, b) for a, b in zip(self.x, values, strict=True) if b is not None
            ]
            axes.plot(
                *zip(*points, strict=True),
                line,
                color=color,
                marker=marker,
                markersize=4,
                label=name,
            )
        settings = dict(self.settings)
        marks = settings.pop("xticks")
        base = settings.pop("base")
        for axis in "xy":
            if settings[f"{axis}scale"] == "log":
                getattr(axes, f"set_{axis}scale")(
                    "log", base=base if axis == "x" else 10
                )
                del settings[f"{axis}scale"]
        axes.set(**{name: value for name, value in settings.items() if value})
        if marks:
            axes.set_xticks(list(self.x), labels=[f"{value:g}" for value in self.x])
            axes.minorticks_off()
        axes.grid(alpha=0.3)
        if len(self.curves) > 1:
            axes.legend()
        self._write_caption(figure)


def plot(
    x: Sequence[float],
    curves: Mapping[str, Sequence[float | None]],
    xlabel: str,
    ylabel: str,
    *,
    xscale: str = "linear",
    yscale: str = "linear",
    base: int = 2,
    xticks: bool = False,
    caption: str = "",
    figsize: tuple[float, float] = PLOT_SIZE,
) -> Curves:
    """Return a figure of curves over the same x values.

    Args:
        x: the x values.
        curves: the y values of each curve, by name; None leaves a point out.
        xlabel, ylabel: labels of the axes, with units.
        xscale, yscale: ``'linear'`` or ``'log'``.
        base: base of the logarithm of x.
        xticks: whether to put a tick at each x, and nowhere else.
        caption: a sentence above the figure.
        figsize: width and height in inches.
    Raises:
        ValueError: a curve doesn't have one value for each x.
    """
    for name, values in curves.items():
        if len(values) != len(x):
            raise ValueError(
                f"The curve {name!r} has {len(values)} values, but there are {len(x)} "
                "values of x."
            )
    settings = {
        "xlabel": xlabel,
        "ylabel": ylabel,
        "xscale": xscale,
        "yscale": yscale,
        "xticks": xticks,
        "base": base,
    }
    return Curves(list(x), dict(curves), settings, caption, figsize)


class Roofline(Plot):
    """The figure that ``roofline`` returns."""

    def __init__(self, use: DeviceUse, caption: str, most: int):
        title = (
            f"roofline of a {use.model.name}, operations per second against intensity"
        )
        super().__init__(title, caption, ROOFLINE_SIZE)
        self.use = use
        self.points = [op for op in use.operators if op.operations][:most]

    def _paint(self, figure: "Figure") -> None:
        self.draw(figure.gca())
        self._write_caption(figure)

    def draw(self, axes: "Axes") -> None:
        """Draw the roofline on axes, perhaps next to others."""
        model = self.use.model
        low = min([point.intensity for point in self.points] + [0.1]) / 2
        high = max([point.intensity for point in self.points] + [100.0]) * 4
        peaks = {"fp32": model.rates["fp32"]}
        peaks |= {f"{kind}, tensor cores": r for kind, r in model.tensor_rates.items()}
        for (name, peak), line in zip(
            peaks.items(), itertools.cycle(LINE_STYLES), strict=False
        ):
            ridge = peak / model.bandwidth
            axes.plot(
                [low, ridge, max(high, 2 * ridge)],
                [low * model.bandwidth / 1e12, peak / 1e12, peak / 1e12],
                line,
                color="#000000",
                label=f"peak {name}, {peak / 1e12:g} TFLOP/s",
            )
        for number, (point, marker) in enumerate(
            zip(self.points, itertools.cycle(MARKERS), strict=False)
        ):
            share = point.seconds / self._seconds()
            axes.plot(
                point.intensity,
                point.done / point.seconds / 1e12,
                marker,
                color=PALETTE[number % len(PALETTE)],
                markersize=8,
                alpha=0.7,
                label=f"{point.name}, {share:.0%} of the time",
            )
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="arithmetic intensity, operations per byte",
            ylabel="TFLOP/s, simulated",
        )
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7, loc="lower right")

    def _seconds(self) -> float:
        return sum(operator.seconds for operator in self.use.operators)


def roofline(use: DeviceUse, caption: str = "", most: int = 8) -> Roofline:
    """Return a roofline plot: what a device did, and the most that it could do.

    The roof is the device's memory bandwidth times the arithmetic intensity, up to the
    peak of its units. Each operator is a point below it, labelled with its share of the
    time.

    Args:
        use: a device's use, from ``sim.report().devices``.
        caption: a sentence above the figure.
        most: how many operators to draw, starting with the one that took longest.
    Source: Williams, Waterman and Patterson, Roofline, CACM 52(4), 2009.
    """
    return Roofline(use, caption, most)
