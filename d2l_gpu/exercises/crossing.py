"""Record the copies between devices while an answer runs, in any framework.

Shared graders use a `Port`, which each framework implements in its ``port.py``. The
frameworks record copies in different ways: PyTorch's virtual GPUs keep a log,
TensorFlow calls a callback for each operation, JAX's transfer guard writes log lines,
and MXNet runs every operation through one function.
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
    """A copy from one device to another.

    Attributes:
        nbytes: its size in bytes.
        source, target: device names; `HOST` for the CPU, Python and NumPy. Empty if
            unknown.
    """

    nbytes: int
    source: str
    target: str


class Port(ABC):
    """Puts tensors on a framework's devices and records the copies between them.

    Args:
        arrays: the framework's arrays.

    Attributes:
        tensor: the framework's tensor type.
    """

    def __init__(self, arrays: Arrays):
        self.arrays, self.tensor = arrays, arrays.kind

    def gpu(self, i: int) -> Any:
        """Return virtual GPU i."""
        return self.arrays.gpus()[i]

    def name(self, device: Any) -> str:
        """Return a device's name, `HOST` for the CPU."""
        name = self.arrays.name(device)
        return HOST if name == self.arrays.name(self.arrays.cpu()) else name

    def home(self, x: Any) -> str:
        """Return the name of a tensor's device."""
        return self.name(self.arrays.device(x))

    def array(self, values: np.ndarray, device: Any = None) -> Any:
        """Return a tensor with these values on `device`, by default the CPU."""
        return self.arrays.put(values, device or self.arrays.cpu())

    def values(self, x: Any) -> np.ndarray:
        """Return a tensor's values as a NumPy array."""
        return self.arrays.fetch(x)

    @abstractmethod
    def watch(self) -> AbstractContextManager[list[Crossing]]:
        """Record the copies made inside the block.

        Yields a list, in order; it is complete only when the block ends.
        """

    def watched(self, values: np.ndarray) -> Any:
        """Return a tensor on the first GPU for which `watch` also notices when Python
        reads its values."""
        return self.array(values, self.gpu(0))
