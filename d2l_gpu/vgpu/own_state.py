"""What a rank of a small world has for itself, as a process would.

Ranks are threads, and PyTorch keeps some things for the whole process: its process
groups, generators, environment. So whenever a rank gives up its turn, these are put
aside, and whenever it gets its turn, they are put in place again, like the registers of
a processor. (What PyTorch keeps for each thread takes care of itself.)
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed import distributed_c10d

from .devices import Devices
from .generator import Generator, default_generators


class _Groups(distributed_c10d._World):
    """The process groups that a rank knows. PyTorch keeps one such object a process."""

    # Properties there, of the whole process.
    default_pg = pg_map = pg_names = pg_group_ranks = pg_backend_config = None
    tags_to_pg = pg_to_tag = group_count = None

    def __init__(self):
        super().__init__()
        self.pg_map, self.pg_names, self.pg_group_ranks = {}, {}, {}
        self.pg_backend_config, self.tags_to_pg, self.pg_to_tag = {}, {}, {}
        self.default_pg, self.group_count = None, 0


VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


@dataclass
class Process:
    """What a process has for itself, and threads of one process share.

    Attributes:
        groups: its process groups.
        variables: of the environment, those that torchrun sets.
        numbers: the state of the CPU's generator.
        generators: those of virtual GPUs, by index.
        chosen: whether it has chosen its device.
        filters: of warnings, a list that `warnings` changes in place.
        kept: what modules of PyTorch keep, as in ``KEPT``.
    """

    groups: Any
    variables: dict[str, str | None]
    numbers: torch.Tensor
    generators: dict[int, Generator]
    chosen: bool
    filters: list
    kept: dict[tuple[str, str], Any]

    @classmethod
    def now(cls) -> "Process":
        """Return what the running rank, or the caller, has now."""
        return cls(
            distributed_c10d._world,
            {name: os.environ.get(name) for name in VARIABLES},
            torch.get_rng_state(),
            default_generators.made,
            Devices.chosen,
            warnings.filters,
            {place: getattr(owner, place[1]) for place, owner in _owners()},
        )

    def child(self, rank: int, world_size: int) -> "Process":
        """Return what a rank begins with: generators in the same state as here."""
        values = map(str, (rank, rank, world_size, world_size))
        return Process(
            _Groups(),
            dict(zip(VARIABLES, values, strict=True)),
            self.numbers.clone(),
            {
                i: generator.clone_state()
                for i, generator in self.generators.items()
                if Devices.machines[i] is not None  # it may be that of an earlier one
            },
            True,
            list(self.filters),
            {},
        )

    def resume(self) -> None:
        """Put all of this in place."""
        distributed_c10d._world = self.groups
        for name, value in self.variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        torch.set_rng_state(self.numbers)
        default_generators.made = self.generators
        Devices.chosen = self.chosen
        warnings.filters = self.filters
        for place, owner in _owners():
            # The module may be newer than what a rank knows of it.
            setattr(owner, place[1], self.kept.get(place, KEPT[place]()))


# What modules of PyTorch keep for the whole process, by the names of the owner and its
# attribute; each entry makes what a new process has. They are DTensor's generator of
# random numbers, and results of shape inference, which mention the current device.
KEPT: dict[tuple[str, str], Callable[[], Any]] = {
    ("torch.distributed.tensor._random", "_rng_tracker"): lambda: None,
    ("torch._subclasses.fake_tensor.FakeTensorMode", "cache"): dict,
}


def _owners() -> Iterator[tuple[tuple[str, str], Any]]:
    """Yield the owners of what modules keep, if they have been imported."""
    for place in KEPT:
        module, _, name = place[0].rpartition(".")
        owner = sys.modules.get(place[0]) or getattr(
            sys.modules.get(module), name, None
        )
        if owner is not None:
            yield place, owner
