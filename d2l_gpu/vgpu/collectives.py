"""Collectives on virtual GPUs: ``torch.distributed`` with gloo underneath.

Each process has virtual GPUs of its own, and between processes their values travel as
those of the host's tensors do. So an operator of ``c10d`` is run on the host tensors,
which is where its results arrive; the same tensors that came in go out, wrapped as
they came.

What crosses is not in the log of copies: how many bytes a collective sends depends on
the algorithm that gloo chooses, and says nothing of a real GPU's.
"""

import sys
from collections.abc import Callable

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import errors
from .machine import HOST
from .operators import operator
from .special import home
from .tensor import VirtualTensor, contained, wrap

NAMESPACE = "c10d::"


def handlers() -> dict[str, Callable]:
    """Return what runs each operator of ``c10d``, by the operator's name.

    It is empty where PyTorch was built without ``torch.distributed``.
    """
    names = torch._C._dispatch_get_all_op_names()
    return {name: _run for name in names if name.startswith(NAMESPACE)}


def _run(op, *args, **kwargs):
    """Run one operator on the host tensors in the places of virtual ones."""
    given: dict[int, VirtualTensor] = {}
    devices: list[torch.device] = []
    host_args = _to_hosts(args, given, devices)
    host_kwargs = {k: _to_hosts(v, given, devices) for k, v in kwargs.items()}
    if len(set(devices)) > 1:
        raise errors.collective_mismatch(op, devices)
    return _as_given(op.call(*host_args, **host_kwargs), given)


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
