"""PyTorch's tensors, for shared graders, and the numbers in them, for all."""

import math
from typing import Any

import numpy as np
import torch

from d2l_gpu import torch as d2l
from d2l_gpu import vgpu
from d2l_gpu.exercises.arrays import Arrays


def as_number(x: Any) -> float:
    """Return a number, or a tensor's only one; NaN for anything else."""
    if isinstance(x, torch.Tensor) and x.numel() == 1:
        return float(x.detach())
    return float(x) if isinstance(x, int | float) else math.nan


def _peek(x: Any) -> dict[str, bytes]:
    """Return the values of a tensor, an array, or a module's parameters and buffers."""
    if isinstance(x, torch.nn.Module):
        parts = [*x.named_parameters(), *x.named_buffers()]
        return {f".{name}": _bytes(part) for name, part in parts}
    if isinstance(x, np.ndarray):
        return {"": x.tobytes()}
    return {"": _bytes(x)} if isinstance(x, torch.Tensor) else {}


def _bytes(x: torch.Tensor) -> bytes:
    if isinstance(x, torch.nn.parameter.UninitializedTensorMixin):
        return b""
    values, what = vgpu.peek(x), repr((x.device, x.dtype, x.shape)).encode()
    for dim, step in enumerate(values.stride()):
        if step == 0:  # expanded: the same numbers again and again
            values = values.narrow(dim, 0, min(1, values.shape[dim]))
    if values.is_meta:  # of a simulator that computes nothing
        return what
    return values.contiguous().flatten().view(torch.uint8).numpy().tobytes() + what


_PLAIN = (
    torch.Tensor,
    torch.nn.Parameter,
    torch.nn.Buffer,
    torch.nn.UninitializedParameter,
    torch.nn.UninitializedBuffer,
)

ARRAYS = Arrays(
    kind=torch.Tensor,
    put=lambda values, device: torch.tensor(values).to(device),
    fetch=lambda x: x.detach().cpu().numpy(),
    device=lambda x: x.device,
    cpu=d2l.cpu,
    gpus=d2l.try_all_gpus,
    peek=_peek,
    is_plain=lambda x: type(x) in _PLAIN or vgpu.is_virtual(x),
)
