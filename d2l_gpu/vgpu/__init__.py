"""Virtual GPUs for PyTorch: devices ``vgpu:0``, ``vgpu:1`` … on any machine.

    from d2l_gpu import vgpu
    vgpu.enable(2)
    X = torch.ones(2, 3, device='vgpu:1')

They behave like GPUs (placement, errors across devices, memory of their own), and
their values are computed by PyTorch's kernels on the host. What they take in time and
memory is simulated. Nothing happens at import; ``enable`` registers the device type.
"""

from contextlib import AbstractContextManager

from .machine import Copy, Machine, parse_size

__all__ = ["Copy", "enable", "machine_in_use", "record_copies"]


def enable(
    n: int = 2,
    *,
    memory: int | str | None = None,
    host: "str | None" = None,
    as_cuda: bool = False,
) -> None:
    """Put n virtual GPUs at ``torch``'s disposal.

    Can be called again with other settings as long as no tensor is on any of them.

    Args:
        n: number of devices, at least 1.
        memory: capacity of each, in bytes or as ``'512MiB'``; default 4 GiB, less
            where the host has less to give.
        host: the device that computes their values: ``'cpu'``, the default, or a real
            GPU such as ``'cuda:0'``.
        as_cuda: let them answer to the names ``cuda:0``, ``cuda:1`` … as well, so that
            programs written for CUDA run unmodified: see ``as_cuda.py``. Once on, it
            stays on in this process, whatever later calls say.
    Raises:
        TypeError, ValueError: an argument makes no sense.
        RuntimeError: PyTorch is older than 2.10, another backend has taken PyTorch's
            place for one, or tensors are still on the devices that were there before;
            or as_cuda is asked for where the name cuda belongs to PyTorch's own build.
    """
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"The number of virtual GPUs is an integer, not {n!r}.")
    if n < 1:
        raise ValueError(f"The number of virtual GPUs is at least 1, not {n}.")
    capacity = None if memory is None else parse_size(memory)

    import torch

    from . import backend
    from .devices import Devices

    host = torch.device("cpu" if host is None else host)
    if host.type == "vgpu":
        raise ValueError("The host of virtual GPUs is a real device, such as cpu.")
    if Devices.machine is not None and any(Devices.machine.used):
        raise RuntimeError(
            "Virtual GPUs can be set up anew only when no tensor is left on them: "
            f"{sum(Devices.machine.used)} bytes are in use."
        )
    if as_cuda:
        from . import as_cuda as cuda_names

        cuda_names.check()
    backend.register()
    if as_cuda:
        cuda_names.apply()
    Devices.machine = Machine(n, capacity, torch.OutOfMemoryError)
    Devices.names = tuple(torch.device("vgpu", i) for i in range(n))
    Devices.shown = tuple(torch.device(Devices.types[-1], i) for i in range(n))
    Devices.host = host


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
