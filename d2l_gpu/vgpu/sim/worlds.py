"""Commands of a small world, whose ranks are processes with a host each.

Ranks issue work in threads of one process, but the clock takes each for a process: it
has a host of its own, which shares Python with nobody. A collective begins when the
last rank reaches it. Each rank notes that moment when it calls the collective. The
exchange itself is noted once, when all have called it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from . import catalogue
from .clock import Clock, Moment, pico
from .commands import COMMUNICATION, RINGS, ring_seconds


@dataclass(slots=True)
class Fork:
    """Hosts of processes begin at the time of the one that starts them."""

    threads: Sequence[int]

    def work_off(self, clock: Clock, index: int, stream: int, thread: int) -> None:
        clock.hosts |= dict.fromkeys(self.threads, clock.hosts[thread])


@dataclass(slots=True)
class Join:
    """A host waits for the processes that it has started."""

    threads: Sequence[int]

    def work_off(self, clock: Clock, index: int, stream: int, thread: int) -> None:
        ends = [clock.hosts.pop(i) for i in self.threads if i in clock.hosts]
        clock.hosts[thread] = max([clock.hosts[thread], *ends])
        clock.processes.difference_update(self.threads)


@dataclass(slots=True)
class Reaches:
    """A rank's stream reaches a collective, which its host has issued."""

    moment: Moment

    def work_off(self, clock: Clock, index: int, stream: int, thread: int) -> None:
        host = clock.hosts[thread] + clock.issue
        clock.hosts[thread] = host
        start = host + pico(catalogue.START.value)
        self.moment.time = max(start, clock.end_of(index, stream))


@dataclass(slots=True)
class Exchange:
    """Ranks exchange bytes, once all of them have reached this collective.

    Like ``commands.Collective``, but for several hosts. It doesn't hold up the streams:
    each rank notes for itself where it waits for the result.

    Attributes:
        kind: a key of ``RINGS``, or ``"barrier"``.
        indices: of the devices; of a send, those of the sender and the receiver.
        size: bytes of the whole tensor on one device.
        reached: when each rank reaches it, by the index of its device.
        done: the moment at which it ends.
    """

    kind: str
    indices: Sequence[int]
    size: int
    reached: Mapping[int, Moment]
    done: Moment = field(default_factory=Moment)

    @property
    def ring(self) -> str:
        """Which key of ``RINGS`` says what it takes."""
        # NCCL has no barrier: PyTorch adds up one number of each rank.
        return "all_reduce" if self.kind == "barrier" else self.kind

    @property
    def nbytes(self) -> int:
        """The bytes that each device sends."""
        return round(RINGS[self.ring](len(self.indices))[1] * self.size)

    def work_off(self, clock: Clock, index: int, stream: int, thread: int) -> None:
        n = len(self.indices)
        duration = pico(ring_seconds(self.ring, self.size, n, clock.link))
        if self.kind == "send":
            ends = list(zip(self.indices, ("out", "in"), strict=True))
        else:
            ends = [(i, side) for i in self.indices for side in ("in", "out")]
        lanes = [clock.links[i, side, "device"] for i, side in ends]
        begin = max(
            *(moment.time or 0 for moment in self.reached.values()),
            *(lane.free for lane in lanes),
        )
        self.done.time = end = begin + duration
        name = self.kind.replace("_", "-")
        for (i, side), lane in zip(ends, lanes, strict=True):
            lane.begin(begin, duration)
            lane.carried(self.nbytes, duration)
            clock.draw(i, side, begin, end, name, work=self)
            streams = clock.streams[i]
            streams[COMMUNICATION] = max(streams.get(COMMUNICATION, 0), end)
