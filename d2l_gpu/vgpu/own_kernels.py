"""Operators that a program defines, and their kernels in Python.

A kernel that was registered with ``torch.library`` for the device, or for all devices,
gets virtual tensors, as it would get those of a real GPU: it may ask for their device,
and its operators are counted. Without one, the operator runs as any other does, by the
CPU's kernel on the backing tensors.
"""

from collections.abc import Callable

import torch
from torch._C import DispatchKey
from torch._ops import OpOverload

from .devices import Devices
from .operators import Operator
from .tensor import run

# What PyTorch's dispatcher would look for, in this order, by the name of a device type.
_KEYS = {
    "vgpu": DispatchKey.PrivateUse1,
    "cuda": DispatchKey.CUDA,
    "all": DispatchKey.CompositeExplicitAutograd,
}
# Python's kernels as "namespace/operator/key": C++'s would fail on virtual tensors.
_registered = getattr(torch.library, "_impls", frozenset())


def choosing(func: OpOverload, otherwise: Callable | None) -> Callable:
    """Return the handler of an operator that isn't PyTorch's own.

    It looks for a kernel at each call, because kernels can be registered at any time.

    Args:
        otherwise: the handler of its record, if it has one.
    """
    name = func._schema.name.replace("::", "/", 1)
    if func._schema.overload_name:
        name += f".{func._schema.overload_name}"
    entries = [(kind, key, f"{name}/{key.name}") for kind, key in _KEYS.items()]

    def handler(op: Operator, *args, **kwargs):
        for kind, key, entry in entries:
            if entry in _registered and kind in (*Devices.types, "all"):
                return func._op_dk(key, *args, **kwargs)
        if otherwise is not None:
            return otherwise(op, *args, **kwargs)
        return run(op, args, kwargs)

    return handler
