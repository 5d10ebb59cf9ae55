"""Commands of the ranks of a plan: kernels that were recorded, joined to larger pieces.

A layer has a hundred kernels, and all of them take the clock as long as a large one
would. Kernels that nothing can come between are one command here (``Kernels``), and so
is a whole segment with the collectives of the GPUs that share a layer (``Stretch``).
Their times are those of the single kernels, to the picosecond as long as no other
stream's work gets in between.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

from . import catalogue, nccl
from .catalogue import Host, Link, Model
from .clock import (
    HOST_TIMES,
    PICO,
    SPANS,
    Clock,
    Kernel,
    Lane,
    Part,
    Span,
    Work,
    pico,
)
from .cluster import Recorder
from .commands import COMMUNICATION, StreamWaits
from .recordings import Collective, Segment

# What a rank's time is spent on.
COMPUTING, UPDATING = "computing", "the optimizer"
TENSOR, PIPELINE = "tensor parallelism", "the pipeline"
GATHERING, REDUCING = "gathering parameters", "reducing gradients"

# How collectives are called by their purpose.
NAMES = {
    TENSOR: "tensor parallelism",
    PIPELINE: "the pipeline",
    GATHERING: "parameters",
    REDUCING: "gradients",
}

SIDES = ("in", "out")  # of a link
MAIN = 0  # the stream that computes


class StageClock(Recorder):
    """The clock of a rank, which also counts what the main stream's time is spent on.

    Attributes:
        spent: picoseconds in which it computes, or waits, by what for.
        laps: the same at the end of each step.
        draws: whether it keeps spans.
    """

    def __init__(self, model: Model, link: Link, host: Host, draws: bool = True):
        super().__init__({0: model}, link, _no_work, 1, host)
        self.draws = draws
        self.spent: Counter[str] = Counter()
        self.laps: list[Counter[str]] = []

    def draw(self, *of_span, **more) -> None:
        if self.draws:
            super().draw(*of_span, **more)

    def queue_of(self, ranks: tuple[int, ...]) -> int:
        """Return the stream in which a group's collectives wait for earlier ones."""
        key = False, ranks
        return self._queues.setdefault(key, COMMUNICATION - 1 - len(self._queues))


def _no_work(key: tuple) -> Work:
    raise KeyError(key)  # all kernels are commands


@dataclass(slots=True, eq=False)
class Kernels:
    """Kernels that follow each other, as one. Times are in picoseconds.

    Attributes:
        purpose: one of those above.
        each: for each kernel, what it takes the host, and its duration.
        duration: of all together.
        issue: what they take the host.
        lag: from when the host begins to issue them until they end, if the device has
            nothing else to do.
    """

    name: str
    purpose: str
    each: Sequence[tuple[int, int]]
    duration: int
    issue: int
    lag: int

    def work_off(self, clock: Clock, index: int, stream: int, thread: int) -> None:
        host = clock.hosts[thread]
        issued = clock.hosts[thread] = host + self.issue
        ends, lane, shared = (
            x[index] for x in (clock.streams, clock.compute, clock.shared)
        )
        free = ends.get(stream, 0)
        ready = max(free, host + self.lag - self.duration)
        if ready < lane.free and not lane.has_room(ready, self.duration, shared):
            # Later work has its time already. There may be room for some of the kernels
            # before it, so they are put there one by one.
            work, end, begin = 0, free, -1
            start = pico(catalogue.START.value)
            for issue, duration in self.each:
                host += issue
                lasting, at = duration, max(end, host + start)
                if at < shared.until:
                    at = lane.begin(at, duration, shared)
                    lasting = shared.lasting(at, duration)
                else:
                    at = lane.begin(at, duration)
                if end != at and work:
                    clock.draw(*self._span(index, begin, end, issued, stream, thread))
                    begin = at
                begin = at if begin < 0 else begin
                end, work = at + lasting, work + lasting
        else:
            work = self.duration
            if ready < shared.until:
                begin = lane.begin(ready, work, shared)
                work = shared.lasting(begin, work)
            else:
                begin = lane.begin(ready, work)
            end = begin + work
        clock.draw(*self._span(index, begin, end, issued, stream, thread))
        ends[stream] = end
        lane.busy += work
        if stream == MAIN:
            clock.spent[self.purpose] += work

    def _span(self, index, begin, end, issued, stream, thread) -> tuple:
        start = index, "compute", begin, end, self.name, issued
        return *start, self.issue, stream, thread, ()


class Shared(NamedTuple):
    """A collective of the GPUs that share each layer, as it's known beforehand.

    Attributes:
        channels: multiprocessors that it takes.
    """

    name: str
    duration: int
    nbytes: int
    channels: int


class Track(NamedTuple):
    """What a segment does if nothing keeps it waiting, relative to its beginning.

    Attributes:
        duration: until its last kernel or collective that is waited for ends.
        lead: how far the host has to be ahead of the device.
        kernels, collectives: when each begins and ends.
        gaps: of the device, and of the links.
        spent: of the time, by what for.
    """

    duration: int
    lead: int
    kernels: tuple[tuple[int, int], ...]
    collectives: tuple[tuple[int, int, Shared], ...]
    spent: dict[str, int]


@dataclass(slots=True, eq=False)
class Stretch:
    """A segment as one command: kernels, and collectives of a tensor's GPUs.

    Only this rank of them is simulated, and the others are ready when it is. So nothing
    in between depends on what other ranks do.

    Attributes:
        steps: ``Kernels``, ``Shared`` and numbers of collectives to wait for.
        queue: the stream of the collectives.
        peer: where their links lead.
        track: None as long as it isn't known.
    """

    name: str
    steps: Sequence[Kernels | Shared | int]
    issue: int
    queue: int
    peer: str
    track: Track | None = None

    def work_off(self, clock: Clock, index: int, stream: int, thread: int) -> None:
        track, host = self.track, clock.hosts[thread]
        ends, lane = clock.streams[index], clock.compute[index]
        begin, links = ends.get(stream, 0), self._links(clock, index)
        if (
            track is None
            or begin < host + track.lead
            or begin
            < max(lane.free, clock.shared[index].until, ends.get(self.queue, 0))
            or any(begin < link.free for link in links)
        ):
            self._step_by_step(clock, index, stream, thread)
            return
        clock.hosts[thread] = issued = host + self.issue
        ends[stream] = begin + track.duration
        for link in links:
            link.follow(begin, track.collectives)
        lane.follow(begin, track.kernels)
        taking = clock.shared[index]
        for start, end, shared in track.collectives:
            taking.take(shared.channels, begin + start, begin + end)
            ends[self.queue] = begin + end
        clock.spent.update(track.spent)
        room = SPANS - len(clock.spans) if clock.draws else 0
        if room > 0:
            rest = self.issue, stream, thread
            spans = [
                (index, "compute", begin + a, begin + b, self.name, issued, *rest, ())
                for a, b in track.kernels
            ]
            spans += [
                (index, side, begin + a, begin + b, c.name, issued, *rest, None)
                for a, b, c in track.collectives
                for side in SIDES
            ]
            clock.spans += spans[:room]

    def _links(self, clock: Clock, index: int) -> list[Lane]:
        if not any(isinstance(step, Shared) for step in self.steps):
            return []
        return [
            clock.links.setdefault((index, side, self.peer), Lane()) for side in SIDES
        ]

    def _step_by_step(self, clock: Clock, index: int, stream: int, thread: int) -> None:
        ends, links = clock.streams[index], self._links(clock, index)
        done: list[int] = []
        for step in self.steps:
            if isinstance(step, Kernels):
                step.work_off(clock, index, stream, thread)
            elif isinstance(step, Shared):
                host = clock.hosts[thread] = clock.hosts[thread] + clock.issue
                ready = max(host + pico(catalogue.START.value), ends.get(stream, 0))
                begin = max(ready, ends.get(self.queue, 0), *(x.free for x in links))
                end = begin + step.duration
                for side, link in zip(SIDES, links, strict=True):
                    link.begin(begin, step.duration)
                    link.carried(step.nbytes, step.duration)
                    clock.draw(
                        *(index, side, begin, end, step.name, host, clock.issue),
                        *(stream, thread, None),
                    )
                clock.shared[index].take(step.channels, begin, end)
                ends[self.queue] = end
                done.append(end)
            else:
                before = max(ends.get(stream, 0), clock.hosts[thread])
                if done[step] > before:
                    clock.spent[TENSOR] += done[step] - before
                ends[stream] = max(ends.get(stream, 0), done[step])

    def known(self, model: Model, link: Link, host: Host) -> "Stretch":
        """Return it with its track, found out on a clock that does nothing else."""
        clock = StageClock(model, link, host)
        start = PICO  # the host may be as far ahead
        clock.streams[0][MAIN] = start
        self._step_by_step(clock, 0, MAIN, clock.main)
        kernels, collectives, lead, issued = [], [], 0, 0
        spans = [Span._make(span) for span in clock.spans]
        shared = iter([step for step in self.steps if isinstance(step, Shared)])
        for span in spans:
            begin, end = span.start - start, span.end - start
            if span.lane == "compute":
                kernels.append((begin, end))
            elif span.lane == SIDES[0]:
                collectives.append((begin, end, next(shared)))
        first, places = (
            pico(catalogue.START.value),
            iter([s for s in spans if s.lane != SIDES[1]]),
        )
        for step in self.steps:
            if isinstance(step, int):
                continue
            begin = next(places).start - start
            if isinstance(step, Kernels):
                lead = max(lead, issued + step.lag - step.duration - begin)
                issued += step.issue
            else:
                issued += clock.issue
                lead = max(lead, issued + first - begin)
        track = Track(
            *(clock.streams[0][MAIN] - start, lead, tuple(kernels)),
            *(tuple(collectives), dict(clock.spent)),
        )
        return replace(self, track=track)


@dataclass(slots=True)
class Lap:
    """Keeps what the main stream's time has been spent on so far."""

    laps: list[Counter[str]]

    def work_off(self, clock: Clock, index: int, stream: int, thread: int) -> None:
        self.laps.append(clock.spent.copy())


@dataclass(slots=True)
class Await(StreamWaits):
    """A stream continues once a moment has come, and we count how long it waits."""

    purpose: str

    def work_off(self, clock: Clock, index: int, stream: int, thread: int) -> None:
        ends = clock.streams[index]
        # What the host hasn't issued yet can't wait.
        before = max(ends.get(stream, 0), clock.hosts[thread])
        after = self.moment.time or 0
        if after > before and stream == MAIN:
            clock.spent[self.purpose] += after - before
        ends[stream] = max(ends.get(stream, 0), after)


def joined(
    name: str, purpose: str, works: Sequence[Work], model: Model, host: Host
) -> Kernels:
    """Return kernels that follow each other as one command.

    The device does the last one when it has done all before, and the host has issued
    it. So they end at the latest of what their durations and the host allow, which is
    linear in when stream and host are ready.
    """
    kernels = [Kernel(work, model, host) for work in works]
    total = sum(kernel.duration for kernel in kernels)
    start, before, lag = pico(catalogue.START.value), 0, 0
    issued = accumulate(kernel.issue for kernel in kernels)
    for kernel, issue in zip(kernels, issued, strict=True):
        lag = max(lag, issue + start + total - before)
        before += kernel.duration
    each = tuple((kernel.issue, kernel.duration) for kernel in kernels)
    issue = sum(kernel.issue for kernel in kernels)
    return Kernels(name, purpose, each, total, issue, lag)


class Prices:
    """What kernels take on a model of GPU; each is computed once."""

    def __init__(self, model: Model, host: Host = HOST_TIMES):
        self.model, self.host = model, host
        self._segments: dict[tuple, tuple[Segment, list]] = {}
        self._moving: dict[tuple, Kernels] = {}
        self._stretches: dict[tuple, Stretch] = {}

    def segment(self, *of: object) -> tuple[Segment, list]:
        """Return a segment, and its steps with kernels joined.

        Args:
            of: a model, then the arguments of its ``segment``.
        """
        if of not in self._segments:
            network, part, way, *more = of
            found = network.segment(part, way, *more)
            self._segments[of] = found, self._compiled(found, way)
        return self._segments[of]

    def _compiled(self, segment: Segment, way: str) -> list:
        steps: list = []
        works: list[Work] = []
        for step in (*segment.steps, None):
            if isinstance(step, Work):
                works.append(step)
                continue
            if works:
                steps.append(joined(way, COMPUTING, works, self.model, self.host))
                works = []
            if step is not None:
                steps.append(step)
        return steps

    def stretch(
        self, name: str, clock: StageClock, ranks: tuple[int, ...], *of
    ) -> Stretch:
        """Return a segment as one command of a rank.

        Args:
            name: what drawings call its kernels.
            ranks: those that share each layer.
            of: as for ``segment``.
        """
        queue, group = clock.queue_of(ranks), clock.fabric.group(ranks)
        key = name, queue, group, clock.fabric, of
        if key not in self._stretches:
            shape = queue, group, clock.fabric, of
            if shape not in self._stretches:
                self._stretches[shape] = self._found_out(clock, ranks, queue, of)
            found = self._stretches[shape]
            steps = tuple(
                replace(step, name=name) if isinstance(step, Kernels) else step
                for step in found.steps
            )
            self._stretches[key] = replace(found, name=name, steps=steps)
        return self._stretches[key]

    def _found_out(self, clock: StageClock, ranks, queue: int, of: tuple) -> Stretch:
        steps, issue = [], 0
        for step in self.segment(*of)[1]:
            if isinstance(step, Collective):
                found = nccl.estimate(*step, ranks, clock.fabric, self.model)
                what = step.kind.replace("_", "-")
                step = Shared(
                    f"{what} for {NAMES[TENSOR]}, {found.algorithm} {found.protocol}",
                    *(pico(found.seconds), found.sent, found.channels),
                )
                issue += clock.issue
            elif isinstance(step, Kernels):
                issue += step.issue
            steps.append(step)
        several = clock.fabric.group(ranks).nodes > 1
        stretch = Stretch(
            "", tuple(steps), issue, queue, "network" if several else "device"
        )
        return stretch.known(self.model, clock.link, self.host)

    def moving(self, name: str, purpose: str, nbytes: tuple[float, ...]) -> Kernels:
        """Return kernels that only move bytes."""
        key = name, purpose, nbytes
        if key not in self._moving:
            works = [Work(name, (Part(0, "fp32", round(n)),)) for n in nbytes]
            self._moving[key] = joined(name, purpose, works, self.model, self.host)
        return self._moving[key]
