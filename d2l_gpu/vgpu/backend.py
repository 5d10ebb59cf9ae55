"""Registration of the device type ``vgpu`` with PyTorch: once per process.

PyTorch keeps one device type free for backends outside its own source, PrivateUse1.
Since version 2.10 its device guard and hooks can be written in Python
(``torch._C._acc``); autograd needs both. Everything else registered here is kernels for
operators that make a tensor from ``device=`` alone. All other operators get a virtual
tensor as an argument, so they go through its dispatch.
"""

import warnings

import torch
from torch.torch_version import TorchVersion

from . import (
    autocast,
    composites,
    device_api,
    errors,
    patches,
    processes,
)
from .operators import all_operators, overload
from .records import RECORDS
from .tensor import factory

NAME, KEY = "vgpu", "PrivateUse1"
MINIMUM = (2, 10)

# Registrations end when their Python objects die.
_kept: list = []


def register() -> None:
    """Make ``vgpu`` a device type of PyTorch; only the first call does anything.

    Raises:
        RuntimeError: PyTorch is too old, or another backend has taken the place.
    """
    if _kept:
        return
    check_version(torch.__version__)
    taken = torch._C._get_privateuse1_backend_name()
    if taken not in ("privateuseone", NAME):
        raise RuntimeError(
            f"Virtual GPUs cannot be used here, because the backend {taken!r} already "
            "occupies PyTorch's only slot for a device type from outside "
            "(PrivateUse1)."
        )
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, device_api)
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=False
    )
    _register_guard()
    _kept.append(_register_kernels())
    _kept.append(refuse_layouts(KEY))
    _kept.extend(composites.register(RECORDS))
    _kept.extend(autocast.register(RECORDS))
    processes.register()
    patches.apply()


def check_version(version: str) -> None:
    """Raise RuntimeError unless this version of PyTorch can have virtual GPUs."""
    # Nightly builds of the first version count, too: dev0 comes before all of them.
    if TorchVersion(version) < "{}.{}.dev0".format(*MINIMUM):
        raise RuntimeError(
            f"Virtual GPUs need PyTorch {MINIMUM[0]}.{MINIMUM[1]} or newer, but this "
            f"is {version}: upgrade it as described on "
            "https://pytorch.org/get-started/locally/."
        )


def _register_guard() -> None:
    """Give autograd a guard and hooks; without either one, C++ aborts or raises."""
    from torch._C import _acc
    from torch._C._autograd import DeviceType

    class Guard(_acc.DeviceGuard):
        def type_(self):
            return DeviceType.PrivateUse1

    class Hooks(_acc.PrivateUse1Hooks):
        def is_available(self):
            return True

        def is_built(self):
            return True

        def has_primary_context(self, index):
            return True

    guard, hooks = Guard(), Hooks()
    _acc.register_python_privateuseone_device_guard(guard)
    _acc.register_python_privateuseone_hook(hooks)
    _kept.extend([guard, hooks])


def _register_kernels() -> torch.library.Library:
    library = register_factories(KEY)
    for name, record in RECORDS.items():
        if record.below_python:
            library.impl(name, _kernel(overload(name)), KEY)
    for name, func in all_operators():
        if not _has_kernel(name, KEY) and _composite_beside_kernel(name, _has_kernel):
            library.impl(name.removeprefix("aten::"), _kernel(func), KEY)
    return library


def register_factories(key: str) -> torch.library.Library:
    """Register kernels for the operators that make a tensor from ``device=`` alone.

    Args:
        key: the dispatch key of a device type, whose devices become virtual GPUs.
    Returns:
        The library; the kernels last as long as it does.
    """
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        # A build with CUDA has kernels already; without a GPU they're useless.
        warnings.filterwarnings("ignore", ".*only once for all operators", UserWarning)
        for name, func in all_operators():
            if _makes_tensor_from_device(func):
                for layout in _layouts_of(name):
                    library.impl(
                        name.removeprefix("aten::"),
                        _kernel(func),
                        f"{layout}{key}",
                        allow_override=True,
                    )
    return library


_has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key


def refuse_layouts(key: str) -> torch.library.Library:
    """Refuse nested and quantized tensors in one sentence instead of a page."""
    library = torch.library.Library("_", "IMPL")
    for kind, layout in (
        ("NestedTensor", "nested"),
        ("Quantized", "quantized"),
    ):

        def refuse(func, *args, layout=layout, **kwargs):
            raise errors.unsupported_layout(layout)

        library.fallback(refuse, f"{kind}{key}")
    return library


def _kernel(func):
    def kernel(*args, **kwargs):
        return factory(func, *args, **kwargs)

    return kernel


def _makes_tensor_from_device(func) -> bool:
    """ones, randn, arange …: they take a device, no tensor, and return a tensor."""
    schema = func._schema
    return (
        any(a.name == "device" for a in schema.arguments)
        and not any("Tensor" in str(a.type) for a in schema.arguments)
        and [str(r.type) for r in schema.returns] == ["Tensor"]
        and not any(word in schema.name for word in ("quantized", "nested"))
    )


def _layouts_of(name: str) -> list[str]:
    """Return the kinds of dispatch keys for which an operator makes tensors.

    All make strided ones except those of sparse tensors. Sparse ones are made by those
    for which the CPU has a kernel; the others are made of these.
    """
    dense = [] if "sparse" in name else [""]
    return dense + [x for x in ("Sparse", "SparseCsr") if _has_kernel(name, f"{x}CPU")]


def _composite_beside_kernel(name: str, has) -> bool:
    """silu, mish …: besides the composite, the CPU has a kernel.

    Without a kernel of ours, PyTorch would choose the composite, which rounds
    differently.
    """
    return (
        has(name, "CompositeImplicitAutograd")
        and has(name, "CPU")
        and (has(name, "Autograd") or has(name, "AutogradCPU"))
    )
