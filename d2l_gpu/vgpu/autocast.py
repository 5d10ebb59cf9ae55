"""``torch.autocast('vgpu')``: the types in which operators compute, as for CUDA.

PyTorch sorts operators into lists (ATen/autocast_mode.h): some run in the lower
precision, some in float32, some in the widest type among their operands, and all others
in whatever type they get. ``records.py`` says which operator belongs where, by naming
one of the functions below. Each makes the kernel that casts the operands first.

Operands on the CPU, integers and float64 are never cast.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from weakref import ReferenceType, ref

import torch
from torch._ops import OpOverload

from .operators import overload
from .tensor import VirtualTensor

if TYPE_CHECKING:
    from .records import Record

KEY = "AutocastPrivateUse1"
_HALVES = (torch.float16, torch.bfloat16)

# Copies of parameters in the lower precision, by the parameter's id, each with a weak
# reference to it. Layers that share a parameter share its copy. PyTorch forgets all of
# them where autocast ends (see ``patches/amp.py``).
_kept: dict[int, tuple[ReferenceType, torch.Tensor]] = {}
forget = _kept.clear


def register(records: Mapping[str, "Record"]) -> list[torch.library.Library]:
    """Register the kernels; they last as long as the returned libraries.

    Args:
        records: records by operator name; some are marked ``autocast``.
    """
    every = torch.library.Library("_", "IMPL")
    every.fallback(torch.library.fallthrough_kernel, KEY)
    some = torch.library.Library("aten", "IMPL")
    for name, record in records.items():
        # The version of PyTorch might not have this one.
        if record.autocast is not None and (func := overload(name)) is not None:
            some.impl(name, record.autocast(func), KEY)
    return [every, some]


# ------------------------------------------------------------------ the lists


def lower(func: OpOverload) -> Callable:
    """Make the kernel of an operator that runs in the lower precision."""

    def kernel(*args, **kwargs):
        return _call(func, args, kwargs, torch.get_autocast_dtype("vgpu"))

    return kernel


def float32(func: OpOverload) -> Callable:
    """Make the kernel of an operator that runs in float32."""

    def kernel(*args, **kwargs):
        return _call(func, args, kwargs, torch.float32)

    return kernel


def into_float32(func: OpOverload) -> Callable:
    """Make the kernel of an operator whose result is float32 unless it's told a type.

    Its operand stays as it is; the kernel itself converts each element.
    """

    def kernel(x, *args, dtype=None, **kwargs):
        # softmax takes its type by position as well.
        if dtype is None and _can_cast(x) and not _has_type(args):
            dtype = torch.float32
        if dtype is not None:
            kwargs["dtype"] = dtype
        with _outside():
            return func(x, *args, **kwargs)

    return kernel


def norm(func: OpOverload) -> Callable:
    """Make the kernel of ``norm``, whose overloads with a type are others."""
    some = func._schema.overload_name == "ScalarOpt_dim"
    ops = torch.ops.aten.norm
    typed = ops.ScalarOpt_dim_dtype if some else ops.ScalarOpt_dtype

    def kernel(x, p=2, *args, **kwargs):
        with _outside():
            if not _can_cast(x):
                return func(x, p, *args, **kwargs)
            if some:  # keepdim is optional here, but not there
                args = args if len(args) > 1 else (*args, kwargs.pop("keepdim", False))
            return typed(x, p, *args, dtype=torch.float32)

    return kernel


def widest(func: OpOverload) -> Callable:
    """Make the kernel of an operator that runs in the widest type of its operands."""

    def kernel(*args, **kwargs):
        dtype = torch.get_autocast_dtype("vgpu")
        if any(x.dtype is torch.float32 for x in _operands(args, kwargs)):
            dtype = torch.float32
        return _call(func, args, kwargs, dtype)

    return kernel


def refused(func: OpOverload) -> Callable:
    """Make the kernel of binary cross-entropy, whose gradient needs float32."""

    def kernel(*args, **kwargs):
        raise RuntimeError(
            "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe "
            "to autocast: use binary_cross_entropy_with_logits or BCEWithLogitsLoss, "
            "which also take the place of the sigmoid before them."
        )

    return kernel


# ------------------------------------------------------------------ casting


def _call(func: OpOverload, args, kwargs, dtype: torch.dtype):
    """Run an operator on operands of a type."""
    with _outside():
        args = [_cast(x, dtype) for x in args]
        kwargs = {name: _cast(x, dtype) for name, x in kwargs.items()}
        return func(*args, **kwargs)


def _outside():
    inside = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, KEY))
    return torch._C._ExcludeDispatchKeyGuard(inside)


def _cast(value, dtype: torch.dtype):
    if isinstance(value, list | tuple):
        return [_cast(x, dtype) for x in value]
    if not _can_cast(value) or value.dtype is dtype:
        return value
    if dtype not in _HALVES or not _worth_keeping(value):
        return value.to(dtype)
    reference, kept = _kept.get(id(value), (None, None))
    if reference is None or reference() is not value or kept.dtype is not dtype:
        kept = value.to(dtype)
        _kept[id(value)] = ref(value), kept
    return kept


def _worth_keeping(value: torch.Tensor) -> bool:
    return (
        value.dtype is torch.float32
        and value.is_leaf
        and value.requires_grad
        and not value._is_view()
        and torch.is_autocast_cache_enabled()
    )


def _can_cast(value) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and (type(value) is VirtualTensor or value.device.type in ("vgpu", "cuda"))
        and value.dtype in (torch.float32, *_HALVES)
    )


def _operands(args, kwargs):
    """Yield the tensors that could be cast, in lists too."""
    for value in (*args, *kwargs.values()):
        for x in value if isinstance(value, list | tuple) else (value,):
            if _can_cast(x):
                yield x


def _has_type(args) -> bool:
    return any(isinstance(x, torch.dtype) for x in args)
