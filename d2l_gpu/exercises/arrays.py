"""The array operations that shared graders need from each framework."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Arrays:
    """A framework's arrays (or tensors).

    Attributes:
        kind: the array type.
        put: copies a NumPy array to a device.
        fetch: copies an array to NumPy.
        device: returns an array's device.
        cpu: returns the host.
        gpus: returns this process's GPUs.
        name: returns one canonical name for a device, however the framework spells it.
        labels: the data type of labels in the framework's lessons, by its NumPy name.
        kept: data types that a NumPy array keeps when the framework copies it, if it's
            given no other.
        peek: returns the bytes of what can change in a value, by part, such as
            ``{".weight": b"…"}``, without leaving a trace in the record of copies; an
            array's one part has no name. Default: nothing can change.
        is_plain: returns whether an array is of one of the framework's own classes.
    """

    kind: type
    put: Callable[["np.ndarray", Any], Any]
    fetch: Callable[[Any], "np.ndarray"]
    device: Callable[[Any], Any]
    cpu: Callable[[], Any]
    gpus: Callable[[], Sequence[Any]]
    name: Callable[[Any], str] = str
    labels: str = "int64"
    kept: Sequence[str] = ("float32", "int64", "float16")
    peek: Callable[[Any], Mapping[str, bytes]] = lambda x: {}
    is_plain: Callable[[Any], bool] = lambda x: True

    def disguised(self, x: Any) -> str:
        """Return what's wrong with an array that isn't what it seems; usually empty.

        Its methods would run code of an answer's when it's read.
        """
        kind = type(x)
        if not issubclass(kind, self.kind):
            return ""
        if not self.is_plain(x):
            return f"a {kind.__name__} is a class of its own"
        # Not what JAX keeps of properties once they're computed: that can't be called.
        hidden = [
            name
            for name, value in getattr(x, "__dict__", {}).items()
            if callable(value) and hasattr(kind, name) and not name.startswith("_")
        ]
        return f"an array has a `{hidden[0]}` of its own" if hidden else ""

    def home(self, x: Any) -> Any:
        """Return an array's device; the host for anything that isn't an array."""
        return self.device(x) if isinstance(x, self.kind) else self.cpu()

    def where(self, x: Any) -> str:
        """Return the name of an array's device."""
        return self.name(self.home(x))

    def on_host(self, x: Any) -> "np.ndarray":
        """Return an array, or anything array-like, as a NumPy array."""
        import numpy as np

        return self.fetch(x) if isinstance(x, self.kind) else np.asarray(x)
