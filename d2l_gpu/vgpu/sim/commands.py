"""What the clock is told beside kernels: copies, collectives, and who waits for what.

Each has one method, ``work_off(clock, index, stream, thread)``: bring the times of the
clock up to date, as work that the thread issued to a stream of the device ``index``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from . import catalogue
from .catalogue import LINKS, Link
from .clock import HOST, Clock, Moment, pico

# The stream in which a collective goes on beside the work of its devices.
COMMUNICATION = -1


def copy_seconds(nbytes: int, link: Link, pinned: bool = True) -> float:
    """Return the seconds that a copy takes from its start to its end."""
    seconds = link.step + nbytes / (link.bandwidth * catalogue.LINK.value)
    if not pinned:
        seconds += nbytes / catalogue.STAGING.value
    return seconds


@dataclass(slots=True)
class CopyCommand:
    """Bytes that go from one memory to another; ``HOST`` is the host's.

    Attributes:
        pinned: whether the host's side is page-locked; if not, the host copies, too,
            and cannot do anything else.
        blocking: whether the host waits for the end.
        streams: of the source and of the target, where these are devices.
    """

    nbytes: int
    source: int
    target: int
    pinned: bool
    blocking: bool
    streams: tuple[int, int]

    def work_off(self, clock: Clock, index: int, stream: int, thread: int) -> None:
        host = clock.hosts[thread] + pico(catalogue.ISSUE.value)
        clock.hosts[thread] = host
        ends = [
            (i, queue)
            for i, queue in zip((self.source, self.target), self.streams, strict=True)
            if i != HOST
        ]
        if not all(clock.models[i].asynchronous for i, _ in ends):
            return  # the memory of a CPU is the host's
        crosses = HOST in (self.source, self.target)
        peer = "host" if crosses else "device"
        link = LINKS[clock.models[ends[0][0]].link] if crosses else clock.link
        lanes = []
        if self.source != HOST:
            lanes.append((self.source, "out"))
        if self.target != HOST:
            lanes.append((self.target, "in"))
        pinned = self.pinned or not crosses
        duration = pico(copy_seconds(self.nbytes, link, pinned))
        ready = max(
            host + pico(catalogue.START.value),
            *(clock.streams[i].get(queue, 0) for i, queue in ends),
        )
        if len(lanes) == 1:
            begin = clock.links[*lanes[0], peer].begin(ready, duration)
        else:
            begin = max(ready, *(clock.links[i, side, peer].free for i, side in lanes))
        end = begin + duration
        name = f"{clock.names[self.source]} → {clock.names[self.target]}"
        for i, side in lanes:
            lane = clock.links[i, side, peer]
            if len(lanes) > 1:
                lane.begin(begin, duration)
            lane.carried(self.nbytes, duration)
            clock.draw(i, side, begin, end, name)
        for i, queue in ends:
            clock.streams[i][queue] = end
        if crosses and (self.blocking or not pinned):
            until = end + (pico(catalogue.WAIT.value) if self.blocking else 0)
            clock.draw(HOST, "wait", host, until, "wait")
            clock.hosts[thread] = until


@dataclass(slots=True)
class HostWaits:
    """The host waits for devices, or for a stream of one, or for a moment.

    Attributes:
        indices: of the devices.
        stream: of the device, None for all of them.
        moment: what to wait for instead.
    """

    indices: Sequence[int] = ()
    stream: int | None = None
    moment: Moment | None = None

    def work_off(self, clock: Clock, index: int, stream: int, thread: int) -> None:
        if self.moment is not None:
            end = self.moment.time or 0
        else:
            end = max(clock.end_of(i, self.stream) for i in self.indices)
        host, heard = clock.hosts[thread], end + pico(catalogue.WAIT.value)
        if heard > host and end:
            clock.hosts[thread] = heard
            clock.draw(HOST, "wait", host, heard, "wait")


@dataclass(slots=True)
class Record:
    """A moment comes when the stream has done its work so far."""

    moment: Moment

    def work_off(self, clock: Clock, index: int, stream: int, thread: int) -> None:
        reached = clock.hosts[thread] + pico(catalogue.START.value)
        self.moment.time = max(reached, clock.end_of(index, stream))


@dataclass(slots=True)
class StreamWaits:
    """The stream goes on when a moment has come."""

    moment: Moment

    def work_off(self, clock: Clock, index: int, stream: int, thread: int) -> None:
        ends = clock.streams[index]
        ends[stream] = max(ends.get(stream, 0), self.moment.time or 0)


# ------------------------------------------------------------------ collectives

# Steps and, in shares of a tensor's bytes, what each device sends, for n devices: the
# lower bounds, which rings reach. P. Patarasuk and X. Yuan, Bandwidth optimal
# all-reduce algorithms for clusters of workstations (2009); nccl-tests, PERFORMANCE.md.
RINGS = {
    "all_reduce": lambda n: (2 * (n - 1), 2 * (n - 1) / n),
    "all_gather": lambda n: (n - 1, (n - 1) / n),
    "reduce_scatter": lambda n: (n - 1, (n - 1) / n),
    "broadcast": lambda n: (n - 1, 1.0),
    "reduce": lambda n: (n - 1, 1.0),
}


def ring_seconds(kind: str, nbytes: int, n: int, link: Link) -> float:
    """Return the seconds of a collective of n devices in a ring.

    Args:
        kind: a key of ``RINGS``.
        nbytes: of the whole tensor on one device.
    """
    steps, share = RINGS[kind](n)
    moving = share * nbytes / (link.bandwidth * catalogue.LINK.value)
    return catalogue.COLLECTIVE.value + steps * link.step + moving


def naive_seconds(nbytes: int, n: int, link: Link) -> float:
    """Return the seconds in which one device takes in all others' tensors, one after
    the other, and sends out their sum in the same way.

    The sums themselves are left out: a device's memory is much faster than a link.
    """
    return 2 * (n - 1) * copy_seconds(nbytes, link)


@dataclass(slots=True)
class Collective:
    """Devices exchange bytes; their links are busy, their arithmetic is not.

    Attributes:
        indices: of the devices, of which only some may be simulated.
        duration: seconds from when the last of them is ready.
        nbytes: that each device sends.
        beside: whether what comes next in the streams does not wait for it.
        done: the moment at which it is over.
    """

    name: str
    indices: Sequence[int]
    duration: float
    nbytes: int
    beside: bool = False
    done: Moment = field(default_factory=Moment)

    def work_off(self, clock: Clock, index: int, stream: int, thread: int) -> None:
        host = clock.hosts[thread] + pico(catalogue.ISSUE.value)
        clock.hosts[thread] = host
        duration = pico(self.duration)
        lanes = [
            clock.links[i, side, "device"]
            for i in self.indices
            for side in ("in", "out")
        ]
        begin = max(
            host + pico(catalogue.START.value),
            *(clock.end_of(i, stream) for i in self.indices),
            *(clock.end_of(i, COMMUNICATION) for i in self.indices),
            *(lane.free for lane in lanes),
        )
        self.done.time = begin + duration
        for lane in lanes:
            lane.begin(begin, duration)
            lane.carried(self.nbytes, duration)
        for i in self.indices:
            for side in ("in", "out"):
                clock.draw(i, side, begin, begin + duration, self.name)
            clock.streams[i][COMMUNICATION] = begin + duration
            if not self.beside:
                clock.streams[i][stream] = begin + duration


def ring(
    kind: str,
    indices: Sequence[int],
    nbytes: int,
    n: int,
    link: Link,
    beside: bool = False,
) -> Collective:
    """Return a collective of n devices in a ring; see ``ring_seconds``."""
    seconds, sent = ring_seconds(kind, nbytes, n, link), RINGS[kind](n)[1] * nbytes
    name = f"{kind.replace('_', '-')}, ring"
    return Collective(name, indices, seconds, round(sent), beside)


def naive_all_reduce(
    indices: Sequence[int], nbytes: int, n: int, link: Link, beside: bool = False
) -> Collective:
    """Return an all-reduce of n devices over one of them; see ``naive_seconds``."""
    seconds, sent = naive_seconds(nbytes, n, link), 2 * (n - 1) * nbytes
    return Collective("all-reduce, naive", indices, seconds, sent, beside)
