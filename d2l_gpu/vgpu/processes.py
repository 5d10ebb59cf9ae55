"""Several processes: each one has virtual GPUs of its own.

A tensor that is sent to another process is copied to the device with the same name
there. A forked process inherits tensors but can't use them, as on real GPUs.
"""

import io
import os
import threading
from multiprocessing.reduction import ForkingPickler

import torch

from . import device_api
from .devices import Devices
from .errors import name_of
from .sparse import SparseTensor
from .tensor import VirtualTensor


def register() -> None:
    """Teach multiprocessing to send virtual tensors, and refuse them after a fork."""
    for kind in (VirtualTensor, SparseTensor):
        ForkingPickler.register(kind, _reduce)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)


# ------------------------------------------------------------------ sending a copy


def _reduce(tensor: VirtualTensor):
    # Send bytes: the shared memory of a temporary CPU copy would be freed too early.
    buffer = io.BytesIO()
    torch.save(tensor.detach().cpu(), buffer)
    parameter, needs_grad = tensor._is_parameter(), tensor.requires_grad
    return _rebuild, (buffer.getvalue(), str(name_of(tensor)), parameter, needs_grad)


def _rebuild(values: bytes, device: str, parameter: bool, needs_grad: bool):
    if not any(Devices.machines):
        raise RuntimeError(
            f"A tensor on {device} was sent to a process without virtual GPUs: call "
            "d2l_gpu.vgpu.enable there before it arrives, or send tensor.cpu()."
        )
    tensor = torch.load(io.BytesIO(values)).to(device)
    if parameter:
        return torch.nn.Parameter(tensor, needs_grad)
    return tensor.requires_grad_(needs_grad)


# ------------------------------------------------------------------ after a fork


def _refuse(*args, **kwargs):
    # Worded like torch.cuda's _lazy_init in torch/cuda/__init__.py.
    raise RuntimeError(
        "Cannot re-initialize virtual GPUs in forked subprocess. To use virtual GPUs "
        "with multiprocessing, you must use the 'spawn' start method"
    )


class _Inherited:
    """The machine of a forked process, which refuses everything."""

    def __getattr__(self, name):
        _refuse()


def _after_fork() -> None:
    """Refuse virtual tensors in a forked process if its parent has used any.

    Threads don't survive a fork, so PyTorch's kernels would wait for theirs for ever.
    """
    machines = {machine for machine in Devices.machines if machine is not None}
    if not machines or any(isinstance(machine, _Inherited) for machine in machines):
        return
    for machine in machines:  # a thread of the parent may have held the locks
        machine.lock, machine.clock.lock = threading.RLock(), threading.RLock()
    if device_api.is_initialized() or len(machines) > 1 or Devices.machine is None:
        Devices.machine = _Inherited()
        Devices.machines = (Devices.machine,) * len(Devices.machines)
        for kind in (VirtualTensor, SparseTensor):
            kind.__torch_dispatch__ = staticmethod(_refuse)
        device_api._is_in_bad_fork = lambda: True
