"""Commands, the clock's notes of anything but kernels: copies, collectives, waiting.

Each command has one method, ``work_off(clock, index, stream, thread)``. It updates the
clock's times for a command that the thread issued to a stream of the device ``index``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from . import catalogue, nccl
from .catalogue import LINKS, Link, Model
from .clock import HOST, Clock, Lane, Moment, pico
from .fabric import Fabric

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
        host = clock.hosts[thread] + clock.issue
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
        for (i, side), (_, queue) in zip(lanes, ends, strict=True):
            lane = clock.links[i, side, peer]
            if len(lanes) > 1:
                lane.begin(begin, duration)
            lane.carried(self.nbytes, duration)
            clock.draw(
                *(i, side, begin, end, name, host, clock.issue, queue, thread, self)
            )
        for i, queue in ends:
            clock.streams[i][queue] = end
        if crosses and (self.blocking or not pinned):
            until = end + (pico(catalogue.WAIT.value) if self.blocking else 0)
            clock.draw(HOST, "wait", host, until, "waits for the copy", thread=thread)
            clock.hosts[thread] = until


@dataclass(slots=True)
class HostWorks:
    """The host does something itself, and devices may wait for it.

    Attributes:
        replicas: how many modules it copies, for all devices together.
    """

    replicas: int

    def work_off(self, clock: Clock, index: int, stream: int, thread: int) -> None:
        seconds = self.replicas * clock.host_times.replica
        clock.hosts[thread] += pico(seconds)


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
            end, subject = self.moment.time or 0, "an event"
        else:
            ends = {i: clock.end_of(i, self.stream) for i in self.indices}
            last = max(ends, key=ends.__getitem__)
            end, subject = ends[last], clock.names[last]
        host, heard = clock.hosts[thread], end + pico(catalogue.WAIT.value)
        if heard > host and end:
            clock.hosts[thread] = heard
            name = f"waits for {subject}"
            clock.draw(HOST, "wait", host, heard, name, thread=thread)


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


@dataclass(slots=True)
class Reading:
    """Where a stream and its device are once they've come this far.

    Attributes:
        end: when the stream has done its work so far.
        busy: how long the device has computed in total.
    """

    end: int = 0
    busy: int = 0

    def work_off(self, clock: Clock, index: int, stream: int, thread: int) -> None:
        self.busy = clock.compute[index].busy
        self.end = clock.end_of(index, stream)
        if not clock.models[index].asynchronous:
            self.end = clock.hosts[thread]


@dataclass(slots=True)
class MemoryChanged:
    """From now on, so many bytes are allocated on the device.

    Its note is nobody's: memory may be freed in any thread, and the clock mustn't take
    that for the thread's turn, which could change other times.
    """

    nbytes: int

    def work_off(
        self, clock: Clock, index: int, stream: int, thread: int | None
    ) -> None:
        time = clock.hosts.get(thread, max(clock.hosts.values()))
        if clock.memory:  # in the order of the program, also where threads overlap
            time = max(time, clock.memory[-1][0])
        clock.memory.append((time, index, self.nbytes))


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


@dataclass(slots=True, eq=False)
class Collective:
    """Devices exchange bytes, which keeps their links busy and some multiprocessors.

    Attributes:
        indices: of the devices that are simulated.
        duration: seconds from when the last device is ready.
        nbytes: bytes that each device sends.
        beside: whether it overlaps with later work in the streams, which otherwise
            waits for it.
        done: the moment at which it ends.
        channels: how many multiprocessors of each device it takes.
        queue: the stream in which it waits for earlier collectives.
        sides: which directions of the links it uses.
        peer: where they lead: ``"device"``, or ``"network"`` for those to other nodes.
        issued: when the host had issued it, how long that took, in which stream, by
            which thread; known once it has.
    """

    name: str
    indices: Sequence[int]
    duration: float
    nbytes: int
    beside: bool = False
    done: Moment = field(default_factory=Moment)
    channels: int = 0
    queue: int = COMMUNICATION
    sides: tuple[str, ...] = ("in", "out")
    peer: str = "device"
    issued: tuple[int, int, int, int] = (0, 0, 0, 0)

    def work_off(self, clock: Clock, index: int, stream: int, thread: int) -> None:
        asked = self.ask(clock, stream, thread)
        self.begin(clock, stream, max(asked, self.free(clock)))

    def ask(self, clock: Clock, stream: int, thread: int) -> int:
        """Let the host issue it, and return when it and the stream are ready."""
        host = clock.hosts[thread] + clock.issue
        self.issued = host, clock.issue, stream, thread
        clock.hosts[thread] = host
        return max(
            host + pico(catalogue.START.value),
            *(clock.end_of(i, stream) for i in self.indices),
        )

    def free(self, clock: Clock) -> int:
        """Return when earlier collectives are done and the links are free."""
        return max(
            *(clock.end_of(i, self.queue) for i in self.indices),
            *(lane.free for lane in self._lanes(clock)),
        )

    def begin(self, clock: Clock, stream: int, begin: int) -> None:
        """Let it begin at a time."""
        end = begin + pico(self.duration)
        self.done.time = end
        for lane in self._lanes(clock):
            lane.begin(begin, end - begin)
            lane.carried(self.nbytes, end - begin)
        for i in self.indices:
            clock.shared[i].take(self.channels, begin, end)
            for side in self.sides:
                clock.draw(i, side, begin, end, self.name, *self.issued, self)
            clock.streams[i][self.queue] = end
            if not self.beside:
                clock.streams[i][stream] = end

    def _lanes(self, clock: Clock) -> list[Lane]:
        return [
            clock.links.setdefault((i, side, self.peer), Lane())
            for i in self.indices
            for side in self.sides
        ]


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
    channels = link.channels
    return Collective(name, indices, seconds, round(sent), beside, channels=channels)


def naive_all_reduce(
    indices: Sequence[int], nbytes: int, n: int, link: Link, beside: bool = False
) -> Collective:
    """Return the command of a naive all-reduce; see ``naive_seconds``."""
    seconds, sent = naive_seconds(nbytes, n, link), 2 * (n - 1) * nbytes
    return Collective("all-reduce, naive", indices, seconds, sent, beside)


def chosen(
    kind: str,
    indices: Sequence[int],
    nbytes: int,
    ranks: Sequence[int],
    fabric: Fabric,
    model: Model,
    beside: bool = False,
) -> Collective:
    """Return the command of a collective as NCCL does it; see ``nccl.estimate``.

    Args:
        ranks: of the group, of which ``indices`` are those that are simulated.
    """
    found = nccl.estimate(kind, nbytes, ranks, fabric, model)
    name = f"{kind.replace('_', '-')}, {found.algorithm} {found.protocol}"
    return Collective(
        *(name, indices, found.seconds, found.sent, beside), channels=found.channels
    )
