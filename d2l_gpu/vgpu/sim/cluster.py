"""Ranks of a cluster: each is recorded alone, then all are put on one time axis.

A rank's clock (``Recorder``) keeps what its program issues, and works off nothing.
Once all ranks have run that differ, ``resolve`` works off their notes together. Where a
rank meets others, in a collective or by sending to one of them, nobody begins before
the last one is ready. Ranks that weren't recorded do what a recorded one does, at the
same time.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain

from . import nccl
from .clock import NOTES, Clock, Moment
from .commands import COMMUNICATION, Collective, HostWaits, Record, StreamWaits
from .knowledge import Knowledge


@dataclass(slots=True, eq=False)
class Meeting(Collective):
    """A collective of ranks, or what one of them sends to another.

    Attributes:
        kind: a key of ``nccl.SENT``.
        ranks: of the group; of a send, the sender and the receiver.
        size: bytes of the whole tensor.
        number: counts what has the same ranks; sends have numbers of their own.
        rank: whose meeting this is.
        ready: the time at which this rank is ready. At first it's that of its stream;
            once it's known, that at which earlier meetings are over, too.
        last: the rank that was ready last.
    """

    kind: str = ""
    ranks: tuple[int, ...] = ()
    size: int = 0
    number: int = 0
    rank: int = 0
    ready: int = 0
    last: int = 0

    def work_off(self, clock: Clock, index: int, stream: int, thread: int) -> None:
        self.ready = self.ask(clock, stream, thread)

    @property
    def key(self) -> tuple:
        """The same for all who meet."""
        return self.kind == "send", self.ranks, self.number

    def __str__(self) -> str:
        if self.kind != "send":
            group = f"{len(self.ranks)} ranks"
            return (
                f"{self.kind} of {self.size:,} bytes, number {self.number} of {group}"
            )
        sender, receiver = self.ranks
        if self.rank == sender:
            return f"send of {self.size:,} bytes to rank {receiver}"
        return f"receive of {self.size:,} bytes from rank {sender}"


class Recorder(Clock):
    """The clock of one rank, which keeps its notes until all ranks have run.

    Until then nobody knows a time, so it says 0.

    Attributes:
        rank: its number in the cluster.
        kept: the notes.
        stops: the positions in them where the rank may have to wait for others.
        steps: for each step of the program that ends, the position and the moment.
        resolving: whether the notes are worked off now.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.rank = 0
        self.kept: list[tuple] = []
        self.stops: list[int] = []
        self.steps: list[tuple[int, Moment]] = []
        self.resolving = False
        self._same: dict[tuple, tuple] = {}
        self._queues: dict[tuple, int] = {}
        self._numbers: Counter[tuple] = Counter()
        self._knowledge, self._learnt = Knowledge(), 0

    def meet(
        self, kind: str, nbytes: int, ranks: tuple[int, ...], index: int, stream: int
    ) -> Meeting:
        """Note that this rank meets others, and return the meeting.

        Later work doesn't wait for it until a ``StreamWaits`` says so.

        Args:
            kind: a key of ``nccl.SENT``.
            nbytes: of the whole tensor.
            ranks: of the group; of a send, the sender and the receiver.
            index, stream: the device and its stream that have to be ready.
        """
        found = nccl.estimate(kind, nbytes, ranks, self.fabric, self.models[index])
        sends = (kind == "send", ranks)
        self._numbers[sends] += 1
        sides = ("in", "out")
        if kind == "send":
            sides = ("out",) if ranks[0] == self.rank else ("in",)
        meeting = Meeting(
            f"{kind.replace('_', '-')}, {found.algorithm} {found.protocol}",
            [index],
            found.seconds,
            found.sent,
            beside=True,
            channels=found.channels,
            # NCCL does what one group asks for in order, and groups at the same time.
            queue=self._queues.setdefault(sends, COMMUNICATION - 1 - len(self._queues)),
            sides=sides,
            peer="network" if self.fabric.group(ranks).nodes > 1 else "device",
            kind=kind,
            ranks=ranks,
            size=nbytes,
            number=self._numbers[sends],
            rank=self.rank,
        )
        self.note(meeting, index, stream)
        return meeting

    def work_off(self) -> None:
        if self.resolving:
            super().work_off()
        elif len(self.notes) >= NOTES:
            self._keep(NOTES // 2)  # changes of memory look at the latest note

    def _keep(self, count: int) -> None:
        """Keep the first notes of those that have come in."""
        with self.lock:
            notes = self.notes[:count]
            del self.notes[: len(notes)]
            for note in notes:
                if type(note[0]) is tuple:  # most kernels are issued many times
                    note = self._same.setdefault(note, note)
                elif isinstance(note[0], Meeting | StreamWaits | HostWaits):
                    self.stops.append(len(self.kept))
                self.kept.append(note)

    def step_ends(self, index: int, stream: int) -> None:
        """Note that a step of the program ends once a stream has done its work."""
        moment = Moment()
        self.note(Record(moment), index, stream)
        self.steps.append((len(self.kept) + len(self.notes), moment))

    @property
    def last_step(self) -> int:
        """The position at which the last step begins, 0 if there weren't two."""
        return self.steps[-2][0] if len(self.steps) > 1 else 0

    def finish(self) -> None:
        """Keep everything: the program has ended."""
        self._keep(len(self.notes))

    def is_over(self, moment: Moment, host: int) -> bool:
        """Whether the host has waited for a moment, or for what came after it."""
        with self.lock:
            place = self._learnt - len(self.kept)
            fresh = self.notes[max(0, place) :]
            if place < 0:
                fresh = self.kept[place:] + fresh
            self._learnt += len(fresh)
            self._knowledge.learn(fresh)
            return self._knowledge.is_over(moment)

    def reset(self) -> None:
        """Time begins when the program does."""
        if self.resolving:
            super().reset()

    def shape(self, world_size: int) -> int:
        """Return a number that is the same for ranks that do the same.

        They may send to different ranks, as long as those are equally far away.
        """
        found = 0
        for note, *rest in self.kept:
            if isinstance(note, Meeting) and note.kind == "send":
                place = note.ranks.index(self.rank)
                far = (note.ranks[1] - note.ranks[0]) % world_size
                note = place, far, note.size
            elif isinstance(note, Meeting):
                note = note.kind, len(note.ranks), note.size
            elif type(note) is not tuple:
                note = type(note).__name__
            found = hash((found, note, *rest[1:]))
        return found

    def meetings(self) -> Iterable[Meeting]:
        """Return the meetings, in the order in which the rank issued them."""
        notes = (self.kept[i][0] for i in self.stops)
        return [note for note in notes if isinstance(note, Meeting)]


@dataclass(eq=False)
class _Progress:
    """How far the notes of a rank have been worked off.

    Attributes:
        place: of the next note; ``stop`` counts the stops before it.
        queues: meetings that have been asked for and haven't begun, in their order.
        waiting: the one of them that has to end before the rank continues.
    """

    rank: int
    clock: Recorder
    place: int = 0
    stop: int = 0
    queues: dict[int, deque[Meeting]] = field(default_factory=dict)
    waiting: Meeting | None = None

    @property
    def reached(self) -> int:
        """When the device has done what has been worked off, without collectives."""
        streams = self.clock.streams.values()
        return max(
            (end for ends in streams for stream, end in ends.items() if stream >= 0),
            default=0,
        )

    def feed(self, until: int) -> None:
        """Work off the notes before a place.

        What comes before the last step is forgotten: that one is reported and drawn.
        """
        last = self.clock.last_step
        if self.place < last <= until:
            self._feed(last)
            self.clock.forget()
        self._feed(until)

    def _feed(self, until: int) -> None:
        self.clock.notes.extend(self.clock.kept[self.place : until])
        self.clock.work_off()
        self.place = until

    def blocking(self, command: StreamWaits | HostWaits) -> Meeting | None:
        """Return a meeting that has to end before a command, if there is one."""
        for meeting in chain(*self.queues.values()):
            # The host may wait for everything.
            if command.moment is None or command.moment is meeting.done:
                return meeting
        return None


class _Resolver:
    """Works off the notes of several ranks; see ``resolve``."""

    def __init__(self, clocks: Mapping[int, Recorder]):
        self.ranks = {rank: _Progress(rank, clock) for rank, clock in clocks.items()}
        # Meetings that somebody waits for, and who has come.
        self.arrived: dict[tuple, dict[int, Meeting]] = {}

    def run(self) -> None:
        # The rank whose device is least far goes on. Otherwise one that has asked for
        # something would take the links for its own later work, before the others come.
        todo = [(0, rank) for rank in sorted(self.ranks)]
        while todo:
            _, rank = heappop(todo)
            each = self.ranks[rank]
            each.waiting = None
            met = [self.ranks[other] for other in self._advance(each)]
            going = [other for other in met if other.waiting is not None]
            if each.waiting is None and each.place < len(each.clock.kept):
                going.append(each)
            for other in dict.fromkeys(going):
                other.waiting = None
                heappush(todo, (other.reached, other.rank))
        stuck = [each for each in self.ranks.values() if each.waiting is not None]
        if not stuck:  # nobody waits, but some have asked for what never begins
            for each in self.ranks.values():
                each.waiting = next(chain(*each.queues.values()), None)
                stuck += [each] * (each.waiting is not None)
        if stuck:
            raise RuntimeError(self._deadlock(stuck))

    def _advance(self, each: _Progress) -> Iterable[int]:
        """Work off a rank's notes up to and with the next stop, unless it has to wait.

        Returns:
            the ranks whose meetings have begun.
        """
        kept, stops = each.clock.kept, each.clock.stops
        if each.stop == len(stops):
            each.feed(len(kept))
            return ()
        command = kept[stops[each.stop]][0]
        each.feed(stops[each.stop])
        if not isinstance(command, Meeting):
            each.waiting = each.blocking(command)
            if each.waiting is not None:
                return ()
        each.feed(each.place + 1)
        each.stop += 1
        if not isinstance(command, Meeting):
            return ()
        queue = each.queues.setdefault(command.queue, deque())
        queue.append(command)
        return self._come(each, command) if queue[0] is command else ()

    def _come(self, each: _Progress, meeting: Meeting) -> set[int]:
        """Let a rank come to the first meeting of a queue, and to those that follow.

        Returns:
            the ranks whose meetings have begun.
        """
        begun, coming = set(), deque([(each, meeting)])
        while coming:
            each, meeting = coming.popleft()
            met = self.arrived.setdefault(meeting.key, {})
            met[each.rank] = meeting
            _check(met)
            if len(met) < sum(rank in self.ranks for rank in meeting.ranks):
                continue
            del self.arrived[meeting.key]
            for rank, its in met.items():
                its.ready = max(its.ready, its.free(self.ranks[rank].clock))
            last = max(met, key=lambda rank: (met[rank].ready, -rank))
            for rank, its in met.items():
                there = self.ranks[rank]
                its.last = last
                its.begin(there.clock, 0, met[last].ready)
                queue = there.queues[its.queue]
                queue.popleft()
                if queue:
                    coming.append((there, queue[0]))
            begun |= met.keys()
        return begun

    def _deadlock(self, stuck: list[_Progress]) -> str:
        """Say who waits for whom."""
        sentences = []
        for each in stuck:
            meeting = each.waiting
            there = self.arrived.get(meeting.key, {})
            missing = [
                rank
                for rank in meeting.ranks
                if rank in self.ranks and rank not in there
            ]
            others = " and ".join(f"rank {rank}" for rank in missing)
            ended = [r for r in missing if self.ranks[r].waiting is None]
            done = ", which has ended without it" if ended == missing else ""
            sentences.append(f"rank {each.rank} waits for {others}{done} ({meeting})")
        return f"The ranks wait for each other for ever: {'; '.join(sentences)}."


def _check(met: Mapping[int, Meeting]) -> None:
    """Raise RuntimeError unless all ranks that meet do the same."""
    (first, one), *others = met.items()
    for rank, other in others:
        if (one.kind, one.size) != (other.kind, other.size):
            raise RuntimeError(
                f"Ranks {first} and {rank} meet in different collectives: rank {first} "
                f"calls {one}, rank {rank} {other}."
            )


def resolve(clocks: Mapping[int, Recorder]) -> None:
    """Work off the notes of ranks together.

    Args:
        clocks: those of the recorded ranks. Ranks that aren't recorded are taken to be
            ready when those that they meet are.

    Raises:
        RuntimeError: ranks wait for each other for ever, or don't do the same in a
            collective.
    """
    for clock in clocks.values():
        clock.resolving = True
    _Resolver(clocks).run()
