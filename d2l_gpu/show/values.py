"""Single values: numbers, or one-element tensors and arrays of any framework.

PyTorch tensors stay on their device until several can be fetched together, because each
copy to the host waits for all work queued there.
"""

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import torch

# A number, or a tensor or array of one element, of any framework.
Value: TypeAlias = Any


def single(value: Value) -> "float | torch.Tensor":
    """Return a number, or a PyTorch tensor of shape () detached from its graph.

    Args:
        value: a number, or a tensor or array of one element, of any framework.
    Raises:
        ValueError: value has no element, or more than one.
    """
    shape = tuple(getattr(value, "shape", ()))
    if math.prod(shape) != 1:
        raise ValueError(
            f"A point is drawn from single values, but got a tensor of shape {shape}: "
            "reduce it first, for example with mean()."
        )
    if _is_tensor(value):
        return value.detach().reshape(())
    return float(value.item() if hasattr(value, "item") else value)


def mean(values: "Sequence[float | torch.Tensor]") -> float:
    """Return the mean, with one copy to the host for all tensors on a device."""
    return sum(to_host(values)) / len(values)


def to_host(values: "Sequence[float | torch.Tensor]") -> list[float]:
    """Return the values as numbers, with one copy for all tensors on a device."""
    numbers = list(values)
    by_device: dict[Any, list[int]] = {}
    for i, value in enumerate(values):
        if _is_tensor(value):
            by_device.setdefault(value.device, []).append(i)
    for places in by_device.values():
        stack = sys.modules["torch"].stack
        copied = stack([values[i] for i in places]).cpu().tolist()
        for i, number in zip(places, copied, strict=True):
            numbers[i] = float(number)
    return numbers


def listed(value: "Value | Sequence[Value]") -> list[Value]:
    """Return the values of a sequence, tensor or array as a list; wrap a single one."""
    if hasattr(value, "shape"):
        return [value] if len(value.shape) == 0 else list(value)
    return list(value) if hasattr(value, "__len__") else [value]


def _is_tensor(value: Value) -> bool:
    torch = sys.modules.get("torch")  # already imported, if there are tensors
    return torch is not None and isinstance(value, torch.Tensor)
