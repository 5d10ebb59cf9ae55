"""Small worlds: the ranks of ``torch.distributed`` in one process, with real values.

Each rank is a thread with a virtual GPU of its own, and the threads take turns
(``turns.py``). Their collectives meet in a process group of ours (``meetings.py``).
What each process would have for itself, but threads share, is put in place whenever a
rank gets its turn (``own_state.py``).

PyTorch has two relatives. ``MultiThreadedTestCase``, for its own tests, also runs ranks
as threads; its group has no sends, doesn't notice mismatches, and leaves the order of
threads to the operating system. ``LocalTensorMode`` runs a program once for all ranks,
so the program can't do something else on rank 0.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch.distributed.distributed_c10d import Backend

from .devices import Devices, current
from .meetings import Group, World
from .own_state import Process
from .patches.ranks import process_groups
from .sim.clock import new_threads, queues
from .sim.worlds import Fork, Join
from .turns import Turns

# The world whose ranks are running, None outside of ``run_ranks``.
_running: World | None = None


def run_ranks(function: Callable[[int, int], Any], world_size: int) -> list:
    """See ``d2l_gpu.vgpu.run_ranks``."""
    global _running
    _check(function, world_size)
    results = [None] * world_size
    caller = Process.now()
    processes = [caller.child(rank, world_size) for rank in range(world_size)]

    # A thread that Ctrl-C couldn't end may wake when this is over.
    def enter(rank: int) -> None:
        if _running is world:
            processes[rank].resume()

    def leave(rank: int) -> None:
        if _running is world:
            processes[rank] = Process.now()

    def run(rank: int) -> None:
        current.index, queues.thread = rank, threads[rank]
        with _default_group(world, rank, world_size):
            results[rank] = function(rank, world_size)

    world = World(Turns(world_size, enter, leave))
    clock, threads = Devices.machine.clock, new_threads(world_size)
    clock.processes.update(threads)
    clock.note(Fork(threads), 0, 0)

    def create(name: str, members: list[int], place: int) -> Group:
        return Group(world, members, place, name)

    try:
        with process_groups(create):
            _running = world
            world.turns.run(run)
    finally:
        _running = None
        clock.note(Join(threads), 0, 0)
        caller.resume()
    return results


def _check(function, world_size) -> None:
    if not callable(function):
        raise TypeError(
            f"run_ranks needs a function of rank and world size, but got {function!r}."
        )
    if isinstance(world_size, bool) or not isinstance(world_size, int):
        raise TypeError(f"The world size must be an integer, but got {world_size!r}.")
    if world_size < 1:
        raise ValueError(f"The world size must be at least 1, but got {world_size}.")
    if Devices.machine is None:
        raise RuntimeError(
            "Ranks need virtual GPUs: call vgpu.enable first, with one for each rank."
        )
    if world_size > Devices.machine.count:
        raise ValueError(
            f"{world_size} ranks need {world_size} virtual GPUs, but there are "
            f"{Devices.machine.count}: call vgpu.enable({world_size})."
        )
    if _running is not None:
        raise RuntimeError("Ranks are running already, and a rank can't start others.")
    if dist.is_initialized():
        raise RuntimeError(
            "This process is a rank already, because torch.distributed is initialized: "
            "call torch.distributed.destroy_process_group first."
        )


# ------------------------------------------------------------------ process groups


@contextmanager
def _default_group(world: World, rank: int, world_size: int) -> Iterator[None]:
    store = Store(world)  # our reference keeps it: C++ holds only its own part of it
    dist.init_process_group(
        Backend.default_device_backend_map["vgpu"],
        store=store,
        rank=rank,
        world_size=world_size,
    )
    try:
        yield
    finally:
        if dist.is_initialized():  # the program may have destroyed it
            dist.destroy_process_group()


class Store(dist.Store):
    """What ranks tell each other beside collectives: texts, by keys."""

    def __init__(self, world: World):
        super().__init__()
        self._world, self._values = world, world.store

    def set(self, key: str, value) -> None:
        self._values[key] = _bytes(value)

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._values[key]

    def add(self, key: str, amount: int) -> int:
        number = int(self._values.get(key, b"0")) + amount
        self._values[key] = _bytes(str(number))
        return number

    def compare_set(self, key: str, expected, desired) -> bytes:
        if self._values.get(key, b"") == _bytes(expected):
            self._values[key] = _bytes(desired)
        return self._values.get(key, _bytes(expected))

    def delete_key(self, key: str) -> bool:
        return self._values.pop(key, None) is not None

    def num_keys(self) -> int:
        return len(self._values)

    def check(self, keys: list[str]) -> bool:
        self._world.turns.others_first()
        return all(key in self._values for key in keys)

    def wait(self, keys: list[str], timeout=None) -> None:
        self._world.turns.wait(_Keys(keys, self._values))

    def set_timeout(self, timeout) -> None:
        """Do nothing: nobody waits for ever."""


def _bytes(value) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


@dataclass
class _Keys:
    """A rank waits until keys are in the store; see ``turns.Reason``."""

    keys: list[str]
    values: dict[str, bytes]

    def over(self) -> bool:
        return all(key in self.values for key in self.keys)

    def text(self) -> str:
        return f"waits for {' and '.join(map(repr, self.keys))} in the store"
