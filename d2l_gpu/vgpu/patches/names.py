"""Device names that PyTorch's C++ doesn't understand by itself.

``vgpu`` without an index means the current device. But C++ asks the guard for the
index, and a guard written in Python knows only device 0. With ``as_cuda``, ``cuda``
means virtual GPUs, but C++ has no guard for CUDA. Functions that fill a tensor, such as
``torch.ones``, end in our own kernels and need no help. To functions that copy values
to a device we pass its full name.
"""

import functools

import torch
from torch.nn.parameter import UninitializedTensorMixin
from torch.utils._device import DeviceContext, _device_constructors

from ..devices import Device, Devices, as_device, current, index_of


def apply() -> None:
    """Apply all changes; ``patches.apply`` calls this once."""
    # It caches functions of torch, so call it before we replace any of them.
    _device_constructors()
    in_methods()
    in_functions()
    in_sparse_functions()
    default_device()


def full_name(device: Device) -> Device:
    """Return a device as C++ understands it: cuda:1 as vgpu:1, vgpu with its index."""
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device) and device.type in Devices.types:
        return as_device(device)
    return device


def in_methods() -> None:
    """Let ``Tensor.to`` and ``Tensor.new_tensor`` understand names of virtual GPUs.

    All: C++ takes vgpu for vgpu:0 whatever the current device is, and doesn't know that
    cuda:1 is the vgpu:1 where a tensor is already.
    """
    to, new_tensor = torch.Tensor.to, torch.Tensor.new_tensor

    @functools.wraps(to)
    def _to(self, *args, **kwargs):
        if args and isinstance(args[0], str | torch.device):
            args = (full_name(args[0]), *args[1:])
        elif "device" in kwargs:
            kwargs["device"] = full_name(kwargs["device"])
        return to(self, *args, **kwargs)

    @functools.wraps(new_tensor)
    def _new_tensor(self, *args, device=None, **kwargs):
        return new_tensor(self, *args, device=full_name(device), **kwargs)

    torch.Tensor.to = _to
    torch.Tensor.new_tensor = _new_tensor
    # Lazy parameters allow only the methods on this list.
    UninitializedTensorMixin._allowed_methods.append(_to)


def in_functions() -> None:
    """Let the functions that copy values to a device understand names of virtual GPUs.

    All: as for ``Tensor.to``.
    """
    for name in ("tensor", "as_tensor", "asarray"):
        setattr(torch, name, _naming(getattr(torch, name)))


def _naming(function):
    @functools.wraps(function)
    def named(*args, device=None, **kwargs):
        return function(*args, device=full_name(device), **kwargs)

    return known_to_torchscript(named, function)


def in_sparse_functions() -> None:
    """Let ``torch.sparse_coo_tensor`` and its like understand names of virtual GPUs.

    All: as for ``Tensor.to``. And for a sparse tensor without elements, C++ passes on
    the type of the device only: the guard would have to know the index.
    """
    for layout in ("coo", "csr", "csc", "bsr", "bsc", "compressed"):
        name = f"sparse_{layout}_tensor"
        setattr(torch, name, _naming(_on_current_device(getattr(torch, name))))


def _on_current_device(function):
    @functools.wraps(function)
    def on_current(*args, device=None, **kwargs):
        place = torch.get_default_device() if device is None else torch.device(device)
        if place.type not in Devices.types:
            return function(*args, device=device, **kwargs)
        outer, current.index = current.index, index_of(place)
        try:
            return function(*args, device=device, **kwargs)
        finally:
            current.index = outer

    return known_to_torchscript(on_current, function)


def known_to_torchscript(ours, function):
    """Tell TorchScript, which knows functions of C++ by identity, of a replacement."""
    operator = torch.jit._builtins._find_builtin(function)
    if operator is not None:
        torch.jit._builtins._register_builtin(ours, operator)
    return ours


def default_device() -> None:
    """Let ``torch.set_default_device('vgpu')`` and ``with torch.device('vgpu')`` work.

    All: they pass the name directly to the C++ functions, not to our replacements.
    """
    original = DeviceContext.__torch_function__

    @functools.wraps(original)
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if self.device.type in Devices.types and func in _device_constructors():
            kwargs["device"] = kwargs.get("device") or as_device(self.device)
        return original(self, func, types, args, kwargs)

    DeviceContext.__torch_function__ = __torch_function__
