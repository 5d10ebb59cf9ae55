"""What decides the kernels of a convolution: shapes, and where channels are in memory.

``sim/cudnn.py`` has the algorithms to choose from.
"""

import torch
from torch._prims_common import suggest_memory_format
from torch.utils.flop_counter import flop_registry

from .sim.clock import Choice, Part
from .sim.cudnn import Sides, ways

tf32_allowed = torch._C._get_cudnn_allow_tf32


def _channels_last(x: torch.Tensor) -> bool:
    return x.dim() < 3 or x.shape[1] == 1 or x.stride(1) == 1


_convolution = torch.ops.aten.convolution.default._op

# The memory formats that have the channels last, by the number of dimensions.
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def convolved(x: torch.Tensor, weight: torch.Tensor, *args, **options) -> torch.Tensor:
    """Compute ``aten.convolution``, also on shapes with the strides it has on a GPU.

    The result has the channels last if the input or the weight has them
    (ATen/native/ConvUtils.h, cudnn_conv_suggest_memory_format). PyTorch leaves that out
    on meta tensors, of which it doesn't know the device.
    """
    if options:
        return torch.ops.aten.convolution(x, weight, *args, **options)
    result = _convolution(x, weight, *args)
    form = FORMATS.get(x.dim()) if result.is_meta else None
    if form is not None and form in map(suggest_memory_format, (x, weight)):
        return torch.empty_like(result, memory_format=form)
    return result


def describe(args, result) -> tuple:
    """Return what decides the kernels of ``aten.convolution``."""
    x, weight, _, stride, _, _, transposed, _, groups = args[:9]
    return (
        *(x.shape, weight.shape, result.shape, tuple(stride), transposed, groups),
        (_channels_last(x), _channels_last(result)),
        tf32_allowed(),
    )


def describe_backward(args, results) -> tuple:
    """Return what decides the kernels of ``aten.convolution_backward``."""
    grad, x, weight, _, stride, _, _, transposed, _, groups, mask = args[:11]
    return (
        *(grad.shape, x.shape, weight.shape, tuple(stride), transposed, groups),
        (_channels_last(grad), _channels_last(x)),
        tuple(mask),
        tf32_allowed(),
    )


def forward(
    x, weight, result, stride, transposed, groups, last, kind: str, nbytes: int
) -> list[Choice]:
    """Return the kernels of a convolution, in each of the ways to compute it."""
    operations = flop_registry[torch.ops.aten.convolution](
        x, weight, None, None, None, None, transposed, out_val=result
    )
    if transposed:  # it computes what the gradient of the input is elsewhere
        sides = Sides(result, x, weight, groups, stride, last[::-1])
        return [Choice(tuple(ways("large", sides, operations, kind)))]
    sides = Sides(x, result, weight, groups, stride, last)
    return [Choice(tuple(ways("small", sides, operations, kind)))]


def backward(
    grad, x, weight, stride, transposed, groups, last, mask, kind: str, nbytes: int
) -> list[Choice | Part]:
    """Return the kernels of the gradients of the input and of the weight."""
    if transposed:
        sides = Sides(grad, x, weight, groups, stride, last)
    else:
        sides = Sides(x, grad, weight, groups, stride, last[::-1])
    found: list[Choice | Part] = []
    for i, name in enumerate(("small" if transposed else "large", "weight")):
        if mask[i]:
            operations = flop_registry[torch.ops.aten.convolution_backward](
                *(grad, x, weight, None, None, None, None, transposed, None, groups),
                [i == 0, i == 1, False],
                out_val=[x, weight, None],
            )
            if i == 1:  # the formula ignores groups here
                operations //= groups
            found.append(Choice(tuple(ways(name, sides, operations, kind))))
    return found or [Part(0, kind, nbytes)]  # only the gradient of the bias
