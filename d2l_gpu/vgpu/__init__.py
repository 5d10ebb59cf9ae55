"""Virtual GPUs for PyTorch: devices ``vgpu:0``, ``vgpu:1`` … on any machine.

    from d2l_gpu import vgpu
    vgpu.enable(2)
    X = torch.ones(2, 3, device='vgpu:1')

They behave like GPUs (placement, errors across devices, memory of their own).
PyTorch's own kernels compute their values, on the CPU or another *backing* device. The
time and memory that they take are simulated. Importing this module does nothing yet;
``enable`` registers the device type.

What is stable is what this module exports, ``torch.vgpu``, the modules ``programs`` and
``sim.catalogue``, the pytest plugin and the command ``python -m d2l_gpu.vgpu``.
Whatever else can be imported may change with any version.
"""

import gc
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from .host_memory import host_memory_left
from .sim.catalogue import LINKS, MODELS, Link, Model
from .sim.clock import PICO, Span
from .sim.machine import Copy, Machine
from .sim.report import DeviceUse
from .sim.table import Table
from .sim.units import time_text

if TYPE_CHECKING:
    import torch

    from .simulators import Simulator

__all__ = [
    "LINKS",
    "MODELS",
    "PICO",
    "Copy",
    "DeviceUse",
    "Link",
    "Model",
    "Span",
    "Table",
    "current_simulator",
    "device_types",
    "enable",
    "has_devices",
    "host_memory_left",
    "machine_in_use",
    "mark_pinned",
    "record_copies",
    "simulator",
    "simulator_of",
    "time_text",
]


def enable(
    n: int = 2,
    *,
    memory: int | str | None = None,
    backing: str | None = None,
    as_cuda: bool = False,
    model: str | Model | Sequence[str | Model] = "V100",
    link: str | Link = "NVLink2",
) -> None:
    """Put n virtual GPUs at ``torch``'s disposal.

    Can be called again with other settings as long as no tensor is on any of them.

    Args:
        n: number of devices, 1 to 64.
        memory: capacity of each, in bytes or as ``'512MiB'``; default 4 GiB, less
            where the host has less left; with ``backing='meta'`` the model's.
        backing: the device that computes their values: ``'cpu'``, the default, or a
            real GPU such as ``'cuda:0'``. With ``'meta'`` nothing is computed: tensors
            have shapes and no values.
        as_cuda: let them answer to the names ``cuda:0``, ``cuda:1`` … as well, so that
            programs written for CUDA run unmodified (``patches/as_cuda.py``). Once on,
            it stays on in this process, whatever later calls say.
        model: what GPU the simulated clock takes them for: a name in ``MODELS``, or a
            list with one for each.
        link: what it takes to connect them: a name in ``LINKS``.
    Raises:
        TypeError, ValueError: an argument makes no sense.
        RuntimeError: PyTorch is older than 2.10, another backend has taken PyTorch's
            place for one, or tensors are still on the devices that were there before;
            or as_cuda is asked for where the name cuda belongs to PyTorch's own build.
    """
    from .simulators import Settings

    settings = Settings.checked(n, memory, backing, model, link)

    from . import backend
    from .devices import Devices

    if Devices.machine is not None and any(Devices.machine.used):
        gc.collect()  # who is only in a cycle of references is on no device any more
    if Devices.machine is not None and any(Devices.machine.used):
        raise RuntimeError(
            "Virtual GPUs can be set up anew only when no tensor is left on them: "
            f"{sum(Devices.machine.used)} bytes are in use."
        )
    if as_cuda:
        from .patches import as_cuda as cuda_names

        cuda_names.check()
    backend.register()
    if as_cuda:
        cuda_names.apply()
    Devices.place(settings.machine(first=0), settings.backing)


def simulator(
    n: int = 2,
    model: str | Model | Sequence[str | Model] = "V100",
    link: str | Link = "NVLink2",
    backing: str = "cpu",
    *,
    memory: int | str | None = None,
    replicas: bool = False,
) -> "Simulator":
    """Return n simulated devices of their own, beside all others.

    They are there also where real GPUs are in use, and leave those, and virtual ones,
    alone: what is computed on them takes the same simulated time everywhere.

    Args:
        n: number of devices, at most 32.
        model: what they are: a name in ``MODELS``, or a list with one for each.
        link: what connects them: a name in ``LINKS``.
        backing: the device that computes their values: ``'cpu'`` or a real GPU such as
            ``'cuda:0'``. With ``'meta'`` nothing is computed, so even large networks
            take no time: tensors have shapes and no values.
        memory: capacity of each, as in ``enable``.
        replicas: with ``backing='meta'``, let one device stand for all n, which do the
            same at the same time, as in data parallelism; then n has no limit.
    Raises:
        TypeError, ValueError: an argument makes no sense.
        RuntimeError: as for ``enable``; or tensors are left on the devices of too many
            simulators that are not in use any more.
    """
    from .simulators import create

    return create(n, model, link, backing, memory, replicas)


def current_simulator() -> "Simulator":
    """Return the simulation of the virtual GPUs that ``enable`` has set up.

    Raises:
        RuntimeError: there are none yet.
    """
    from .simulators import Simulator

    return Simulator(machine_in_use())


def simulator_of(device) -> "Simulator | None":
    """Return the simulation that a device belongs to, None if it is no virtual GPU."""
    import torch

    from .devices import Devices

    device = torch.device(device)
    if device.type not in Devices.types or not any(Devices.machines):
        return None
    from .devices import index_of
    from .simulators import Simulator

    return Simulator(Devices.machines[index_of(device)])


def has_devices() -> bool:
    """Whether ``enable`` has set up virtual GPUs; those of simulators do not count."""
    from .devices import Devices

    return Devices.machine is not None


def device_types() -> tuple[str, ...]:
    """Return the types of device that mean virtual GPUs: as_cuda adds cuda."""
    from .devices import Devices

    return Devices.types


def mark_pinned(tensor: "torch.Tensor") -> "torch.Tensor":
    """Return a tensor that the clock takes for page-locked memory.

    It is for tensors on the meta device, which have no memory to lock; those on the CPU
    have ``pin_memory()``.
    """
    tensor = tensor.clone()
    tensor._vgpu_pinned = True
    return tensor


def machine_in_use() -> Machine:
    """Return the machine that simulates memory and copies.

    Raises:
        RuntimeError: there is none yet.
    """
    from .devices import Devices

    if Devices.machine is None:
        raise RuntimeError("No virtual GPUs are in use: call enable first.")
    return Devices.machine


def record_copies() -> AbstractContextManager[list[Copy]]:
    """Return a context that collects the copies made inside it, in order."""
    return machine_in_use().record_copies()
