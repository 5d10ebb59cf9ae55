"""What a program did on a cluster: times, memory, and what they were spent on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .saving import Timeline
from .sim.clock import PICO
from .sim.cluster import Recorder
from .sim.critical_path import path_table
from .sim.machine import Machine
from .sim.memory_use import MemoryUse
from .sim.report import Report, needed_share
from .sim.table import Table
from .sim.timeline import RanksTimeline, merged
from .sim.units import size_text, time_text
from .sim.words import shown

if TYPE_CHECKING:
    from .clusters import Cluster


@dataclass(frozen=True)
class RankUse:
    """What one rank did.

    Attributes:
        rank: its number.
        clock: its simulated clock, with what it did in the last step.
        machine: the devices of its node, of which it used one.
        index: the index of the device that it used.
        memory: what its memory was used for.
    """

    rank: int
    clock: Recorder
    machine: Machine
    index: int
    memory: MemoryUse

    @property
    def allocated(self) -> int:
        """The most bytes that were allocated at a time."""
        return self.machine.allocated(self.index)[1]

    @property
    def reserved(self) -> int:
        """The most bytes that the caching allocator had reserved at a time."""
        return self.machine.reserved(self.index)[1]

    def report(self) -> Report:
        """Return what the rank's device and links did in the last step, as tables."""
        return Report(self.clock, f"rank {self.rank}, simulated")


class ClusterTimeline(Timeline, RanksTimeline):
    """A drawing of what ran when on the devices of several ranks."""


class Run:
    """What a program did on a cluster. Times are those of its last step.

    A step ends when the optimizer has updated the parameters. A program without two
    steps is taken as a whole.

    Attributes:
        cluster: the cluster on which it ran.
        ranks: a ``RankUse`` of each rank that ran, by its number. The others do what
            one of these does.
        tokens: how many all ranks together process in a step, None if it wasn't said.
        parameters: how many the whole model has, None if it wasn't said.
        has_steps: whether times are those of a step, and not of the whole program.
    """

    def __init__(
        self,
        cluster: "Cluster",
        ranks: Mapping[int, RankUse],
        tokens: int | None = None,
        parameters: float | None = None,
    ):
        self.cluster, self.tokens, self.parameters = cluster, tokens, parameters
        self.ranks = dict(sorted(ranks.items()))
        clocks = [each.clock for each in self.ranks.values()]
        self.has_steps = all(len(clock.steps) > 1 for clock in clocks)
        if self.has_steps:
            begins, ends = (
                [clock.steps[i][1].time for clock in clocks] for i in (-2, -1)
            )
            self._begin, self._end = max(begins), max(ends)
            for each, begin, end in zip(self.ranks.values(), begins, ends, strict=True):
                each.memory.between(begin, end)
        else:
            self._begin = 0
            self._end = max(round(clock.elapsed() * PICO) for clock in clocks)
        for clock in clocks:
            clock.origin = self._begin

    @property
    def seconds(self) -> float:
        """Simulated seconds of the step."""
        return (self._end - self._begin) / PICO

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens per second of all ranks together."""
        return None if self.tokens is None else self.tokens / self.seconds

    @property
    def utilization(self) -> float:
        """The operations done, as a share of what the GPUs could do at peak (HFU).

        What is computed a second time because of activation checkpoints counts, too.
        """
        shares = []
        for each in self.ranks.values():
            report = each.report()
            at_peak = sum(use.share_of_peak for use in report.devices) * report.seconds
            shares.append(at_peak / self.seconds if self.seconds else 0.0)
        return sum(shares) / len(shares)

    @property
    def mfu(self) -> float | None:
        """The operations that a model needs, as a share of the GPUs' peak (MFU).

        Those are six for each parameter and token; attention isn't counted. The peak is
        that of tensor cores in 16 bits. None without tokens and parameters.
        """
        if self.tokens is None or self.parameters is None:
            return None
        model = self.cluster.model
        peak = max(model.rate(kind, True) for kind in ("bf16", "fp16"))
        peak *= self.cluster.world_size
        return needed_share(self.parameters, self.tokens, self.seconds, peak)

    def critical_path(self) -> Table:
        """Return what the step took its time for.

        From its end back, it's the chain of work of which each piece had to wait for
        the one before, on whatever rank that was.
        """
        clocks = {rank: each.clock for rank, each in self.ranks.items()}
        return path_table(clocks, self._begin, self._end)

    def memory(self) -> Table:
        """Return the memory at each rank's peak, by category."""
        found = {rank: each.memory.peak for rank, each in self.ranks.items()}
        names = list(dict.fromkeys(k for x in found.values() for k in x if x[k]))
        head = ["rank", "most allocated", "most reserved", "in the step", *names]
        return Table(
            head,
            [
                [
                    str(rank),
                    size_text(each.allocated),
                    size_text(each.reserved),
                    size_text(sum(found[rank].values())),
                    *(size_text(found[rank].get(name, 0)) for name in names),
                ]
                for rank, each in self.ranks.items()
            ],
            head,
        )

    def timeline(self, title: str = "", subtitle: str = "") -> ClusterTimeline:
        """Return a drawing of what the ranks' devices did in the step.

        Its ``save('trace.json')`` writes a trace that ui.perfetto.dev opens.

        Args:
            title: what the drawing shows, as a finding; default: how long it took.
            subtitle: the conditions; how long it took and *simulated* are added.
        """
        clocks = {rank: (each.clock, each.index) for rank, each in self.ranks.items()}
        label = f"a step, simulated ({self.cluster.model.name})"
        of_ranks = merged(clocks, self._begin, self._end)
        return ClusterTimeline(of_ranks, label, title, subtitle)

    def __repr__(self) -> str:
        time = time_text(self.seconds)
        said = [f"{time} a step" if self.has_steps else f"{time} for the whole program"]
        if self.tokens is not None:
            said.append(f"{self.tokens_per_second:,.0f} tokens/s")
        if self.mfu is not None:
            said.append(f"MFU {self.mfu:.1%}")
        said.append(f"HFU {self.utilization:.1%}")
        ran = ", ".join(map(str, self.ranks))
        if len(self.ranks) < self.cluster.world_size:
            said.append(f"run as rank {ran} of {self.cluster.world_size:,}")
        tables = f"{self.memory()!r}\n\n{self.critical_path()!r}"
        return f"{self.cluster!r}\n{', '.join(map(shown, said))}\n\n{tables}"

    def _repr_html_(self) -> str:
        first, *_ = repr(self).split("\n\n")
        lines = "<br>".join(first.split("\n"))
        tables = (self.memory(), self.critical_path())
        return f"<p>{lines}</p>" + "".join(x._repr_html_() for x in tables)
