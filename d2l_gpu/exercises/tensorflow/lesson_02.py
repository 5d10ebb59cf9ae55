"""Tensors on devices: bytes, scopes, random numbers, variables and shared memory."""

import re
from collections.abc import Callable
from contextlib import contextmanager

import numpy as np
import tensorflow as tf

from d2l_gpu import tensorflow as d2l
from d2l_gpu.exercises.crossing import HOST, Crossing
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run, given
from d2l_gpu.exercises.shared import lesson_02 as common
from d2l_gpu.exercises.tensorflow.arrays import ARRAYS
from d2l_gpu.exercises.tensorflow.port import PORT


def _zeros(shape, dtype):
    with tf.device(d2l.gpu(1)):
        return tf.zeros(shape, dtype)


_TENSORS = common.Tensors(
    ARRAYS,
    _zeros,
    ["float16", "bfloat16", "bool", "uint8", "int32", "float64", "int64"],
    (tf.errors.OpError, ValueError),
    {"bool": common.WHOLE_BYTES},
    {
        "TensorFlow's generator": (
            tf.random.set_seed,
            lambda: float(tf.random.uniform(())),
        ),
        "NumPy's generator": (np.random.seed, np.random.rand),
    },
)

EXERCISES = Registry()
EXERCISES.add("02.1", "shape, dtype", returns=int)(given(common.bytes_of, _TENSORS))

# ------------------------------------------------------------------ 02.2

# Sizes and axes also cross between devices, but they're only a few bytes.
_FEW = 64


def _summed(answer: Callable, gpus: Gpus) -> dict:
    parts = [PORT.array(part) for part in _parts()]
    devices = list(gpus[:2])
    with PORT.watch() as copies:
        found = list(answer(parts, devices))
    return {
        "sums": [float(x) for x in found],
        "homes": [gpus.where(x) for x in found],
        "copies": [copy for copy in gpus.crossings(copies) if copy[0] > _FEW],
    }


def _parts() -> list[np.ndarray]:
    return [np.full((50, 20), 1, np.float32), np.full((50, 30), 2, np.float32)]


@EXERCISES.add("02.2", "parts, devices", returns=(list, tuple))
def sums(run: Run):
    found, parts = run(_summed), _parts()
    copies = [Crossing(*each) for each in found["copies"]]
    yield Claim(
        "the sums are those of the parts",
        found["sums"] == [float(part.sum()) for part in parts],
        f"For parts that add up to 1,000 and 3,000, you return {found['sums']}.",
    )
    wanted = ["GPU 0", "GPU 1"]
    yield Claim(
        "each sum is on the device of its part",
        found["homes"] == wanted,
        _not_there(found["homes"], copies),
    )
    back = [copy for copy in copies if copy.target == HOST]
    yield Claim(
        "no part is copied to the host",
        not back,
        "The results are where they should be, but a whole part came back to the host. "
        "Where did you add up its numbers?",
    )
    sent = sorted((copy.target, copy.nbytes) for copy in copies)
    right = [(name, part.nbytes) for name, part in zip(wanted, parts, strict=True)]
    yield Claim(
        "each part crosses once, to its own device",
        sent == right,
        f"{sum(copy.nbytes for copy in copies):,} bytes crossed; the parts have "
        f"{sum(part.nbytes for part in parts):,}."
        if copies
        else "Nothing crossed, so the sums were computed on the host.",
    )


def _not_there(homes: list[str], copies: list[Crossing]) -> str:
    if homes[0] == homes[1] and len(copies) > 2:
        return (
            f"Both sums are on {homes[0]}: you sent the parts to their devices, but "
            "the sums were computed outside the scopes."
        )
    if len(set(homes)) == 1:
        return f"Both sums are on {homes[0]}. No scope encloses them."
    return f"They're on {homes[0]} and {homes[1]}, in this order."


# ------------------------------------------------------------------ 02.3 and 02.4

EXERCISES.add("02.3", "shape, seed, device", returns=tf.Tensor)(
    given(common.random_on, _TENSORS)
)


def _values() -> np.ndarray:
    return np.arange(12, dtype=np.float32).reshape(3, 4)


def _stepped(answer: Callable, gpus: Gpus) -> dict:
    W, gradient = _parameters(gpus)
    returned = answer(W, gradient, 0.5)
    return {"new": W.numpy(), "returned": returned is not None}


def _copied(answer: Callable, gpus: Gpus) -> tuple[str, ...]:
    """Return what TensorFlow says about a silent copy, empty if there's none: the
    operation, its device and its operand's, or the whole message."""
    W, gradient = _parameters(gpus)
    with _no_silent_copies():
        try:
            answer(W, gradient, 0.5)
        except tf.errors.InvalidArgumentError as error:
            problem = str(error)
            if "conflicting devices" not in problem:
                raise
        else:
            return ()
    found = re.search(
        r"compute (\w+) as .*expected to be on (\S+) but is actually on (\S+)", problem
    )
    if not found:
        return (problem,)
    operation, *places = found.groups()
    return operation, *(gpus.called(d2l.name(place)) for place in places)


def _parameters(gpus: Gpus) -> tuple[tf.Variable, tf.Tensor]:
    with tf.device(gpus[1]):
        return tf.Variable(_values()), tf.fill((3, 4), 2.0)


@EXERCISES.add("02.4", "W, gradient, lr", changes="W")
def step(run: Run):
    found, values = run(_stepped), _values()
    new = found["new"]
    yield Claim(
        "`W` has changed",
        not np.array_equal(new, values),
        "It hasn't: you return something new, which takes memory in addition to that "
        "of `W`."
        if found["returned"]
        else (
            "It hasn't. Inside the function, `W = …` only gives the name to something "
            "else."
        ),
    )
    yield Claim(
        "it's `W` - lr · gradient",
        np.allclose(new, values - 1),
        common.wrong_step(new, values),
    )
    copied = run(_copied)
    yield Claim(
        "everything is computed on the device of `W`, and nothing is copied",
        not copied,
        _what_was_copied(copied),
    )


@contextmanager
def _no_silent_copies():
    """Raise an error if an operation reads from a device other than its own."""
    before = tf.config.experimental.get_device_policy()
    tf.config.experimental.set_device_policy("explicit")
    try:
        yield
    finally:
        tf.config.experimental.set_device_policy(before)


def _what_was_copied(copied: tuple[str, ...]) -> str:
    if len(copied) < 3:
        return " ".join(copied)
    operation, where, operand = copied
    hint = (
        f"The operation {operation} ran on {where}, but its operand was on {operand} "
        "and had to be copied."
    )
    if "Assign" in operation:
        return f"{hint} You created the value to assign on another device."
    return f"{hint} What decides where an operation runs?"


# ------------------------------------------------------------------ 02.5

_ROWS, _COLUMNS, _FIRST = 2**16, 64, 10
_NBYTES = 4 * _ROWS * _COLUMNS


def _firsts(answer: Callable, gpus: Gpus) -> dict:
    with tf.device(gpus[1]):
        x = tf.reshape(tf.range(_ROWS * _COLUMNS, dtype=tf.float32), (_ROWS, _COLUMNS))
    before = _in_use(gpus[1])
    with PORT.watch() as copies:
        result = answer(x, _FIRST)
    grown = _in_use(gpus[1]) - before
    # The numbers of a tensor on a real GPU can't be looked at without a copy.
    there = np.shares_memory(*(np.asarray(memoryview(each)) for each in (result, x)))
    return {
        "values": result.numpy(),
        "home": gpus.where(result),
        "copies": [copy for copy in gpus.crossings(copies) if copy[0] > _FEW],
        "shares": bool(there),
        "grown": grown,
    }


def _in_use(device: str) -> int:
    """Return the bytes in use on a device, 0 if TensorFlow doesn't count them."""
    try:
        return tf.config.experimental.get_memory_info(device)["current"]
    except ValueError:
        return 0


@EXERCISES.add("02.5", "x, n", returns=tf.Tensor)
def first_of(run: Run):
    wanted = np.arange(_FIRST * _COLUMNS, dtype=np.float32).reshape(_FIRST, _COLUMNS)
    found = run(_firsts)
    values = found["values"]
    yield Claim(
        "it returns the first `n` rows",
        np.array_equal(values, wanted),
        f"For n = {_FIRST}, the shape is {values.shape}."
        if values.shape != wanted.shape
        else "The shape is right, but the numbers aren't those of `x`.",
    )
    copies = [Crossing(*each) for each in found["copies"]]
    large = [copy for copy in copies if copy.nbytes == _NBYTES]
    yield Claim(
        "they're on the GPU of `x`",
        found["home"] == "GPU 1",
        f"They're on {found['home']}."
        + " In which scope is your function called?" * bool(large),
    )
    yield Claim(
        "nothing is copied to another device",
        not copies,
        f"{copies[0].nbytes:,} bytes crossed from {copies[0].source} to "
        f"{copies[0].target}."
        if copies
        else "",
    )
    yield Claim(
        "the memory of `x` isn't kept alive",
        not found["shares"],
        "Your result begins in the memory of `x`, so all of `x` stays there as long as "
        "your result does. Which operations share memory?",
    )
    yield Claim(
        "no copy of the whole of `x` is kept alive",
        found["grown"] < _NBYTES / 2,
        f"After the call, {found['grown'] / 2**20:.0f} MiB more are in use. What did "
        "you copy first?",
    )
