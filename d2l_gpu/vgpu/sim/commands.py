"""Commands, the clock's notes of anything but kernels: copies, collectives, waiting.

Each command has one method, ``work_off(clock, index, stream, thread)``. It updates the
clock's times for a command that the thread issued to a stream of the device ``index``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from . import catalogue
from .catalogue import LINKS, Link
from .clock import HOST, Clock, Moment, pico

# The stream in which collectives overlap with the other work of their devices.
COMMUNICATION = -1


def copy_seconds(nbytes: int, link: Link, pinned: bool = True) -> float:
    """Return the duration of a copy, in seconds."""
    seconds = link.step + nbytes / (link.bandwidth * catalogue.LINK.value)
    if not pinned:
        seconds += nbytes / catalogue.STAGING.value
    return seconds


@dataclass(slots=True)
class CopyCommand:
    """Bytes that go from one memory to another; ``HOST`` means the host's memory.

    Attributes:
        pinned: whether the host's side is page-locked. If it isn't, the host has to
            copy as well, and can do nothing else meanwhile.
        blocking: whether the host waits until the copy ends.
        streams: of the source and of the target; one that is the host's is ignored.
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
            return  # a CPU's memory is the host's, so nothing moves
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
    """The host waits for devices, for a stream of them, or for a moment.

    Attributes:
        indices: of the devices.
        stream: which of their streams, None for all.
        moment: a moment to wait for instead of devices.
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
    """A moment comes once the stream has done its work up to here."""

    moment: Moment

    def work_off(self, clock: Clock, index: int, stream: int, thread: int) -> None:
        reached = clock.hosts[thread] + pico(catalogue.START.value)
        self.moment.time = max(reached, clock.end_of(index, stream))


@dataclass(slots=True)
class StreamWaits:
    """The stream continues once a moment has come."""

    moment: Moment

    def work_off(self, clock: Clock, index: int, stream: int, thread: int) -> None:
        ends = clock.streams[index]
        ends[stream] = max(ends.get(stream, 0), self.moment.time or 0)


# ------------------------------------------------------------------ collectives

# For n devices: the number of steps, and what each device sends as a share of a
# tensor's bytes. These are lower bounds, and rings reach them. P. Patarasuk
# and X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations
# (2009); nccl-tests, PERFORMANCE.md.
RINGS = {
    "all_reduce": lambda n: (2 * (n - 1), 2 * (n - 1) / n),
    "all_gather": lambda n: (n - 1, (n - 1) / n),
    "reduce_scatter": lambda n: (n - 1, (n - 1) / n),
    "broadcast": lambda n: (n - 1, 1.0),
    "reduce": lambda n: (n - 1, 1.0),
    # No rings: NCCL makes these of sends, from each device to each other one at most.
    # NCCL's documentation, "Point-to-point communication".
    "all_to_all": lambda n: (n - 1, (n - 1) / n),
    "gather": lambda n: (n - 1, (n - 1) / n),
    "scatter": lambda n: (n - 1, (n - 1) / n),
    "send": lambda n: (1, 1.0),
}


def ring_seconds(kind: str, nbytes: int, n: int, link: Link) -> float:
    """Return the duration of a collective of n devices in a ring, in seconds.

    Args:
        kind: a key of ``RINGS``.
        nbytes: size of the whole tensor on one device.
    """
    steps, share = RINGS[kind](n)
    moving = share * nbytes / (link.bandwidth * catalogue.LINK.value)
    return catalogue.COLLECTIVE.value + steps * link.step + moving


def naive_seconds(nbytes: int, n: int, link: Link) -> float:
    """Return the duration of a naive all-reduce, in seconds.

    One device receives the tensors of all others, one after the other, and sends them
    the sum in the same way. The additions are left out, because a device's memory is
    much faster than a link.
    """
    return 2 * (n - 1) * copy_seconds(nbytes, link)


@dataclass(slots=True)
class Collective:
    """Devices exchange bytes, which keeps their links busy but not their arithmetic.

    Attributes:
        indices: of the devices that are simulated.
        duration: seconds from when the last device is ready.
        nbytes: bytes that each device sends.
        beside: whether it overlaps with later work in the streams, which otherwise
            waits for it.
        done: the moment at which it ends.
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
    """Return the command of a collective in a ring; see ``ring_seconds``."""
    seconds, sent = ring_seconds(kind, nbytes, n, link), RINGS[kind](n)[1] * nbytes
    name = f"{kind.replace('_', '-')}, ring"
    return Collective(name, indices, seconds, round(sent), beside)


def naive_all_reduce(
    indices: Sequence[int], nbytes: int, n: int, link: Link, beside: bool = False
) -> Collective:
    """Return the command of a naive all-reduce; see ``naive_seconds``."""
    seconds, sent = naive_seconds(nbytes, n, link), 2 * (n - 1) * nbytes
    return Collective("all-reduce, naive", indices, seconds, sent, beside)
