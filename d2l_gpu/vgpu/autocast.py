"""``torch.autocast('vgpu')``: matrix products and convolutions in fewer bits.

Like CUDA's list of operators to run in the lower precision, for those that matter;
the others run in the type of their operands.
"""

import torch

KEY = "AutocastPrivateUse1"
LOWER_PRECISION = ("linear", "matmul", "mm", "bmm", "addmm", "conv1d", "conv2d")


def register() -> list[torch.library.Library]:
    """Register the kernels; they last as long as the libraries that are returned."""
    every = torch.library.Library("_", "IMPL")
    every.fallback(torch.library.fallthrough_kernel, KEY)
    some = torch.library.Library("aten", "IMPL")
    for name in LOWER_PRECISION:
        func = getattr(torch.ops.aten, name).default
        some.impl(name, _casting(func), KEY)
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
