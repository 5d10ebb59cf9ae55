"""Replicas of a network that train together, replayed from a recording.

    from d2l_gpu.vgpu.sim.plans import Machine
    from d2l_gpu.vgpu.sim.replicas import simulate

    simulate("ResNet-18", Machine(nodes=2, gpus=8, model="V100"), batch=256)

A recording (``recordings/networks.py``) says what a rank issues when PyTorch trains the
network, with ``DistributedDataParallel`` on several GPUs. Here the same clock and the
same allocator as in ``vgpu.cluster`` work it off, so a step takes the same time, to the
picosecond, and the same memory, to the byte. That takes milliseconds instead of
seconds, and needs nothing but Python.
"""

from collections import Counter
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import NamedTuple

from .allocator import CachingAllocator, OutOfMemory
from .caching import workspace_bytes
from .catalogue import Model as Processor
from .catalogue import choose
from .clock import HOST, PICO, Kernel
from .cluster import Meeting, Recorder, resolve
from .commands import CopyCommand, HostWaits, StreamWaits
from .critical_path import COMPUTING, HOSTED, critical_path
from .machine import Machine as Devices
from .memory_use import CATEGORIES, OTHER, Holding, MemoryUse
from .plan_results import CAUSES as CAUSES_OF_PLANS
from .plan_results import MOSTLY, NOUNS
from .plans import Machine
from .recordings.networks import (
    BUCKETS,
    FILES,
    IMAGES,
    PRECISIONS,
    Network,
    kernels,
    memory,
    network,
    words,
)
from .timeline import RanksTimeline, merged
from .units import size_text, time_text
from .words import shown

__all__ = ["FILES", "PRECISIONS", "Network", "Outcome", "network", "simulate"]

# What memory is for, from what stays to what comes and goes.
WORKSPACES = "workspaces"
KINDS = (*CATEGORIES[:3], WORKSPACES, BUCKETS, IMAGES, *CATEGORIES[3:])

# What a step is spent on, by how its collectives are called.
SUMMING, SENDING, COPYING = "summing gradients", "sending buffers", "copying"
PURPOSES = {"all-reduce": SUMMING, "broadcast": SENDING}
CAUSES = {
    SUMMING: "Summing the gradients takes longer than the backward that hides it: "
    "waiting for it takes {share} of the step.",
    SENDING: "Sending the running averages of batch normalization to all GPUs takes "
    "{share} of the step.",
    COPYING: "Copying between host and GPU takes {share} of the step.",
    HOSTED: CAUSES_OF_PLANS[HOSTED],
}

ENDLESS = 10**15  # bytes, of a memory in which everything fits


class Usage(NamedTuple):
    """What a program's memory takes.

    Attributes:
        blocks: bytes of what it gets, one after the other.
        peak: bytes at the peak, by what they are for.
        reserved: the most bytes that the allocator takes from the GPU.
    """

    blocks: tuple[int, ...]
    peak: Mapping[str, int]
    reserved: int

    @property
    def allocated(self) -> int:
        """The most bytes that are allocated at a time."""
        return sum(self.peak.values())


@lru_cache(maxsize=64)
def usage(
    name: str, precision: str, alone: bool, batch: int, workspace: int, capacity: int
) -> Usage | None:
    """Let PyTorch's allocator serve a program.

    Args:
        alone: whether there's only one GPU.
        workspace: bytes of each of cuBLAS.
        capacity: of the GPU.
    Returns:
        what it takes, None if it doesn't fit.
    """
    sizes, allocator = memory(name, batch), CachingAllocator(capacity)
    blocks, living = [], []
    now: Counter[str] = Counter()
    total = highest = reserved = 0
    peak: dict[str, int] = {}
    try:
        for what, value in words(name, precision, 1 if alone else 2):
            if what == "free":
                block, purpose = living[-value]
                now[purpose] -= block.size  # before it's joined to its neighbours
                total -= block.size
                allocator.free(block)
            elif what in ("get", "workspace"):
                nbytes, purpose = (
                    sizes[value] if what == "get" else (workspace, WORKSPACES)
                )
                block = allocator.malloc(nbytes)
                blocks.append(block.size)
                if what == "get":
                    living.append((block, purpose))
                now[purpose] += block.size
                total += block.size
                if total > highest:
                    highest, peak = total, dict(now)
                reserved = max(reserved, allocator.reserved)
    except OutOfMemory:
        return None
    found = {kind: peak[kind] for kind in KINDS if peak.get(kind)}
    return Usage(tuple(blocks), found, reserved)


class Outcome:
    """What a step of training takes, simulated; see ``simulate``.

    Attributes:
        network: the network that is trained.
        machine: the GPUs that train it.
        batch: the images of each GPU in a step.
        precision: the type of number of products and convolutions.
        fits: whether the memory of each GPU is enough.
        usage: what each GPU's memory is used for.
    """

    def __init__(self, network: Network, machine: Machine, batch: int, precision: str):
        self.network, self.machine = network, machine
        self.batch, self.precision = batch, precision
        processor = machine.processor
        about = (
            *(network.name, precision, machine.world_size == 1, batch),
            workspace_bytes(processor.capability),
        )
        roomy = usage(*about, ENDLESS)
        found = roomy
        if roomy.reserved > machine.capacity:
            found = usage(*about, machine.capacity)
        self.fits = found is not None
        self.usage = found or roomy

    def __repr__(self) -> str:
        lines = [
            f"{self.network.title}, {self.batch} images per GPU in {self.precision}, "
            f"on {self.machine}, simulated",
            f"{time_text(self.seconds)} a step, {self.rate:,.0f} images/s",
            self.limits if self.fits else self.reason,
        ]
        return "\n".join(map(shown, lines))

    # -------------------------------------------------------------- times

    @cached_property
    def _replayed(self) -> tuple[Recorder, MemoryUse]:
        return _replay(self)

    @cached_property
    def _clock(self) -> Recorder:
        return self._replayed[0]

    @property
    def _begin(self) -> int:
        return self._clock.steps[-2][1].time

    @property
    def _end(self) -> int:
        return self._clock.steps[-1][1].time

    @property
    def picoseconds(self) -> int:
        """Picoseconds of a step."""
        return self._end - self._begin

    @property
    def seconds(self) -> float:
        """Seconds of a step."""
        return self.picoseconds / PICO

    @property
    def rate(self) -> float:
        """Images per second, all GPUs together."""
        return self.batch * self.machine.world_size / self.seconds

    # -------------------------------------------------------------- memory

    @property
    def memory(self) -> list[dict[str, int]]:
        """Bytes of each GPU at the peak of the program, by what they are for."""
        return [dict(self.usage.peak)]

    @property
    def allocated(self) -> int:
        """The most bytes that are allocated on a GPU at a time."""
        return self.usage.allocated

    @property
    def reason(self) -> str:
        """A sentence on why it doesn't fit; empty if it does."""
        if self.fits:
            return ""
        missing = self.allocated - self.machine.capacity
        needs = f"Each GPU needs {size_text(self.allocated)}"
        largest = max(self.usage.peak, key=self.usage.peak.get)
        largest = NOUNS.get(largest, largest)
        if missing <= 0:
            return (
                f"{needs} of its {size_text(self.machine.capacity)}, but not enough of "
                "what is free is in one piece."
            )
        return (
            f"{needs}, {size_text(missing)} more than there is. The largest part is "
            f"for {largest}."
        )

    # -------------------------------------------------------------- limits

    @cached_property
    def shares(self) -> dict[str, float]:
        """What a step is spent on, as shares of it; they add up to 1.

        It's the chain of work that nothing shortens, from the end of the step back.
        """
        found: Counter[str] = Counter()
        for name, _, time in critical_path({0: self._clock}, self._begin, self._end):
            kind = name.partition(",")[0]
            found[PURPOSES.get(kind, kind) if "→" not in kind else COPYING] += time
        return {name: time / self.seconds for name, time in found.most_common()}

    @property
    def limit(self) -> str:
        """What limits the speed: ``"computing"`` or a key of ``CAUSES``."""
        shares = dict(self.shares)
        if shares.pop(COMPUTING, 0.0) >= MOSTLY or not shares:
            return COMPUTING
        return max(shares, key=shares.get)

    @property
    def limits(self) -> str:
        """A sentence on what limits the speed, and by how much."""
        share = f"{self.shares[self.limit]:.0%}"
        if self.limit == COMPUTING:
            return f"Computing takes {share} of the step."
        return CAUSES[self.limit].format(share=share)

    # -------------------------------------------------------------- drawings

    def timeline(self, title: str = "", subtitle: str = "") -> RanksTimeline:
        """Return a drawing of what a rank did in the step; all do the same.

        Args:
            title: what the drawing shows, as a finding; default: how long it took.
            subtitle: the conditions; how long it took and *simulated* are added.
        """
        of_rank = merged({0: (self._clock, 0)}, self._begin, self._end)
        label = f"a step, simulated ({self.machine.processor.name})"
        return RanksTimeline(of_rank, label, title, subtitle)

    def memory_use(self) -> MemoryUse:
        """Return what a GPU's memory is used for during the step."""
        return self._replayed[1]

    def memory_picture(self) -> str:
        """Return the same as a picture, the text of an SVG file."""
        return self.memory_use().svg()


def simulate(
    trained: Network | str, machine: Machine, batch: int, precision: str = "fp32"
) -> Outcome:
    """Simulate a step of training in which each GPU has a replica of a network.

    It's the last of four steps, and all that follow are like it.

    Args:
        trained: a network, or its name in ``FILES``.
        batch: the images of each GPU in a step.
        precision: of products and convolutions: ``"fp32"``, ``"tf32"``, or with
            autocast ``"fp16"`` or ``"bf16"``.

    Raises:
        ValueError: there's no such network or precision, or no image. If it only needs
            more memory than the GPUs have, the result says so.
    """
    if isinstance(trained, str):
        trained = network(trained)
    choose("precision", precision, PRECISIONS)
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise ValueError(f"A batch must have at least 1 image, but got {batch!r}.")
    return Outcome(trained, machine, batch, precision)


# ------------------------------------------------------------------ replay

# What kernels take, by network, batch, precision and GPU: the latest ones.
_prices: dict[tuple, tuple[Processor, dict[tuple, Kernel]]] = {}


def _priced(name: str, batch: int, precision: str, processor: Processor) -> dict:
    """Return all kernels with what they take on a GPU, by their keys."""
    key = name, batch, precision, processor.name
    known, found = _prices.get(key, (None, {}))
    if known is not processor:
        works = kernels(name, batch, precision)
        found = {(i,): Kernel(work, processor) for i, work in enumerate(works)}
        if len(_prices) >= 32:
            _prices.clear()
        _prices[key] = processor, found
    return found


def _replay(outcome: Outcome) -> tuple[Recorder, MemoryUse]:
    """Let a rank's clock work off a recording, and take down its memory."""
    machine, name = outcome.machine, outcome.network.name
    processor, batch, precision = machine.processor, outcome.batch, outcome.precision
    works = kernels(name, batch, precision)
    clock = Recorder({0: processor}, machine.fabric.link, lambda key: works[key[0]])
    clock.fabric = machine.fabric
    clock.kernels[0] = dict(_priced(name, batch, precision, processor))
    use = MemoryUse(Devices(1, machine.capacity, clock=clock), 0, "each GPU")
    ranks, blocks = tuple(range(machine.world_size)), iter(outcome.usage.blocks)
    sizes = memory(name, batch)
    living: list[Holding] = []
    asked: list[Meeting] = []
    for what, value in words(name, precision, len(ranks)):
        if what == "kernel":
            clock.note(value, 0, 0)
        elif what == "get":
            living.append(Holding())
            purpose = sizes[value][1]
            living[-1].category = purpose if purpose in CATEGORIES else OTHER
            use.replay(living[-1], next(blocks))
        elif what == "free":
            use.replay(living[-value], -living[-value].nbytes)
        elif what == "phase":
            use.replay(None, 0, value)
        elif what == "meet":
            kind, nbytes = value
            asked.append(clock.meet(kind, nbytes, ranks, 0, 0))
        elif what == "wait":
            clock.note(StreamWaits(asked[-value].done), 0, 0)
        elif what == "copy":
            clock.note(_copy(*value), 0, 0)
        elif what == "synchronize":
            clock.note(HostWaits([0]), 0, 0)
        elif what == "step":
            clock.step_ends(0, 0)
        else:
            workspace = Holding()
            workspace.category = OTHER
            use.replay(workspace, next(blocks))
    clock.finish()
    resolve({0: clock})
    begin, end = (moment.time for _, moment in clock.steps[-2:])
    use.between(begin, end)
    clock.origin = begin
    return clock, use


def _copy(way: str, nbytes: int, pinned: bool, blocking: bool) -> CopyCommand:
    ends = (HOST, 0) if way == "in" else (0, HOST)
    return CopyCommand(nbytes, *ends, pinned, blocking, (0, 0))
