"""Results of operators on tensors without values, remembered by what decides on them.

PyTorch computes shapes on the meta device in Python, which takes it longer than most
kernels of the CPU. Programs call the same operators on the same shapes again and again,
so we keep the layout of the result and make an empty tensor like it.
"""

from collections.abc import Mapping, Sequence

import torch
from torch.utils._pytree import tree_leaves

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
        return _empty(layout)
    result = op.call(*args)
    _remember(key, _layout(result))
    return result


def call_any(op, args: Sequence, kwargs: Mapping):
    """Run an operator with any arguments and results, which must be fresh memory."""
    try:
        key = op, torch.get_default_dtype(), *map(_decides, args)
        key += (None, *((name, _decides(value)) for name, value in kwargs.items()))
        layouts = _layouts.get(key)
    except TypeError:
        return op.call(*args, **kwargs)
    if layouts is not None:
        several, layouts = layouts
        results = tuple(map(_empty, layouts))
        return results if several else results[0]
    results = op.call(*args, **kwargs)
    several = type(results) is tuple
    found = results if several else (results,)
    layouts = tuple(map(_layout, found))
    if None not in layouts and not _share(found, (args, kwargs)):
        _remember(key, (several, layouts))
    return results


def _empty(layout: tuple) -> torch.Tensor | None:
    shape, strides, dtype = layout
    if dtype is None:
        return None
    return torch.empty_strided(shape, strides, dtype=dtype, device="meta")


def _layout(result) -> tuple | None:
    """Return what is remembered of a result, None if that isn't all of it."""
    if result is None:
        return (), (), None
    plain = type(result) is torch.Tensor and result.layout is torch.strided
    if not plain or result.storage_offset() or not result.is_meta:
        return None
    if result.is_conj() or result.is_neg():
        return None
    return result.shape, result.stride(), result.dtype


def _share(results: Sequence, arguments) -> bool:
    """Return whether a result is in the memory of an argument.

    ``_unsafe_view`` returns such a tensor, although its schema doesn't say so.
    """
    places = {
        x.untyped_storage()._cdata
        for x in tree_leaves(arguments)
        if isinstance(x, torch.Tensor)
    }
    return any(x.untyped_storage()._cdata in places for x in results if x is not None)


def _remember(key: tuple, layout: tuple | None) -> None:
    if layout is not None:
        if len(_layouts) >= MOST:
            _layouts.clear()
        _layouts[key] = layout


def _decides(value):
    """Return what an argument decides about the result with.

    Raises:
        TypeError: its values may decide, too.
    """
    if isinstance(value, torch.Tensor):
        if not value.is_meta:
            raise TypeError("a tensor with values")
        return value.shape, value.stride(), value.dtype, value.layout
    if isinstance(value, list | tuple):
        return tuple(map(_decides, value))
    return type(value), value
