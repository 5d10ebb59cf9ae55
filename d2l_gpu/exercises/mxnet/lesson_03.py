"""Copying between devices."""

from collections.abc import Callable

from mxnet import np

from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.mxnet.port import PORT
from d2l_gpu.exercises.registry import Claim, Run
from d2l_gpu.exercises.shared import lesson_03 as common

EXERCISES = common.exercises(PORT)


def _asked(answer: Callable, gpus: Gpus) -> tuple[dict[str, bool], bool]:
    """Return what the answer says of pairs of arrays, and whether any operation had
    operands on two devices."""
    first, second = gpus[:2]
    Z = np.arange(6, ctx=second).reshape(2, 3)
    zeros, ones = np.zeros((2, 3), ctx=first), np.ones((2, 3), ctx=first)
    pairs = {
        "itself": (Z, Z),
        "as_in_context": (Z, Z.as_in_context(second)),
        "copyto": (Z, Z.copyto(second)),
        "others": (zeros, ones),
        "elsewhere": (Z, Z.as_in_ctx(first)),
    }
    said, mixed = {}, PORT.mixed
    for name, (a, b) in pairs.items():
        with PORT.watch():
            said[name] = answer(a, b)
    return said, PORT.mixed > mixed


@EXERCISES.add("03.5", "a, b", returns=bool)
def same_memory(run: Run):
    said, mixed = run(_asked)
    yield Claim(
        "an array shares memory with itself",
        said["itself"],
        f"For `Z` and `Z`, you return {said['itself']}.",
    )
    yield Claim(
        "an array shares memory with what `as_in_context` returns",
        said["as_in_context"],
        "It's a different Python object with the same memory.",
    )
    yield Claim(
        "an array doesn't share memory with what `copyto` returns, although the "
        "values are equal",
        not said["copyto"] and not said["others"],
        "You return True for zeros and ones too: whatever you wrote went into both."
        if said["others"]
        else "Equal values don't mean shared memory.",
    )
    yield Claim(
        "arrays on two devices don't share memory",
        not said["elsewhere"] and not mixed,
        "You return True for an array and its copy on the other GPU."
        if said["elsewhere"]
        else (
            "One of your operations has operands on two devices, which works only on "
            "virtual GPUs."
        ),
    )
