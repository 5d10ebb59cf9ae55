"""Collectives on virtual GPUs: ``torch.distributed`` with gloo underneath.

Each process has virtual GPUs of its own. Between processes their values travel as
those of ordinary tensors do, so we run an operator of ``c10d`` on the backing tensors,
and its results arrive there. The operator returns the virtual tensors that it was
given. ``records.py`` says which collective each operator is.

The log of copies leaves out what a collective sends: the number of bytes depends on the
algorithm that gloo chooses, which says nothing about real GPUs. The simulated clock
assumes a ring, which NCCL uses too. Every process has a clock of its own, so it also
assumes that all devices reach the collective at the same time. Later work on the device
waits for it.
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
    """Run one operator on the backing tensors of virtual ones."""
    given: dict[int, VirtualTensor] = {}
    devices: list[torch.device] = []
    backing_args = _to_backings(args, given, devices)
    backing_kwargs = {k: _to_backings(v, given, devices) for k, v in kwargs.items()}
    if len(set(devices)) > 1:
        raise errors.collective_mismatch(op, devices)
    result = op.call(*backing_args, **backing_kwargs)
    if given:
        _issued(op, args, next(iter(given.values()))._index)
    return _as_given(result, given)


def _issued(op, args, index: int) -> None:
    """Tell the clock about a collective whose cost is known."""
    kind = op.record.collective
    group = next((x for x in args if isinstance(x, torch.ScriptObject)), None)
    if kind is None or group is None:
        return
    from torch.distributed import ProcessGroup  # not in every build

    n = ProcessGroup.unbox(group).size()
    # The whole tensor: what goes in, or what comes out after gathering.
    nbytes = max(
        sum(x.nbytes for x in tree_leaves(value) if isinstance(x, torch.Tensor))
        for value in args[:2]
    )
    clock = Devices.machines[index].clock
    if n == 1 or clock is None:
        return
    command = ring(kind, [index], nbytes, n, clock.link)
    clock.note(command, index, queues.of.get(index, 0))


def _to_backings(value, given: dict[int, VirtualTensor], devices: list[torch.device]):
    """Replace virtual tensors by their backing tensors, in nested lists too.

    Note in ``given`` which virtual tensor each one belongs to, and in ``devices`` where
    every tensor is.
    """
    if isinstance(value, list | tuple):
        return type(value)([_to_backings(x, given, devices) for x in value])
    if isinstance(value, torch.Tensor):
        devices.append(errors.name_of(value))
        if type(value) is VirtualTensor:
            given[id(value._backing)] = value
            return value._backing
    return value


def _as_given(value, given: dict[int, VirtualTensor]):
    """Replace backing tensors by the virtual ones that they belong to."""
    if isinstance(value, list | tuple):
        return type(value)([_as_given(x, given) for x in value])
    if isinstance(value, torch.Tensor):
        return given.get(id(value), value)
    return value


def virtual_again(value):
    """Wrap backing tensors, in lists too, that C++ returned without their wrappers.

    C++ returns some values without asking the dispatcher.
    """
    if isinstance(value, list | tuple):
        return type(value)([virtual_again(x) for x in value])
    if isinstance(value, torch.Tensor) and home(value) != HOST:
        return wrap(value, home(value))
    return value


class PinningInMarks(TorchDispatchMode):
    """A context in which C++ gets marked tensors where it asks for pinned memory.

    DDP's reducer asks for it in backward, and hooks written in Python can't supply an
    allocator.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Skipping would put a function between the engine and __torch_dispatch__, but
        # ``contained`` has to see the engine as its caller.
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
