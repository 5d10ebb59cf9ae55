"""Who waits for what ranks of a cluster tell each other.

On a GPU a collective runs beside other work until a stream waits for it: by
``work.wait()``, by ``wait_tensor``, or in C++, where DDP's reducer waits at the end of
backward. Here the waiting is noted for the clock.
"""

from collections.abc import Iterable

import torch
from torch.distributed import Work

from .devices import Devices
from .sim.clock import queues
from .sim.cluster import Meeting
from .sim.commands import StreamWaits

# The references keep Python's objects for the works, by which C++ knows them again.
_works: dict[int, tuple[Work, Meeting]] = {}
_results: dict[int, Meeting] = {}


def expect(meeting: Meeting, works: Iterable[Work]) -> None:
    """Note that ``wait()`` of these works waits for a meeting."""
    for work in works:
        _works[id(work)] = work, meeting


def expect_results(meeting: Meeting, tensors: Iterable[torch.Tensor]) -> None:
    """Note that ``wait_tensor`` of these tensors waits for a meeting."""
    for tensor in tensors:
        _results[_place(tensor)] = meeting


def work(work: Work) -> None:
    """Let the current stream wait for a work."""
    _, meeting = _works.pop(id(work), (None, None))
    _wait(meeting)


def result(tensor: torch.Tensor) -> None:
    """Let the current stream wait for the result of a functional collective."""
    _wait(_results.pop(_place(tensor), None))


def everything() -> None:
    """Let the current stream wait for all works, as DDP does after backward."""
    for _, meeting in _works.values():
        _wait(meeting)
    _works.clear()


def clear() -> None:
    """Forget what nobody waited for."""
    _works.clear()
    _results.clear()


def _wait(meeting: Meeting | None) -> None:
    if meeting is not None:
        (index,) = meeting.indices
        clock = Devices.machines[index].clock
        clock.note(StreamWaits(meeting.done), index, queues.of.get(index, 0))


def _place(tensor: torch.Tensor) -> int:
    return tensor._backing.untyped_storage()._cdata
