"""Handlers: functions that run in place of an operator.

There are handlers for copies, and for operators that the CPU lacks or defines
differently. ``records.py`` assigns them. A handler takes the facts about the operator,
then the operator's own arguments.
"""

import torch

from . import errors
from .devices import Devices, index_of
from .sim.machine import HOST
from .tensor import VirtualTensor, reserve, run, wrap

# ------------------------------------------------------------------ copies


def _memory_of(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return a tensor with the values, and the index of the memory that holds them."""
    if type(tensor) is VirtualTensor:
        return tensor._backing, tensor._index
    return tensor, home(tensor)


def home(tensor: torch.Tensor) -> int:
    """Return the index of the memory that holds an ordinary tensor's values.

    That is ``HOST``, except for a backing tensor without its wrapper: C++ returns
    those as the results of collectives.
    """
    if type(tensor) is torch.Tensor and tensor.layout is torch.strided:
        charge = getattr(tensor.untyped_storage(), "_vgpu_charge", None)
        if charge is not None:
            return charge.index
    return HOST


def _is_pinned(tensor: torch.Tensor | None) -> bool:
    """Whether a tensor's memory is page-locked, for real or by our mark."""
    if tensor is None:
        return False
    return getattr(tensor, "_vgpu_pinned", False) or (
        torch.cuda.is_available() and tensor.is_pinned()
    )


def _copied(
    source: int,
    target: int,
    host_side: torch.Tensor,
    read: torch.Tensor,
    written: torch.Tensor,
    non_blocking: bool,
) -> None:
    """Tell the machines about a copy from one memory to another, or within one."""
    if source == target:
        nbytes = read.nbytes + written.nbytes
        Devices.machines[source].kernel_issued(source, ("copy_", nbytes))
        return
    # PyTorch's kernels for CUDA convert types on the CPU; between two GPUs, on the one
    # that they read from. So that decides which type crosses the link.
    element = read if target == HOST else written
    nbytes = written.numel() * element.element_size()
    _moved(source, target, nbytes, host_side, non_blocking)


def _moved(
    source: int,
    target: int,
    nbytes: int,
    host_side: torch.Tensor | None,
    non_blocking: bool,
) -> None:
    ways = [(source, target)]
    if HOST not in (source, target) and (
        Devices.machines[source] is not Devices.machines[target]
    ):
        ways = [(source, HOST), (HOST, target)]  # they belong to two machines
    for source, target in ways:
        machine = Devices.machines[target if source == HOST else source]
        machine.bytes_moved(
            source,
            target,
            nbytes,
            pinned=_is_pinned(host_side),
            blocking=HOST in (source, target) and not non_blocking,
        )


def copy_(op, target, source, non_blocking=False):
    """Run ``target.copy_(source)``, in any direction."""
    to, there = _memory_of(target)
    values, here = _memory_of(source)
    if values.is_meta and not to.is_meta:
        raise errors.no_values(op.name)
    to.copy_(values)
    host_side = source if here == HOST else target
    _copied(here, there, host_side, values, to, non_blocking)
    return target


def copy_from(op, source, target, non_blocking=False):
    """Run ``copy_`` as C++ calls it, with the arguments swapped."""
    return copy_(op, target, source, non_blocking)


def to_copy(
    op,
    tensor,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=None,
    non_blocking=False,
    memory_format=None,
):
    """Run ``tensor.to(...)`` when the device, type or format changes."""
    values, here = _memory_of(tensor)
    device = tensor.device if device is None else torch.device(device)
    if device.type not in Devices.types:
        if values.is_meta and device.type != "meta":
            raise errors.no_values(f"to({str(device)!r})")
        result = op.call(
            values, dtype=dtype, device=device, memory_format=memory_format
        )
        # As on a real GPU: while the host goes on, this memory must not move.
        result._vgpu_pinned = non_blocking
        _copied(here, HOST, result, values, result, non_blocking)
        return result
    there = index_of(device)
    options = {"dtype": dtype, "memory_format": memory_format}
    reserve(op, there, (values,), options)
    moved = op.call(values, device=Devices.backings[there], **options)
    _copied(here, there, tensor, values, moved, non_blocking)
    return wrap(moved, there)


def item(op, tensor):
    """Run ``tensor.item()``: one element crosses to the host, which waits for it."""
    if tensor._backing.is_meta:
        raise errors.no_values("item()")
    _moved(tensor._index, HOST, tensor.element_size(), None, False)
    return op.call(tensor._backing)


# ------------------------------------------------------------------ not on the CPU


def softmax(op, x, dim, half_to_float):
    """Run ``_softmax`` of 16-bit floats with a float32 result.

    The CPU has no such operator. There PyTorch converts the type first (in backward,
    afterwards), but for other devices it asks one operator to do both.
    """
    return run(op, (x.float() if half_to_float else x, dim, False), {})


def softmax_backward(op, grad, output, dim, input_dtype):
    """Return the gradient of ``softmax``, in the type of its input."""
    return run(op, (grad, output, dim, grad.dtype), {}).to(input_dtype)


def sync_batch_norm(op, *args, **kwargs):
    """Refuse SyncBatchNorm with a sentence."""
    raise NotImplementedError(
        "SyncBatchNorm cannot run on virtual GPUs, since the CPU has no kernels for "
        "it: use BatchNorm, which normalizes each rank's part of the batch by itself."
    )
