"""CuPy functions, ported."""

from collections.abc import Iterator
from contextlib import contextmanager

from mxnet import np

from d2l_gpu.exercises.mxnet.arrays import ARRAYS
from d2l_gpu.exercises.registry import Claim
from d2l_gpu.exercises.shared import lesson_a2 as common


def all_reduce(arrays, answer):
    """Check as for the other frameworks, and that no addition mixes devices."""
    apart = []

    def watched(parts):
        with _noticing(apart):
            return answer(parts)

    yield from common.all_reduce(arrays, watched)
    yield Claim(
        "arrays are copied to one device before they're added",
        not apart,
        f"You added {' and '.join(apart)}. MXNet allows that, but on real GPUs it's a "
        "matter of luck whether one can read the other's memory.",
    )


@contextmanager
def _noticing(apart: list[str]) -> Iterator[None]:
    """Record the first addition of arrays on different devices, which MXNet allows."""
    names = "__add__", "__radd__", "__iadd__"
    originals = {name: getattr(np.ndarray, name) for name in names}

    def noticing(original):
        def add(self, other):
            if isinstance(other, np.ndarray) and other.ctx != self.ctx and not apart:
                apart.extend(f"an array on {x.ctx}" for x in (self, other))
            return original(self, other)

        return add

    for name, original in originals.items():
        setattr(np.ndarray, name, noticing(original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(np.ndarray, name, original)


EXERCISES = common.exercises(ARRAYS, all_reduce)
