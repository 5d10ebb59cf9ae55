"""Copies of the parameters, and what a training step does to each."""

import numpy as onp
from mxnet import gluon, np

from d2l_gpu import mxnet as d2l
from d2l_gpu.exercises.cases import in_all
from d2l_gpu.exercises.mxnet.arrays import ARRAYS
from d2l_gpu.exercises.registry import Claim
from d2l_gpu.exercises.shared import lesson_07 as common

EXERCISES = common.exercises(ARRAYS)


@EXERCISES.add("07.5", "params, devices, batch_size, lr", gpus=common.GPUS)
def step(answer):
    devices, batch_size, lr = d2l.try_all_gpus()[:3], 10, 0.5
    rng = onp.random.RandomState(0)
    params, starts, gradients = [], [], []
    for i, shape in enumerate([(2, 3), (4,)]):
        start, *parts = rng.randn(4, *shape).astype("float32")
        parameter = gluon.Parameter(f"weight{i}", shape=shape)
        parameter.initialize(ctx=devices)
        parameter.set_data(np.array(start))
        for gradient, part in zip(parameter.list_grad(), parts, strict=True):
            gradient[:] = np.array(part)
        params.append(parameter)
        starts.append(start)
        gradients.append(parts)
    answer(list(params), list(devices), batch_size, lr)
    yield from in_all(
        _moved(*each, batch_size, lr)
        for each in zip(params, starts, gradients, strict=True)
    )


def _moved(parameter, start, parts, batch_size, lr):
    copies = [copy.asnumpy() for copy in parameter.list_data()]
    kept = [gradient.asnumpy() for gradient in parameter.list_grad()]
    total = sum(parts)
    moved = [(start - copy) * batch_size / lr for copy in copies]
    changed = [not onp.array_equal(start, copy) for copy in copies]
    if not any(changed):
        hint = (
            "No copy has changed. Arrays are changed in place, as by `-=`, or with "
            "`set_data`."
        )
    elif not all(changed):
        late = parameter.list_ctx()[changed.index(False)]
        hint = f"The copy on {late} is as it was."
    else:
        hint = ""
    yield Claim("every copy of a parameter is changed", all(changed), hint)
    if all(_close(*pair) for pair in zip(moved, parts, strict=True)):
        hint = "Each device has gone its own way, with the gradient of its shard alone."
    else:
        hint = "They differ. Was an array still growing when it was used?"
    yield Claim(
        "all copies of a parameter are equal",
        all(_close(copies[0], copy) for copy in copies),
        hint,
    )
    known = (
        (
            total / len(parts),
            "It went as far as the mean of the gradients says. The size of the batch "
            "divides by enough.",
        ),
        (
            total * len(parts),
            f"It went {len(parts)} times as far: once for each device.",
        ),
        (-total, "It went in the direction of the gradient, where the loss rises."),
        (
            total * batch_size,
            f"It went {batch_size} times as far: the gradients are sums over images, "
            "and `batch_size` says over how many.",
        ),
        (parts[0], "It went as the gradient of the first shard says."),
    )
    hint = next(
        (hint for each, hint in known if _close(moved[0], each)),
        "Compare with what `Trainer.step` does to it.",
    )
    yield Claim(
        "they have moved by `lr` times the gradient of the batch",
        _close(moved[0], total),
        hint,
    )
    yield Claim(
        "the gradients are as they were",
        all(map(onp.array_equal, kept, parts)),
        "One of them was changed: the sum was added up in it.",
    )


def _close(a, b):
    return onp.allclose(a, b, rtol=1e-4, atol=1e-4)
