"""Collectives on virtual GPUs: ``torch.distributed`` with gloo underneath.

Each process has virtual GPUs of its own, and between processes their values travel as
those of the host's tensors do. So an operator of ``c10d`` is run on the host tensors,
which is where its results arrive; the same tensors that came in go out, wrapped as
they came. ``records.py`` says which collective each operator is.

What crosses is not in the log of copies: how many bytes a collective sends depends on
the algorithm that gloo chooses, and says nothing about a real GPU's. The simulated
clock takes each for a ring, as NCCL's are, between devices that come to it at the same
time, since every process has a clock of its own. What comes next on the device waits
for it.
"""

import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from . import errors
from .devices import Devices
from .operators import operator
from .sim.clock import HOST, queues
from .sim.commands import ring
from .special import home
from .tensor import VirtualTensor, contained, wrap


def run(op, *args, **kwargs):
    """Run one operator on the host tensors in the places of virtual ones."""
    given: dict[int, VirtualTensor] = {}
    devices: list[torch.device] = []
    host_args = _to_hosts(args, given, devices)
    host_kwargs = {k: _to_hosts(v, given, devices) for k, v in kwargs.items()}
    if len(set(devices)) > 1:
        raise errors.collective_mismatch(op, devices)
    result = op.call(*host_args, **host_kwargs)
    if given:
        _issued(op, args, next(iter(given.values()))._index)
    return _as_given(result, given)


def _issued(op, args, index: int) -> None:
    """Tell the clock about a collective, if it is one whose cost is known."""
    kind = op.record.collective
    group = next((x for x in args if isinstance(x, torch.ScriptObject)), None)
    if kind is None or group is None:
        return
    from torch.distributed import ProcessGroup  # not in every build

    n = ProcessGroup.unbox(group).size()
    # The whole tensor: what goes in or, gathered from all, comes out.
    nbytes = max(
        sum(x.nbytes for x in tree_leaves(value) if isinstance(x, torch.Tensor))
        for value in args[:2]
    )
    clock = Devices.machines[index].clock
    if n == 1 or clock is None:
        return
    command = ring(kind, [index], nbytes, n, clock.link)
    clock.note(command, index, queues.of.get(index, 0))


def _to_hosts(value, given: dict[int, VirtualTensor], devices: list[torch.device]):
    """Replace virtual tensors, in lists of lists too, and note which host tensor was
    whose, and where all tensors are."""
    if isinstance(value, list | tuple):
        return type(value)([_to_hosts(x, given, devices) for x in value])
    if isinstance(value, torch.Tensor):
        devices.append(errors.name_of(value))
        if type(value) is VirtualTensor:
            given[id(value._host)] = value
            return value._host
    return value


def _as_given(value, given: dict[int, VirtualTensor]):
    """Put the virtual tensors back in the places of their host tensors."""
    if isinstance(value, list | tuple):
        return type(value)([_as_given(x, given) for x in value])
    if isinstance(value, torch.Tensor):
        return given.get(id(value), value)
    return value


def virtual_again(value):
    """Wrap the host tensors, in lists too, whose memory is a virtual GPU's.

    For values that C++ hands out without asking the dispatcher.
    """
    if isinstance(value, list | tuple):
        return type(value)([virtual_again(x) for x in value])
    if isinstance(value, torch.Tensor) and home(value) != HOST:
        return wrap(value, home(value))
    return value


class PinningInMarks(TorchDispatchMode):
    """A context in which C++ too gets marked tensors where it asks for pinned memory.

    DDP's reducer does in backward, and a hook written in Python has no allocator.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Skipping puts a function between the engine and __torch_dispatch__, which
        # ``contained`` has to see as its caller.
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.ops.aten.is_pinned.default:
            return getattr(args[0], "_vgpu_pinned", False)
        pinned = kwargs.get("pin_memory")
        if pinned:
            kwargs = kwargs | {"pin_memory": False}
        try:
            result = func(*args, **kwargs)
        except Exception as error:
            return contained(error, sys._getframe(1), operator(func))
        if pinned:
            result._vgpu_pinned = True
        return result
