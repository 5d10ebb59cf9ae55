"""``torch.Generator(device='vgpu:1')``: a separate random generator on a virtual GPU.

PyTorch creates the generators of a device in C++. This one is PyTorch's generator for
the CPU, which draws the numbers, but it says that it belongs to a virtual GPU.
"""

from weakref import WeakValueDictionary

import torch

from . import errors
from .devices import Devices, as_device

PyTorchGenerator = torch.Generator

# By the address of the C++ object, because operators get it in another Python object.
_ours: WeakValueDictionary = WeakValueDictionary()


class _Kind(type(PyTorchGenerator)):
    """The metaclass of ``Generator``: every generator counts as an instance of that."""

    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, PyTorchGenerator)


class Generator(PyTorchGenerator, metaclass=_Kind):
    """Replaces ``torch.Generator``; for other devices it returns PyTorch's own."""

    def __new__(cls, device="cpu"):
        if torch.device(device).type not in Devices.types:
            return PyTorchGenerator(device)
        self = super().__new__(cls, "cpu")
        self._device = as_device(device)
        _ours[self._cdata] = self
        return self

    @property
    def device(self) -> torch.device:
        return Devices.shown[self._device.index]

    def clone_state(self) -> "Generator":
        clone = Generator(self._device)
        clone.set_state(self.get_state())
        return clone

    def graphsafe_get_state(self) -> "Generator":
        return self

    def __reduce__(self):
        return _restored, (str(self._device), self.get_state())


Generator.__module__ = "torch"


def _restored(device: str, state: torch.Tensor) -> Generator:
    generator = Generator(device)
    generator.set_state(state)
    return generator


def check(generator: PyTorchGenerator | None) -> None:
    """Raise RuntimeError unless a generator belongs to a virtual GPU."""
    if generator is not None and generator._cdata not in _ours:
        raise errors.wrong_generator(generator)
