"""Tensors on devices: bytes, random numbers, variables and shared memory."""

import re
from contextlib import contextmanager

import numpy as np
import tensorflow as tf

from d2l_gpu import tensorflow as d2l
from d2l_gpu.exercises.registry import Claim
from d2l_gpu.exercises.shared import lesson_02 as common
from d2l_gpu.exercises.tensorflow.arrays import ARRAYS


def _zeros(shape, dtype):
    with tf.device(d2l.gpu(1)):
        return tf.zeros(shape, dtype)


EXERCISES = common.exercises(
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


@EXERCISES.add("02.4", "W, gradient, lr")
def step(answer):
    device = d2l.gpu(1)
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    with tf.device(device):
        W = tf.Variable(values)
        gradient = tf.fill((3, 4), 2.0)
    returned = answer(W, gradient, 0.5)
    new = W.numpy()
    yield Claim(
        "`W` has changed",
        not np.array_equal(new, values),
        "It hasn't: you return something new, which takes memory in addition to that "
        "of `W`."
        if returned is not None
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
    problem = ""
    with _no_silent_copies():
        try:
            answer(W, gradient, 0.5)
        except tf.errors.InvalidArgumentError as error:
            problem = str(error)
            if "conflicting devices" not in problem:
                raise
    yield Claim(
        "everything is computed on the device of `W`, and nothing is copied",
        not problem,
        _copied(problem),
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


def _copied(problem: str) -> str:
    found = re.search(
        r"compute (\w+) as .*expected to be on (\S+) but is actually on (\S+)", problem
    )
    if not found:
        return problem
    operation, where, operand = found.groups()
    hint = (
        f"The operation {operation} ran on {d2l.name(where)}, but its operand was on "
        f"{d2l.name(operand)} and had to be copied."
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
