"""``torch.Generator(device='vgpu:1')``: a separate random generator on a virtual GPU.

PyTorch creates the generators of a device in C++. This one is PyTorch's generator for
the CPU, which draws the numbers, but it says that it belongs to a virtual GPU.
"""

from collections.abc import Sequence
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


class DefaultGenerator(Generator):
    """The generator from which a device draws unless an operator is given another one.

    All devices draw from the CPU's, which this one stands for: it has no state of its
    own.
    """

    def manual_seed(self, seed: int) -> "DefaultGenerator":
        torch.default_generator.manual_seed(seed)
        return self

    def seed(self) -> int:
        return torch.default_generator.seed()

    def initial_seed(self) -> int:
        return torch.default_generator.initial_seed()

    def get_state(self) -> torch.Tensor:
        return torch.default_generator.get_state()

    def set_state(self, state: torch.Tensor) -> "DefaultGenerator":
        torch.default_generator.set_state(state)
        return self


class DefaultGenerators(Sequence):
    """``torch.vgpu.default_generators``: one for each device of ``enable``."""

    def __init__(self):
        self._made: dict[int, DefaultGenerator] = {}

    def __len__(self) -> int:
        return 0 if Devices.machine is None else Devices.machine.count

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        index = range(len(self))[index]
        if index not in self._made:
            self._made[index] = DefaultGenerator(as_device(index))
        return self._made[index]


def drawing(generator: PyTorchGenerator | None) -> PyTorchGenerator | None:
    """Return the generator that draws the numbers of an operator on a virtual GPU.

    Raises:
        RuntimeError: the generator that it was given doesn't belong to one.
    """
    if generator is None:
        return None
    ours = _ours.get(generator._cdata)
    if ours is None:
        raise errors.wrong_generator(generator)
    return None if type(ours) is DefaultGenerator else generator
