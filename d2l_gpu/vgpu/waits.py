"""Who waits for what ranks of a cluster tell each other.

On a GPU a collective runs beside other work until a stream waits for it: by
``work.wait()``, by ``wait_tensor``, or in C++, where DDP's reducer waits at the end of
backward and ``_broadcast_coalesced`` before it returns. Here the waiting is noted for
the clock.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from .devices import Devices
from .sim.clock import queues
from .sim.cluster import Meeting
from .sim.commands import StreamWaits


class _Expected(NamedTuple):
    """A work that somebody may wait for, which keeps its Python object alive."""

    work: "torch.distributed.Work"
    meeting: Meeting | None
    tensors: list[torch.Tensor]


_works: dict[int, _Expected] = {}
_results: dict[int, Meeting] = {}
# Those of DDP's gradients, by identity, in the order in which they were asked for.
_gradients: dict[int, None] = {}


def expect(
    works: Iterable["torch.distributed.Work"], meeting: Meeting, tensors
) -> None:
    """Note that ``wait()`` of works waits for a meeting that changes these tensors."""
    for work in works:
        _works[id(work)] = _Expected(work, meeting, tree_leaves(tensors))


def expect_results(meeting: Meeting, tensors: Iterable[torch.Tensor]) -> None:
    """Note that ``wait_tensor`` of these tensors waits for a meeting."""
    for tensor in tensors:
        _results[_place(tensor)] = meeting


def work(work: "torch.distributed.Work") -> None:
    """Let the current stream wait for a work."""
    expected = _works.pop(id(work), None)
    if expected is not None:
        _wait(expected.meeting)


def future(work: "torch.distributed.Work") -> torch.futures.Future:
    """Return the future of a work; the fake process group has none with a value.

    DDP's hooks ask for it, and DDP waits for it at the end of backward.
    """
    future = torch.futures.Future()
    expected = _works.get(id(work))
    _gradients[id(work)] = None
    future.set_result([] if expected is None else expected.tensors)
    return future


def result(tensor: torch.Tensor) -> None:
    """Let the current stream wait for the result of a functional collective."""
    _wait(_results.pop(_place(tensor), None))


@contextmanager
def inside() -> Iterator[None]:
    """Let the current stream wait for the works that the body begins, as C++ does."""
    before = set(_works)
    yield
    for identity in [identity for identity in _works if identity not in before]:
        _wait(_works.pop(identity).meeting)


def gradients() -> None:
    """Let the current stream wait for DDP's gradients, as it does after backward."""
    for identity in _gradients:
        expected = _works.pop(identity, None)
        if expected is not None:
            _wait(expected.meeting)
    _gradients.clear()


def clear() -> None:
    """Forget what nobody waited for."""
    _works.clear()
    _results.clear()
    _gradients.clear()


def _wait(meeting: Meeting | None) -> None:
    if meeting is not None:
        (index,) = meeting.indices
        clock = Devices.machines[index].clock
        clock.note(StreamWaits(meeting.done), index, queues.of.get(index, 0))


def _place(tensor: torch.Tensor) -> int:
    return tensor._backing.untyped_storage()._cdata
