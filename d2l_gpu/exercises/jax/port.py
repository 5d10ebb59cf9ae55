"""Records JAX's copies for shared graders."""

import functools
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np

from d2l_gpu.exercises.crossing import HOST, Crossing, Port

if "jax" not in sys.modules:
    os.environ.pop("TF_CPP_MIN_LOG_LEVEL", None)  # it may silence JAX's log

import jax

from d2l_gpu import jax as d2l
from d2l_gpu.exercises.jax.arrays import ARRAYS

# A line logged by the transfer guard; Python scalars have a weak type.
_LOGGED = re.compile(
    r".*(?P<kind>host|device)-to-device transfer: aval=ShapedArray\("
    r"(?P<dtype>\w+)\[(?P<shape>[\d,]*)\](?P<weak>, weak_type=True)?.*\), "
    r"dst_sharding=(?:SingleDeviceSharding\(device=\w+\(id=(?P<id>\d+)\))?.*\n"
)


class JaxPort(Port):
    def home(self, x: jax.Array) -> str:
        return " and ".join(sorted(map(self.name, x.devices())))

    def array(
        self, values: np.ndarray, device: jax.Device | None = None
    ) -> jax.Array | np.ndarray:
        # In the lessons, arrays on the CPU are NumPy arrays.
        return values if device is None else jax.numpy.array(values, device=device)

    def watched(self, values: np.ndarray) -> jax.Array:
        # Replicate the array: NumPy reads one on a single CPU device without asking
        # JAX, so `watch` would miss it.
        both = jax.sharding.Mesh([d2l.gpu(0), d2l.gpu(1)], "d")
        spec = jax.sharding.PartitionSpec()
        return jax.device_put(values, jax.sharding.NamedSharding(both, spec))

    @contextmanager
    def watch(self, numbers: bool = False) -> Iterator[list[Crossing]]:
        """See `Port.watch`.

        Args:
            numbers: also record Python scalars sent along with an operation.
        """
        # The guard logs transfers to a device, explicit ones included. It doesn't log
        # transfers from a CPU device to the host, so we patch `_value`, which fetches
        # the values and caches them. (Checked with jax 0.10.)
        copies: list[Crossing] = []
        kind = type(jax.numpy.zeros(()))
        original = kind._value

        def fetched(x):
            if x._npy_value is None and self.home(x) != HOST:
                copies.append(Crossing(x.nbytes, self.home(x), HOST))
            return original.fget(x)

        with (
            _stderr() as lines,
            jax.transfer_guard("log_explicit"),
            mock.patch.object(kind, "_value", property(fetched)),
        ):
            yield copies
        for line in lines:
            logged = _LOGGED.fullmatch(line)
            if "guard_lib" not in line:
                sys.stderr.write(line)
            elif logged is None:  # a Python scalar or index
                copies += [Crossing(0, HOST, "")] * numbers
            elif numbers or not logged["weak"]:
                copy = self._copy(logged)
                if copy.source != copy.target:
                    copies.append(copy)

    def _copy(self, logged: re.Match) -> Crossing:
        shape = [int(size) for size in logged["shape"].split(",") if size]
        nbytes = int(np.prod(shape)) * jax.numpy.dtype(logged["dtype"]).itemsize
        to = [x for x in jax.devices("cpu") if str(x.id) == logged["id"]]
        source = HOST if logged["kind"] == "host" else ""
        return Crossing(nbytes, source, self.name(to[0]) if to else "")


@contextmanager
def _stderr() -> Iterator[list[str]]:
    """Capture the lines written to stderr, including those of compiled code.

    Yields a list that is filled when the block ends.
    """
    lines: list[str] = []
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            file.seek(0)
            lines += file.read().decode(errors="replace").splitlines(keepends=True)


PORT = JaxPort(ARRAYS)


@functools.cache
def _compiled() -> list[str]:
    """Return JAX's timed events, such as compilations, from the first call on.

    JAX appends to the list as they happen.
    """
    events: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: events.append(event)
    )
    return events


def compilations() -> int:
    """Return how many programs JAX has compiled since the first call.

    Only differences are meaningful.
    """
    return sum("backend_compile" in event for event in _compiled())
