"""The GPUs that an experiment runs on, and their names in records."""

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

from d2l_gpu.exercises.arrays import Arrays
from d2l_gpu.exercises.crossing import HOST, Crossing


class Gpus(Sequence):
    """GPUs of this process, in the order that a grader wants them.

    Experiments speak of GPU 0 and GPU 1, whichever devices these are. So a grader can
    repeat them with the devices in reverse order and expect the same records.

    Args:
        arrays: the framework's arrays.
        reverse: whether to begin with the last GPU.
    """

    def __init__(self, arrays: Arrays, reverse: bool = False):
        self._arrays = arrays
        self._devices = list(arrays.gpus())[:: -1 if reverse else 1]

    @classmethod
    def of(cls, tag: str, reverse: bool = False) -> "Gpus":
        """Return the GPUs of a framework, given its tag."""
        module = importlib.import_module(f"{__package__}.{tag}.arrays")
        return cls(module.ARRAYS, reverse)

    def __getitem__(self, i):
        return self._devices[i]

    def __len__(self) -> int:
        return len(self._devices)

    def name(self, device: Any) -> str:
        """Return what records call a device, such as ``GPU 0``; `HOST` for the CPU."""
        return self.called(self._arrays.name(device))

    def called(self, name: str) -> str:
        """Return what records call a device, given the framework's name for it."""
        if name in (HOST, self._arrays.name(self._arrays.cpu())):
            return HOST
        names = [self._arrays.name(each) for each in self._devices]
        return f"GPU {names.index(name)}" if name in names else name

    def where(self, x: Any) -> str:
        """Return what records call an array's device; `HOST` if `x` isn't an array."""
        return self.name(self._arrays.home(x))

    def copies(self, log: Iterable[Any]) -> list[tuple[int, str, str]]:
        """Return the bytes, source and target of each copy in PyTorch's log."""
        return [
            (copy.nbytes, self.name(copy.source), self.name(copy.target))
            for copy in log
        ]

    def crossings(self, log: Iterable[Crossing]) -> list[tuple[int, str, str]]:
        """Return the bytes, source and target of each copy that a `Port` recorded.

        The source or target is empty if it isn't known.
        """
        return [
            (copy.nbytes, self.called(copy.source), self.called(copy.target))
            for copy in log
        ]
