"""CuPy functions, ported."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mxnet import np

from d2l_gpu.exercises.arrays import Arrays
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.mxnet.arrays import ARRAYS
from d2l_gpu.exercises.registry import Claim, Run
from d2l_gpu.exercises.shared import lesson_a2 as common


def _apart(arrays: Arrays, answer: Callable, gpus: Gpus) -> list[str]:
    """Return where the first two arrays are that were added on different devices."""
    apart = []

    def watched(parts):
        with _noticing(apart):
            return answer(parts)

    common.reduced(arrays, watched, gpus)
    return [gpus.name(device) for device in apart]


def all_reduce(arrays: Arrays, run: Run) -> Iterator[Claim]:
    """Check as for the other frameworks, and that no addition mixes devices."""
    yield from common.all_reduce(arrays, run)
    apart = [f"an array on {place}" for place in run(_apart)]
    yield Claim(
        "arrays are copied to one device before they're added",
        not apart,
        f"You added {' and '.join(apart)}. MXNet allows that, but on real GPUs it's a "
        "matter of luck whether one can read the other's memory.",
    )


@contextmanager
def _noticing(apart: list) -> Iterator[None]:
    """Record the devices of the first addition that mixes them, which MXNet allows."""
    names = "__add__", "__radd__", "__iadd__"
    originals = {name: getattr(np.ndarray, name) for name in names}

    def noticing(original):
        def add(self, other):
            if isinstance(other, np.ndarray) and other.ctx != self.ctx and not apart:
                apart.extend(x.ctx for x in (self, other))
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
