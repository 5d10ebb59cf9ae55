"""How graders that several frameworks share work with JAX."""

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
    os.environ.pop("TF_CPP_MIN_LOG_LEVEL", None)  # it may silence JAX's log, too

import jax

from d2l_gpu import jax as d2l
from d2l_gpu.exercises.jax.arrays import ARRAYS

# A line of the transfer guard; numbers of Python's have a weak type.
_LOGGED = re.compile(
    r".*(?P<kind>host|device)-to-device transfer: aval=ShapedArray\("
    r"(?P<dtype>\w+)\[(?P<shape>[\d,]*)\](?P<weak>, weak_type=True)?.*\), "
    r"dst_sharding=(?:SingleDeviceSharding\(device=\w+\(id=(?P<id>\d+)\))?.*\n"
)


class JaxPort(Port):
    mutable = False

    def home(self, x: jax.Array) -> str:
        return " and ".join(sorted(map(self.name, x.devices())))

    def array(
        self, values: np.ndarray, device: jax.Device | None = None
    ) -> jax.Array | np.ndarray:
        # What is on the CPU, is NumPy's in the lessons.
        return values if device is None else jax.numpy.array(values, device=device)

    def watched(self, values: np.ndarray) -> jax.Array:
        # NumPy reads an array that lies on one CPU device without asking JAX.
        both = jax.sharding.Mesh([d2l.gpu(0), d2l.gpu(1)], "d")
        spec = jax.sharding.PartitionSpec()
        return jax.device_put(values, jax.sharding.NamedSharding(both, spec))

    @contextmanager
    def watch(self, numbers: bool = False) -> Iterator[list[Crossing]]:
        """See `Port.watch`.

        Args:
            numbers: count those, too, that Python has sent along with an operation.
        """
        # The guard writes what goes to a device, even if a line asks for it. What comes
        # to the host is not noted for CPU devices: it is seen by `_value`, that keeps
        # what it has fetched. (Seen with jax 0.10.)
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
            elif logged is None:  # a number or an index of Python's
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
    """Make a list of the lines that are written to stderr, also by compiled code."""
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
    """The programs that have been compiled since this was first asked for."""
    events: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: events.append(event)
    )
    return events


def compilations() -> int:
    """Return how many programs JAX has compiled, counted from some time on."""
    return sum("backend_compile" in event for event in _compiled())
