"""What crosses between devices while an answer runs, with any framework.

Graders that several frameworks share work with a `Port`, which each framework has in
its own ``port.py``. How copies are seen, is the framework's matter: PyTorch's virtual
GPUs keep a log of them, TensorFlow calls back for each operation, JAX writes what its
transfer guard notes, and MXNet invokes every operation by one function.
"""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from d2l_gpu.exercises.arrays import Arrays

HOST = "the host"


@dataclass(frozen=True)
class Crossing:
    """What crossed from one device to another.

    Attributes:
        nbytes: that were sent.
        source, target: names of devices; `HOST` for the CPU, and where Python or NumPy
            asked for values. Empty where it is not known.
    """

    nbytes: int
    source: str
    target: str


class Port(ABC):
    """What graders need of a framework to see what crosses.

    Args:
        arrays: those of the framework.

    Attributes:
        tensor: their type.
        mutable: whether their values can be changed.
    """

    mutable = True

    def __init__(self, arrays: Arrays):
        self.arrays, self.tensor = arrays, arrays.kind

    def gpu(self, i: int) -> Any:
        """Return a virtual GPU."""
        return self.arrays.gpus()[i]

    def name(self, device: Any) -> str:
        """Return the name of a device."""
        name = self.arrays.name(device)
        return HOST if name == self.arrays.name(self.arrays.cpu()) else name

    def home(self, x: Any) -> str:
        """Return the name of the device where a tensor lives."""
        return self.name(self.arrays.device(x))

    def array(self, values: np.ndarray, device: Any = None) -> Any:
        """Return a tensor with these values on a device; on the CPU without one."""
        return self.arrays.put(values, device or self.arrays.cpu())

    def values(self, x: Any) -> np.ndarray:
        """Return the values of a tensor."""
        return self.arrays.fetch(x)

    @abstractmethod
    def watch(self) -> AbstractContextManager[list[Crossing]]:
        """Make a list of what crosses, in order, complete when the block ends."""

    def watched(self, values: np.ndarray) -> Any:
        """Return a tensor on the first GPU, of which it is seen when Python asks for
        its values."""
        return self.array(values, self.gpu(0))
