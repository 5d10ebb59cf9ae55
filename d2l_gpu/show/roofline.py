"""``roofline``: what a device did, and the most that it could do."""

import itertools
from typing import TYPE_CHECKING

from d2l_gpu.show.sheet import Plot, Sheet
from d2l_gpu.show.style import LINE_STYLES, MARKERS, OTHERS
from d2l_gpu.vgpu import DeviceUse

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Roofline(Plot):
    """The figure that ``roofline`` returns."""

    def __init__(self, use: DeviceUse, title: str, subtitle: str, most: int):
        super().__init__(title, subtitle)
        self.use = use
        self.points = [op for op in use.operators if op.operations][:most]

    def body_height(self, width: float) -> float:
        return 0.55 * width

    def draw_body(self, sheet: Sheet, left: float, top: float, width: float) -> None:
        up = self.body_height(width) - 0.5
        self._draw(sheet.axes(left + 0.6, top, width - 0.7, up))

    def _title(self) -> str:
        return self.title or f"Roofline of a {self.use.model.name}"

    def _contents(self) -> str:
        return (
            f"Roofline of a {self.use.model.name}: FLOP/s against arithmetic intensity"
        )

    def _draw(self, axes: "Axes") -> None:
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
                color=OTHERS[number % len(OTHERS)],
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


def roofline(
    use: DeviceUse, subtitle: str = "", most: int = 8, *, title: str = ""
) -> Roofline:
    """Return a roofline plot: what a device did, and the most that it could do.

    The roof is the device's memory bandwidth times the arithmetic intensity, up to the
    peak of its units. Each operator is a point below it, labelled with its share of the
    time.

    Args:
        use: a device's use, from ``sim.report().devices``.
        subtitle: the conditions.
        most: how many operators to draw, starting with the one that took longest.
        title: what the figure shows, as a finding.
    Source: Williams, Waterman and Patterson, Roofline, CACM 52(4), 2009.
    """
    return Roofline(use, title, subtitle, most)
