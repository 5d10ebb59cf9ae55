"""A drawing of what ran when: the host's work, and each device's kernels and copies.

It shows as SVG in a notebook and as text elsewhere. Kernels, copies and waiting differ
in shade and pattern, so you can read it without colours.
"""

import html
from collections import defaultdict
from dataclasses import dataclass

from .clock import HOST, PICO, Clock
from .trace import Trace
from .units import time_text

WIDTH, LEFT, RIGHT = 760, 92, 12  # of the drawing, of its labels, of its margin
ROW, BAR, TOP, BOTTOM = 30, 20, 26, 62
PIXELS_PER_LETTER = 6.2
COLUMNS = 60  # of the text
LANES = ("compute", "in", "out")  # of a device, as in a Span

# How each kind looks: fill, its outline, and the letter of the text.
LOOKS = {
    "issue": ("#222222", "none", "|"),
    "wait": ("#e4e4e4", "#999999", "~"),
    "compute": ("#8a8a8a", "#222222", "#"),
    "copy": ("url(#stripes)", "#222222", "="),
}
MEANINGS = {
    "issue": "host issues",
    "wait": "host waits",
    "compute": "kernel",
    "copy": "copy",
}


@dataclass
class Bar:
    """A stretch of time on one row, in seconds; spans that touch share a bar."""

    kind: str
    start: float
    end: float
    name: str


class Timeline:
    """A drawing of a clock's spans since the last reset.

    Args:
        label: what the clock simulates.
        title: what the drawing shows, as a finding; default: how long it took.
        subtitle: the conditions; how long it took and the label are added.

    Attributes:
        seconds: simulated seconds until everything was done.
        rows: the bars to draw, by the name of their row.
        trace: what ran when in more detail, for a viewer such as Perfetto.
    """

    def __init__(self, clock: Clock, label: str, title: str = "", subtitle: str = ""):
        self.title, self.subtitle = title, subtitle
        self.label, self.trace = label, Trace(clock, label)
        self.seconds, self.complete = self.trace.seconds, self.trace.complete
        self.rows = self._rows(clock)

    def _rows(self, clock: Clock) -> dict[str, list[Bar]]:
        finest = self.seconds / (2 * WIDTH)
        rows: dict[str, list[Bar]] = {"host": []}
        for i in clock.models:
            rows |= {f"{clock.names[i]} {lane}": [] for lane in LANES}
        found = defaultdict(list)
        for span in self.trace.spans:
            start = (span.start - clock.origin) / PICO
            end = (span.end - clock.origin) / PICO
            if span.index == HOST:
                found["host"].append(Bar("wait", start, end, span.name))
                continue
            kind = "compute" if span.lane == "compute" else "copy"
            row = f"{clock.names[span.index]} {span.lane}"
            found[row].append(Bar(kind, start, end, span.name))
            if span.lane == "compute":
                issued = (span.issued - clock.origin) / PICO
                start = issued - span.issuing / PICO
                found["host"].append(Bar("issue", start, issued, span.name))
        for name, bars in found.items():
            rows[name] = _joined(sorted(bars, key=lambda bar: bar.start), finest)
        return {name: bars for name, bars in rows.items() if bars or name == "host"}

    # -------------------------------------------------------------- text

    def __repr__(self) -> str:
        lines = [f"{self._title()}; one letter is {time_text(self.seconds / COLUMNS)}"]
        width = max(map(len, self.rows))
        for name, bars in self.rows.items():
            letters = [" "] * COLUMNS
            for bar in bars:
                begin = int(bar.start / self.seconds * COLUMNS) if self.seconds else 0
                end = int(bar.end / self.seconds * COLUMNS) if self.seconds else 0
                for i in range(begin, min(max(end, begin + 1), COLUMNS)):
                    letters[i] = LOOKS[bar.kind][2]
            lines.append(f"{name:<{width}} {''.join(letters)}".rstrip())
        used = [kind for kind in LOOKS if self._uses(kind)]
        lines.append("  ".join(f"{LOOKS[kind][2]} {MEANINGS[kind]}" for kind in used))
        return "\n".join(lines)

    # -------------------------------------------------------------- SVG

    def _repr_svg_(self) -> str:
        return self.svg()

    def svg(self) -> str:
        """Return the drawing as the text of an SVG file."""
        height = TOP + ROW * len(self.rows) + BOTTOM
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" font-family="sans-serif" '
            'font-size="11" fill="#111111">',
            f"<title>{html.escape(self._title())}</title>",
            '<defs><pattern id="stripes" width="5" height="5" '
            'patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
            '<rect width="5" height="5" fill="#ffffff"/>'
            '<rect width="2" height="5" fill="#555555"/></pattern></defs>',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            f'<text x="{LEFT}" y="16" font-weight="bold">'
            f"{html.escape(self._title())}</text>",
        ]
        bottom = TOP + ROW * len(self.rows)
        step, unit, name = _ticks(self.seconds)
        for i in range(int(self.seconds / step * 1.000001) + 1 if step else 1):
            x = self._x(i * step)
            parts.append(
                f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{bottom}" stroke="#cccccc"/>'
                f'<text x="{x}" y="{bottom + 14}" text-anchor="middle">'
                f"{i * step / unit:g}</text>"
            )
        parts.append(
            f'<text x="{WIDTH - RIGHT}" y="{bottom + 29}" text-anchor="end">'
            f"simulated time, {name}</text>"
        )
        for row, (name, bars) in enumerate(self.rows.items()):
            y = TOP + ROW * row
            parts.append(
                f'<text x="{LEFT - 8}" y="{y + 19}" text-anchor="end">{name}</text>'
                f'<line x1="{LEFT}" y1="{y + ROW}" x2="{WIDTH - RIGHT}" '
                f'y2="{y + ROW}" stroke="#cccccc"/>'
            )
            parts += [self._bar(bar, y + (ROW - BAR) // 2) for bar in bars]
        parts.append(self._legend(bottom + 38))
        return "\n".join([*parts, "</svg>"])

    def _bar(self, bar: Bar, y: int) -> str:
        fill, outline, _ = LOOKS[bar.kind]
        x, width = self._x(bar.start), max(self._x(bar.end) - self._x(bar.start), 0.4)
        line = "none" if width < 3 else outline
        text = (
            f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{BAR}" '
            f'fill="{fill}" stroke="{line}" stroke-width="0.6"/>'
        )
        if bar.kind == "copy" and line != "none":
            text += f"<!-- {html.escape(bar.name).replace('--', '- -')} -->"
        if len(bar.name) * PIXELS_PER_LETTER + 8 < width and bar.kind != "issue":
            middle = x + width / 2
            if bar.kind == "copy":  # a plate behind it
                plate = len(bar.name) * PIXELS_PER_LETTER + 4
                text += (
                    f'<rect x="{middle - plate / 2:.2f}" y="{y + 3}" '
                    f'width="{plate:.2f}" height="{BAR - 6}" fill="#ffffff"/>'
                )
            text += (
                f'<text x="{middle:.2f}" y="{y + 14}" text-anchor="middle" '
                f'fill="{"#ffffff" if bar.kind == "compute" else "#111111"}">'
                f"{html.escape(bar.name)}</text>"
            )
        return text

    def _legend(self, y: int) -> str:
        x, parts = LEFT, []
        for kind, (fill, outline, _) in LOOKS.items():
            if self._uses(kind):
                parts.append(
                    f'<rect x="{x}" y="{y}" width="18" height="12" fill="{fill}" '
                    f'stroke="{outline}" stroke-width="0.6"/>'
                    f'<text x="{x + 24}" y="{y + 10}">{MEANINGS[kind]}</text>'
                )
                x += 110
        return "".join(parts)

    # -------------------------------------------------------------- parts

    def _title(self) -> str:
        title = f"{time_text(self.seconds)}, {self.label}"
        return title if self.complete else f"{title}; only its beginning is drawn"

    def _uses(self, kind: str) -> bool:
        return any(bar.kind == kind for bars in self.rows.values() for bar in bars)

    def _x(self, seconds: float) -> float:
        if not self.seconds:
            return LEFT
        return round(LEFT + (WIDTH - LEFT - RIGHT) * seconds / self.seconds, 2)


def _joined(bars: list[Bar], finest: float) -> list[Bar]:
    """Join bars of one kind that are too close to be told apart.

    So a drawing of thousands of kernels stays small.
    """
    joined: list[Bar] = []
    for bar in bars:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.kind == bar.kind
            and bar.start - last.end < finest
            and (bar.end - bar.start < 4 * finest or last.name == bar.name == "")
        ):
            last.end = max(last.end, bar.end)
            if last.name != bar.name:
                last.name = ""
        else:
            joined.append(Bar(bar.kind, bar.start, bar.end, bar.name))
    return joined


def _ticks(seconds: float) -> tuple[float, float, str]:
    """Return the distance between ticks in seconds, and the unit of their labels."""
    unit, name = next(
        ((u, n) for u, n in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")) if seconds >= 2 * u),
        (1e-9, "ns"),
    )
    if not seconds:
        return 0.0, unit, name
    step = unit
    for factor in (1, 2, 5, 10, 20, 50, 100, 200, 500):
        step = factor * unit
        if seconds / step <= 9:
            break
    return step, unit, name
