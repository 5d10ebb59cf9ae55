"""Strategies: what the replicas compute, and how their results are combined."""

from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from d2l_gpu.exercises.cases import in_all
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Run
from d2l_gpu.exercises.shared import lesson_08 as common
from d2l_gpu.exercises.tensorflow.arrays import ARRAYS

EXERCISES = common.exercises(ARRAYS)


def _problem(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return n images, their labels, and parameters."""
    rng = np.random.RandomState(n)
    X = rng.randn(n, 3).astype(np.float32)
    y = rng.randn(n).astype(np.float32)
    return X, y, rng.randn(3).astype(np.float32)


def _computed(answer: Callable, gpus: Gpus, n: int) -> dict:
    """Have the answer compute a gradient; record which replicas computed losses."""
    X, y, start = _problem(n)
    strategy = tf.distribute.MirroredStrategy(gpus[:2])
    with strategy.scope():
        w = tf.Variable(start)
    data = tf.data.Dataset.from_tensor_slices((X, y)).batch(n)
    [batch] = strategy.experimental_distribute_dataset(data)
    replicas = set()

    def losses(w, X, y):
        context = tf.distribute.get_replica_context()
        if context is not None and context.num_replicas_in_sync == 2:
            replicas.add(int(tf.get_static_value(context.replica_id_in_sync_group)))
        return (tf.linalg.matvec(X, w) - y) ** 2 / 2

    value = answer(strategy, w, batch, losses)
    return {"replicas": replicas, "value": ARRAYS.fetch(value)}


@EXERCISES.add(
    "08.5",
    "strategy, w, batch, losses",
    returns=tf.Tensor,
    gpus=common.GPUS,
    repeat=False,  # in one process, TensorFlow makes one group of two devices
)
def gradient_of_all(run: Run):
    return in_all(_gradient_of_all(run, n) for n in (8, 7))


def _gradient_of_all(run: Run, n: int) -> Iterator[Claim]:
    X, y, start = _problem(n)
    found = run(_computed, n)
    replicas, value = found["replicas"], found["value"]
    yield Claim(
        "both replicas compute losses, each for its own shard",
        len(replicas) == 2,
        f"{len(replicas)} of 2 replicas computed losses. `strategy.run` calls a "
        "function on each of them.",
    )
    yield Claim(
        "the result has the shape of `w`",
        value.shape == start.shape,
        f"It has the shape {value.shape}, but `w` has {start.shape}.",
    )
    if value.shape != start.shape:
        return
    wanted = _gradient(start, X, y)
    half = (n + 1) // 2  # where the strategy splits the batch
    shards = [_gradient(start, X[part], y[part]) for part in _halves(half)]
    known = (
        (
            sum(shards) / 2,
            "That's the mean of the replicas' results, in which an image in the "
            f"smaller shard counts for more; {n} images don't divide evenly.",
        ),
        (
            sum(shards),
            "That's the sum of the shards' means, twice as large as a mean.",
        ),
        (
            wanted * n,
            f"It's {n} times too large: you summed over the images and didn't divide.",
        ),
        (
            wanted / 2,
            "It's half as large as it should be: you divided by the number of all "
            "images, and then averaged over the replicas.",
        ),
        (
            shards[0],
            "That's the gradient of one shard: you left out the other replica's.",
        ),
        (
            wanted * n / 8,
            f"It would be right for a batch of 8, but this one has {n}. Ask the "
            "shards for their sizes.",
        ),
    )
    hint = next(
        (hint for each, hint in known if np.allclose(value, each, atol=1e-5)),
        f"With {n} images, you return {value.round(3).tolist()}, but it should be "
        f"{wanted.round(3).tolist()}.",
    )
    yield Claim(
        "it's the gradient of the mean of all losses, even if the shards are unequal",
        np.allclose(value, wanted, atol=1e-5),
        hint,
    )


def _halves(half):
    return slice(None, half), slice(half, None)


def _gradient(w, X, y):
    return X.T @ (X @ w - y) / len(y)
