"""Reading a trace in Chrome's format as its viewers do, and finding what's wrong in it.

It knows the format and not the code that writes it. The format: N. Duca and
D. Sinclair, Trace Event Format (2016).
"""

import itertools
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

Event = dict[str, Any]
PHASES = {"M", "X", "C", "i", "s", "t", "f"}  # of events that we expect


class Slice(NamedTuple):
    """A complete event, in the whole nanoseconds to which Perfetto rounds it."""

    track: tuple
    start: int
    end: int
    event: Event

    @property
    def kind(self) -> str:
        return self.event["cat"]


def nano(microseconds: float) -> int:
    """Round to nanoseconds as C's llround does, also where a float has no halves."""
    whole = math.floor(microseconds * 1000)
    return whole + (microseconds * 1000 - whole >= 0.5)


class Read:
    """A trace that was read.

    Attributes:
        processes, tracks: their names, by pid and by (pid, tid).
        slices: everything that takes time.
        arrows: for each flow, the slices that it connects, in its order.
        curves: for each process, times and values of what is counted.
    """

    def __init__(self, trace: Event):
        events = trace["traceEvents"]
        assert {event["ph"] for event in events} <= PHASES
        named = [event for event in events if event["ph"] == "M"]
        self.processes = {
            e["pid"]: e["args"]["name"] for e in named if e["name"] == "process_name"
        }
        self.tracks = {
            _track(e): e["args"]["name"] for e in named if e["name"] == "thread_name"
        }
        self.slices = [_slice(event) for event in events if event["ph"] == "X"]
        self.arrows = list(self._arrows(events))
        self.curves = defaultdict(list)
        for event in events:
            if event["ph"] == "C":
                (value,) = event["args"].values()
                self.curves[event["pid"]].append((nano(event["ts"]), value))

    def _arrows(self, events: list[Event]) -> Iterator[list[Slice]]:
        flows = defaultdict(list)
        for event in events:
            if event["ph"] in "stf":
                flows[event["cat"], event["name"], event["id"]].append(event)
        around = defaultdict(list)
        for found in sorted(self.slices, key=lambda x: (str(x.track), x.start, -x.end)):
            around[found.track].append(found)
        for flow in flows.values():
            steps = "".join(event["ph"] for event in flow)
            assert steps == f"s{'t' * (len(flow) - 2)}f", "a flow has both ends"
            assert flow[-1]["bp"] == "e"  # it ends where it is, not at what comes next
            times = [nano(event["ts"]) for event in flow]
            assert times == sorted(times), "a flow goes forward in time"
            ends = []
            for event, time in zip(flow, times, strict=True):
                # What began last, here or earlier, and is under way.
                here = around[_track(event)]
                place = bisect_right(here, time, key=lambda x: x.start) - 1
                assert place >= 0 and here[place].end >= time, "a flow has an end"
                ends.append(here[place])
            yield ends

    def of(self, kind: str) -> list[Slice]:
        return [found for found in self.slices if found.kind == kind]

    def device(self, found: Slice) -> str:
        return self.processes[found.track[0]]


def check(trace: Event, kinds: set[str]) -> Read:
    """Read a trace, assert that it makes sense, and return it.

    Args:
        kinds: of the slices that are simulated, which can't overlap on a track. Others
            may be nested.
    """
    read = Read(trace)
    for found in read.slices:
        assert found.event["dur"] >= 0 and isinstance(found.event["name"], str)
        if found.kind in kinds:
            # Perfetto rounds it, and what then overlaps is lost.
            exact = 1000 * found.event["dur"]
            assert abs(exact - round(exact)) < 1e-6
            assert found.track in read.tracks and found.track[0] in read.processes
            assert found.start >= 0 and found.event["args"]["simulated"] is True
    assert len(set(read.processes.values())) == len(read.processes)
    names = [(pid, name) for (pid, _), name in read.tracks.items()]
    assert len(set(names)) == len(names)
    simulated = [x for x in read.slices if x.kind in kinds and x.end > x.start]
    simulated.sort(key=lambda x: (str(x.track), x.start))
    for a, b in itertools.pairwise(simulated):
        assert a.track != b.track or a.end <= b.start, (a, b)
    for pid, curve in read.curves.items():
        assert pid in read.processes
        assert curve == sorted(curve, key=lambda point: point[0])
        assert all(value >= 0 for _, value in curve)
    return read


def _track(event: Event) -> tuple:
    return event["pid"], event["tid"]


def _slice(event: Event) -> Slice:
    start = nano(event["ts"])
    return Slice(_track(event), start, start + nano(event["dur"]), event)
