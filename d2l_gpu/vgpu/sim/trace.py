"""A trace of what ran when, which chrome://tracing and ui.perfetto.dev open.

It's in Chrome's trace event format. There's a process for the host and for each device.
In it is a track (a "thread") for everything that does one thing at a time: each thread
of the host, each stream of kernels, the copies in each direction, the collectives.
Arrows ("flows") lead from where the host issued work to where it runs, and from device
to device along a collective. If the memory of the devices was recorded, each has a
curve of it.

The format is described by N. Duca and D. Sinclair, Trace Event Format (2016). Its times
are in microseconds. Perfetto rounds the beginning and the duration of an event to
nanoseconds, each by itself (``CoerceToTs`` in json_trace_tokenizer.cc), and drops an
event that then overlaps the one before it. So beginnings and ends are rounded here, and
the exact duration is among an event's arguments.
"""

import itertools
import json
from collections.abc import Iterator
from typing import Any

from .clock import HOST, SPANS, Clock, Span
from .commands import COMMUNICATION, Collective, CopyCommand

Event = dict[str, Any]

INCOMPLETE = (
    f"The clock keeps only the first {SPANS:,} spans of time after a reset, and what "
    "came later is missing: reset the clock shortly before what you want to see."
)


class Trace:
    """What a clock's host and devices did since its last reset.

    Attributes:
        seconds: simulated seconds until everything was done.
        complete: whether it's everything, and not only the beginning.
    """

    def __init__(self, clock: Clock, label: str):
        self.clock, self.label, self.seconds = clock, label, clock.elapsed()
        self.origin, self.memory = clock.origin, clock.memory[:]
        self.spans = [Span._make(span) for span in clock.spans]
        self.complete = len(self.spans) < SPANS

    def text(self) -> str:
        """Return the trace as JSON, with one event on each line."""
        about = {"simulated": True, "label": self.label, "seconds": self.seconds}
        about |= {"link": self.clock.link.name, "complete": self.complete}
        if not self.complete:
            about["note"] = INCOMPLETE
        head = json.dumps({"displayTimeUnit": "ns", "otherData": about})
        lines = ",\n".join(json.dumps(x, ensure_ascii=False) for x in self.events())
        return f'{head[:-1]}, "traceEvents": [\n{lines}\n]}}\n'

    def events(self) -> Iterator[Event]:
        """Yield the events, beginning with the names of processes and tracks."""
        clock, places = self.clock, {}
        # Perfetto takes process 0 for an idle one, and a track that has its process's
        # number for the main one. So no number is 0 or is used twice.
        pids = {i: 1 + place for place, i in enumerate([HOST, *clock.models])}
        for i, tracks in itertools.groupby(sorted(self._tracks()), lambda t: t[0]):
            for number, track in enumerate(tracks):
                places[track] = {"pid": pids[i], "tid": 1000 * pids[i] + number}
        for i, pid in pids.items():
            yield from _named("process", {"pid": pid}, self._name(i), pid)
        for track, place in places.items():
            yield from _named("thread", place, track[-1], place["tid"])
        yield from self._work(places)
        for time, i, nbytes in self.memory:
            curve = {"ph": "C", "pid": pids[i], "ts": self._nano(time) / 1000}
            yield curve | {"name": "memory", "args": {"allocated": nbytes}}

    # -------------------------------------------------------------- tracks

    def _name(self, index: int) -> str:
        clock, name = self.clock, self.clock.names[index]
        if index != HOST:
            name += f": {clock.models[index].name}"
            if clock.stands_for > 1:
                name += f", one for all {clock.stands_for}"
        return f"{name}, simulated"

    # A track is the index of its device, its place among the tracks of that, a number
    # if there are several of the kind, and its name.

    def _tracks(self) -> set[tuple]:
        found = {self._thread(HOST, self.clock.main)}
        for span in self.spans:
            found |= {self._track(span), self._thread(HOST, span.thread)}
        return found

    def _thread(self, index: int, thread: int) -> tuple:
        if thread == self.clock.main:
            return index, 0, 0, "main thread"
        return index, 1, thread, f"thread {thread}"

    def _track(self, span: Span) -> tuple:
        i, work = span.index, span.work
        if isinstance(work, Collective):
            group = COMMUNICATION - work.queue  # each group does its own in order
            return i, 2, group, f"collectives{f', group {group}' if group else ''}"
        if isinstance(work, CopyCommand):
            peer = "host" if HOST in (work.source, work.target) else "GPUs"
            way = "in from" if span.lane == "in" else "out to"
            return i, 1, 0, f"copies {way} {peer}"
        if i == HOST or not self.clock.models[i].asynchronous:
            return self._thread(i, span.thread)  # a CPU computes while it issues
        name = f"stream {span.stream}" if span.stream else "default stream"
        return i, 0, span.stream, f"kernels, {name}"

    # -------------------------------------------------------------- events

    def _work(self, places: dict[tuple, Event]) -> Iterator[Event]:
        flows = itertools.count(1)
        for _, group in itertools.groupby(self.spans, _thing):
            # One for each track: a collective has spans for both directions.
            parts = {self._track(span): span for span in group}
            first = next(iter(parts.values()))
            if first.issued is None:
                yield self._event(first, places[self._track(first)], "wait")
                continue
            start, end = first.issued - first.issuing, first.issued
            issuing = first._replace(start=start, end=end)
            host = places[self._thread(HOST, first.thread)]
            yield self._event(issuing, host, "issue")
            kind = "kernel" if first.lane == "compute" else "copy"
            if isinstance(first.work, Collective):
                kind = "collective"
            for track, span in parts.items():
                flow = {"id": next(flows), "name": "issued"}
                yield self._flow("s", flow, host, start)
                yield self._event(span, places[track], kind, self._about(span))
                yield self._flow("f", flow, places[track], span.start)
            if kind == "collective" and len(parts) > 1:
                flow = {"id": next(flows), "name": first.name}
                steps = ["s", *["t"] * (len(parts) - 2), "f"]
                for step, track in zip(steps, parts, strict=True):
                    yield self._flow(step, flow, places[track], first.start)

    def _event(
        self, span: Span, place: Event, kind: str, about: Event | None = None
    ) -> Event:
        start, end = self._nano(span.start), self._nano(span.end)
        event = {"ph": "X", **place, "ts": start / 1000, "dur": (end - start) / 1000}
        event |= {"name": span.name, "cat": kind}
        return event | {"args": {"simulated": True, **(about or {})}}

    def _flow(self, step: str, flow: Event, place: Event, time: int) -> Event:
        event = {"ph": step, **place, "ts": self._nano(time) / 1000, "cat": "flow"}
        return event | flow | ({"bp": "e"} if step == "f" else {})

    def _about(self, span: Span) -> Event:
        """Return what a viewer shows of an event on a device when it's selected."""
        about = {"model": self.clock.models[span.index].name, "stream": span.stream}
        about |= {"bytes": span.nbytes, "picoseconds": span.end - span.start}
        if span.lane == "compute":
            numbers = ", ".join(sorted({part.kind for part in span.parts}))
            about |= {"operator": span.name, "kernels": len(span.parts)}
            about |= {"operations": span.operations, "numbers": numbers}
        elif isinstance(span.work, CopyCommand):
            about["pinned"] = span.work.pinned
        return about

    def _nano(self, time: int) -> int:
        """Return nanoseconds since the reset."""
        return (time - self.origin + 500) // 1000


def _thing(span: Span) -> int:
    """Return the same number for the spans of one copy or of one collective."""
    return id(span.work if isinstance(span.work, CopyCommand | Collective) else span)


def _named(what: str, place: Event, name: str, order: int) -> Iterator[Event]:
    for key, argument in (("name", name), ("sort_index", order)):
        about = {"name": f"{what}_{key}", "args": {key: argument}}
        yield {"ph": "M", **place, **about}
