"""``torch.nn`` and ``torch.optim``: parameters stay the same objects when they move."""

import functools
import inspect

import torch
from torch.nn.parameter import (
    UninitializedBuffer,
    UninitializedParameter,
    UninitializedTensorMixin,
    is_lazy,
)

from ..devices import Devices, index_of
from ..tensor import VirtualTensor, is_virtual
from .tensors import become


def apply() -> None:
    """Apply all changes; ``patches.apply`` calls this once."""
    modules()
    lazy_parameters()
    encoders()
    foreach()


def modules() -> None:
    """Let ``Module.to`` keep its Parameter objects when it moves to a virtual GPU.

    All: PyTorch replaces a parameter's contents if C++ finds the types compatible, and
    otherwise makes a new Parameter. A plain tensor and a wrapper aren't compatible, so
    an optimizer would go on updating the old Parameter.
    """
    original = torch.nn.Module._apply

    @functools.wraps(original)
    def _apply(self, fn, recurse=True):
        if recurse:
            for child in self.children():
                child._apply(fn)
        moved: dict[int, torch.Tensor] = {}

        def once(tensor):
            # The original calls this for every tensor; some have moved already.
            return moved[id(tensor)] if id(tensor) in moved else fn(tensor)

        for tensor in (*self._parameters.values(), *self._buffers.values()):
            if tensor is not None and is_lazy(tensor):
                # It has no values yet. Move an empty tensor to see where they'll go.
                there = fn(torch.empty(0, dtype=torch.Tensor.dtype.__get__(tensor)))
                tensor.__dict__.pop("_vgpu_device", None)
                if is_virtual(there):
                    tensor._vgpu_device = there.device
                    moved[id(tensor)] = tensor
        for parameter in self._parameters.values():
            if parameter is None or is_lazy(parameter):
                continue
            with torch.no_grad():
                new = fn(parameter)
            if is_virtual(new) != is_virtual(parameter):
                grad = parameter.grad
                become(parameter, torch.nn.Parameter(new, parameter.requires_grad))
                if grad is not None:
                    with torch.no_grad():
                        parameter.grad = fn(grad).requires_grad_(grad.requires_grad)
                    moved[id(parameter.grad)] = parameter.grad
                new = parameter
            moved[id(parameter)] = new
        return original(self, once, recurse=False)

    torch.nn.Module._apply = _apply


def lazy_parameters() -> None:
    """Let parameters without a shape remember their virtual GPU.

    All: PyTorch keeps the device in an empty tensor inside the parameter, but a plain
    Parameter can't contain a wrapper.
    """
    materialize = UninitializedTensorMixin.materialize
    deepcopy = UninitializedParameter.__deepcopy__

    @functools.wraps(materialize)
    def _materialize(self, shape, device=None, dtype=None):
        noted = self.__dict__.pop("_vgpu_device", None)
        device = noted if device is None else torch.device(device)
        if device is None or device.type not in Devices.types:
            return materialize(self, shape, device, dtype)
        dtype = torch.Tensor.dtype.__get__(self) if dtype is None else dtype
        tensor = torch.empty(shape, device=device, dtype=dtype)
        if isinstance(self, torch.nn.Parameter):
            tensor = torch.nn.Parameter(tensor, self.requires_grad)
        become(self, tensor)

    def remembering(new):
        signature = inspect.signature(new)

        @functools.wraps(new)
        def _new(*args, **kwargs):
            given = signature.bind(*args, **kwargs)
            device = given.arguments.get("device")
            virtual = device is not None and torch.device(device).type in Devices.types
            if virtual:
                given.arguments["device"] = None
            self = new(*given.args, **given.kwargs)
            if virtual:
                self._vgpu_device = Devices.shown[index_of(device)]
            return self

        return _new

    def _deepcopy(self, memo):
        copy = deepcopy(self, memo)
        if hasattr(self, "_vgpu_device"):
            copy._vgpu_device = self._vgpu_device
        return copy

    def device(self):
        return getattr(self, "_vgpu_device", None) or torch.Tensor.device.__get__(self)

    UninitializedTensorMixin.materialize = _materialize
    UninitializedTensorMixin.device = property(device)
    for kind in (UninitializedParameter, UninitializedBuffer):
        kind.__new__ = remembering(kind.__new__)
    UninitializedParameter.__deepcopy__ = _deepcopy


def encoders() -> None:
    """Let ``TransformerEncoder`` compute padded sequences without nested tensors.

    All: in evaluation it removes the padding with a nested tensor where it believes
    that the device has them. PyTorch asks first whether a mask allows that.
    """
    original = torch._nested_tensor_from_mask_left_aligned

    @functools.wraps(original)
    def _nested_tensor_from_mask_left_aligned(tensor, mask):
        return not is_virtual(tensor) and original(tensor, mask)

    torch._nested_tensor_from_mask_left_aligned = _nested_tensor_from_mask_left_aligned


def foreach() -> None:
    """Let optimizers, and clipping gradients, take all tensors at once, as on GPUs.

    All: the default depends on the exact class of parameters and gradients.
    """
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    for where in (optimizer, _foreach_utils):
        if VirtualTensor not in where._foreach_supported_types:
            where._foreach_supported_types.append(VirtualTensor)
