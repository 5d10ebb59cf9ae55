"""Copies of the parameters, and what a training step does to each."""

from collections.abc import Callable, Iterator, Sequence

import numpy as onp
from mxnet import gluon, np

from d2l_gpu.exercises.cases import in_all
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.mxnet.arrays import ARRAYS
from d2l_gpu.exercises.registry import Claim, Run
from d2l_gpu.exercises.shared import lesson_08 as common

EXERCISES = common.exercises(ARRAYS)


_DEVICES = 3


def _starts() -> dict[str, list[onp.ndarray]]:
    """Return each parameter's value, and its gradient on each device, by name."""
    rng = onp.random.RandomState(0)
    return {
        f"weight{i}": list(rng.randn(1 + _DEVICES, *shape).astype("float32"))
        for i, shape in enumerate([(2, 3), (4,)])
    }


def _stepped(answer: Callable, gpus: Gpus, batch_size: int, lr: float) -> dict:
    devices, params = gpus[:_DEVICES], []
    for name, (start, *parts) in _starts().items():
        parameter = gluon.Parameter(name, shape=start.shape)
        parameter.initialize(ctx=devices)
        parameter.set_data(np.array(start))
        for device, part in zip(devices, parts, strict=True):
            parameter.grad(device)[:] = np.array(part)
        params.append(parameter)
    answer(list(params), list(devices), batch_size, lr)
    return {
        parameter.name: (
            [parameter.data(device).asnumpy() for device in devices],
            [parameter.grad(device).asnumpy() for device in devices],
        )
        for parameter in params
    }


@EXERCISES.add(
    "08.5", "params, devices, batch_size, lr", gpus=common.GPUS, changes="params"
)
def step(run: Run):
    batch_size, lr = 10, 0.5
    found = run(_stepped, batch_size, lr)
    yield from in_all(
        _moved(name, *found[name], *each, batch_size=batch_size, lr=lr)
        for name, each in _starts().items()
    )


def _moved(
    name: str,
    copies: Sequence[onp.ndarray],
    kept: Sequence[onp.ndarray],
    start: onp.ndarray,
    *parts: onp.ndarray,
    batch_size: int,
    lr: float,
) -> Iterator[Claim]:
    total = sum(parts)
    moved = [(start - copy) * batch_size / lr for copy in copies]
    changed = [not onp.array_equal(start, copy) for copy in copies]
    if not any(changed):
        hint = (
            "No copy has changed. Change an array in place, as `-=` does, or use "
            "`set_data`."
        )
    elif not all(changed):
        hint = f"The copy on GPU {changed.index(False)} hasn't changed."
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
        f"On the first device, `{name}` moved "
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
