"""Copying between devices."""

from mxnet import np

from d2l_gpu import mxnet as d2l
from d2l_gpu.exercises.mxnet.port import PORT
from d2l_gpu.exercises.registry import Claim
from d2l_gpu.exercises.shared import lesson_03 as common

EXERCISES = common.exercises(PORT)


@EXERCISES.add("03.5", "a, b", returns=bool)
def same_memory(answer):
    first, second = d2l.gpu(0), d2l.gpu(1)
    Z = np.arange(6, ctx=second).reshape(2, 3)
    zeros, ones = np.zeros((2, 3), ctx=first), np.ones((2, 3), ctx=first)
    pairs = {
        "itself": (Z, Z),
        "as_in_context": (Z, Z.as_in_context(second)),
        "copyto": (Z, Z.copyto(second)),
        "others": (zeros, ones),
        "elsewhere": (Z, Z.as_in_ctx(first)),
    }
    said, kept = {}, True
    mixed = PORT.mixed
    for name, (a, b) in pairs.items():
        before = [x.tolist() for x in (a, b)]
        with PORT.watch():
            said[name] = answer(a, b)
        kept &= before == [x.tolist() for x in (a, b)]
    mixed = PORT.mixed > mixed
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
    yield Claim(
        "both arrays keep their values",
        kept,
        "You wrote into an array and didn't undo it.",
    )
