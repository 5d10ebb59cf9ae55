"""Meshes and shards: how arrays are split, and which device has which piece."""

from collections.abc import Callable

import jax
import numpy as np

from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.jax.arrays import ARRAYS
from d2l_gpu.exercises.registry import Claim, Run
from d2l_gpu.exercises.shared import lesson_08 as common

EXERCISES = common.exercises(ARRAYS)


def _operands() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.RandomState(0)
    X = rng.randn(6, 4).astype(np.float32)
    return X, rng.randn(4, 8).astype(np.float32)


def _laid_out(answer: Callable, gpus: Gpus) -> dict:
    X, W = _operands()
    result = answer(X, W, gpus[:])
    three = len(result) == 3 and all(isinstance(x, jax.Array) for x in result)
    return {
        "kinds": [type(x).__name__ for x in result],
        "arrays": [
            {
                "values": np.asarray(x),
                "devices": len(x.devices()),
                "piece": x.addressable_shards[0].data.shape,
                "slices": _by_device(x),
            }
            for x in (result if three else ())
        ],
    }


@EXERCISES.add("08.5", "X, W, devices", returns=(tuple, list), gpus=common.GPUS)
def lay_out(run: Run):
    found = run(_laid_out)
    result, (X, W) = found["arrays"], _operands()
    names = ("X", "W", "the product")
    yield Claim(
        "it returns three JAX arrays",
        len(result) == 3,
        f"You return {', '.join(found['kinds'])}.",
    )
    if len(result) != 3:
        return
    right = [
        x["values"].shape == value.shape and np.allclose(x["values"], value, atol=1e-5)
        for x, value in zip(result, (X, W, X @ W), strict=True)
    ]
    yield Claim(
        "they have the values of `X`, `W` and `X @ W`, in this order",
        all(right),
        f"The values of {names[right.index(False)] if False in right else ''} are "
        "wrong.",
    )
    if not all(right):
        return
    few = [name for name, x in zip(names, result, strict=True) if x["devices"] != 4]
    yield Claim(
        "each is a single array on all four devices",
        not few,
        f"Not on all four devices: {' and '.join(few)}.",
    )
    pieces = [x["piece"] for x in result]
    yield Claim(
        "each device has half of the rows of `X`, and all its columns",
        pieces[0] == (3, 4),
        f"A device's part has the shape {pieces[0]}. Split the batch along `batch` "
        "and no other axis of the mesh.",
    )
    hint = f"A device's part has the shape {pieces[1]}. "
    hint += {
        (4, 8): "Every device has the whole of `W`.",
        (2, 8): "You split it by rows: the axes of an array are named in order.",
        (2, 4): "You split both rows and columns.",
        (4, 2): "You split it into four: how many devices does the axis `model` have?",
    }.get(pieces[1], "")
    yield Claim(
        "each device has half of the columns of `W`, and all its rows",
        pieces[1] == (4, 4),
        hint,
    )
    yield Claim(
        "each device has a quarter of the product",
        pieces[2] == (3, 4),
        f"A device's part has the shape {pieces[2]}: "
        + (
            "you computed it elsewhere, or gathered it."
            if pieces[:2] == [(3, 4), (4, 4)]
            else "each axis is split like the axis of the operand it comes from."
        ),
    )
    pairs = zip(*(x["slices"] for x in result[:2]), strict=True)
    yield Claim(
        "devices with the same rows of `X` have different columns of `W`",
        len(set(pairs)) == common.GPUS,
        "You split both along the same axis of the mesh, so no device has the first "
        "rows and the last columns.",
    )


def _by_device(x: jax.Array) -> list[str]:
    """Return the slice of an array that each device has, in device order."""
    shards = sorted(x.addressable_shards, key=lambda shard: shard.device.id)
    return [str(shard.index) for shard in shards]
