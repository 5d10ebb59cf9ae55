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
        "an array shares its memory with itself",
        said["itself"],
        "It was asked of `Z` and `Z`.",
    )
    yield Claim(
        "what `as_in_context` returns shares the memory",
        said["as_in_context"],
        "It is another object of Python's, for the same memory.",
    )
    yield Claim(
        "what `copyto` returns does not share it, though the values are equal",
        not said["copyto"] and not said["others"],
        "Of zeros and ones it was said, too: whatever was written came into both."
        if said["others"]
        else "Equal values are no sign of one memory.",
    )
    yield Claim(
        "arrays on two devices do not share it",
        not said["elsewhere"] and not mixed,
        "It was asked of an array and its copy on the other GPU."
        if said["elsewhere"]
        else "One operation took operands of two devices, which works only as long as "
        "they are virtual.",
    )
    yield Claim(
        "both have the values that they had",
        kept,
        "Something was written, and not undone.",
    )
