"""Tensors on devices: bytes, random numbers, variables and shared memory."""

import re
from collections.abc import Callable
from contextlib import contextmanager

import numpy as np
import tensorflow as tf

from d2l_gpu import tensorflow as d2l
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Run
from d2l_gpu.exercises.shared import lesson_02 as common
from d2l_gpu.exercises.tensorflow.arrays import ARRAYS


def _zeros(shape, dtype):
    with tf.device(d2l.gpu(1)):
        return tf.zeros(shape, dtype)


EXERCISES = common.exercises(
    common.Tensors(
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


@EXERCISES.add("02.5", returns=(set, list, tuple))
def sharing(answer):
    def numbers(tensor):
        return np.asarray(memoryview(tensor))

    def shares(expression):
        with tf.device(d2l.gpu(1)):
            A = tf.ones((64, 64))
            result = eval(expression, {"A": A, "tf": tf})
        return np.shares_memory(numbers(result), numbers(A))

    order = "Do its numbers follow each other in `A`?"
    questions = {
        "A[1:]": order,
        "A[:, 0]": f"{order} How far is it from one to the next?",
        "A * 1": "Does TensorFlow look at the number it multiplies by?",
        "tf.reshape(A, -1)": f"{order} Do they change places?",
        "tf.transpose(A)": f"{order} Which is the second one?",
        "tf.identity(A)": (
            "If nobody can change either of the two, what would a copy be for?"
        ),
    }
    return common.sharing(answer, questions, shares)
