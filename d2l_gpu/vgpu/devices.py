"""Which devices there are, which is the current one, and what a device's name means."""

import threading

import torch

from . import errors
from .sim.machine import Machine

# PyTorch keeps the index of a device in eight bits. The devices of simulators come
# after those that ``enable`` sets up, which begin at 0.
MOST, PLAIN = 128, 64

Device = int | str | torch.device | None


class Devices:
    """The machines in use, and all devices as objects of PyTorch.

    Attributes:
        machine: the one that ``enable`` has set up.
        machines: the machine that each device belongs to, by the device's index: this
            one, a simulator's, or None.
        backings: the device that computes each one's values, by index.
        names: ``vgpu:0``, ``vgpu:1`` …, the devices as PyTorch's C++ knows them.
        types: the types of device whose names mean virtual GPUs.
        shown: what ``Tensor.device`` answers: the names, unless ``as_cuda`` is on.
        chosen: whether the program has ever made one of them the current one.
    """

    machine: Machine | None = None
    machines: tuple[Machine | None, ...] = (None,) * MOST
    backings: tuple[torch.device | None, ...] = (None,) * MOST
    names: tuple[torch.device, ...] = ()
    types: tuple[str, ...] = ("vgpu",)
    shown: tuple[torch.device, ...] = ()
    chosen: bool = False

    @classmethod
    def place(cls, machine: Machine, backing: torch.device) -> None:
        """Put a machine's devices in their places, and take an older one's away."""
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
        """Take a machine's devices away."""
        cls.machines = tuple(None if m is machine else m for m in cls.machines)


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
    if not 0 <= index < MOST or Devices.machines[index] is None:
        count = Devices.machine.count if Devices.machine is not None else 0
        raise errors.invalid_ordinal(index, count)
    return index


def as_device(device: Device = None) -> torch.device:
    """Return the ``torch.device`` of a virtual GPU, also where it is called cuda."""
    return Devices.names[index_of(device)]
