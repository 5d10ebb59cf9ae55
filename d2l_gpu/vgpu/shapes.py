"""Results of operators on tensors without values, remembered by what decides on them.

PyTorch computes shapes on the meta device in Python, which takes it longer than most
kernels of the CPU. Programs call the same operators on the same shapes again and again,
so we keep the layout of the result and make an empty tensor like it.
"""

import torch

MOST = 2**14  # layouts that are kept

_layouts: dict[tuple, tuple] = {}


def call(op, args: tuple) -> torch.Tensor:
    """Run an operator on one or two meta tensors that come first.

    Its result must be fresh memory, and a single tensor.
    """
    try:
        key = op, torch.get_default_dtype(), *map(_decides, args)
        layout = _layouts.get(key)
    except TypeError:  # a symbolic size, for example, has no hash
        return op.call(*args)
    if layout is not None:
        shape, strides, dtype = layout
        return torch.empty_strided(shape, strides, dtype=dtype, device="meta")
    result = op.call(*args)
    plain = type(result) is torch.Tensor and result.layout is torch.strided
    if plain and not (result.storage_offset() or result.is_conj() or result.is_neg()):
        if len(_layouts) >= MOST:
            _layouts.clear()
        _layouts[key] = result.shape, result.stride(), result.dtype
    return result


def _decides(value):
    """Return what an argument decides about the result with."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.dtype, value.layout
    if isinstance(value, list):
        return tuple(value)
    return type(value), value
