"""A cluster of any size, simulated in one process: ``vgpu.cluster``.

A program that would run as many ranks under torchrun runs as one of them, on shapes
only. If it sends something to another rank, it runs as that one too. All other ranks
are taken to do what one of these does, at the same time. Once everything is recorded,
``sim/cluster.py`` puts the ranks on one time axis.
"""

import gc
import re
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from . import backend
from .categories import memory_use
from .cluster_run import RankUse, Run
from .devices import Devices, current
from .errors import NO_VALUES
from .one_rank import Needs, Objects, little_garbage, one_rank
from .patches import as_cuda
from .programs import run_script
from .sim.catalogue import Link, Model
from .sim.clock import queues
from .sim.cluster import Recorder, resolve
from .sim.fabric import Network, fabric_of, link_of
from .sim.units import size_text
from .sim.words import shown
from .simulators import Settings

MOST_ON_HOST = 8  # GPUs of one host; those of an NVLink domain may be on several


class Cluster:
    """GPUs in nodes, and a program that runs on all of them; see ``vgpu.cluster``.

    Attributes:
        nodes: the number of nodes.
        model: the GPU that they all are, an entry of ``MODELS``.
        fabric: what connects the GPUs.
        world_size: the number of GPUs, each of which is a rank.
    """

    def __init__(
        self,
        nodes: int,
        gpus: int,
        model: str | Model,
        network: str | Network | None,
        link: str | Link | None,
        cards: int | None,
        wiring: str | None,
        memory,
        host,
        allocator,
        algorithm: str | None = None,
    ):
        for what, n in (("nodes", nodes), ("GPUs in a node", gpus)):
            if isinstance(n, bool) or not isinstance(n, int):
                raise TypeError(f"The number of {what} must be an integer, not {n!r}.")
            if n < 1:
                raise ValueError(f"The number of {what} must be at least 1, not {n}.")
        self.nodes, self.world_size = nodes, nodes * gpus
        self._on_host = next(
            n for n in range(min(gpus, MOST_ON_HOST), 0, -1) if gpus % n == 0
        )
        self._settings = Settings.checked(
            self._on_host,
            memory,
            "meta",
            model,
            link or link_of(model),
            host,
            allocator,
        )
        self.model = self._settings.models[0]
        self.fabric = fabric_of(
            *(nodes, gpus, self.model, self._settings.link, network, cards, wiring),
            algorithm,
        )
        backend.register()

    def __repr__(self) -> str:
        name, network = self.model.name, self.fabric.network
        parts = [f"{self.world_size:,} × {name}, simulated"]
        if self.nodes > 1:
            parts.append(f"in {self.nodes:,} nodes of {self.fabric.gpus}")
        links = [self.fabric.link.name] if self.fabric.gpus > 1 else []
        if network is not None and self.nodes > 1:
            links.append(f"{self.fabric.cards} × {network.name}")
        if links:
            parts.append(f"connected by {' and '.join(links)}")
        return ", ".join(map(shown, parts))

    def run(
        self,
        program: Callable[[], object] | str | Path,
        arguments: Sequence[str] = (),
        *,
        ranks: Iterable[int] = (),
        tokens: int | None = None,
        parameters: float | None = None,
    ) -> Run:
        """Run a program on the cluster, and return what it did.

        Args:
            program: a function without arguments, in which ``torch.distributed`` is set
                up already; or the file of a script, as torchrun would start it.
            arguments: the script's command line.
            ranks: ranks that run, besides the first one and those that it sends to,
                because they do something else, such as a larger part of a tensor that
                isn't divided evenly.
            tokens: how many tokens all ranks together process in a step, for rates.
            parameters: how many the whole model has, for its utilization (MFU).

        Raises:
            Exception: the program has raised it; a note names the rank.
            TypeError, ValueError: an argument makes no sense.
            RuntimeError: ranks wait for each other for ever, or don't do the same in a
                collective.
        """
        if not isinstance(ranks, Iterable):
            raise TypeError(f"The ranks must be several, such as [7], not {ranks!r}.")
        for what, n in (("tokens", tokens), ("parameters", parameters)):
            if n is not None and (
                isinstance(n, bool) or not isinstance(n, int | float) or not n > 0
            ):
                raise ValueError(f"The number of {what} must be over 0, not {n!r}.")
        wanted = [0, *ranks]
        for rank in wanted:
            if isinstance(rank, bool) or not isinstance(rank, int):
                raise TypeError(f"A rank must be an integer, but got {rank!r}.")
            if not 0 <= rank < self.world_size:
                raise ValueError(
                    f"There is no rank {rank}: this cluster has ranks 0 to "
                    f"{self.world_size - 1}."
                )
        if callable(program):
            start = partial(_run_function, program)
        elif Path(program).is_file():
            start = partial(_run_script, Path(program), arguments)
            as_cuda.check()
            as_cuda.apply()  # a script for torchrun says cuda
        else:
            raise ValueError(f"There is no file {str(program)!r}.")
        return self.run_as_it_is(start, wanted, tokens, parameters)

    def run_as_it_is(
        self,
        start: Callable[[], None],
        wanted: Sequence[int],
        tokens: int | None,
        parameters: float | None,
    ) -> Run:
        """Run what a function starts, which has to set up ``torch.distributed``."""
        state = Devices.machine, Devices.machines, Devices.backings
        try:
            with little_garbage(), warnings.catch_warnings():
                # After the program's own filters, so that those decide.
                warnings.filterwarnings("once", re.escape(NO_VALUES), append=True)
                recorded = self._record_all(start, wanted)
        finally:
            Devices.machine, Devices.machines, Devices.backings = state
            gc.collect()
        resolve({rank: each.clock for rank, each in recorded.items()})
        return Run(self, recorded, tokens, parameters)

    def _record_all(self, start, wanted) -> dict[int, RankUse]:
        """Run the program as all ranks that are wanted, and those that they send to."""
        objects, recorded = Objects(), {}
        todo = list(dict.fromkeys(wanted))
        shapes = set()
        tried: dict[int, int] = {}  # how many objects there were when a rank gave up
        while todo:
            rank = todo.pop(0)
            if rank in recorded:
                continue
            try:
                recorded[rank] = self._record(rank, start, objects)
            except Needs as needs:
                if needs.rank in recorded or (
                    tried.get(needs.rank) == tried.get(rank) == len(objects.sent)
                ):
                    raise RuntimeError(
                        f"Rank {rank} waits for ever: it receives an object that rank "
                        f"{needs.rank} never sends."
                    ) from None
                tried[rank] = len(objects.sent)
                todo[:0] = [needs.rank, rank]
                continue
            clock = recorded[rank].clock
            before = len(shapes)
            shapes.add(clock.shape(self.world_size))
            if len(shapes) == 1 and before:
                continue  # all that have run do the same, as in a ring
            for meeting in clock.meetings():
                if meeting.kind == "send":
                    todo += [r for r in meeting.ranks if r not in recorded]
        return recorded

    def _record(self, rank, start, objects) -> RankUse:
        """Run the program as one rank."""
        gc.collect()
        machine = self._settings.machine(first=0, clock=Recorder)
        clock = machine.clock
        clock.rank, clock.fabric = rank, self.fabric
        Devices.place(machine, self._settings.backing)
        steps = _Steps(clock)
        hook = register_optimizer_step_post_hook(steps.step_ends)
        try:
            with one_rank(rank, self.world_size, self._on_host, objects):
                with memory_use() as memory, suppress_success():
                    start()
                index = current.index
        except torch.OutOfMemoryError as error:
            raise torch.OutOfMemoryError(
                f"The program doesn't fit on rank {rank} of {self!r}: for the next "
                f"tensor {size_text(machine.missing)} are missing. {error}"
            ).with_traceback(error.__traceback__) from None
        except Exception as error:
            error.add_note(f"(rank {rank} of {self!r})")
            raise
        finally:
            hook.remove()
            clock.finish()
        return RankUse(rank, clock, machine, index, memory)


@contextmanager
def suppress_success() -> Iterator[None]:
    """Let a program end by ``sys.exit()``, as long as it doesn't say that it failed."""
    try:
        yield
    except SystemExit as end:
        if end.code not in (None, 0):
            raise


class _Steps:
    """Notes where the steps of a program end."""

    def __init__(self, clock: Recorder):
        self.clock, self.optimizer = clock, None

    def step_ends(self, optimizer, *_) -> None:
        if self.optimizer is None:
            self.optimizer = weakref.ref(optimizer)
        if optimizer is self.optimizer():  # of several, the first one counts
            index = current.index
            self.clock.step_ends(index, queues.of.get(index, 0))


def _run_function(program: Callable[[], object]) -> None:
    torch.distributed.init_process_group()
    program()


def _run_script(path: Path, arguments: Sequence[str]) -> None:
    before = sys.argv, sys.path[:], sys.modules["__main__"]
    sys.argv = [str(path), *arguments]
    try:
        run_script(path)
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = before
