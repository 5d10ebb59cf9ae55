"""``torch.autocast('vgpu')``: matrix products and convolutions in lower precision.

For CUDA, PyTorch has a long list of operators to run in lower precision. Here it is
only those that matter for speed, which ``records.py`` marks. All others run in the type
of their operands.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .records import Record

KEY = "AutocastPrivateUse1"


def register(records: Mapping[str, "Record"]) -> list[torch.library.Library]:
    """Register the kernels; they last as long as the returned libraries.

    Args:
        records: records by operator name; some are marked ``autocast``.
    """
    every = torch.library.Library("_", "IMPL")
    every.fallback(torch.library.fallthrough_kernel, KEY)
    some = torch.library.Library("aten", "IMPL")
    for name, record in records.items():
        if record.autocast:
            some.impl(name, _casting(getattr(torch.ops.aten, name).default), KEY)
    return [every, some]


def _casting(func):
    inside = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, KEY))

    def kernel(*args, **kwargs):
        dtype = torch.get_autocast_dtype("vgpu")
        with torch._C._ExcludeDispatchKeyGuard(inside):
            args = [
                a.to(dtype)
                if isinstance(a, torch.Tensor) and a.dtype is torch.float32
                else a
                for a in args
            ]
            return func(*args, **kwargs)

    return kernel
