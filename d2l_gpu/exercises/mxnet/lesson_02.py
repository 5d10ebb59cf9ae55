"""Arrays on contexts: bytes, random numbers, in-place writes and views."""

from collections.abc import Callable

import mxnet as mx
import numpy as onp
from mxnet import np, npx

from d2l_gpu import mxnet as d2l
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.mxnet.arrays import ARRAYS
from d2l_gpu.exercises.registry import Claim, Run
from d2l_gpu.exercises.shared import lesson_02 as common

npx.set_np()

EXERCISES = common.exercises(
    common.Tensors(
        ARRAYS,
        lambda shape, dtype: np.zeros(shape, dtype=dtype, ctx=d2l.gpu(1)),
        ["float16", "bool", "uint8", "int32", "float64", "int64"],
        (mx.MXNetError, ValueError),
        {"bool": common.WHOLE_BYTES},
        {
            "MXNet's generator": (npx.random.seed, lambda: np.random.uniform().item()),
            "NumPy's generator": (onp.random.seed, onp.random.rand),
        },
    )
)


def _values() -> onp.ndarray:
    return onp.arange(12, dtype=onp.float32).reshape(3, 4)


def _stepped(answer: Callable, gpus: Gpus) -> dict:
    W = np.array(_values(), ctx=gpus[1])
    gradient = np.full((3, 4), 2.0, ctx=gpus[1])
    returned = answer(W, gradient, 0.5)
    return {"new": W.asnumpy(), "returned": isinstance(returned, np.ndarray)}


@EXERCISES.add("02.4", "W, gradient, lr", changes="W")
def step(run: Run):
    found, values = run(_stepped), _values()
    new = found["new"]
    yield Claim(
        "`W` has changed",
        not onp.array_equal(new, values),
        "It hasn't: you return a new array, which takes memory in addition to that of "
        "`W`."
        if found["returned"]
        else "It hasn't. You wrote to a copy, or to a new array.",
    )
    yield Claim(
        "it's `W` - lr · gradient",
        onp.allclose(new, values - 1),
        common.wrong_step(new, values),
    )


@EXERCISES.add("02.5", returns=(set, list, tuple))
def sharing(answer):
    def shares(expression):
        A = np.zeros((4, 6), ctx=d2l.gpu(1))
        view = eval(expression, {"A": A, "np": np})
        A[:] = 5
        return view.max().item() == 5

    whole = "Are these whole rows that follow each other in memory?"
    questions = {
        "A[1:]": whole,
        "A[::2]": f"{whole} What's between them?",
        "A[:, 0]": f"{whole} What does the column in the lesson do?",
        "A[0][1:]": "A row is an array like any other. What is a part of a row?",
        "A + 0": "Does MXNet look at the number that is added?",
        "A.copy()": "What does its name say?",
        "A.as_in_ctx(A.ctx)": (
            "Is there anything left to do if the array is already there?"
        ),
    }
    return common.sharing(answer, questions, shares)
