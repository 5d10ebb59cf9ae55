"""What a plan would do: time, memory, what limits it, and a timeline."""

import html
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from .clock import PICO
from .cluster import resolve
from .critical_path import HOSTED, path_table
from .plan_commands import (
    COMPUTING,
    GATHERING,
    PIPELINE,
    REDUCING,
    TENSOR,
    UPDATING,
)
from .plan_stages import CATEGORIES, Rank
from .recordings import Model
from .report import needed_share
from .table import Table
from .timeline import RanksTimeline, merged
from .units import size_text, time_text
from .words import shown

if TYPE_CHECKING:
    from .plans import Machine, Plan

# A step in which a GPU waits for its host for more than this share is simulated twice.
WAITED = 0.003

# When computing takes so much of the step, nothing else limits it.
MOSTLY = 0.8

CAUSES = {
    PIPELINE: "Waiting for other stages, the pipeline's bubble, takes {share} of the "
    "step.",
    GATHERING: "Gathering parameters takes longer than the layers that hide it: "
    "waiting for it takes {share} of the step.",
    REDUCING: "Reducing gradients takes longer than the layers that hide it: waiting "
    "for it takes {share} of the step.",
    TENSOR: "The collectives inside the layers, of tensor parallelism {where}, take "
    "{share} of the step.",
    UPDATING: "The optimizer takes {share} of the step.",
    HOSTED: "The host issues work more slowly than the GPU does it: waiting for it "
    "takes {share} of the step.",
}


# What sentences call a category of memory, where that isn't a noun.
NOUNS = {"temporary": "temporary tensors"}


class Outcome:
    """What a plan would do on a machine, simulated.

    Args:
        composed: returns the ranks of a pipeline, which have issued so many steps, and
            whose clocks keep what can be drawn, or don't.
    Attributes:
        network: the model that was simulated.
        plan: how it's divided.
        machine: the GPUs that it's divided over.
        ranks: the number of one rank of each place in the pipeline.
        memory: the bytes by category of each rank of the pipeline, at its peak.
    """

    def __init__(
        self,
        network: Model,
        plan: "Plan",
        machine: "Machine",
        composed: Callable[[int, bool], list[Rank]],
    ):
        self.network, self.plan, self.machine = network, plan, machine
        # The first ranks of a pipeline begin a step while the last ones end another.
        self._composed, self._steps = composed, 2 if plan.pipeline > 1 else 1
        ranks = composed(self._steps, False)
        self.memory = [rank.memory.peak for rank in ranks]
        self.ranks = [rank.first for rank in ranks]
        if self.fits:  # other plans' times are seldom asked for
            self._times = self._timed(ranks)

    def __repr__(self) -> str:
        lines = [
            f"{self.network.name} on {self.machine}, simulated",
            str(self.plan),
            f"{time_text(self.seconds)} a step, {self.tokens_per_second:,.0f} "
            f"tokens/s, MFU {self.mfu:.1%}",
            self.limits if self.fits else self.reason,
        ]
        said = "\n".join(map(shown, lines))
        return f"{said}\n\n{self.times()!r}\n\n{self.memories()!r}"

    def _repr_html_(self) -> str:
        first, *_ = repr(self).split("\n\n")
        lines = "<br>".join(html.escape(line) for line in first.split("\n"))
        tables = (self.times(), self.memories())
        return f"<p>{lines}</p>" + "".join(x._repr_html_() for x in tables)

    # -------------------------------------------------------------- times

    @cached_property
    def _times(self) -> "_Times":
        return self._timed(self._composed(self._steps, False))

    def _timed(self, ranks: list[Rank]) -> "_Times":
        times = _Times(ranks)
        if self._steps == 1 and times.waited_for_host > WAITED:
            # From the second step on, the host is ahead.
            self._steps = 2
            times = _Times(self._composed(self._steps, False))
        return times

    def _drawn(self) -> tuple[list[Rank], "_Times"]:
        """Return the ranks with what their clocks have kept."""
        self._times  # noqa: B018 (finds out how many steps it takes)
        ranks = self._composed(self._steps, True)
        return ranks, _Times(ranks)

    @property
    def picoseconds(self) -> int:
        """Picoseconds of a step."""
        return self._times.end - self._times.begin

    @property
    def seconds(self) -> float:
        """Seconds of a step."""
        return self._times.seconds

    @property
    def spent(self) -> list[dict[str, float]]:
        """The seconds of a step by what they are for, for each rank of the pipeline.

        They add up to the step.
        """
        return self._times.spent

    # -------------------------------------------------------------- rates

    @property
    def tokens(self) -> int:
        """Tokens of a step, all GPUs together."""
        return self.plan.batch * self.network.shape.length

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second, all GPUs together."""
        return self.tokens / self.seconds

    @property
    def rate(self) -> float:
        """The same as ``tokens_per_second``."""
        return self.tokens_per_second

    @property
    def mfu(self) -> float:
        """What the model needs, as a share of what the GPUs could do at peak in bf16.

        It's six operations for each parameter and token, as in ``Run.mfu``.
        """
        peak = self.machine.processor.rate("bf16", tensor=True)
        peak *= self.machine.world_size
        parameters = self.network.parameters
        return needed_share(parameters, self.tokens, self.seconds, peak)

    # -------------------------------------------------------------- memory

    @property
    def allocated(self) -> int:
        """The most bytes of any rank."""
        return max(sum(found.values()) for found in self.memory)

    @property
    def fits(self) -> bool:
        """Whether all ranks have enough memory.

        A real run needs some more, because free memory is in pieces.
        """
        return self.allocated <= self.machine.capacity

    @property
    def reason(self) -> str:
        """A sentence on the rank that hasn't enough memory; empty if it fits."""
        if self.fits:
            return ""
        sizes = [sum(found.values()) for found in self.memory]
        place = sizes.index(max(sizes))
        where = f"Rank {place} of the pipeline" if len(sizes) > 1 else "Each GPU"
        largest = max(self.memory[place], key=self.memory[place].get)
        missing = size_text(sizes[place] - self.machine.capacity)
        return (
            f"{where} needs {size_text(sizes[place])}, {missing} more than there is. "
            f"The largest part is for {NOUNS.get(largest, largest)}."
        )

    # -------------------------------------------------------------- limits

    @property
    def twice(self) -> float:
        """The share of the step in which the busiest rank recomputes activations."""
        return self._times.again[self._busiest] / self.seconds

    @property
    def _busiest(self) -> int:
        times = [found.get(COMPUTING, 0.0) for found in self.spent]
        return times.index(max(times))

    @property
    def limit(self) -> str:
        """What limits the speed, which is ``"computing"`` or a key of ``CAUSES``."""
        shares = self.shares
        if shares.pop(COMPUTING, 0.0) >= MOSTLY:
            return COMPUTING
        return max(shares, key=shares.get)

    @property
    def shares(self) -> dict[str, float]:
        """What the busiest rank spends the step on, as shares of it."""
        found = self.spent[self._busiest]
        return {what: time / self.seconds for what, time in found.items()}

    @property
    def limits(self) -> str:
        """A sentence on what limits the speed, and by how much."""
        cause, shares = self.limit, self.shares
        if cause == COMPUTING:
            again = f", {self.twice:.0%} a second time" if self.twice > 0.01 else ""
            return f"Computing takes {shares[COMPUTING]:.0%} of the step{again}."
        group = range(self.plan.tensor)
        several = self.machine.fabric.group(group).nodes > 1
        where = "over the network" if several else "inside a node"
        return CAUSES[cause].format(share=f"{shares[cause]:.0%}", where=where)

    def critical_path(self) -> Table:
        """Return what the step took its time for: the chain that nothing shortens."""
        ranks, times = self._drawn()
        clocks = {rank.first: rank.clock for rank in ranks}
        return path_table(clocks, times.begin, times.end)

    # -------------------------------------------------------------- tables, drawings

    def times(self) -> Table:
        """Return what each rank of the pipeline spends its time on."""
        names = list(dict.fromkeys(k for found in self.spent for k in found))
        return Table(
            ["rank", *names],
            [
                [
                    str(rank),
                    *(f"{found.get(name, 0) / self.seconds:.1%}" for name in names),
                ]
                for rank, found in zip(self.ranks, self.spent, strict=True)
            ],
            ["rank", *names],
        )

    def memories(self) -> Table:
        """Return the memory of each rank of the pipeline at its peak."""
        names = [k for k in CATEGORIES if any(found.get(k) for found in self.memory)]
        return Table(
            ["rank", "together", *names],
            [
                [
                    str(rank),
                    size_text(sum(found.values())),
                    *(size_text(found.get(name, 0)) for name in names),
                ]
                for rank, found in zip(self.ranks, self.memory, strict=True)
            ],
            ["rank", "together", *names],
        )

    def memory_picture(self) -> None:
        """There's no picture of a plan's memory: it's known at the peak only."""

    def timeline(self, title: str = "", subtitle: str = "") -> RanksTimeline:
        """Return a drawing of what the ranks of one pipeline did.

        Args:
            title: what the drawing shows, as a finding; default: how long it took.
            subtitle: the conditions; how long it took and *simulated* are added.
        """
        ranks, times = self._drawn()
        clocks = {rank.first: (rank.clock, 0) for rank in ranks}
        label = f"a step, simulated ({self.machine.processor.name})"
        of_ranks = merged(clocks, times.begin, times.end)
        return RanksTimeline(of_ranks, label, title, subtitle)


class _Times:
    """What the ranks of a plan take for a step: the last one that they were asked for.

    Attributes:
        begin, end: in picoseconds.
        again: the seconds in which each rank computes what it has computed before.
    """

    def __init__(self, ranks: Sequence[Rank]):
        resolve({rank.first: rank.clock for rank in ranks})
        ends = [[moment.time for _, moment in rank.clock.steps] for rank in ranks]
        self.begin = max(times[-2] for times in ends) if len(ends[0]) > 1 else 0
        self.end = max(times[-1] for times in ends)
        self.seconds = (self.end - self.begin) / PICO
        self.spent = [self._spent(*each) for each in zip(ranks, ends, strict=True)]
        self.again = [rank.seconds_again() for rank in ranks]

    @property
    def waited_for_host(self) -> float:
        """The largest share of the step in which a GPU waits for its host."""
        return max(found[HOSTED] for found in self.spent) / self.seconds

    def _spent(self, rank: Rank, ends: list[int]) -> dict[str, float]:
        *before, last = rank.clock.laps
        times = last - (before[-1] if before else Counter())
        own = ends[-1] - (ends[-2] if before else 0)
        found = {**times, HOSTED: max(0, own - sum(times.values()))}
        # If others take longer, it waits for them, in the next step at the latest.
        if rank.setting.plan.pipeline > 1:
            more = self.end - self.begin - sum(found.values())
            found[PIPELINE] = max(0, found.get(PIPELINE, 0) + more)
        return {what: time / PICO for what, time in found.items()}


class Results:
    """Outcomes of several plans: those that fit by their speed, then the others."""

    def __init__(self, outcomes: Sequence[Outcome]):
        self._outcomes = sorted(
            outcomes,
            key=lambda each: (
                not each.fits,
                each.seconds if each.fits else each.allocated,
            ),
        )

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self._outcomes)

    def __len__(self) -> int:
        return len(self._outcomes)

    def __getitem__(self, place: int) -> Outcome:
        return self._outcomes[place]

    @property
    def best(self) -> Outcome | None:
        """The fastest plan that fits, None if none does."""
        return self._outcomes[0] if self._outcomes[0].fits else None

    def table(self, most: int | None = None) -> Table:
        """Return a line for each plan.

        Args:
            most: of the first ones; default: all.
        """
        numbers = ["step", "tokens/s", "MFU", "memory"]
        return Table(
            [*numbers, "plan", "what limits it"],
            [
                [
                    time_text(each.seconds) if each.fits else "",
                    f"{each.tokens_per_second:,.0f}" if each.fits else "",
                    f"{each.mfu:.1%}" if each.fits else "",
                    size_text(each.allocated),
                    str(each.plan),
                    each.limits if each.fits else each.reason,
                ]
                for each in self._outcomes[:most]
            ],
            numbers,
        )

    def __repr__(self) -> str:
        fitting = sum(each.fits for each in self)
        said = shown(f"{fitting} of {len(self)} plans fit")
        return f"{said}\n\n{self.table(12)!r}"

    def _repr_html_(self) -> str:
        first, _ = repr(self).split("\n\n", 1)
        return f"<p>{first}</p>{self.table(12)._repr_html_()}"
