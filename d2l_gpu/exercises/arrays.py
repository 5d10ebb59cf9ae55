"""What graders of several frameworks have to know of arrays, and a framework tells."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Arrays:
    """The arrays of a framework, or tensors.

    Attributes:
        kind: their type.
        put: makes one of a NumPy array, on a device.
        fetch: makes a NumPy array of one.
        device: where one lives.
        cpu: returns the host.
        gpus: returns the GPUs of this process.
        name: of a device, the same however the framework writes it.
        labels: NumPy's name of the type that labels have in the framework's lessons.
    """

    kind: type
    put: Callable[["np.ndarray", Any], Any]
    fetch: Callable[[Any], "np.ndarray"]
    device: Callable[[Any], Any]
    cpu: Callable[[], Any]
    gpus: Callable[[], Sequence[Any]]
    name: Callable[[Any], str] = str
    labels: str = "int64"

    def home(self, x: Any) -> Any:
        """Return the device of an array; what is none, lives on the host."""
        return self.device(x) if isinstance(x, self.kind) else self.cpu()

    def where(self, x: Any) -> str:
        """Return the name of the device of an array."""
        return self.name(self.home(x))

    def on_host(self, x: Any) -> "np.ndarray":
        """Return the values of an array, or of what can be made one."""
        import numpy as np

        return self.fetch(x) if isinstance(x, self.kind) else np.asarray(x)
