"""Which devices exist, which one is current, and what a device's name means."""

import threading

import torch

from . import errors
from .sim.machine import Machine

# PyTorch stores the index of a device in eight bits, one of them for the sign. Devices
# that ``enable`` sets up begin at 0, those of simulators at PLAIN.
MOST, PLAIN = 128, 64

Device = int | str | torch.device | None


class Devices:
    """The machines in use, and all devices as objects of PyTorch.

    Attributes:
        machine: the machine that ``enable`` has set up.
        machines: the machine that each device belongs to, by the device's index: this
            one, a simulator's, or None.
        backings: the device that computes each one's values, by index.
        names: ``vgpu:0``, ``vgpu:1`` …, the devices as PyTorch's C++ knows them.
        types: the device types that mean virtual GPUs.
        shown: what ``Tensor.device`` returns: the names, or ``cuda:0`` … with as_cuda.
        chosen: whether the program has ever called ``set_device``.
        zeros: whether a program that asks for values where there are none gets zeros.
    """

    machine: Machine | None = None
    machines: tuple[Machine | None, ...] = (None,) * MOST
    backings: tuple[torch.device | None, ...] = (None,) * MOST
    names: tuple[torch.device, ...] = ()
    types: tuple[str, ...] = ("vgpu",)
    shown: tuple[torch.device, ...] = ()
    chosen: bool = False
    zeros: bool = False

    @classmethod
    def place(cls, machine: Machine, backing: torch.device) -> None:
        """Add a machine's devices, in place of an older machine's."""
        if not cls.names:
            cls.names = tuple(torch.device("vgpu", i) for i in range(MOST))
        cls.shown = tuple(torch.device(cls.types[-1], i) for i in range(MOST))
        own = range(machine.first, machine.first + machine.count)
        plain = range(PLAIN if machine.first < PLAIN else 0)
        machines, backings = list(cls.machines), list(cls.backings)
        for i in (*plain, *own):
            machines[i] = machine if i in own else None
            backings[i] = backing
        cls.machines, cls.backings = tuple(machines), tuple(backings)
        if machine.first == 0:
            cls.machine = machine

    @classmethod
    def remove(cls, machine: Machine) -> None:
        """Remove a machine's devices."""
        cls.machines = tuple(None if m is machine else m for m in cls.machines)


class _Current(threading.local):
    """The current device, which a name without an index means; one per thread."""

    index = 0


current = _Current()


def index_of(device: Device = None) -> int:
    """Return the index that a device's name means.

    Args:
        device: an index, or a ``torch.device`` or its name, of type vgpu or cuda. None,
            or a name without an index, means the current device.

    Raises:
        ValueError: the device is of another type.
        RuntimeError: there is no such device.
    """
    index = device
    if device is None:
        index = current.index
    elif not isinstance(device, int):
        device = torch.device(device)
        if device.type not in ("vgpu", "cuda"):
            raise ValueError(
                f"Expected a virtual GPU such as vgpu:0, but got {device}."
            )
        index = current.index if device.index is None else device.index
    if not 0 <= index < MOST or Devices.machines[index] is None:
        count = Devices.machine.count if Devices.machine is not None else 0
        raise errors.invalid_ordinal(index, count)
    return index


def as_device(device: Device = None) -> torch.device:
    """Return a virtual GPU as the device ``vgpu:i``, even if it was named cuda."""
    return Devices.names[index_of(device)]
