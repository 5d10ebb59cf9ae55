"""Why work began when it did, read off the times of everything that ran.

The clock begins work at the latest of a few moments: the host has issued it, its stream
or its engine has done what came before, the last rank of a meeting is ready. Times are
whole picoseconds, so whatever ended at that very moment is what it waited for. Where
nothing did, or it isn't clear which, no reason is given.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from . import catalogue
from .clock import HOST, PICO, Clock, Span, pico
from .cluster import Meeting
from .commands import Collective, CopyCommand
from .units import time_text


class Engine(NamedTuple):
    """What does one thing at a time.

    Attributes:
        index: of the device.
        lane: as in a `Span`.
        peer: where a copy or a collective leads, as in `Collective`; else empty.
    """

    index: int
    lane: str
    peer: str


class Causes:
    """Reasons for the beginnings of spans.

    Args:
        clock: whose spans they are.
        spans: all of them, of which one may have waited for another.
        moment: returns how a time is written, given in picoseconds since the clock was
            made.
    """

    def __init__(
        self, clock: Clock, spans: Sequence[Span], moment: Callable[[int], str]
    ):
        self.clock, self.moment = clock, moment
        self.start = pico(catalogue.START.value)
        self._ending: dict[int, list[Span]] = defaultdict(list)
        self._ends: dict[Engine, list[int]] = defaultdict(list)
        for span in spans:
            if span.index != HOST:
                self._ending[span.end].append(span)
                self._ends[_engine(span)].append(span.end)
        for ends in self._ends.values():
            ends.sort()

    def of(self, span: Span) -> str:
        """Return why a device began something then, or nothing if that isn't known."""
        if span.index == HOST or not self.clock.models[span.index].asynchronous:
            return ""
        meeting = span.work if isinstance(span.work, Meeting) else None
        if meeting is not None and meeting.last != meeting.rank:
            last = self.clock.names.get(meeting.last, f"rank {meeting.last}")
            return f"waited {_time(span.start - meeting.ready)} for {last}"
        if span.issued is not None and span.issued + self.start == span.start:
            return f"the host issued it at {self.moment(span.issued)}"
        cause = self._cause(span)
        if cause is None:
            return ""
        if _engine(cause) == _engine(span):
            issued = ""
            if span.issued is not None:
                issued = f"issued at {self.moment(span.issued)}, "
            return f"{issued}right behind {_name(cause)}"
        where = "" if cause.index == span.index else self.clock.names[cause.index]
        waited = _time(span.start - self._ready(span))
        return f"waited {waited} for {_name(cause)}{where and f' on {where}'}"

    def _cause(self, span: Span) -> Span | None:
        """Return what ended just when a span began."""
        found = [
            each
            for each in self._ending.get(span.start, ())
            if each.start < each.end and (each.work is None or each.work != span.work)
        ]
        engine = _engine(span)
        for nearest in (
            lambda each: _engine(each) == engine,
            lambda each: each.index == span.index and each.stream == span.stream,
            lambda each: each.index == span.index,
            lambda each: True,
        ):
            if those := [each for each in found if nearest(each)]:
                names = {(each.index, _name(each)) for each in those}
                return those[0] if len(names) == 1 else None
        return None

    def _ready(self, span: Span) -> int:
        """Return when a span could have begun but for what it waited for."""
        ends = self._ends[_engine(span)]
        place = bisect_left(ends, span.start)
        before = ends[place - 1] if place else self.clock.origin
        issued = before if span.issued is None else span.issued + self.start
        return min(max(before, issued, self.clock.origin), span.start)


def _engine(span: Span) -> Engine:
    work, peer = span.work, ""
    if isinstance(work, CopyCommand):
        peer = "host" if HOST in (work.source, work.target) else "device"
    elif isinstance(work, Collective):
        peer = work.peer
    elif span.lane != "compute":
        peer = "device"  # a small world's collectives
    return Engine(span.index, span.lane, peer)


def _name(span: Span) -> str:
    """Return what a sentence calls a span."""
    if span.lane == "compute":
        return span.name
    if isinstance(span.work, CopyCommand):
        return f"the copy {span.name}"
    return f"the {span.name.partition(',')[0]}"


def _time(picoseconds: int) -> str:
    return time_text(picoseconds / PICO)
