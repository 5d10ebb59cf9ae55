"""The error messages of virtual GPUs, worded as PyTorch words them.

The wording follows PyTorch's sources: aten/src/ATen/TensorIterator.cpp and
torchgen/dest/register_dispatch_key.py (mismatch), c10/cuda/CUDACachingAllocator.cpp
(memory), c10/cuda/CUDAFunctions.cpp (ordinals), torch/serialization.py (files).
"""

import re

import torch
from torch.utils._pytree import tree_leaves


def name_of(tensor: torch.Tensor) -> torch.device:
    """Return a tensor's device as ``vgpu:1``, even if ``x.device`` says cuda:1."""
    return torch.Tensor.device.__get__(tensor)


def device_mismatch(op, args, kwargs) -> RuntimeError:
    """Return the error for a call whose tensors are on different devices."""
    found: list[tuple[str, torch.Tensor]] = []
    named = [(a.name, x) for a, x in zip(op.schema.arguments, args, strict=False)]
    for name, value in named + list(kwargs.items()):
        for x in value if isinstance(value, list | tuple) else (value,):
            if isinstance(x, torch.Tensor):
                found.append((name, x))
    virtual = next(x for _, x in found if x.device.type != "cpu")
    # TensorIterator compares every tensor with the first one that isn't on the CPU. The
    # checks that PyTorch generates for other operators compare with the very first one.
    first = virtual
    if not op.pointwise:
        first = next(x for _, x in found if x is virtual or not op.accepts_host(x))
    name, other = next(
        (
            (n, x)
            for n, x in found
            if x.device != first.device
            and not (x.device.type == "cpu" and op.accepts_host(x))
        ),
        ("", None),
    )
    if other is None:
        kinds = {type(x).__name__ for _, x in found if not hasattr(x, "_backing")}
        return RuntimeError(
            f"{op.name} can't be computed on tensors of {name_of(virtual)} together "
            f"with a {' and a '.join(sorted(kinds))}, although all are on that device."
        )
    if op.pointwise:
        return RuntimeError(
            "Expected all tensors to be on the same device, but found at least two "
            f"devices, {name_of(first)} and {name_of(other)}!"
        )
    if op.indexes:
        return RuntimeError(
            "indices should be either on cpu or on the same device as the indexed "
            f"tensor ({name_of(found[0][1])})"
        )
    method = f"wrapper_{name_of(virtual).type.upper()}_{op.name}"
    return RuntimeError(
        f"Expected all tensors to be on the same device, but got {name} is on "
        f"{name_of(other)}, different from other tensors on {name_of(first)} (when "
        f"checking argument in method {method})"
    )


def collective_mismatch(op, devices: list[torch.device]) -> RuntimeError:
    """Return the error for a collective whose tensors are on different devices."""
    name = op.name.partition("::")[2].strip("_")
    other = next(device for device in devices if device != devices[0])
    return RuntimeError(
        f"{name} expects all tensors of this process to be on the same device, but "
        f"found at least two devices, {devices[0]} and {other}!"
    )


def invalid_ordinal(index: int, count: int) -> RuntimeError:
    """Return the error for the index of a device that doesn't exist."""
    return RuntimeError(
        f"vgpu error: invalid device ordinal: there is no vgpu:{index}, because only "
        f"{count} virtual GPU{'s are' if count > 1 else ' is'} in use."
    )


def not_loaded(location: torch.device, count: int) -> RuntimeError:
    """Return the error for a file whose tensors were on a device that doesn't exist."""
    kind = location.type
    return RuntimeError(
        f"Attempting to deserialize object on {kind.upper()} device {location.index} "
        f"but torch.{kind}.device_count() is {count}. Please use torch.load with "
        "map_location to map your storages to an existing device."
    )


def unsupported_layout(layout: torch.layout | str) -> NotImplementedError:
    """Return the error for tensors of another kind, such as nested ones."""
    name = str(layout).removeprefix("torch.")
    return NotImplementedError(
        "Virtual GPUs support strided tensors and sparse ones (COO, CSR and CSC), not "
        f"{name} ones: keep this tensor on the CPU."
    )


def wrong_generator(generator: torch.Generator) -> RuntimeError:
    """Return the error for a generator of another device type."""
    return RuntimeError(
        "Expected a 'vgpu' device type for generator but found "
        f"'{generator.device.type}'"
    )


def not_deterministic(kernel: str) -> str:
    """Return the alert of a kernel, worded as in aten/src/ATen/Context.cpp."""
    return (
        f"{kernel} does not have a deterministic implementation, but you set "
        "'torch.use_deterministic_algorithms(True)'. You can turn off determinism just "
        "for this operation, or you can use the 'warn_only=True' option, if that's "
        "acceptable for your application."
    )


def no_values(asked: str) -> RuntimeError:
    """Return the error for asking a value of a simulation that has only shapes."""
    from .devices import Devices  # which imports this module

    if Devices.zeros:
        return RuntimeError(
            f"{asked} needs the values of a tensor, which a simulated cluster doesn't "
            "have: its result would have a size that depends on them."
        )
    return RuntimeError(
        f"{asked} needs the values of a tensor, but backing='meta' simulates only "
        "shapes: use backing='cpu' to have values."
    )


NO_VALUES = (
    "In a simulated cluster tensors have no values: what is copied to the CPU, such as "
    "by item(), is zero."
)


NO_TIMES = (
    "In a simulated cluster no time is known before all ranks have run: elapsed_time() "
    "is 0."
)


def not_traced() -> NotImplementedError:
    """Return the error for a tensor that stands for another one in a trace."""
    return NotImplementedError(
        "A tensor on a virtual GPU can't be combined with a fake tensor, which has no "
        "values: while code is traced, its tensors have to be arguments of what is "
        "traced, or attributes of its modules."
    )


def explained(error: Exception, op, arguments) -> Exception:
    """Return what to raise for an operator's error: that error, or one of a GPU.

    A kernel of the CPU says which value of a tensor was wrong, such as a label. On a
    GPU it's an assertion in the kernel.

    Operators of the meta device compute shapes only. When they fail, their message is
    about the meta device, which the program has never mentioned.
    """
    values = tree_leaves(arguments)
    if op.kernel and _ASSERTED.search(str(error)):
        device = next(x.device for x in values if hasattr(x, "_backing"))
        return assertion_failed(device, str(error))
    if not any(
        isinstance(x, torch.Tensor) and x.is_meta for x in map(_backing, values)
    ):
        return error
    if isinstance(error, NotImplementedError) or "meta tensor" in str(error).lower():
        return no_values(op.name)
    return error


# What kernels of the CPU say of values for which those of CUDA have an assertion
# (Loss.cu, NLLLoss2d.cu, Indexing.cu, ScatterGatherKernel.cu and MultinomialKernel.cu
# in aten/src/ATen/native/cuda).
_ASSERTED = re.compile(
    r"Target -?\d+ is out of bounds"
    r"|index out of range in self"
    r"|index -?\d+ is out of bounds for dimension"
    r"|tried to access index"
    r"|all elements of (input|target) should be between 0 and 1"
    r"|probability tensor contains"
)


def assertion_failed(device: torch.device, words: str) -> RuntimeError:
    """Return the error for a value that a GPU's kernel finds wrong.

    Args:
        device: as the program sees it, cuda or vgpu.
        words: what the CPU's kernel says.
    """
    name = device.type.replace("cuda", "CUDA")
    return torch.AcceleratorError(
        f"{name} error: device-side assert triggered: {words.rstrip('.')}. A real GPU "
        "wouldn't say which value it was. It would raise this at a later line, where "
        "the host waits for it, and then in every call until the process ends."
    )


def _backing(value):
    return getattr(value, "_backing", value)
