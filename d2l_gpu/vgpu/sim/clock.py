"""The simulated clock: a host issues work, devices and links do it.

While a program runs, the clock only takes notes of its work. When somebody asks for a
time, the clock computes all times from the notes and the catalogue (``catalogue.py``).
It never reads a real clock, and times are whole picoseconds, so the same program takes
exactly the same simulated time on every machine.

What is simulated: the host issues work in the order of the program without waiting for
it. A device runs its kernels one at a time, in the order in which they can begin.
Copies have engines of their own, one for each direction. The work of one stream runs in
order.

A collective takes some multiprocessors of its devices, so kernels that run at the same
time are slower.

What isn't: caches, the limited length of queues, clock rates that fall under load,
kernels that share a device, and whatever the host computes itself.
"""

import itertools
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from . import catalogue
from .catalogue import Host, Link, Model
from .fabric import Fabric

HOST = -1  # the index that stands for the host's memory
NOBODY = -1  # in a note, in place of a thread: it belongs to none, and takes no time
PICO = 10**12  # picoseconds in a second
INFINITE = float("inf")
HOST_TIMES = Host()  # those that others have published

# The clock works off its notes when there are this many, even if nobody asks.
NOTES = 2**12

# A lane remembers at least this many of its latest gaps.
GAPS = 64

# The clock keeps at most this many spans for drawing; counts have no limit.
SPANS = 2**15


_threads = itertools.count()


class _Queues(threading.local):
    """What each thread of the host has for itself.

    Attributes:
        of: the stream that it uses on each device, unless that's the default one.
        thread: its number, unlike the operating system's numbers never used again.
    """

    def __init__(self):
        self.of: dict[int, int] = {}
        self.thread = next(_threads)


queues = _Queues()


def new_threads(n: int) -> list[int]:
    """Return numbers for n threads that are yet to begin; see ``worlds.py``."""
    return [next(_threads) for _ in range(n)]


class Part(NamedTuple):
    """One kernel's work.

    Attributes:
        operations: floating-point operations.
        kind: the type of number, as in ``Model.rate``.
        nbytes: bytes read from and written to the device's memory.
        product: batch, m, n and k if it's a matrix product.
        algorithm: a name in ``catalogue.SHARES``, for what isn't a plain product: a
            convolution, or ``"attention"``, two products and a softmax in one kernel.
        done: the operations that it does for each one that is counted.
        general: whether a product runs on the general units, even if there are others.
    """

    operations: int
    kind: str
    nbytes: int
    product: tuple[int, int, int, int] | None = None
    algorithm: str = ""
    done: float = 1.0
    general: bool = False

    @property
    def tensor(self) -> bool:
        """Whether it runs on the units that do matrix products only, if there are."""
        return self.product is not None and not self.general


class Choice(NamedTuple):
    """Several ways to do the same. The fastest on a device is the one that it takes.

    Attributes:
        ways: the kernels of each.
    """

    ways: tuple[tuple[Part, ...], ...]


class Work(NamedTuple):
    """What the calls with one key do.

    Attributes:
        name: the operator's name.
        parts: its kernels, or ways to choose from.
        layer: whether the host issues it from a layer of a network, which takes it
            longer than an operator alone.
    """

    name: str
    parts: Sequence[Part | Choice]
    layer: bool = False


class Span(NamedTuple):
    """Something that took time, in picoseconds since the clock was made.

    Attributes:
        index: the index of the device, -1 for the host.
        lane: ``"compute"``, ``"in"``, ``"out"``, ``"wait"`` or ``"issue"``.
        start: when it began.
        end: when it ended.
        name: the operator's name, the two ends of a copy, or a collective with its
            algorithm.
        issued: when the host had issued it; None if the host itself was waiting.
        issuing: how long that took the host.
        stream: the device's stream to which it was issued.
        thread: the number of the host's thread.
        work: the kernels of a call, each a ``Part``, or the command of a copy or a
            collective; None if the host was waiting.
    """

    index: int
    lane: str
    start: int
    end: int
    name: str
    issued: int | None = None
    issuing: int = 0
    stream: int = 0
    thread: int = 0
    work: Any = None

    @property
    def parts(self) -> Sequence["Part"]:
        """The kernels, if it's a call's."""
        return self.work if self.lane == "compute" else ()

    @property
    def operations(self) -> int:
        """The floating-point operations of kernels, as PyTorch counts them."""
        return sum(part.operations for part in self.parts)

    @property
    def nbytes(self) -> int:
        """The bytes that kernels read and write, or that a device sends or receives."""
        if self.parts:
            return sum(part.nbytes for part in self.parts)
        return getattr(self.work, "nbytes", 0)


def seconds_of(part: Part, model: Model) -> float:
    """Return the seconds that a kernel takes on a device, without its launch.

    It takes as long as its arithmetic or its memory traffic, whichever is longer. This
    is the roofline model (Williams, Waterman and Patterson, 2009).
    """
    computing = 0.0
    if part.operations:
        rate = model.rate(part.kind, part.tensor) / part.done
        if part.algorithm == "attention":
            rate *= catalogue.attention_share(model)
        elif part.product is not None:
            rate *= catalogue.matrix_share(model)
            rate *= catalogue.quantization(model.units, *part.product)
        if model.asynchronous:  # these are cuDNN's
            rate *= catalogue.SHARES.get(part.algorithm, 1.0)
        computing = part.operations / rate
    seconds = max(computing, part.nbytes / (model.bandwidth * catalogue.MEMORY.value))
    if model.asynchronous:
        seconds += catalogue.SECONDS_BESIDE.get(part.algorithm, 0.0)
    return seconds


def pico(seconds: float) -> int:
    return round(seconds * PICO)


def _duration(parts: Sequence[Part], model: Model) -> int:
    """Return the picoseconds of kernels that run one after the other."""
    launch = catalogue.LAUNCH.value if model.asynchronous else 0.0
    return sum(pico(seconds_of(part, model) + launch) for part in parts)


class Kernel:
    """The calls with one key: their work, their duration, and how many there were.

    Attributes:
        parts: the kernels that run, those of the fastest way.
        issue, duration: what a call takes the host, and the device, in picoseconds.
        python: the part of issue in which Python's code runs, one thread at a time.
    """

    __slots__ = ("count", "duration", "issue", "name", "parts", "python")

    def __init__(self, work: Work, model: Model, host: Host = HOST_TIMES):
        self.name, self.count = work.name, 0
        self.issue = pico(host.layer if work.layer else host.operator)
        self.python = self.issue - pico(host.operator)
        self.parts: list[Part] = []
        for part in work.parts:
            ways = part.ways if isinstance(part, Choice) else [(part,)]
            self.parts += min(ways, key=lambda way: _duration(way, model))
        self.duration = _duration(self.parts, model)


@dataclass(slots=True)
class Moment:
    """A point in the work of a stream; its time is known once it's worked off."""

    time: int | None = None


@dataclass
class Lane:
    """An engine that does one thing at a time: a device's kernels, or its copies.

    Times are in picoseconds.

    Attributes:
        free: when it will have done all its work.
        busy: how long it has worked in total.
        nbytes, count: total bytes and number of its copies.
        gaps: when it was idle; work that can begin earlier is put there.
    """

    free: int = 0
    busy: int = 0
    nbytes: int = 0
    count: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def carried(self, nbytes: int, duration: int) -> None:
        """Count a copy that has already been given its time."""
        self.busy += duration
        self.nbytes += nbytes
        self.count += 1

    def follow(self, begin: int, times: Iterable[tuple]) -> None:
        """Schedule work whose times are known, after all other work.

        Args:
            times: when each piece begins and ends after ``begin``, in order; and more,
                of which only ``nbytes`` matters.
        """
        free = self.free
        for start, end, *more in times:
            if begin + start > free:
                self.gaps.append((free, begin + start))
            free = begin + end
            self.busy += end - start
            for each in more:
                self.nbytes += each.nbytes
                self.count += 1
        self.free = free
        if len(self.gaps) > 2 * GAPS:
            del self.gaps[:-GAPS]

    def has_room(self, ready: int, duration: int, shared: "Shared") -> bool:
        """Return whether work could begin at once when it's ready, between others."""
        place = bisect_right(self.gaps, (ready, INFINITE)) - 1
        if place < 0 or self.gaps[place][1] < ready + duration:
            return False
        return self.gaps[place][1] >= ready + shared.lasting(ready, duration)

    def begin(self, ready: int, duration: int, shared: "Shared | None" = None) -> int:
        """Schedule work that is ready at a given time, and return when it begins.

        Args:
            shared: what else uses the device, so that the work takes longer.
        """
        free = self.free
        if ready < free:
            # Gaps are in order; work doesn't fit into those that end before it's ready.
            first = max(0, bisect_right(self.gaps, (ready, ready)) - 1)
            for i in range(first, len(self.gaps)):
                start, end = self.gaps[i]
                at = ready if ready > start else start
                if at + duration > end:
                    continue
                until = at + (shared.lasting(at, duration) if shared else duration)
                if until <= end:
                    left = (start, at), (until, end)
                    self.gaps[i : i + 1] = [gap for gap in left if gap[0] < gap[1]]
                    return at
            ready = free
        elif ready > free:
            self.gaps.append((free, ready))
            if len(self.gaps) > 2 * GAPS:
                del self.gaps[:GAPS]
        self.free = ready + (shared.lasting(ready, duration) if shared else duration)
        return ready


class Shared:
    """When collectives take multiprocessors of a device from its kernels.

    NCCL runs one block of threads per channel, each on a multiprocessor of its own.
    Kernels that are issued later get what is left. (S. Lee and others, Characterizing
    Compute-Communication Overlap, 2025, arXiv:2507.03114, measured computations that
    were 19 % slower on average, and 40 % at most.)

    Attributes:
        until: the last time at which any is taken.
    """

    def __init__(self, units: int):
        self.units, self.until = units, 0
        self.taken: list[tuple[int, int, int]] = []

    def take(self, channels: int, start: int, end: int) -> None:
        """Take a number of multiprocessors from one time to another."""
        if channels and start < end:
            self.taken.append((start, end, min(channels, self.units - 1)))
            self.until = max(self.until, end)
            if len(self.taken) > 2 * GAPS:
                del self.taken[:GAPS]

    def lasting(self, start: int, duration: int) -> int:
        """Return how long work lasts that would last ``duration`` alone."""
        at, left = start, duration
        for begin, end, channels in self.taken:
            if end <= at or not left:
                continue
            if begin > at:
                alone = min(left, begin - at)
                at, left = at + alone, left - alone
            rest = self.units - channels
            done = min(left, (end - at) * rest // self.units)
            if done < left:
                at, left = max(at, end), left - done
            else:
                at, left = at + -(-left * self.units // rest), 0
        return at + left - start


class Clock:
    """The simulated time of a host and its devices.

    Args:
        models: each device's entry in the catalogue, by the device's index.
        link: what connects the devices.
        work_of: returns the work that a key describes.
        stands_for: how many equal devices each device represents, itself included.
        host: what the program's own work takes.
    Attributes:
        names: of the host and of the devices, which are counted from 0.
        fabric: what connects the ranks of a cluster, in which collectives run as NCCL
            chooses; None if they run in rings over ``link``.
        issue: picoseconds in which the host issues an operator.
        notes: work that was issued but not worked off yet; ``note`` adds to it.
        hosts: the time of each thread of the host, in picoseconds.
        spans: what took time since the last reset, each a `Span` as a plain tuple.
        memory: the bytes allocated on a device each time that they changed, as
            ``(time, index, nbytes)``; only while the machine notes them.
        processes: threads that stand for processes with a host of their own, the ranks
            of a small world (``worlds.py``).
    """

    def __init__(
        self,
        models: Mapping[int, Model],
        link: Link,
        work_of: Callable[[tuple], Work],
        stands_for: int = 1,
        host: Host = HOST_TIMES,
    ):
        self.stands_for, self.host_times = stands_for, host
        self.issue = pico(self.host_times.operator)
        self.models, self.link, self.work_of = dict(models), link, work_of
        self.fabric: Fabric | None = None
        self.names = {HOST: "host"} | {
            i: f"GPU {number}" if model.asynchronous else "CPU"
            for number, (i, model) in enumerate(self.models.items())
        }
        self.notes: list[tuple] = []
        self.lock = threading.RLock()
        self.main = queues.thread
        self.hosts = {self.main: 0}
        self.processes: set[int] = set()
        self.origin = 0
        self.kernels: dict[int, dict[tuple, Kernel]] = {i: {} for i in models}
        self.compute = {i: Lane() for i in models}
        self.shared = {i: Shared(model.units) for i, model in models.items()}
        self.links = {
            (i, side, peer): Lane()
            for i in models
            for side in ("in", "out")
            for peer in ("host", "device")
        }
        self.streams: dict[int, dict[int, int]] = {i: {} for i in models}
        self.spans: list[tuple] = []
        self.memory: list[tuple[int, int, int]] = []

    # -------------------------------------------------------------- notes

    def note(self, key, index: int, stream: int) -> None:
        """Note that work was issued; ``key`` is a kernel's key, or a command."""
        self.notes.append((key, index, stream, queues.thread))
        if len(self.notes) >= NOTES:
            self.work_off()

    def work_off(self) -> None:
        """Bring all times up to date with the notes."""
        with self.lock:
            notes = self.notes[:]
            del self.notes[: len(notes)]  # other threads may be adding more
            start = pico(catalogue.START.value)
            spans, room = self.spans, SPANS - len(self.spans)
            thread, host, others = None, 0, 0
            sharing = self._sharing(notes)
            for key, index, stream, issuer in notes:
                if issuer != thread:
                    if thread is not None:
                        self.hosts[thread] = host
                    if issuer == NOBODY:
                        key.work_off(self, index, stream, thread)
                        continue
                    if issuer == self.main:
                        others = 0
                    elif thread in (None, self.main):
                        others = next(sharing)
                    thread, host = issuer, self._host_of(issuer)
                if type(key) is not tuple:
                    self.hosts[thread] = host
                    key.work_off(self, index, stream, thread)
                    host = self.hosts[thread]
                    continue
                kernel = self.kernels[index].get(key) or self._kernel(key, index)
                kernel.count += 1
                duration = kernel.duration
                host += kernel.issue
                if others:
                    host += others * kernel.python
                issued = host
                lane, ends = self.compute[index], self.streams[index]
                if not self.models[index].asynchronous:
                    begin = host
                    host += duration
                    lane.free = host
                else:
                    begin = ends.get(stream, 0)
                    if begin < host + start:
                        begin = host + start
                    shared = self.shared[index]
                    if begin < shared.until:
                        begin = lane.begin(begin, duration, shared)
                        duration = shared.lasting(begin, duration)
                    elif begin == lane.free:  # lane.begin(…), inlined for speed
                        lane.free += duration
                    else:
                        begin = lane.begin(begin, duration)
                    ends[stream] = begin + duration
                lane.busy += duration
                if room > 0:
                    room -= 1
                    spans.append(
                        (
                            index,
                            "compute",
                            begin,
                            begin + duration,
                            kernel.name,
                            issued,
                            kernel.issue,
                            stream,
                            thread,
                            kernel.parts,
                        )
                    )
            if thread is not None:
                self.hosts[thread] = host

    def _sharing(self, notes: Sequence[tuple]) -> Iterator[int]:
        """Yield with how many others a thread shares Python.

        Threads that issue layers between two notes of the main one run at the same
        time, and Python's lock lets one of them run at a time. So each takes as many
        times as long as there are threads; which of them is first makes no difference.
        """
        notes = [note for note in notes if note[3] != NOBODY]
        for is_main, run in itertools.groupby(notes, lambda note: note[3] == self.main):
            if not is_main:
                yield max(
                    len(
                        {
                            thread
                            for key, index, _, thread in run
                            if type(key) is tuple
                            and thread not in self.processes
                            and self._kernel(key, index).python
                        }
                    )
                    - 1,
                    0,
                )

    def _host_of(self, thread: int) -> int:
        """Return the time at which a thread continues.

        A new thread begins at the time of the main one. The main one continues only
        after all others.
        """
        if thread == self.main:
            self.hosts = {thread: max(self.hosts.values())}
        return self.hosts.get(thread, self.hosts[self.main])

    def _kernel(self, key: tuple, index: int) -> Kernel:
        kernel = self.kernels[index].get(key)
        if kernel is None:
            kernel = Kernel(self.work_of(key), self.models[index], self.host_times)
            self.kernels[index][key] = kernel
        return kernel

    # -------------------------------------------------------------- times, in seconds

    def host(self) -> int:
        """Return the host's time, in picoseconds since the clock was made.

        A process asks for the time of its own host.
        """
        self.work_off()
        if queues.thread in self.processes:
            return self._host_of(queues.thread)
        return max(self.hosts.values())

    def now(self) -> float:
        """Return the host's time, in seconds since the last reset."""
        return (self.host() - self.origin) / PICO

    def elapsed(self) -> float:
        """Return when host and devices finish, in seconds since the last reset."""
        self.work_off()
        return (self._end() - self.origin) / PICO

    def busy(self, index: int) -> float:
        """Return the seconds for which a device ran kernels since the last reset."""
        self.work_off()
        return self.compute[index].busy / PICO

    def has_passed(self, moment: "Moment") -> bool:
        """Whether the host is past a moment; asking takes it some time, too."""
        self.work_off()
        thread = queues.thread if queues.thread in self.processes else self.main
        with self.lock:
            host = self._host_of(thread) + self.issue
            self.hosts[thread] = host
        return moment.time is None or moment.time <= host

    def is_over(self, moment: Moment, host: int) -> bool:
        """Whether a moment is known to be past at a time of the host."""
        return moment.time is not None and moment.time <= host

    def reset(self) -> None:
        """Wait for everything, then restart time and counts at zero."""
        self.work_off()
        with self.lock:
            end = self._end()
            self.hosts = {self.main: end}
            self.origin = end
            for lane in self.forget():
                lane.free, lane.gaps = end, []

    def forget(self) -> list[Lane]:
        """Forget what was done so far, but not how long it took; return all lanes."""
        self.spans, self.memory = [], []
        for kernels in self.kernels.values():
            for kernel in kernels.values():
                kernel.count = 0
        lanes = [*self.compute.values(), *self.links.values()]
        for lane in lanes:
            lane.busy = lane.nbytes = lane.count = 0
        return lanes

    def _end(self) -> int:
        return max(
            *self.hosts.values(),
            *(lane.free for lane in self.compute.values()),
            *(lane.free for lane in self.links.values()),
        )

    def end_of(self, index: int, stream: int | None = None) -> int:
        """Return when a stream, or the whole device, has done all its work."""
        ends = self.streams[index]
        if stream is not None:
            return ends.get(stream, 0)
        return max(ends.values(), default=0)

    def draw(self, *of_span, **more) -> None:
        """Keep a span, if there is room for it; the arguments are those of `Span`."""
        if len(self.spans) < SPANS:
            self.spans.append(Span(*of_span, **more))
