"""The simulated clock: a host that issues work, devices and links that do it.

While a program runs, its work is only noted down;
times are worked out when somebody asks, from the catalogue (``catalogue.py``) alone. No
real clock is read anywhere, and times are whole picoseconds: the same program takes the
same simulated time to the digit, on every machine.

What is simulated: the host issues work in the order of the program, and goes on. A
device does its kernels one at a time, in the order in which they can begin; copies have
engines of their own, one for each direction. Work of one stream is done in order.

What is not: caches, the limited length of queues, clocks that fall under load, kernels
that share a device, and whatever the host computes itself.
"""

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from . import catalogue
from .catalogue import Link, Model

HOST = -1  # the index that stands for the host's memory
PICO = 10**12  # picoseconds in a second

# A note is worked off at the latest when there are so many of them.
NOTES = 2**12

# So many gaps of a lane are remembered at least, the latest ones.
GAPS = 64

# Spans are kept for drawing up to this number, counts for ever.
SPANS = 2**15


_threads = itertools.count()


class _Queues(threading.local):
    """What each thread of the host has of its own.

    Attributes:
        of: the stream in use on each device, if it is not the default one.
        thread: its number; those of the operating system are used again.
    """

    def __init__(self):
        self.of: dict[int, int] = {}
        self.thread = next(_threads)


queues = _Queues()


class Part(NamedTuple):
    """One kernel's work.

    Attributes:
        operations: of floating-point numbers.
        kind: of number, as in ``Model.rate``.
        nbytes: read from and written to the device's memory.
        product: batch, m, n and k where it is a matrix product.
    """

    operations: int
    kind: str
    nbytes: int
    product: tuple[int, int, int, int] | None = None


class Span(NamedTuple):
    """Something that took time, in picoseconds since the clock was made.

    Attributes:
        index: of the device, or ``HOST``.
        lane: ``"compute"``, ``"in"``, ``"out"``, ``"wait"`` or ``"issue"``.
        name: of the operator, or what was copied where.
        issued: when the host had issued it; None where that is not drawn.
    """

    index: int
    lane: str
    start: int
    end: int
    name: str
    issued: int | None = None


def seconds_of(part: Part, model: Model) -> float:
    """Return the seconds that a kernel takes on a device, beside its launch.

    It takes as long as its arithmetic or its memory takes, whichever is longer: the
    roofline (Williams, Waterman and Patterson, 2009).
    """
    computing = 0.0
    if part.operations:
        rate = model.rate(part.kind, tensor=part.product is not None)
        if part.product is not None:
            rate *= catalogue.MATRIX.value
            rate *= catalogue.quantization(model.units, *part.product)
        computing = part.operations / rate
    return max(computing, part.nbytes / (model.bandwidth * catalogue.MEMORY.value))


def pico(seconds: float) -> int:
    return round(seconds * PICO)


class Kernel:
    """What is known of one key: its work, its time, and how often it was done."""

    __slots__ = ("count", "duration", "name", "parts")

    def __init__(self, name: str, parts: Sequence[Part], model: Model):
        self.name, self.parts, self.count = name, parts, 0
        launch = catalogue.LAUNCH.value if model.asynchronous else 0.0
        self.duration = sum(pico(seconds_of(part, model) + launch) for part in parts)


@dataclass(slots=True)
class Moment:
    """A point in the work of a stream; the time is known once it was worked off."""

    time: int | None = None


@dataclass
class Lane:
    """An engine that does one thing at a time: a device's kernels, or its copies.

    Attributes:
        free: when it has done all that it was given.
        busy: how long it has worked.
        nbytes, count: of the copies, where it makes those.
        gaps: when it stood idle; work that can begin earlier goes there.
    """

    free: int = 0
    busy: int = 0
    nbytes: int = 0
    count: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def carried(self, nbytes: int, duration: int) -> None:
        """Count a copy for which there is room already."""
        self.busy += duration
        self.nbytes += nbytes
        self.count += 1

    def begin(self, ready: int, duration: int) -> int:
        """Find room for work that is ready at a time; return when it begins."""
        free = self.free
        if ready < free:
            for i, (start, end) in enumerate(self.gaps):
                at = ready if ready > start else start
                if at + duration <= end:
                    left = (start, at), (at + duration, end)
                    self.gaps[i : i + 1] = [gap for gap in left if gap[0] < gap[1]]
                    return at
            ready = free
        elif ready > free:
            self.gaps.append((free, ready))
            if len(self.gaps) > 2 * GAPS:
                del self.gaps[:GAPS]
        self.free = ready + duration
        return ready


class Clock:
    """The simulated time of a host and its devices.

    Args:
        models: for each device the entry of the catalogue that it is.
        link: between the devices.
        parts_of: returns what a key stands for: a name, and the parts of its work.
        stands_for: how many equal devices each of them is, itself included.
    Attributes:
        names: of the devices, counted from 0, and of the host.
        notes: work that was issued and has not been worked off; ``note`` adds to it.
        hosts: the time of each thread of the host.
    """

    def __init__(
        self,
        models: Mapping[int, Model],
        link: Link,
        parts_of: Callable[[tuple], tuple[str, Sequence[Part]]],
        stands_for: int = 1,
    ):
        self.stands_for = stands_for
        self.models, self.link, self.parts_of = dict(models), link, parts_of
        self.names = {HOST: "host"} | {
            i: f"GPU {number}" if model.asynchronous else "CPU"
            for number, (i, model) in enumerate(self.models.items())
        }
        self.notes: list[tuple] = []
        self.lock = threading.RLock()
        self.main = queues.thread
        self.hosts = {self.main: 0}
        self.origin = 0
        self.kernels: dict[int, dict[tuple, Kernel]] = {i: {} for i in models}
        self.compute = {i: Lane() for i in models}
        self.links = {
            (i, side, peer): Lane()
            for i in models
            for side in ("in", "out")
            for peer in ("host", "device")
        }
        self.streams: dict[int, dict[int, int]] = {i: {} for i in models}
        self.spans: list[tuple] = []  # each a Span

    # -------------------------------------------------------------- notes

    def note(self, key, index: int, stream: int) -> None:
        """Note down that work was issued; ``key`` is a kernel's, or a command."""
        self.notes.append((key, index, stream, queues.thread))
        if len(self.notes) >= NOTES:
            self.work_off()

    def work_off(self) -> None:
        """Bring all times up to date with what was noted."""
        with self.lock:
            notes = self.notes[:]
            del self.notes[: len(notes)]  # others may be adding to it
            issue = pico(catalogue.ISSUE.value)
            start = pico(catalogue.START.value)
            spans, room = self.spans, SPANS - len(self.spans)
            thread, host = None, 0
            for key, index, stream, issuer in notes:
                if issuer != thread:
                    if thread is not None:
                        self.hosts[thread] = host
                    thread, host = issuer, self._host_of(issuer)
                if type(key) is not tuple:
                    self.hosts[thread] = host
                    key.work_off(self, index, stream, thread)
                    host = self.hosts[thread]
                    continue
                kernel = self.kernels[index].get(key) or self._kernel(key, index)
                kernel.count += 1
                duration = kernel.duration
                issued = host = host + issue
                lane, ends = self.compute[index], self.streams[index]
                if not self.models[index].asynchronous:
                    begin = host
                    host += duration
                    lane.free = host
                else:
                    begin = ends.get(stream, 0)
                    if begin < host + start:
                        begin = host + start
                    if begin == lane.free:  # lane.begin(…), for less
                        lane.free += duration
                    else:
                        begin = lane.begin(begin, duration)
                    ends[stream] = begin + duration
                lane.busy += duration
                if room > 0:
                    room -= 1
                    spans.append(
                        (index, "compute", begin, begin + duration, kernel.name, issued)
                    )
            if thread is not None:
                self.hosts[thread] = host

    def _host_of(self, thread: int) -> int:
        """The time at which a thread goes on: a new one begins where the first is, and
        the first has waited for all others."""
        if thread == self.main:
            self.hosts = {thread: max(self.hosts.values())}
        return self.hosts.get(thread, self.hosts[self.main])

    def _kernel(self, key: tuple, index: int) -> Kernel:
        kernel = Kernel(*self.parts_of(key), self.models[index])
        self.kernels[index][key] = kernel
        return kernel

    # -------------------------------------------------------------- times, in seconds

    def host(self) -> int:
        """Where the host is, in picoseconds since the clock was made."""
        self.work_off()
        return max(self.hosts.values())

    def now(self) -> float:
        """Where the host is, in seconds since the last reset."""
        return (self.host() - self.origin) / PICO

    def elapsed(self) -> float:
        """When host and devices have done all, in seconds since the last reset."""
        self.work_off()
        return (self._end() - self.origin) / PICO

    def has_passed(self, moment: "Moment") -> bool:
        """Whether the host is past a moment; to ask takes it a moment, too."""
        self.work_off()
        with self.lock:
            host = self.hosts[self.main] = self._host_of(self.main) + pico(
                catalogue.ISSUE.value
            )
        return moment.time is None or moment.time <= host

    def reset(self) -> None:
        """Wait for everything, count from here on, and forget what was before."""
        self.work_off()
        with self.lock:
            end = self._end()
            self.hosts = {self.main: end}
            self.origin = end
            self.spans = []
            for kernels in self.kernels.values():
                for kernel in kernels.values():
                    kernel.count = 0
            for lane in [*self.compute.values(), *self.links.values()]:
                lane.busy = lane.nbytes = lane.count = 0
                lane.free, lane.gaps = end, []

    def _end(self) -> int:
        return max(
            *self.hosts.values(),
            *(lane.free for lane in self.compute.values()),
            *(lane.free for lane in self.links.values()),
        )

    def end_of(self, index: int, stream: int | None = None) -> int:
        """When a stream, or all of a device, has done what it was given."""
        ends = self.streams[index]
        if stream is not None:
            return ends.get(stream, 0)
        return max(ends.values(), default=0)

    def draw(self, index: int, lane: str, start: int, end: int, name: str) -> None:
        if len(self.spans) < SPANS:
            self.spans.append((index, lane, start, end, name, None))
