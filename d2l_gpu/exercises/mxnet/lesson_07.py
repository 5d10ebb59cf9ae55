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
            "No copy has changed. Change an array in place, as `-=` does, or use "
            "`set_data`."
        )
    elif not all(changed):
        late = parameter.list_ctx()[changed.index(False)]
        hint = f"The copy on {late} hasn't changed."
    else:
        hint = ""
    yield Claim("every copy of a parameter has changed", all(changed), hint)
    if all(_close(*pair) for pair in zip(moved, parts, strict=True)):
        hint = "Each device followed the gradient of its own shard."
    else:
        hint = (
            "The copies differ. Did you use an array while it was still being added to?"
        )
    yield Claim(
        "all copies of a parameter are equal",
        all(_close(copies[0], copy) for copy in copies),
        hint,
    )
    known = (
        (
            total / len(parts),
            "You moved by the mean of the gradients, and divided by `batch_size` as "
            "well.",
        ),
        (
            total * len(parts),
            f"You moved {len(parts)} times too far: once for each device.",
        ),
        (-total, "You moved in the direction of the gradient, where the loss grows."),
        (
            total * batch_size,
            f"You moved {batch_size} times too far: the gradients are sums over "
            "`batch_size` images.",
        ),
        (parts[0], "You used only the gradient of the first shard."),
    )
    hint = next(
        (hint for each, hint in known if _close(moved[0], each)),
        f"On the first device, `{parameter.name}` moved "
        f"{onp.linalg.norm(moved[0]) / onp.linalg.norm(total):.3g} times as far as it "
        "should. Compare with what `Trainer.step` does.",
    )
    yield Claim(
        "they have moved by `lr` times the gradient of the batch",
        _close(moved[0], total),
        hint,
    )
    yield Claim(
        "the gradients keep their values",
        all(map(onp.array_equal, kept, parts)),
        "You changed one of the gradients by adding up the sum in it.",
    )


def _close(a, b):
    return onp.allclose(a, b, rtol=1e-4, atol=1e-4)
