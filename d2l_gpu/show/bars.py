"""``bars``: horizontal bars, each with its value at the end."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from d2l_gpu.show.axis import Axis
from d2l_gpu.show.sheet import Plot, Sheet, high, lines_of, wide
from d2l_gpu.show.style import LABEL, TEXT, looks
from d2l_gpu.vgpu.sim.drawing import GRID, OTHERS, SOFT, quantity
from d2l_gpu.vgpu.sim.words import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW, GAP = 0.3, 0.08  # height of a bar with room around it, room beside it; in inches
THICK = 0.68  # of a row, how much the bar takes
PLAIN = OTHERS[1]  # colour of all bars that are of no kind


class Bars(Plot):
    """The figure that ``bars`` returns."""

    def __init__(
        self,
        values: Mapping[str, float],
        unit: str,
        title: str,
        subtitle: str,
        scale: str,
        kinds: Mapping[str, str] | None,
    ):
        super().__init__(title, subtitle)
        self.values, self.unit, self.scale = dict(values), unit, scale
        self.looks = looks(values, kinds)
        for name in values.keys() - (kinds or {}).keys():
            self.looks[name] = self.looks[name]._replace(colour=PLAIN, edge=PLAIN)
        self.texts = {name: shown(quantity(v, unit)) for name, v in self.values.items()}

    def body_height(self, width: float) -> float:
        return _Layout(self, width).height

    def draw_body(self, sheet: Sheet, left: float, top: float, width: float) -> None:
        place = _Layout(self, width)
        axes = sheet.axes(left + place.left, top, place.across, sum(place.rows))
        self._draw_axes(axes, place)
        for (name, value), middle in zip(
            self.values.items(), place.middles, strict=True
        ):
            end, look = place.axis.place(value), self.looks[name]
            axes.barh(
                1 - middle / sum(place.rows),
                end,
                height=THICK * ROW / sum(place.rows),
                facecolor=look.colour,
                edgecolor=look.edge,
                linewidth=0.8,
            )
            lines = place.names[name]
            y = top + middle - high(len(lines), LABEL) / 2
            x = left + place.left - GAP
            sheet.write(x, y, lines, LABEL, align="right")
            x = left + place.left + end * place.across + GAP
            y = top + middle - high(1, LABEL) / 2
            sheet.write(x, y, [self.texts[name]], LABEL, bold=True)

    def _draw_axes(self, axes: "Axes", place: "_Layout") -> None:
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.set_yticks([])
        axes.spines["bottom"].set_visible(False)
        axes.axvline(0, color=SOFT, linewidth=0.8, clip_on=False, zorder=3)
        # The bars of a linear scale need no ticks: the values are written beside them.
        ticks = place.axis.ticks if self.scale == "log" else []
        axes.set_xticks([place.axis.place(v) for v, _ in ticks], [t for _, t in ticks])
        axes.xaxis.grid(True, color=GRID, linewidth=0.8)

    def _title(self) -> str:
        return self.title or ", ".join(self.values)

    def _contents(self) -> str:
        bars = ", ".join(f"{shown(x)} {text}" for x, text in self.texts.items())
        return shown(f"Bars: {bars}")


class _Layout:
    """Where the parts of a figure of bars are, in inches from its top left corner."""

    def __init__(self, plot: Bars, width: float):
        self.names = {n: lines_of(n, 0.35 * width, LABEL) for n in plot.values}
        lines = [line for lines in self.names.values() for line in lines]
        self.left = GAP + max(wide(line, LABEL) for line in lines)
        right = GAP + max(wide(text, LABEL, True) for text in plot.texts.values())
        self.across = width - self.left - right
        self.axis = _axis(plot)
        self.axis.thin(self.across)
        self.rows = [
            max(ROW, high(len(lines), LABEL) + 0.1) for lines in self.names.values()
        ]
        self.middles = [sum(self.rows[:i]) + row / 2 for i, row in enumerate(self.rows)]
        ticks = high(1, TEXT) + 0.08 if plot.scale == "log" else 0
        self.height = sum(self.rows) + ticks


def _axis(plot: Bars) -> Axis:
    """Return the axis along the bars; those of a log scale begin at a power of ten."""
    values = list(plot.values.values())
    low = 0.0
    if plot.scale == "log":
        low = 10.0 ** math.floor(math.log10(min(values)) - 0.3)
    limits = low, max(values) or 1
    return Axis(limits, scale=plot.scale, unit=plot.unit, room=False)


def bars(
    values: Mapping[str, float],
    unit: str = "",
    *,
    title: str = "",
    subtitle: str = "",
    scale: str = "linear",
    kinds: Mapping[str, str] | None = None,
) -> Bars:
    """Return a figure of horizontal bars, each with its value at the end.

    Args:
        values: the bars' lengths by their names, from top to bottom.
        unit: unit of the values, as for ``plot``.
        title: what the figure shows, as a finding.
        subtitle: the conditions.
        scale: ``'linear'`` or ``'log'``.
        kinds: what some of the bars show, as for ``plot``.
    Raises:
        ValueError: there are no values, one is negative (or zero, on a log scale), or
            ``kinds`` has an unknown kind or bar.
    """
    if not values:
        raise ValueError("Bars need at least one value, but got none.")
    for name, value in values.items():
        if not value >= 0 or (scale == "log" and not value):
            raise ValueError(
                f"Bars on a {scale} scale can't show {value!r}, the value of {name!r}."
            )
    return Bars(values, unit, title, subtitle, scale, kinds)
