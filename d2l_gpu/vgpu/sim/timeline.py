"""A drawing of what ran when: the host's work, and each device's kernels and copies.

It shows as SVG in a notebook and as text elsewhere. Each row has its name, and each
kind of work its colour, which a key explains; in the text each kind has its letter.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from .clock import HOST, PICO, Clock, Span
from .commands import CopyCommand
from .drawing import COLOURS, EDGES, GRID, INSIDE, SOFT, linear_ticks, text_width
from .svg import PAD, SIZE, WIDTH, Svg
from .trace import Trace
from .units import time_text

ROW, BAR = 30, 22  # height of a row, and of the bars in it
COLUMNS = 60  # of the text
LANES = ("compute", "in", "out")  # of a device, as in a Span

# What each kind of bar shows, its letter in the text, and in whose colour it's drawn.
KINDS = {
    "issue": ("host issues", "|", "host"),
    "wait": ("host waits", "~", "wait"),
    "compute": ("kernel", "#", "compute"),
    "copy": ("copy to or from host", "=", "copy"),
    "communicate": ("between GPUs", "+", "communicate"),
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
            kind = _kind(span)
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
        head = [text for text in (self.title, self.subtitle) if text]
        scale = f"one letter is {time_text(self.seconds / COLUMNS)}"
        lines = [*head, f"{self._conditions()}; {scale}"]
        width = max(map(len, self.rows))
        for name, bars in self.rows.items():
            letters = [" "] * COLUMNS
            for bar in bars:
                begin = int(bar.start / self.seconds * COLUMNS) if self.seconds else 0
                end = int(bar.end / self.seconds * COLUMNS) if self.seconds else 0
                for i in range(begin, min(max(end, begin + 1), COLUMNS)):
                    letters[i] = KINDS[bar.kind][1]
            lines.append(f"{name:<{width}} {''.join(letters)}".rstrip())
        key = (f"{letter} {name}" for name, letter, _ in self._kinds())
        lines.append("  ".join(key))
        return "\n".join(lines)

    # -------------------------------------------------------------- SVG

    def _repr_svg_(self) -> tuple[str, dict[str, str]]:
        return self.svg(), {"alt": self._description()}

    def svg(self) -> str:
        """Return the drawing as the text of an SVG file."""
        subtitle = [self.subtitle, self._conditions()] if self.title else []
        picture = Svg(
            self.title or self._conditions(), ", ".join(filter(None, subtitle))
        )
        key = [(n, COLOURS[c], EDGES.get(c)) for n, _, c in self._kinds()]
        top = picture.key(picture.top + 4, key) + 6 if key else picture.top + 6
        bottom = top + ROW * len(self.rows)
        left = PAD + 10 + max(text_width(name, SIZE) for name in self.rows)
        most = max(2, min(8, int((WIDTH - PAD - left) / 75)))
        ticks = linear_ticks(0, self.seconds, "s", most) if self.seconds else [(0, "0")]
        right = PAD + text_width(ticks[-1][1], SIZE) / 2
        scale = (WIDTH - left - right) / (self.seconds or 1)
        for seconds, text in ticks:
            x = left + scale * seconds
            picture.box(x - 0.5, top, 1, bottom - top, GRID)
            picture.write(x, bottom + 18, text, SOFT, anchor="middle")
        picture.box(left, bottom, WIDTH - right - left, 1, SOFT)
        above = ""
        for row, (name, bars) in enumerate(self.rows.items()):
            y = top + ROW * row + (ROW - BAR) / 2
            device = name.rpartition(" ")[0]
            if row and device != above:
                picture.box(PAD, top + ROW * row - 0.5, WIDTH - right - PAD, 1, GRID)
            above = device
            picture.write(left - 10, y + BAR / 2 + 4, name, anchor="end")
            for bar in bars:
                x, end = left + scale * bar.start, left + scale * bar.end
                _draw(picture, bar, x, y, max(end - x, 0.4))
        return picture.text(bottom + 18 + PAD, self._description())

    # -------------------------------------------------------------- parts

    def _conditions(self) -> str:
        taken = f"{time_text(self.seconds)}, {self.label}"
        return taken if self.complete else f"{taken}; only its beginning is drawn"

    def _description(self) -> str:
        sentences = [self.title, self.subtitle, f"Timeline, {self._conditions()}"]
        text = " ".join(f"{each.rstrip('.')}." for each in sentences if each)
        return f"{text} Rows: {', '.join(self.rows)}."

    def _kinds(self) -> list[tuple[str, str, str]]:
        """Return what the key says of each kind that is drawn."""
        used = {bar.kind for bars in self.rows.values() for bar in bars}
        return [about for kind, about in KINDS.items() if kind in used]


class RanksTimeline(Timeline):
    """A drawing of what ran when on the devices of several ranks; see ``merged``."""

    def _rows(self, clock: Clock) -> dict[str, list[Bar]]:
        rows = super()._rows(clock)
        del rows["host"]  # of all ranks together
        return rows


def merged(clocks: Mapping[int, tuple[Clock, int]], begin: int, end: int) -> Clock:
    """Return a clock with what several ranks' devices did.

    Args:
        clocks: of the ranks, each with the index of its device.
        begin, end: in picoseconds.
    """
    models = {rank: clock.models[index] for rank, (clock, index) in clocks.items()}
    one = next(iter(clocks.values()))[0]
    found = Clock(models, one.link, one.work_of)
    found.names |= {rank: f"rank {rank}" for rank in clocks}
    found.origin, found.hosts = begin, {found.main: end}
    for rank, (clock, _) in clocks.items():
        for span in map(Span._make, clock.spans):
            index = HOST if span.index == HOST else rank
            found.spans.append(span._replace(index=index, thread=found.main + rank))
    return found


def _kind(span: Span) -> str:
    """Return the kind of what a device did."""
    if span.lane == "compute":
        return "compute"
    copied = isinstance(span.work, CopyCommand)
    between = not copied or HOST not in (span.work.source, span.work.target)
    return "communicate" if between else "copy"


def _draw(picture: Svg, bar: Bar, x: float, y: float, width: float) -> None:
    """Draw a bar, with its name inside if there's room, and a gap after it."""
    colour = KINDS[bar.kind][2]
    wide = width - 1 if width > 4 else width
    edge = EDGES.get(colour) if wide > 3 else None
    picture.box(x, y, wide, BAR, COLOURS[colour], edge)
    if bar.kind == "issue":
        return
    for name in (bar.name, *(bar.name.partition(part)[0] for part in (", ", " for "))):
        if name and text_width(name, SIZE) + 8 <= wide:
            ink, middle = INSIDE[colour], x + wide / 2
            picture.write(middle, y + BAR / 2 + 4.2, name, ink, anchor="middle")
            return


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
