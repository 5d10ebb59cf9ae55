"""Which devices there are, which is the current one, and what a device's name means."""

import threading

import torch

from . import errors
from .machine import Machine

Device = int | str | torch.device | None


class Devices:
    """The machine in use and, as PyTorch's objects, its devices and their host.

    Attributes:
        names: ``vgpu:0``, ``vgpu:1`` …, the devices as PyTorch's C++ knows them.
        types: the types of device whose names mean virtual GPUs.
        shown: what ``Tensor.device`` answers: the names, unless ``as_cuda`` is on.
        chosen: whether the program has ever made one of them the current one.
    """

    machine: Machine | None = None
    names: tuple[torch.device, ...] = ()
    host: torch.device = torch.device("cpu")
    types: tuple[str, ...] = ("vgpu",)
    shown: tuple[torch.device, ...] = ()
    chosen: bool = False


class _Current(threading.local):
    """The device that a name without an index means; each thread has its own."""

    index = 0


current = _Current()


def index_of(device: Device = None) -> int:
    """Return the index that a device's name means.

    Args:
        device: an index, a ``torch.device`` or its text, of type vgpu or cuda; without
            an index, or None, it is the current device.

    Raises:
        ValueError: it is a device of another type.
        RuntimeError: there is no such device.
    """
    index = device
    if device is None:
        index = current.index
    elif not isinstance(device, int):
        device = torch.device(device)
        if device.type not in ("vgpu", "cuda"):
            raise ValueError(f"Expected a virtual GPU such as vgpu:0, not {device}.")
        index = current.index if device.index is None else device.index
    if not 0 <= index < len(Devices.names):
        raise errors.invalid_ordinal(index, len(Devices.names))
    return index


def as_device(device: Device = None) -> torch.device:
    """Return the ``torch.device`` of a virtual GPU, also where it is called cuda."""
    return Devices.names[index_of(device)]
