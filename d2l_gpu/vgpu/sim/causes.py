"""Why work began when it did, read off the times of everything that ran.

The clock begins work at the latest of a few moments: the host has issued it, its stream
or its engine has done what came before, the last rank of a meeting is ready. Times are
whole picoseconds, so whatever ended at that very moment is what it waited for. Where
nothing did, or it isn't clear which, no reason is given.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from . import catalogue
from .clock import HOST, PICO, Clock, Span, pico
from .cluster import Meeting
from .commands import Collective, CopyCommand
from .units import time_text
from .words import shown
from .worlds import Exchange


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
        across: whether one may have waited for another device. Ranks of a cluster do
            so only in meetings, and often end something at the same time.
    """

    def __init__(self, clock: Clock, spans: Sequence[Span], across: bool = True):
        self.clock, self.across = clock, across
        self.start = pico(catalogue.START.value)
        self._ending: dict[int, list[Span]] = defaultdict(list)
        # When the work of each engine, and of each stream, ended.
        self._ends: dict[Engine | tuple[int, int], list[int]] = defaultdict(list)
        for span in spans:
            if span.index != HOST:
                self._ending[span.end].append(span)
                self._ends[_engine(span)].append(span.end)
                self._ends[span.index, span.stream].append(span.end)
        for ends in self._ends.values():
            ends.sort()

    def of(self, span: Span) -> str:
        """Return why a device began something then, or nothing if that isn't known."""
        if span.index == HOST or not self.clock.models[span.index].asynchronous:
            return ""
        return self._rank(span) or self._host(span) or self._work(span)

    def _rank(self, span: Span) -> str:
        """Say for which rank a meeting waited, if that was another one."""
        work = span.work
        if isinstance(work, Meeting):
            ready, last = work.ready, work.last
            if last == work.rank:
                return ""
        elif isinstance(work, Exchange):
            reached = {i: moment.time or 0 for i, moment in work.reached.items()}
            last = max(reached, key=reached.__getitem__)
            ready = reached[span.index]
            if reached[last] != span.start or ready == span.start:
                return ""
        else:
            return ""
        if ready >= span.start:
            return ""
        name = self.clock.names.get(last, f"rank {last}")
        return f"waited {_time(span.start - ready)} for {name}"

    def _host(self, span: Span) -> str:
        late = span.issued is not None and span.issued + self.start == span.start
        return "just issued by the host" if late else ""

    def _work(self, span: Span) -> str:
        """Say which other work it waited for, and for how long."""
        cause = self._cause(span)
        if cause is None:
            return ""
        if _engine(cause) == _engine(span):
            behind = f"behind {_name(cause)}"
            if span.issued is None:
                return behind
            return f"queued {_time(span.start - span.issued)}, {behind}"
        name = _name(cause)
        if cause.index != span.index:
            device = self.clock.names[cause.index]
            name = shown("{what} on {device}", what=name, device=device)
        if span.issued is None:
            return f"right after {name}"
        waited = _time(span.start - self._ready(span, cause))
        return f"waited {waited} for {name} to end"

    def _cause(self, span: Span) -> Span | None:
        """Return what ended just when a span began."""
        found = [x for x in self._ending.get(span.start, ()) if x.start < x.end]
        engine = _engine(span)
        for is_near in (
            lambda each: _engine(each) == engine,
            lambda each: (each.index, each.stream) == (span.index, span.stream),
            lambda each: each.index == span.index,
            lambda each: self.across,
        ):
            if near := [each for each in found if is_near(each)]:
                names = {(each.index, _name(each)) for each in near}
                return near[0] if len(names) == 1 else None
        return None

    def _ready(self, span: Span, cause: Span) -> int:
        """Return when a span could have begun but for what it waited for."""
        queues: list = [_engine(span)]
        if cause.index != span.index:
            queues.append((span.index, span.stream))
        ready = [span.issued + self.start]
        for ends in (self._ends[queue] for queue in queues):
            if place := bisect_left(ends, span.start):
                ready.append(ends[place - 1])
        return max(ready)


def _engine(span: Span) -> Engine:
    work, peer = span.work, ""
    if isinstance(work, CopyCommand):
        peer = "host" if HOST in (work.source, work.target) else "device"
    elif isinstance(work, Collective):
        peer = work.peer
    elif isinstance(work, Exchange):
        peer = "device"
    return Engine(span.index, span.lane, peer)


def _name(span: Span) -> str:
    """Return what a sentence calls a span."""
    if span.lane == "compute":
        return span.name
    if isinstance(span.work, CopyCommand):
        return shown("the copy {what}", what=span.name)
    return shown("the {what}", what=span.name.partition(",")[0])


def _time(picoseconds: int) -> str:
    return time_text(picoseconds / PICO)
