"""Random numbers on virtual GPUs: each has a generator, and a program can make others.

PyTorch creates the generators of a device in C++. Ours are PyTorch's generators for the
CPU, which draw the numbers, but they say that they belong to a virtual GPU. So after
the same seed a virtual GPU draws what the CPU would draw.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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


class DefaultGenerators(Sequence):
    """``torch.vgpu.default_generators``: one for each device of ``enable``.

    From it the device draws unless an operator is given another generator.
    """

    def __init__(self):
        self.made: dict[int, Generator] = {}

    def __len__(self) -> int:
        return 0 if Devices.machine is None else Devices.machine.count

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        return self.of(range(len(self))[index])

    def of(self, index: int) -> Generator:
        """Return a device's generator, also if the device is a simulator's."""
        if index not in self.made:
            made = Generator(Devices.names[index])
            # torch.manual_seed may have come first.
            self.made[index] = made.manual_seed(torch.initial_seed())
        return self.made[index]


default_generators = DefaultGenerators()


def check(generator: PyTorchGenerator | None) -> None:
    """Check the generator that an operator on a virtual GPU was given, if any.

    Raises:
        RuntimeError: it doesn't belong to a virtual GPU.
    """
    if generator is not None and generator._cdata not in _ours:
        raise errors.wrong_generator(generator)


def drawn(op, index: int, /, *args, **kwargs):
    """Run an operator that draws random numbers on the backing of a device.

    Args:
        args, kwargs: of the call, with backing tensors. A generator among them has
            been checked; without one, the device's own draws.
    """
    if kwargs.get("generator") is not None or Devices.backings[index].type != "cpu":
        return op.call(*args, **kwargs)
    own = default_generators.of(index)
    if op.takes_generator:
        return op.call(*args, **{**kwargs, "generator": own})
    with standing_in(own):
        return op.call(*args, **kwargs)


_stands_in = threading.RLock()


@contextmanager
def standing_in(own: Generator) -> Iterator[None]:
    """Let the CPU's generator draw what another would: not all operators take one."""
    cpu = torch.default_generator
    with _stands_in:
        before = cpu.get_state()
        cpu.set_state(own.get_state())
        try:
            yield
        finally:
            own.set_state(cpu.get_state())
            cpu.set_state(before)
