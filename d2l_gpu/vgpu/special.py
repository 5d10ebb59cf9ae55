"""Handlers: functions that run in place of an operator.

There are handlers for copies, and for operators that the CPU lacks or defines
differently. ``records.py`` assigns them. A handler takes the facts about the operator,
then the operator's own arguments.
"""

import warnings

import torch

from . import errors
from .devices import Devices, index_of
from .layouts import bytes_of, parts
from .operators import overload
from .sim.machine import HOST
from .storage import set_pinned_mark
from .sync_debug import mode, report, warn_program
from .tensor import VirtualTensor, refresh, reserve, run, wrap

# ------------------------------------------------------------------ copies


def _memory_of(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return a tensor with the values, and the index of the memory that holds them."""
    if isinstance(tensor, VirtualTensor):
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
    # For the clock, a part of a pinned tensor isn't pinned yet: only the tensor is.
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
        nbytes = bytes_of(read) + bytes_of(written)
        Devices.machines[source].kernel_issued(source, ("copy_", nbytes))
        return
    # PyTorch's kernels for CUDA convert types on the CPU; between two GPUs, on the one
    # that they read from. So that decides which type crosses the link.
    there = parts(written)
    elements = parts(read) if target == HOST else there
    for part, element in zip(there, elements, strict=True):
        nbytes = part.numel() * element.element_size()
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


def _report(source: int, target: int, non_blocking: bool = False) -> None:
    """Say so, if the program wants to know where the host waits, and here it does."""
    if mode.number and not non_blocking and (source == HOST) != (target == HOST):
        report(Devices.names[target if source == HOST else source])


MOST_KEPT = 2**16  # integers


def copy_(op, target, source, non_blocking=False):
    """Run ``target.copy_(source)``, in any direction."""
    if not isinstance(source, torch.Tensor):  # a number, which starts on the host
        source = torch.tensor(source)
    to, there = _memory_of(target)
    values, here = _memory_of(source)
    if values.is_meta and not to.is_meta:
        values = _values(values, op.name)
    _report(here, there, non_blocking)
    to.copy_(values)
    _keep(to, values)
    if to.layout is not torch.strided and there != HOST:
        refresh(target)  # copying changes how many elements it has
    host_side = source if here == HOST else target
    _copied(here, there, host_side, values, to, non_blocking)
    return target


def across(op, *tensors):
    """Compare the shapes or sizes of tensors, which can be on different devices."""
    return op.call(*(_memory_of(tensor)[0] for tensor in tensors))


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
            values = _values(values, f"to({str(device)!r})")
        _report(here, HOST, non_blocking)
        result = op.call(
            values, dtype=dtype, device=device, memory_format=memory_format
        )
        # As on a real GPU: while the host goes on, this memory must not move.
        if non_blocking:
            set_pinned_mark(result)
        _copied(here, HOST, result, values, result, non_blocking)
        return result
    there = index_of(device)
    options = {"dtype": dtype, "memory_format": memory_format}
    _report(here, there, non_blocking)
    reserve(op, there, (values,), options)
    moved = op.call(values, device=Devices.backings[there], **options)
    _keep(moved, values)
    _copied(here, there, tensor, values, moved, non_blocking)
    return wrap(moved, there)


def item(op, tensor):
    """Run ``tensor.item()``: one element crosses to the host, which waits for it."""
    values = tensor._backing
    if values.is_meta:
        values = _values(values, "item()")
    _report(tensor._index, HOST)
    _moved(tensor._index, HOST, tensor.element_size(), None, False)
    return op.call(values)


def _values(backing: torch.Tensor, asked: str) -> torch.Tensor:
    """Return values on the CPU for a tensor that has none, if the program may ask.

    They are those that were kept, or zeros.

    Raises:
        RuntimeError: it may not.
    """
    if not Devices.zeros:
        raise errors.no_values(asked)
    values, version = getattr(backing, "_kept", (None, None))
    if values is not None and version == backing._version:
        return values
    warn_program(errors.NO_VALUES)
    return torch.zeros_like(backing, device="cpu")


def _keep(backing: torch.Tensor, values: torch.Tensor) -> None:
    """Keep a few integers that are copied to a device without values.

    C++ copies them back, such as the numbers of parameters in DDP's reducer, and trusts
    them.
    """
    if (
        Devices.zeros
        and backing.is_meta
        and not values.is_meta
        and not values.is_floating_point()
        and values.numel() <= MOST_KEPT
    ):
        backing._kept = values.detach().clone(), backing._version


def in_parts(op, *args, **kwargs):
    """Run a composite by the operators that it's made of, which know devices.

    Below autograd, in inference mode for example, it would come here as a whole.
    """
    return overload(f"{op.name}.{op.schema.overload_name}").decompose(*args, **kwargs)


def alerting(op, *args, **kwargs):
    """Run an operator, or say that on a GPU it isn't deterministic if that is asked."""
    if torch.are_deterministic_algorithms_enabled():
        message = errors.not_deterministic(op.record.alert)
        if not torch.is_deterministic_algorithms_warn_only_enabled():
            raise RuntimeError(message)
        warnings.warn(message, stacklevel=2)
    return run(op, args, kwargs)


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


def zeros(size, **options):
    """Return zeros that have memory."""
    return torch.ops.aten.zeros(size, **options)


# ------------------------------------------------------------------ SyncBatchNorm

# Substitutes for kernels that PyTorch has for GPUs only (ATen/native/cuda/
# Normalization.cuh). They get backing tensors. Statistics are of type float32 at least.


def batch_norm_stats(x, eps):
    """Return mean and reciprocal standard deviation of each channel, of one rank."""
    variance, mean = torch.var_mean(_wide(x), _others(x), correction=0)
    return mean, torch.rsqrt(variance + eps)


def batch_norm_gather_stats(
    x, mean, invstd, running_mean, running_var, momentum, eps, counts
):
    """Combine the statistics of all ranks, and update the running ones.

    Args:
        mean, invstd: a row for each rank.
        counts: the number of values of a channel that each rank has.
    Returns:
        Mean and reciprocal standard deviation of each channel.
    """
    counts = counts.to(mean.dtype).view(-1, 1)
    n = counts.sum()
    total = (counts * mean).sum(0) / n
    variance = (1 / invstd**2 - eps + (mean - total) ** 2).mul(counts).sum(0) / n
    if running_mean is not None:
        running_mean.lerp_(total.to(running_mean.dtype), momentum)
        unbiased = variance * n / (n - 1)
        running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    return total, torch.rsqrt(variance + eps)


def batch_norm_elemt(x, weight, bias, mean, invstd, eps):
    """Normalize, then scale and shift."""
    y = (_wide(x) - _column(mean, x)) * _column(invstd, x)
    if weight is not None:
        y = y * _column(weight, x)
    if bias is not None:
        y = y + _column(bias, x)
    return y.to(x.dtype)


def batch_norm_backward_reduce(
    grad, x, mean, invstd, weight, input_g, weight_g, bias_g
):
    """Return two sums over a rank's part, and the gradients of weight and bias."""
    grad = _wide(grad)
    sum_dy = grad.sum(_others(x))
    sum_dy_xmu = (grad * (_wide(x) - _column(mean, x))).sum(_others(x))
    dtype = sum_dy.dtype if weight is None else weight.dtype
    grad_weight = (sum_dy_xmu * invstd).to(dtype) if weight_g else x.new_empty(0)
    grad_bias = sum_dy.to(dtype) if bias_g else x.new_empty(0)
    # No two results may share memory.
    return sum_dy.clone(), sum_dy_xmu, grad_weight, grad_bias


def batch_norm_backward_elemt(
    grad, x, mean, invstd, weight, sum_dy, sum_dy_xmu, counts
):
    """Return the gradient of the input, given the sums over all ranks."""
    n = counts.sum().to(mean.dtype)
    centred = (_wide(x) - _column(mean, x)) * _column(invstd**2 * sum_dy_xmu / n, x)
    scale = invstd if weight is None else invstd * weight.to(invstd.dtype)
    result = (_wide(grad) - _column(sum_dy / n, x) - centred) * _column(scale, x)
    return result.to(x.dtype)


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _others(x: torch.Tensor) -> list[int]:
    """Return the dimensions that aren't that of channels."""
    return [i for i in range(x.dim()) if i != 1]


def _column(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return a value for each channel in a shape that broadcasts with ``x``."""
    return values.view(-1, *[1] * (x.dim() - 2))
