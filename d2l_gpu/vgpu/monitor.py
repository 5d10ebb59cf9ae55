"""What tools that monitor GPUs are told of the virtual ones: names, memory, use.

A process has virtual GPUs of its own, so no other knows what they do. A tool that runs
in the program's process is told what the machine knows. A process that the program
starts, and that doesn't use PyTorch, is told what the environment says: how many there
are, and how much memory they have.
"""

import json
import os
import sys
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .sim.machine import Machine

if TYPE_CHECKING:
    from .sim.clock import Clock

# Holds the arguments of ``enable``, as JSON: ``__main__.py`` sets it.
VARIABLE = "D2L_GPU_AS_CUDA"


@dataclass(frozen=True)
class Gpu:
    """What is known of a virtual GPU.

    Attributes:
        total: the bytes of its memory.
        used: those in use, None if this process can't know.
        busy: the share of the simulated time in which it worked, in percent, or None.
        initialized: whether this process has used it.
    """

    index: int
    name: str
    total: int
    used: int | None = None
    busy: int | None = None
    initialized: bool = False

    @property
    def uuid(self) -> uuid.UUID:
        return uuid_of(self.index)


def name_of(backing: str = "cpu", has_values: bool = True) -> str:
    """Return the name of a virtual GPU.

    It has no comma: programs split what nvidia-smi prints at commas.

    Args:
        backing: the device that computes its values, if there are any.
    """
    if not has_values:
        return "virtual GPU: shapes without values"
    return f"virtual GPU: computed on {'the CPU' if backing == 'cpu' else backing}"


def uuid_of(index: int) -> uuid.UUID:
    """Return a device's identifier: the same in all processes and on all machines."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"vgpu:{index}")


def utilization_of(clock: "Clock", index: int) -> int:
    """Return the percentage of simulated time in which a device ran kernels.

    The time is that since the clock's reset; 0 if none has passed.
    """
    elapsed = clock.elapsed()
    return round(100 * clock.busy(index) / elapsed) if elapsed else 0


def gpus() -> list[Gpu]:
    """Return the virtual GPUs that a tool in this process is told of."""
    devices = sys.modules.get(f"{__package__}.devices")
    machine = devices.Devices.machine if devices is not None else None
    if isinstance(machine, Machine):  # a forked process has none that it may use
        return _of_this_process(machine, devices.Devices.backings)
    if VARIABLE not in os.environ:
        return []
    settings = json.loads(os.environ[VARIABLE])
    return [Gpu(i, name_of(), settings["memory"]) for i in range(settings["n"])]


def _of_this_process(machine: Machine, backings) -> list[Gpu]:
    return [
        Gpu(
            i,
            name_of(str(backings[i]), machine.has_values),
            machine.capacities[i],
            machine.occupied(i),
            utilization_of(machine.clock, i),
            machine.peak[i] > 0,
        )
        for i in range(machine.count)
    ]
