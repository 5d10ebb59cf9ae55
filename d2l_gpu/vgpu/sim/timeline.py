"""A drawing of what ran when: the host's work, and each device's kernels and copies.

It shows as SVG in a notebook and as text elsewhere. Each row has its name, and each
kind of work its colour, which a key explains; in the text each kind has its letter.

Each bar of the SVG says in its ``<title>`` what it is, when it ran, for how long, and
why it began then. Scripts that zoom find the axis in the attributes of the picture.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from .causes import Causes
from .clock import HOST, PICO, Clock, Span
from .commands import CopyCommand
from .drawing import (
    COLOURS,
    EDGES,
    GRID,
    INSIDE,
    SOFT,
    linear_ticks,
    moment_text,
    quantity,
    text_width,
)
from .svg import PAD, SIZE, WIDTH, Svg
from .trace import Trace
from .units import time_text
from .words import columns, padded, sentences, shown

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

# What work of different names is called, of which a bar tells the commonest.
WORK = {
    "issue": "operators",
    "wait": "waits",
    "compute": "operators",
    "copy": "copies",
    "communicate": "transfers",
}
NAMES = 3


@dataclass
class Bar:
    """A stretch of time on one row, in seconds; spans that touch share a bar.

    Attributes:
        name: empty if the spans have different ones.
        spans: what it stands for; of an ``"issue"``, what the host issued.
    """

    kind: str
    start: float
    end: float
    name: str
    spans: list[Span] = field(default_factory=list)

    @property
    def names(self) -> Counter[str]:
        """How many spans there are of each name."""
        return Counter(span.name for span in self.spans)

    @property
    def busy(self) -> int:
        """For how long there's work in it, in picoseconds."""
        if self.kind == "issue":
            return sum(span.issuing for span in self.spans)
        return sum(span.end - span.start for span in self.spans)


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

    across = True  # work of one device may wait for another's

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
                found["host"].append(Bar("wait", start, end, span.name, [span]))
                continue
            kind = _kind(span)
            row = f"{clock.names[span.index]} {span.lane}"
            found[row].append(Bar(kind, start, end, span.name, [span]))
            if span.lane == "compute":
                issued = (span.issued - clock.origin) / PICO
                start = issued - span.issuing / PICO
                found["host"].append(Bar("issue", start, issued, span.name, [span]))
        for name, bars in found.items():
            rows[name] = _joined(sorted(bars, key=lambda bar: bar.start), finest)
        return {name: bars for name, bars in rows.items() if bars or name == "host"}

    # -------------------------------------------------------------- text

    def __repr__(self) -> str:
        head = [shown(text) for text in (self.title, self.subtitle) if text]
        scale = f"one letter is {time_text(self.seconds / COLUMNS)}"
        lines = [*head, shown(f"{self._conditions()}; {scale}")]
        width = max(columns(_row_name(name)) for name in self.rows)
        for name, bars in self.rows.items():
            letters = [" "] * COLUMNS
            for bar in bars:
                begin = int(bar.start / self.seconds * COLUMNS) if self.seconds else 0
                end = int(bar.end / self.seconds * COLUMNS) if self.seconds else 0
                for i in range(begin, min(max(end, begin + 1), COLUMNS)):
                    letters[i] = KINDS[bar.kind][1]
            label = padded(_row_name(name), width)
            lines.append(f"{label} {''.join(letters)}".rstrip())
        key = (f"{letter} {shown(name)}" for name, letter, _ in self._kinds())
        lines.append("  ".join(key))
        return "\n".join(lines)

    # -------------------------------------------------------------- SVG

    def _repr_svg_(self) -> tuple[str, dict[str, str]]:
        return self.svg(), {"alt": self._description()}

    def svg(self) -> str:
        """Return the drawing as the text of an SVG file."""
        subtitle = [self.subtitle, self._conditions()] if self.title else []
        picture = Svg(
            self.title or self._conditions(),
            ", ".join(map(shown, filter(None, subtitle))),
        )
        key = [(n, COLOURS[c], EDGES.get(c)) for n, _, c in self._kinds()]
        top = picture.key(picture.top + 4, key) + 6 if key else picture.top + 6
        bottom = top + ROW * len(self.rows)
        left = PAD + 10 + max(text_width(_row_name(name), SIZE) for name in self.rows)
        most = max(2, min(8, int((WIDTH - PAD - left) / 75)))
        ticks = linear_ticks(0, self.seconds, "s", most) if self.seconds else [(0, "0")]
        right = PAD + text_width(ticks[-1][1], SIZE) / 2
        plot = WIDTH - left - right
        scale = plot / (self.seconds or 1)
        picture.parts.append('<g data-part="axis">')
        for seconds, text in ticks:
            x = left + scale * seconds
            picture.box(x - 0.5, top, 1, bottom - top, GRID)
            picture.write(x, bottom + 18, text, SOFT, anchor="middle")
        picture.parts.append("</g>")
        picture.box(left, bottom, plot, 1, SOFT)
        causes = Causes(self.trace.clock, self.trace.spans, self.across)
        above = ""
        for row, (name, bars) in enumerate(self.rows.items()):
            y = top + ROW * row + (ROW - BAR) / 2
            device = name.rpartition(" ")[0]
            if row and device != above:
                picture.box(PAD, top + ROW * row - 0.5, WIDTH - right - PAD, 1, GRID)
            above = device
            picture.write(left - 10, y + BAR / 2 + 4, _row_name(name), anchor="end")
            drawn = _Row(picture, y)
            for bar in bars:
                x, end = left + scale * bar.start, left + scale * bar.end
                drawn.draw(bar, x, max(end - x, 0.4), self._title(bar, causes))
            drawn.end()
        about = {"picture": "timeline", "seconds": f"{self.seconds:.6g}"}
        about |= {"left": f"{left:.5g}", "width": f"{plot:.5g}"}
        height = bottom + 18 + PAD
        return picture.text(height, self._description(), about)

    # -------------------------------------------------------------- what bars say

    def _title(self, bar: Bar, causes: Causes) -> str:
        """Return what a bar says: what it is, when it ran, how long, and why then."""
        name = _told(bar)
        if len(bar.spans) == 1:
            name = _carrying(name, bar.spans[0])
        begin, length = moment_text(bar.start, self.seconds), bar.end - bar.start
        title = shown(
            "{what}: at {begin} for {time}",
            what=name,
            begin=begin,
            time=time_text(length),
        )
        busy = bar.busy
        if 0 < busy < round(0.995 * length * PICO):
            time = time_text(busy / PICO)
            title = shown("{what}, {time} of it busy", what=title, time=time)
        if bar.spans and bar.kind not in ("issue", "wait"):
            why = causes.of(bar.spans[0])
            title += f"; {shown(why)}" if why else ""
        return title

    # -------------------------------------------------------------- parts

    def _conditions(self) -> str:
        taken = f"{time_text(self.seconds)}, {self.label}"
        return taken if self.complete else f"{taken}; only its beginning is drawn"

    def _description(self) -> str:
        texts = [self.title, self.subtitle, f"Timeline, {self._conditions()}"]
        rows = ", ".join(map(_row_name, self.rows))
        return f"{sentences(texts)} {shown(f'Rows: {rows}.')}"

    def _kinds(self) -> list[tuple[str, str, str]]:
        """Return what the key says of each kind that is drawn."""
        used = {bar.kind for bars in self.rows.values() for bar in bars}
        return [about for kind, about in KINDS.items() if kind in used]


class RanksTimeline(Timeline):
    """A drawing of what ran when on the devices of several ranks; see ``merged``."""

    across = False

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


def _row_name(name: str) -> str:
    """Return what a row is called, such as ``host`` or ``GPU 0 compute``."""
    device, _, lane = name.rpartition(" ")
    return f"{device} {shown(lane)}" if lane in LANES else shown(name)


def _kind(span: Span) -> str:
    """Return the kind of what a device did."""
    if span.lane == "compute":
        return "compute"
    copied = isinstance(span.work, CopyCommand)
    between = not copied or HOST not in (span.work.source, span.work.target)
    return "communicate" if between else "copy"


class _Row:
    """The bars of a row, whose commonest colour is written once, and their names."""

    def __init__(self, picture: Svg, y: float):
        self.picture, self.y = picture, y
        self.bars: list[tuple] = []

    def draw(self, bar: Bar, x: float, width: float, title: str) -> None:
        """Draw a bar with a gap after it."""
        colour = KINDS[bar.kind][2]
        wide = width - 1 if width > 4 else width
        self.bars.append((bar, x, wide, colour, title))

    def end(self) -> None:
        """Add the row to the picture, each bar with its name inside if there's room."""
        if not self.bars:
            return
        (most, _), *_ = Counter(colour for *_, colour, _ in self.bars).most_common(1)
        parts = self.picture.parts
        move = f'transform="translate(0 {self.y:g})"'
        parts.append(f'<g data-part="row" {move} fill="{COLOURS[most]}">')
        for _, x, wide, colour, title in self.bars:
            edge = EDGES.get(colour) if wide > 3 else None
            fill = None if colour == most else COLOURS[colour]
            self.picture.box(x, 0, wide, BAR, fill, edge, title)
        parts.append("</g>")
        names = [
            (name, x + wide / 2, INSIDE[colour])
            for bar, x, wide, colour, _ in self.bars
            if (name := _inside(bar, wide))
        ]
        if not names:
            return
        (most, _), *_ = Counter(ink for *_, ink in names).most_common(1)
        parts.append(  # one points at the bar behind a name
            f'<g data-part="names" {move} fill="{most}" text-anchor="middle" '
            'pointer-events="none">'
        )
        for name, middle, ink in names:
            ink = None if ink == most else ink
            self.picture.write(middle, BAR / 2 + 4.2, name, ink)
        parts.append("</g>")


def _carrying(name: str, span: Span) -> str:
    """Return a name with how many bytes the copy or collective carries, if any."""
    if span.lane not in ("in", "out") or not span.nbytes:
        return name
    nbytes = quantity(span.nbytes, "B")
    if isinstance(span.work, CopyCommand):
        return f"{name}, {nbytes}"
    if span.lane == "out":
        return shown("{what}, sends {nbytes}", what=name, nbytes=nbytes)
    return shown("{what}, receives {nbytes}", what=name, nbytes=nbytes)


def _inside(bar: Bar, wide: float) -> str:
    """Return as much of a bar's name as there's room for inside it."""
    if bar.kind == "issue":
        return ""
    names = (bar.name, *(bar.name.partition(part)[0] for part in (", ", " for ")))
    return next((x for x in names if x and text_width(x, SIZE) + 8 <= wide), "")


def _told(bar: Bar) -> str:
    """Return what a bar stands for: names with their numbers, the commonest first."""
    names = bar.names or Counter([bar.name])
    told = [
        f"{count} × {shown(name)}" if count > 1 else shown(name)
        for name, count in names.most_common(NAMES)
    ]
    if len(names) > NAMES:
        others = names.total() - sum(count for _, count in names.most_common(NAMES - 1))
        told[NAMES - 1 :] = [shown(f"{others} others")]
    what = ", ".join(told)
    if len(names) > NAMES:
        what = f"{names.total()} {shown(WORK[bar.kind])} ({what})"
    return shown("issues {what}", what=what) if bar.kind == "issue" else what


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
            last.spans += bar.spans
            if last.name != bar.name:
                last.name = ""
        else:
            joined.append(bar)
    return joined
