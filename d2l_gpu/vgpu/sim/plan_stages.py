"""What the ranks of a plan issue: recorded kernels, and what ``fully_shard`` adds.

A ``Rank`` runs stages of a model, as the schedule of the pipeline says. It issues each
kernel, collective and wait to its clock in the order of PyTorch 2.13
(``torch/distributed/fsdp/_fully_shard``: ``FSDPParamGroup``, ``foreach_all_gather`` and
``foreach_reduce``), on as many streams. It counts memory where PyTorch allocates it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from .caching import workspace_bytes
from .clock import PICO, Moment
from .cluster import Meeting
from .commands import Record, StreamWaits
from .plan_commands import (
    GATHERING,
    MAIN,
    NAMES,
    PIPELINE,
    REDUCING,
    TENSOR,
    UPDATING,
    Await,
    Kernels,
    Lap,
    Prices,
    StageClock,
    Stretch,
)
from .plan_schedules import (
    BACKWARD,
    FORWARD,
    FREE,
    GATHER,
    RECEIVE_BACKWARD,
    RECEIVE_FORWARD,
    REDUCE,
    SEND_BACKWARD,
    SEND_FORWARD,
    Action,
    Steps,
    Wait,
)
from .recordings import Model, Segment, Size, optimizer

if TYPE_CHECKING:
    from .plans import Plan

# What a rank's memory is used for, from what stays to what comes and goes.
PARAMETERS, STATE, BUFFERS = "parameters", "optimizer state", "buffers"
GATHERED, GRADIENTS = "gathered parameters", "gradients"
ACTIVATIONS, TEMPORARY = "activations", "temporary"
CATEGORIES = (
    *(PARAMETERS, STATE, BUFFERS, GRADIENTS, GATHERED, ACTIVATIONS, TEMPORARY),
)

HALF, SINGLE = 2, 4  # bytes of a number in bf16 and fp32
BLOCK = 512  # bytes, of which PyTorch allocates a multiple

# Bytes that kernels of fully_shard move for each number, as the clock counts them for
# PyTorch's operators: what they read and write, and what they are given to write to.
CAST = 16 / 3  # fp32 to bf16, by _foreach_copy_
COPIED = 4.0  # bf16 to bf16, by _foreach_copy_ or split_with_sizes_copy
WRITTEN = 8.0  # fp32 that _chunk_cat writes
TO_SINGLE, TO_HALF, ADDED, SUMMED = 6.0, 6.0, 10.0, 12.0  # copy_, copy_, add_, add_


def block(nbytes: int) -> int:
    """Return the bytes that PyTorch allocates for some."""
    return -(-nbytes // BLOCK) * BLOCK


class Memory:
    """Bytes of a rank by category, now and at their peak."""

    def __init__(self):
        self.now: Counter[str] = Counter()
        self.total, self.most = 0, 0
        self.peak: dict[str, int] = {}

    def add(self, category: str, nbytes: int) -> None:
        self.now[category] += nbytes
        self.total += nbytes
        if self.total > self.most:
            self.most, self.peak = self.total, dict(self.now)

    def reach(self, nbytes: int, known: int = 0) -> None:
        """Count so many more bytes for a moment, ``known`` of them as activations."""
        if self.total + nbytes > self.most:
            self.most, self.peak = self.total + nbytes, dict(self.now)
            self.peak[ACTIVATIONS] = self.peak.get(ACTIVATIONS, 0) + known
            self.peak[TEMPORARY] = self.peak.get(TEMPORARY, 0) + nbytes - known


@dataclass(frozen=True)
class Setting:
    """What all ranks of a plan have in common.

    Attributes:
        network: the model that is trained.
        plan: a ``plans.Plan``.
    """

    network: Model
    plan: "Plan"
    prices: Prices

    def segment(self, part: str, way: str) -> tuple[Segment, list]:
        plan = self.plan
        return self.prices.segment(
            *(self.network, part, way, plan.tensor, plan.sequences, plan.checkpoint)
        )

    @property
    def between(self) -> int:
        """Bytes of what goes from one layer to the next, on one GPU."""
        shape, plan = self.network.shape, self.plan
        tokens = plan.sequences * shape.length
        return block(tokens * shape.width * HALF // plan.tensor)

    @property
    def scores(self) -> int:
        """Bytes of the scores of all words, on one GPU."""
        shape, plan = self.network.shape, self.plan
        rows = max(size.rows for size in self.network.sizes("head", plan.tensor))
        return block(plan.sequences * shape.length * rows * HALF)


class Rank:
    """One rank of each stage of a pipeline, and what it issues in a step.

    Args:
        place: its place in the pipeline.
    """

    def __init__(self, setting: Setting, place: int, clock: StageClock):
        self.setting, self.clock, self.place = setting, clock, place
        plan = setting.plan
        width, replica = plan.tensor, plan.tensor * plan.shards
        self.step = replica * plan.replicas  # from one stage's ranks to the next's
        self.first = place * self.step
        first = self.first
        self.tensor = tuple(range(first, first + width))
        self.shards = tuple(range(first, first + replica, width))
        self.replicas = tuple(range(first, first + self.step, replica))
        self.memory, self.queues = Memory(), 0
        numbers = range(place, plan.pipeline * plan.stages, plan.pipeline)
        self.stages = {number: Stage(self, number) for number in numbers}
        self.asked: dict[Action, Meeting] = {}
        self._keep_what_stays()

    def _keep_what_stays(self) -> None:
        """Count what a rank has had in its memory since before the step."""
        plan, shape = self.setting.plan, self.setting.network.shape
        kept = sum(group.kept for group in chain(*self.stages.values()))
        self.memory.add(PARAMETERS, kept)
        self.memory.add(STATE, 2 * kept)  # both moments of AdamW
        batch = plan.sequences * shape.length * 8  # words are int64
        buffers = block(batch * (plan.microbatches if plan.pipeline > 1 else 1))
        if shape.groups:  # turns of RoPE, complex64
            turns = block(shape.length * (shape.width // shape.heads // 2) * 8)
            buffers += turns * len(self.stages)
        last = plan.pipeline * plan.stages - 1
        for number in self.stages:
            sides = (number > 0) + (number < last)
            buffers += sides * plan.microbatches * self.setting.between
        # A workspace of cuBLAS forward, and one backward.
        capability = self.setting.prices.model.capability
        self.memory.add(BUFFERS, buffers + 2 * workspace_bytes(capability))

    def seconds_again(self) -> float:
        """Return how long it computes a second time because of checkpoints."""
        setting, plan = self.setting, self.setting.plan
        once = replace(setting, plan=replace(plan, checkpoint="none"))
        each = (_computing(x.segment("layer", BACKWARD)) for x in (setting, once))
        layers = sum(len(stage.layers) for stage in self.stages.values())
        return (next(each) - next(each)) * layers * plan.microbatches

    def note(self, command, stream: int = MAIN) -> None:
        self.clock.note(command, 0, stream)

    def meet(
        self, kind: str, nbytes: int, ranks: tuple[int, ...], stream: int, purpose: str
    ) -> Meeting:
        meeting = self.clock.meet(kind, nbytes, ranks, 0, stream)
        what, comma, how = meeting.name.partition(",")
        meeting.name = f"{what} for {NAMES[purpose]}{comma}{how}"
        return meeting

    def run(self, steps: Steps) -> None:
        """Issue a step: what the schedule says, then the optimizer's part."""
        for step in steps:
            if isinstance(step, Wait):
                for action in step.actions:
                    self.note(Await(self.asked[action].done, PIPELINE))
                continue
            if step.kind in OTHERS:
                self.asked[step] = self._send(step)
            else:
                self.stages[step.stage].do(step)
        self._update()
        for stage in self.stages.values():
            stage.begin_again()
        self.asked.clear()
        self.note(Lap(self.clock.laps))
        self.clock.step_ends(0, MAIN)

    def _send(self, action: Action) -> Meeting:
        """Send to the rank of another stage, or receive from it."""
        stages, (far, sends) = self.setting.plan.pipeline, OTHERS[action.kind]
        other = (action.stage + far) % stages * self.step
        ranks = (self.first, other) if sends else (other, self.first)
        if action.kind == SEND_BACKWARD:
            self.stages[action.stage].sent()
        return self.meet("send", self.setting.between, ranks, MAIN, PIPELINE)

    def _update(self) -> None:
        prices, groups = self.setting.prices, chain(*self.stages.values())
        numbers = sum(group.shard for group in groups)
        kernels = optimizer(self.setting.network.name)
        nbytes = tuple(numbers * each for _, each in kernels)
        self.memory.reach(SINGLE * numbers)  # square roots
        self.note(prices.moving(UPDATING, UPDATING, nbytes))


def _computing(segment: tuple[Segment, list]) -> float:
    """Return the seconds of a segment's kernels."""
    kernels = (step for step in segment[1] if isinstance(step, Kernels))
    return sum(each.duration for each in kernels) / PICO


# Whom a send or receive is to or from, in stages, and whether it's a send.
OTHERS = {
    SEND_FORWARD: (1, True),
    RECEIVE_FORWARD: (-1, False),
    SEND_BACKWARD: (-1, True),
    RECEIVE_BACKWARD: (1, False),
}


class Stage:
    """A stage of the model on a rank: some layers, and what's before or after them.

    Attributes:
        root: parameters outside the layers, None if there aren't any.
        layers: those of each layer.
        order: groups as they went forward, by which parameters are gathered early.
        pending: groups whose gathered copies are freed later, with the moment at which
            they have been copied.
        reducing: the last group whose gradients are being reduced.
        streams: to copy before gathering, to gather, to reduce over shards and over
            replicas.
    """

    def __init__(self, rank: Rank, number: int):
        plan, network = rank.setting.plan, rank.setting.network
        self.rank, self.setting, self.memory = rank, rank.setting, rank.memory
        self.number, last = number, plan.pipeline * plan.stages - 1
        self.is_first, self.is_last = number == 0, number == last
        self.streams = tuple(range(rank.queues + 1, rank.queues + 5))
        rank.queues += 4
        around = network.sizes("embedding", plan.tensor) if self.is_first else ()
        around += network.sizes("head", plan.tensor) if self.is_last else ()
        self.root = Group(self, around) if around else None
        sizes = network.sizes("layer", plan.tensor)
        count = network.shape.layers // (last + 1)
        self.layers = [Group(self, sizes) for _ in range(count)]
        self.order: list[Group] = []
        self.pending: tuple[Group, Moment] | None = None
        self.reducing: list[tuple[Group, Meeting]] = []
        self.ends: dict[int, Moment] = {}
        self._stretches: dict[tuple[str, str], Stretch] = {}
        # The microbatches whose scores are there, those that are done, and the latest.
        self.scores: set[int] = set()
        self.done: set[int] = set()
        self.latest = -1
        self.pipelined = plan.pipeline > 1
        self.backwards = 0

    def __iter__(self) -> Iterator["Group"]:
        return iter([*filter(None, [self.root]), *self.layers])

    def do(self, action: Action) -> None:
        kind = action.kind
        if kind == FORWARD:
            self._forward(action.batch)
        elif kind == BACKWARD:
            self._backward(action.batch)
        elif kind == REDUCE and self.pipelined:
            for group in self:
                group.finish(True, True)
            self._finalize()
        elif kind == GATHER:
            for group in self:
                group.gather(True)
        elif kind == FREE:
            for group in self:
                group.free()

    # -------------------------------------------------------------- forward, backward

    def _run(
        self, part: str, way: str, batch: int, group: "Group | None" = None
    ) -> None:
        """Run what was recorded of a part, whose parameters are those of a group."""
        setting, rank = self.setting, self.rank
        segment, _ = setting.segment(part, way)
        self.memory.reach(segment.most, max(0, segment.kept))
        self.memory.add(ACTIVATIONS, segment.kept)
        if segment.gradients:
            group.has_new(segment.gradients)
        plan, name = setting.plan, f"{way} {batch + 1}"
        stretch = self._stretches.get((part, name))
        if stretch is None:
            stretch = self._stretches[part, name] = setting.prices.stretch(
                *(name, rank.clock, rank.tensor, setting.network, part, way),
                *(plan.tensor, plan.sequences, plan.checkpoint),
            )
        rank.note(stretch)

    def _forward(self, batch: int) -> None:
        self._let_go_of_scores(self.latest)
        self.latest = batch
        for group in self:  # what the runtime of an interleaved schedule gathers
            group.wait_if_early()
        self._let_wait(self.streams[:2])
        if self.root is not None:
            self.root.before_forward()
        if self.is_first:
            self._run("embedding", FORWARD, batch)
        for layer in self.layers:
            layer.before_forward()
            self._run("layer", FORWARD, batch)
            layer.after_forward()
        if self.is_last:
            self._run("head", FORWARD, batch)
        if self.root is not None:
            self.order.append(self.root)
            self.root.places.append(len(self.order) - 1)
        if self.pending is not None:
            self._free_pending()
        if self.is_last:
            self._run("loss", FORWARD, batch)
            if self.pipelined:
                self.memory.add(ACTIVATIONS, self.setting.scores)
                self.scores.add(batch)

    def _backward(self, batch: int) -> None:
        plan = self.setting.plan
        self.backwards += 1
        last = self.backwards == plan.microbatches
        syncs = not self.pipelined and (plan.zero > 1 or last)
        frees = syncs
        for group in self:
            group.wait_if_early()
        if self.is_last:
            self._run("loss", BACKWARD, batch)
        else:  # the gradient stays where it was received
            self.memory.add(ACTIVATIONS, self.setting.between)
        if self.root is not None:
            self.root.before_backward()
        if self.is_last:
            self._run("head", BACKWARD, batch, self.root)
        for layer in reversed(self.layers):
            layer.before_backward()
            if layer is self.layers[0] and not self.is_first:
                # The input stays where it was received.
                self.memory.add(ACTIVATIONS, self.setting.between)
            self._run("layer", BACKWARD, batch, layer)
            layer.finish(syncs, frees)
        if self.is_first:
            self._run("embedding", BACKWARD, batch, self.root)
        if self.root is not None:
            self.root.finish(syncs, frees)
        if not self.is_last:  # now its output is freed
            self.memory.add(ACTIVATIONS, -self.setting.between)
        self.done.add(batch)
        if batch != self.latest:
            self._let_go_of_scores(batch)
        if not self.pipelined:
            self._finalize()

    def _let_go_of_scores(self, batch: int) -> None:
        """Free a microbatch's scores, which PyTorch keeps until after its backward.

        The latest ones are also kept until the next ones are there.
        """
        if batch in self.scores and batch in self.done:
            self.scores.remove(batch)
            self.memory.add(ACTIVATIONS, -self.setting.scores)

    def sent(self) -> None:
        """The gradient of the stage's input is on its way, and isn't needed here."""
        self.memory.add(ACTIVATIONS, -self.setting.between)

    def _finalize(self) -> None:
        """Wait for all gradients, at the end of a backward or of a step."""
        for moment in self.ends.values():
            self.rank.note(Await(moment, REDUCING))
        self.ends.clear()
        self.order.clear()
        for group in self:
            group.places.clear()
        self.let_reduced()
        self._let_go_of_scores(self.latest)

    def begin_again(self) -> None:
        """Forget a step: its gradients are freed."""
        for group in self:
            group.forget()
        self.done.clear()
        self.latest, self.backwards = -1, 0

    # -------------------------------------------------------------- streams

    def _let_wait(self, streams: Iterable[int]) -> Moment:
        """Let streams wait for what the main one has been asked for."""
        moment = Moment()
        self.rank.note(Record(moment))
        for stream in streams:
            self.rank.note(StreamWaits(moment), stream)
        return moment

    def copied(self, group: "Group", later: bool) -> None:
        """Free the gathered copy of a group, or let the next one free it."""
        if later:
            moment = Moment()
            self.rank.note(Record(moment))
            self.pending = group, moment
        else:
            self._let_wait(self.streams[:2])
            self.memory.add(TEMPORARY, -group.whole)

    def _free_pending(self) -> None:
        group, moment = self.pending
        for stream in self.streams[:2]:
            self.rank.note(StreamWaits(moment), stream)
        self.memory.add(TEMPORARY, -group.whole)
        self.pending = None

    def take_pending(self) -> tuple["Group", Moment] | None:
        found, self.pending = self.pending, None
        if found is not None:
            for stream in self.streams[:2]:
                self.rank.note(StreamWaits(found[1]), stream)
        return found

    def let_reduced(self) -> None:
        """Wait until the last gradients are reduced, and free what was sent of them."""
        for group, meeting in self.reducing:
            self.rank.note(Await(meeting.done, REDUCING))
            self.memory.add(TEMPORARY, -group.sent)
        self.reducing.clear()


class Group:
    """Parameters that are gathered and reduced together, as those of a layer.

    Attributes:
        shard: how many numbers this rank has of them.
        kept: bytes of the shard, in fp32.
        whole: bytes of all of them, as they are gathered in bf16.
        sent: bytes of their gradients, as they are reduced in fp32.
        places: in the order of its stage.
    """

    def __init__(self, stage: Stage, sizes: Sequence[Size]):
        self.stage, self.rank, self.memory = stage, stage.rank, stage.memory
        self.sizes, n = sizes, len(stage.rank.shards)
        # A rank's rows are as many as any rank's.
        self.parts = [-(-size.rows // n) * size.columns for size in sizes]
        self.shard = sum(self.parts)
        self.kept = sum(block(part * SINGLE) for part in self.parts)
        self.whole = block(self.shard * n * HALF)
        self.sent = block(self.shard * n * SINGLE)
        self.unsharded = sum(block(size.numbers * HALF) for size in sizes)
        self.accumulated = sum(block(size.made * SINGLE) for size in sizes)
        self.numbers = sum(size.numbers for size in sizes)
        self.places: list[int] = []
        self.is_whole = self.has_sum = self.has_gradient = False
        self.new = 0  # bytes of gradients as backward has left them
        self.freed = 0  # those of them, or of their sums, that are already free
        self.asked: Meeting | None = None
        self.early = False

    # -------------------------------------------------------------- parameters

    def gather(self, early: bool = False) -> None:
        """Ask for the parameters of all shards, unless they are there.

        Args:
            early: whether that's on the main stream, as an interleaved schedule does.
        """
        if self.is_whole or self.asked is not None or self.early:
            return
        self.early = early
        if len(self.rank.shards) == 1:
            return
        copy, gather = (MAIN, MAIN) if early else self.stage.streams[:2]
        flat = block(self.shard * HALF)
        self.memory.add(TEMPORARY, flat)
        self.memory.add(TEMPORARY, self.whole)
        self._kernels(
            "copy", GATHERING, copy, *(x * self.shard for x in (CAST, COPIED))
        )
        if not early:
            moment = Moment()
            self.rank.note(Record(moment), copy)
            self.rank.note(StreamWaits(moment), gather)
        self.asked = self.rank.meet(
            "all_gather",
            self.shard * len(self.rank.shards) * HALF,
            self.rank.shards,
            gather,
            GATHERING,
        )
        self.memory.add(TEMPORARY, -flat)

    def _wait(self, forward: bool) -> None:
        """Wait for the parameters, and copy them to where they are used."""
        if self.is_whole:
            return
        before = self.stage.take_pending() if forward else None
        if self.asked is None:  # this rank has all of them
            self.memory.reach(block(max(s.numbers for s in self.sizes) * HALF))
            self.memory.add(GATHERED, self.unsharded)
            each = [n * s.numbers for s in self.sizes for n in (TO_HALF, COPIED)]
            self._kernels("copy", GATHERING, MAIN, *each)
            self.stage._let_wait(self.stage.streams[:2])
        else:
            self.rank.note(Await(self.asked.done, GATHERING))
            self.memory.add(GATHERED, self.unsharded)
            n = len(self.rank.shards) * self.shard
            self._kernels("copy", GATHERING, MAIN, COPIED * n)
            self.stage.copied(self, forward and not self.early)
        if before is not None:
            self.memory.add(TEMPORARY, -before[0].whole)
        self.asked, self.is_whole, self.early = None, True, False

    def wait_if_early(self) -> None:
        if self.early:
            self._wait(False)

    def before_forward(self) -> None:
        if not self.is_whole:
            self.gather()
            self._wait(True)

    def after_forward(self) -> None:
        if self.stage.setting.plan.zero == 3:
            self.free()
        self.stage.order.append(self)
        self.places.append(len(self.stage.order) - 1)

    def before_backward(self) -> None:
        self.gather()
        self._wait(False)
        if self.places:
            place = self.places.pop()
            if place > 0:
                self.stage.order[place - 1].gather()

    def free(self) -> None:
        if self.is_whole:
            self.memory.add(GATHERED, -self.unsharded)
            self.is_whole = False

    # -------------------------------------------------------------- gradients

    def has_new(self, nbytes: int) -> None:
        """Count gradients that backward leaves, in bf16."""
        self.new += nbytes
        self.memory.add(GRADIENTS, nbytes)

    def forget(self) -> None:
        """Free the gradients of a step."""
        if self.has_gradient:
            self.memory.add(GRADIENTS, -block(self.shard * SINGLE))
            self.has_gradient = False

    def _frees_new(self) -> None:
        self.memory.add(GRADIENTS, -self.new)
        self.new = 0

    def finish(self, syncs: bool, frees: bool) -> None:
        """Do what's to be done with gradients after a backward.

        Args:
            syncs: whether they are reduced over shards and replicas now, or added up.
            frees: whether parameters are freed.
        """
        added = self.has_sum
        if added and not (syncs and self.stage.pipelined):
            each = [ADDED * size.made for size in self.sizes]
            self._kernels("add", REDUCING, MAIN, *each)
            self._frees_new()
        cut = self._divide(added) if syncs else 0
        if frees:
            self.free()
        if not syncs:
            if not added:
                self.memory.add(GRADIENTS, self.accumulated)
                self._frees_new()
                each = [TO_SINGLE * size.made for size in self.sizes]
                self._kernels("copy", REDUCING, MAIN, *each)
                self.has_sum = True
            return
        self._reduce(added)
        self.memory.add(TEMPORARY, -cut)

    def _divide(self, added: bool) -> int:
        """Divide gradients over the GPUs of a tensor as parameters are.

        Returns:
            the bytes of what was cut out.
        """
        width, cut = SINGLE if added else HALF, 0
        for size in self.sizes:
            if size.sums:
                summed = self.rank.meet(
                    *("all_reduce", size.numbers * width, self.rank.tensor, MAIN),
                    TENSOR,
                )
                self.rank.note(Await(summed.done, TENSOR))
            elif size.cut:
                nbytes = block(size.numbers * width)
                self.memory.add(TEMPORARY, nbytes)
                self._kernels("cut", REDUCING, MAIN, 2 * width * size.numbers)
                self.memory.add(GRADIENTS, -block(size.made * width))
                self.freed += block(size.made * width)
                cut += nbytes
        return cut

    def _reduce(self, added: bool) -> None:
        stage, rank, n = self.stage, self.rank, len(self.rank.shards)
        stage.let_reduced()
        self.memory.add(TEMPORARY, self.sent)
        width = SINGLE if added else HALF
        moving = width * self.numbers + WRITTEN * self.shard * n
        self._kernels("copy", REDUCING, MAIN, moving)
        if added:
            self.memory.add(GRADIENTS, -self.accumulated)
        self._frees_new()
        self.memory.add(GRADIENTS, self.freed)
        self.has_sum, self.freed = False, 0
        *_, stream, last = stage.streams
        stage._let_wait([stream])
        result = block(self.shard * SINGLE)
        self.memory.add(GRADIENTS, result)
        meeting = None
        if n > 1:
            meeting = rank.meet(
                *("reduce_scatter", self.shard * n * SINGLE, rank.shards, stream),
                REDUCING,
            )
            rank.note(StreamWaits(meeting.done), stream)
        else:
            self._kernels("copy", REDUCING, stream, 2 * SINGLE * self.shard)
        if meeting is not None:
            stage.reducing.append((self, meeting))
        else:
            moment = Moment()
            rank.note(Record(moment), stream)
            stage.reducing.append((self, _Done(moment)))
        if len(rank.replicas) > 1:
            moment = Moment()
            rank.note(Record(moment), stream)
            rank.note(StreamWaits(moment), last)
            stream = last
            summed = rank.meet(
                *("all_reduce", self.shard * SINGLE, rank.replicas, stream), REDUCING
            )
            rank.note(StreamWaits(summed.done), stream)
        if self.has_gradient:
            each = [SUMMED * part for part in self.parts]
            self._kernels("add", REDUCING, stream, *each)
            self.memory.add(GRADIENTS, -result)
        self.has_gradient = True
        stage.ends[stream] = Moment()
        rank.note(Record(stage.ends[stream]), stream)

    def _kernels(self, name: str, purpose: str, stream: int, *nbytes: float) -> None:
        found = self.stage.setting.prices.moving(
            f"{name} for {purpose}", purpose, nbytes
        )
        self.rank.note(found, stream)


@dataclass(slots=True)
class _Done:
    """What takes the place of a meeting where there's nobody to meet."""

    done: Moment
