"""``torch.nn.parallel`` on virtual GPUs, and the copies between devices that it makes.

``DataParallel`` and ``torch.cuda.comm`` are written in Python, except for seven
functions of ``torch._C`` that only builds with CUDA have. Here they are made of
ordinary copies, so the machine sees them.
"""

import functools

import torch
from torch.nn.parallel import DataParallel, _functions, comm

from ..devices import Devices, as_device, index_of
from ..sim.commands import HostWorks
from ..streams import default_stream

CPU = -1  # the index that torch.nn.parallel uses for the host


def apply() -> None:
    """Apply all changes; ``patches.apply`` calls this once."""
    communication()
    sums()
    copy_streams()
    refused_simulators()
    time_of_replicas()


def communication() -> None:
    """Supply the functions that copy tensors to several devices and back.

    All, without a CUDA device: these functions are missing (in builds for CUDA they
    fail), so ``DataParallel`` fails too. With real devices we leave them alone.
    """
    if torch.cuda.is_available():
        return
    for function in (
        _broadcast,
        _broadcast_coalesced,
        _broadcast_out,
        _gather,
        _gather_out,
        _scatter,
        _scatter_out,
    ):
        setattr(torch._C, function.__name__, function)


def sums() -> None:
    """Add the gradients of replicas without asking for NCCL.

    All: builds without NCCL would warn about it in every backward pass.
    """
    original = comm.nccl.is_available

    @functools.wraps(original)
    def is_available(tensors):
        if any(hasattr(x, "_index") for x in tensors):
            return False
        return original(tensors)

    comm.nccl.is_available = is_available


def copy_streams() -> None:
    """Scatter inputs from the CPU on the default stream.

    All: PyTorch asks C++ for a background stream. With a guard written in Python C++
    has none, and its name for device 0 isn't cuda:0.
    """
    original = _functions._get_stream

    @functools.wraps(original)
    def _get_stream(device):
        if device.type in Devices.types:
            return default_stream(device)
        return original(device)

    _functions._get_stream = _get_stream


def refused_simulators() -> None:
    """Let ``DataParallel`` raise where it would silently use a single device.

    All: it asks whether any GPU is available. A simulator's devices don't count as
    available, so it would run the module as it is and say nothing.
    """
    original = DataParallel.__init__

    @functools.wraps(original)
    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        original(self, module, device_ids, output_device, dim)
        if self.device_ids:
            return
        named = [torch.device(d) for d in device_ids or () if not isinstance(d, int)]
        placed = [parameter.device for parameter in module.parameters()]
        if any(device.type in Devices.types for device in [*named, *placed]):
            raise RuntimeError(
                "nn.DataParallel uses the virtual GPUs that vgpu.enable sets up, but "
                "there are none (a simulator's devices are separate): call "
                "vgpu.enable(2, model='V100') and simulate on those."
            )

    DataParallel.__init__ = __init__


def time_of_replicas() -> None:
    """Tell the clock about the time in which ``DataParallel`` copies modules.

    All: Python does that for every module, device and step, and devices wait.
    """
    original = DataParallel.replicate

    @functools.wraps(original)
    def replicate(self, module, device_ids):
        if self.src_device_obj.type in Devices.types:
            copies = len(device_ids) * sum(1 for _ in module.modules())
            clock = Devices.machine.clock
            clock.note(HostWorks(copies), index_of(self.src_device_obj), 0)
        return original(self, module, device_ids)

    DataParallel.replicate = replicate


# ------------------------------------------------------------------ the seven functions


def _broadcast(tensor, devices):
    return [_copy(tensor, i) for i in devices]


def _broadcast_coalesced(tensors, devices, buffer_size):
    """Return a list of tensors per device; on their own device they share memory."""
    return [[_copy(tensor, i).data for tensor in tensors] for i in devices]


def _broadcast_out(tensor, out):
    return [target.copy_(tensor, non_blocking=True) for target in out]


def _scatter(tensor, devices, chunk_sizes, dim, streams=None):
    if chunk_sizes is None:
        chunks = tensor.chunk(len(devices), dim)
    elif len(chunk_sizes) != len(devices):
        raise RuntimeError(
            f"Expected one chunk size for each of {len(devices)} devices, but got "
            f"{len(chunk_sizes)}."
        )
    else:
        chunks = tensor.split(list(chunk_sizes), dim)
    return [_copy(chunk, i) for chunk, i in zip(chunks, devices, strict=False)]


def _scatter_out(tensor, out, dim, streams=None):
    chunks = tensor.split([target.size(dim) for target in out], dim)
    return [
        target.copy_(chunk, non_blocking=True)
        for target, chunk in zip(out, chunks, strict=True)
    ]


def _gather(tensors, dim, destination):
    device = torch.device("cpu") if destination == CPU else as_device(destination)
    return torch.cat([tensor.to(device, non_blocking=True) for tensor in tensors], dim)


def _gather_out(tensors, out, dim):
    return out.copy_(_gather(tensors, dim, out.get_device()))


def _copy(tensor, index: int):
    """Return the tensor on virtual GPU ``index``, itself if it's already there."""
    return tensor.to(as_device(index), non_blocking=True)
