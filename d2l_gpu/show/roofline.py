"""``roofline``: what a device did, and the most that it could do."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from d2l_gpu.show.axis import Axis
from d2l_gpu.show.curves import GAP, TALL
from d2l_gpu.show.sheet import POINTS, Plot, Sheet, high, lines_of, wide
from d2l_gpu.show.style import LABEL, PAD, TEXT
from d2l_gpu.vgpu import DeviceUse
from d2l_gpu.vgpu.sim.drawing import COLOURS, INK, PAPER, SOFT, WORDS, quantity, spread
from d2l_gpu.vgpu.sim.words import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST = 0.005  # of the time, what an operator must take to be drawn
KEY, KEY_ABOVE = "share of the time:", 0.1  # above the key, and room above that
DOT = 8  # diameter of an operator's point, in points
NEAR = 0.12  # distance of points that share a label, in inches
COLUMN = 3.2  # width that an entry of the key needs, in inches


class Roofline(Plot):
    """The figure that ``roofline`` returns.

    Attributes:
        roofs: the highest rates in FLOP/s, by the names of the units that reach them.
        shares: of the time, by the operator's name, if it computes something.
        points: the operators that are drawn.
    """

    def __init__(self, use: DeviceUse, title: str, subtitle: str, most: int):
        super().__init__(title, subtitle)
        self.use = use
        whole = sum(operator.seconds for operator in use.operators)
        self.shares = {
            operator.name: operator.seconds / whole
            for operator in use.operators
            if operator.operations
        }
        points = [op for op in use.operators if self.shares.get(op.name, 0) >= LEAST]
        self.points = points[:most]
        self.roofs = _roofs(use)

    # ---------------------------------------------------------------- layout

    def body_height(self, width: float) -> float:
        return _Layout(self, width).height

    def draw_body(self, sheet: Sheet, left: float, top: float, width: float) -> None:
        place = _Layout(self, width)
        axes = sheet.axes(left + place.left, top + place.above, place.across, place.up)
        place.x.set(axes, "x")
        place.y.set(axes, "y")
        sheet.write(left, top, place.ylabel, TEXT, SOFT)
        self._draw_roofs(axes, place)
        corner = left + place.left, top + place.above
        for lines, middle in zip(
            place.names.values(), place.name_middles(), strict=True
        ):
            x, y = corner[0] + place.across + GAP, corner[1] + middle
            y -= high(len(lines), TEXT) / 2
            sheet.write(x, y, lines, TEXT, WORDS["reference"])
        axes.plot(
            [point.intensity for point in self.points],
            [point.done / point.seconds for point in self.points],
            "o",
            color=COLOURS["compute"],
            markersize=DOT,
            markeredgecolor=PAPER,
            zorder=4,
        )
        for text, (x, y) in place.numbers():
            x, y = corner[0] + x, corner[1] + y - high(1, LABEL) / 2
            sheet.write(x, y, [text], LABEL, INK, bold=True, align="center")
        below = corner[1] + place.up + high(1, TEXT) + 0.08
        middle = corner[0] + place.across / 2
        sheet.write(middle, below, place.xlabel, TEXT, SOFT, align="center")
        self._write_key(sheet, left, below + high(len(place.xlabel), TEXT), place)

    def _draw_roofs(self, axes: "Axes", place: "_Layout") -> None:
        bandwidth = self.use.model.bandwidth
        first, last = place.x.low, place.x.high
        highest = max(self.roofs.values())
        ridge = highest / bandwidth
        look = {"color": COLOURS["reference"], "zorder": 2}
        slope = [first, ridge], [first * bandwidth, highest]
        axes.plot(*slope, linewidth=1.6, **look)
        place.write_along(axes, *slope, f"memory, {quantity(bandwidth, 'B/s')}")
        for name, rate in self.roofs.items():
            line = "-" if name.startswith("fp32") else "--"
            flat = [rate / bandwidth, last], [rate, rate]
            axes.plot(*flat, line, linewidth=1.6, **look)

    def _write_key(
        self, sheet: Sheet, left: float, top: float, place: "_Layout"
    ) -> None:
        top += KEY_ABOVE
        sheet.write(left, top, [KEY], TEXT, SOFT)
        for i, lines in enumerate(place.key):
            column, row = divmod(i, place.key_rows)
            before = place.key[i - row : i]
            y = top + high(1 + sum(map(len, before)), TEXT)
            x = left + column * COLUMN
            sheet.write(x, y, [f"{i + 1}"], TEXT, INK, bold=True)
            sheet.write(x + 0.2, y, lines, TEXT, INK)

    # ---------------------------------------------------------------- words

    def key(self) -> list[str]:
        """Return a line for each operator that is drawn: its name, and its share."""
        return [f"{point.name}, {self.shares[point.name]:.0%}" for point in self.points]

    def _title(self) -> str:
        return self.title or f"Roofline of the {self.use.model.name}"

    def _contents(self) -> str:
        peaks = [f"{quantity(r, 'FLOP/s')} in {name}" for name, r in self.roofs.items()]
        return (
            f"Roofline of the {self.use.model.name}, whose peaks are "
            f"{', '.join(peaks)}; FLOP/s against FLOP per byte for "
            f"{'; '.join(self.key())} of the time"
        )


def _roofs(use: DeviceUse) -> dict[str, float]:
    """Return the peaks of a device, with one name for all units of the same peak."""
    tensor: dict[float, list[str]] = {}
    for kind, rate in use.model.tensor_rates.items():
        tensor.setdefault(rate, []).append(kind)
    names = {r: f"{', '.join(kinds)} on tensor cores" for r, kinds in tensor.items()}
    plain = use.model.rates["fp32"]
    names[plain] = f"fp32; {names[plain]}" if plain in names else "fp32"
    return {name: rate for rate, name in names.items()}


class _Layout:
    """Where the parts of a roofline are, in inches from its top left corner."""

    def __init__(self, plot: Roofline, width: float):
        self.plot, bandwidth = plot, plot.use.model.bandwidth
        xs = [point.intensity for point in plot.points]
        ys = [point.done / point.seconds for point in plot.points]
        last = max(plot.roofs.values()) / bandwidth * 4
        # Below and left of the points there's room for their numbers.
        xs = [*xs, min([*xs, 1]) / 2, last]
        ys = [*ys, *plot.roofs.values(), min([*ys, bandwidth]) / 4]
        self.x = Axis(xs, "FLOP per byte (arithmetic intensity)", "log")
        self.y = Axis(ys, "", "log", "FLOP/s")
        rates = {n: quantity(rate, "FLOP/s") for n, rate in plot.roofs.items()}
        self.names = {
            name: lines_of(f"{shown(rate)} {name}", 0.3 * width, TEXT)
            for name, rate in rates.items()
        }
        texts = [wide(line, TEXT) for lines in self.names.values() for line in lines]
        self.rooms = [high(len(lines), TEXT) for lines in self.names.values()]
        self.left = 0.08 + max(wide(text, TEXT) for _, text in self.y.ticks)
        self.across = width - self.left - GAP - max(texts)
        self.x.thin(self.across)
        self.ylabel = lines_of("FLOP/s, simulated", width, TEXT)
        self.xlabel = lines_of(self.x.label, self.across, TEXT)
        self.above = high(1, TEXT) + 0.08
        self.up = max(min(0.5 * width, 1.2 * TALL), 1.8, sum(self.rooms))
        self.y.thin(self.up, upright=True)
        columns = max(1, int((width + PAD) / COLUMN))
        texts = plot.key()
        self.key = [lines_of(text, min(COLUMN, width) - 0.4, TEXT) for text in texts]
        self.key_rows = math.ceil(len(texts) / columns)
        ticks = high(1 + len(self.xlabel), TEXT) + 0.08
        step = max(self.key_rows, 1)
        columns = [self.key[i : i + step] for i in range(0, len(texts), step)]
        rows = 1 + max((sum(map(len, column)) for column in columns), default=0)
        self.height = self.above + self.up + ticks + KEY_ABOVE + high(rows, TEXT)

    def _spot(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point is, from the top left corner of the axes."""
        return self.x.place(x) * self.across, (1 - self.y.place(y)) * self.up

    def write_along(
        self, axes: "Axes", x: Sequence[float], y: Sequence[float], text: str
    ) -> None:
        """Write a text above a rising line, if the line is long enough."""
        first, last = map(self._spot, x, y)
        if math.dist(first, last) < 1.5 * wide(text, TEXT):
            return
        angle = math.degrees(math.atan2(first[1] - last[1], last[0] - first[0]))
        middle = [math.sqrt(ends[0] * ends[1]) for ends in (x, y)]
        axes.annotate(
            text,
            middle,
            (-3 * math.sin(math.radians(angle)), 3 * math.cos(math.radians(angle))),
            textcoords="offset points",
            rotation=angle,
            rotation_mode="anchor",
            horizontalalignment="center",
            fontsize=TEXT,
            color=WORDS["reference"],
        )

    def name_middles(self) -> list[float]:
        """Return the middles of the roofs' names, from the top of the axes."""
        wanted = [self._spot(1, rate)[1] for rate in self.plot.roofs.values()]
        return spread(wanted, self.rooms, 0, self.up)

    def numbers(self) -> list[tuple[str, tuple[float, float]]]:
        """Return the labels of the points, and where their middles go.

        Points that are close together share a label. A label is near its points, but
        neither on a point nor on another label.
        """
        groups: list[list[int]] = []
        spots = [
            self._spot(point.intensity, point.done / point.seconds)
            for point in self.plot.points
        ]
        for i, spot in enumerate(spots):
            near = (
                g for g in groups if any(math.dist(spot, spots[j]) < NEAR for j in g)
            )
            if (group := next(near, None)) is not None:
                group.append(i)
            else:
                groups.append([i])
        radius = DOT / POINTS / 2
        taken = [_Box(x, y, 2 * radius, 2 * radius) for x, y in spots]
        found = []
        for group in groups:
            text = ", ".join(str(i + 1) for i in group)
            x, y = (sum(spots[i][k] for i in group) / len(group) for k in (0, 1))
            box = self._free_place(x, y, wide(text, LABEL, True), taken)
            taken.append(box)
            found.append((text, (box.x, box.y)))
        return found

    def _free_place(
        self, x: float, y: float, width: float, taken: Sequence["_Box"]
    ) -> "_Box":
        """Return the place of a label close to x and y that covers nothing."""
        size = width, high(1, LABEL)
        boxes = [
            _Box(x + (far + width / 2) * math.cos(a), y + far * math.sin(a), *size)
            for far in (0.16, 0.22, 0.3, 0.45)
            for a in (math.pi * i / 8 for i in range(16))
        ]

        def badness(box: "_Box") -> float:
            covered = sum(box.covers(other) for other in taken)
            outside = not box.is_inside(self.across, self.up)
            above = box.y < y - 0.05  # where the roof is
            far = math.dist((x, y), (box.x, box.y))
            return 10 * covered + 10 * outside + 0.2 * above + far

        return min(boxes, key=badness)


class _Box(NamedTuple):
    """A rectangle by its middle and its size."""

    x: float
    y: float
    width: float
    height: float

    def covers(self, other: "_Box") -> bool:
        return (
            abs(self.x - other.x) < (self.width + other.width) / 2
            and abs(self.y - other.y) < (self.height + other.height) / 2
        )

    def is_inside(self, width: float, height: float) -> bool:
        return (
            self.width / 2 <= self.x <= width - self.width / 2
            and self.height / 2 <= self.y <= height - self.height / 2
        )


def roofline(
    use: DeviceUse, subtitle: str = "", most: int = 8, *, title: str = ""
) -> Roofline:
    """Return a roofline plot: what a device did, and the most that it could do.

    The roof is the device's memory bandwidth times the arithmetic intensity, up to the
    peak of its units. Each operator is a numbered point below it; the key says its
    share of the time.

    Args:
        use: a device's use, from ``sim.report().devices``.
        subtitle: the conditions.
        most: how many operators to draw, starting with the one that took longest.
        title: what the figure shows, as a finding.
    Source: Williams, Waterman and Patterson, Roofline, CACM 52(4), 2009.
    """
    return Roofline(use, title, subtitle, most)
