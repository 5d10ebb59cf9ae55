"""One axis of a figure: its limits, and ticks that fit and have units."""

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from d2l_gpu.show.sheet import high, wide
from d2l_gpu.show.style import TEXT
from d2l_gpu.vgpu.sim.drawing import linear_ticks, log_ticks, quantity
from d2l_gpu.vgpu.sim.words import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
        whole: whether only whole numbers may have ticks; None: if all values are whole.
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
        whole: bool | None = None,
    ):
        self.label, self.scale, self.base = label, scale, base
        self.unit = unit or ("year" if _are_years(values, label) else "")
        values = values or ((1, 10) if scale == "log" else (0, 1))
        first, last = limits or (min(values), max(values))
        if scale == "linear" and zero and limits is None and 0 <= first <= last / 2:
            first = 0
        self.low, self.high = self._with_room(first, last) if room else (first, last)
        # In the room below the first value a tick would be in a corner.
        if ticks is not None:
            found = [(value, self.text(value)) for value in sorted(set(ticks))]
            self.ticks = [(v, t) for v, t in found if first <= v <= self.high]
        elif scale == "log":
            self.ticks = log_ticks(first, self.high, self.unit, base)
        else:
            if whole is None:
                whole = self.unit not in ("s", "B", "%") and all(
                    float(value).is_integer() for value in values
                )
            self.ticks = linear_ticks(first, self.high, self.unit, whole=whole)
        self.ticks = [(value, shown(text)) for value, text in self.ticks]

    def _with_room(self, first: float, last: float) -> tuple[float, float]:
        """Return limits with room around the values for their markers."""
        if self.scale == "log":
            factor = (last / first) ** 0.04 if last > first else 1.5
            return first / factor, last * factor
        room = 0.04 * (last - first) or 0.1 * abs(last) or 0.5
        return first - room, last + room

    def text(self, value: float) -> str:
        return quantity(value, self.unit, 6)

    def place(self, value: float) -> float:
        """Return where a value is, from 0 at the beginning to 1 at the end."""
        if self.scale == "log":
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def thin(self, length: float, upright: bool = False) -> None:
        """Leave out ticks until their texts fit beside, or above, each other.

        Args:
            length: of the axis, in inches.
            upright: whether it's the vertical axis.
        """
        for step in itertools.count(1):
            kept = self.ticks[::step]
            ends = [
                (
                    self.place(value) * length,
                    (high(1, TEXT) if upright else wide(text, TEXT) + 0.1) / 2,
                )
                for value, text in kept
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
            return shown("no values")
        low, high = (quantity(value, self.unit) for value in (min(values), max(values)))
        return low if low == high else shown("{low} to {high}", low=low, high=high)


def _are_years(values: Sequence[float], label: str) -> bool:
    """Return whether values are years, which have no thousands separators."""
    return "year" in label.split() and all(1800 <= value < 2200 for value in values)
