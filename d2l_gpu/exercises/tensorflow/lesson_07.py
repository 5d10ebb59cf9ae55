"""Strategies: what the replicas compute, and how their results are combined."""

import numpy as np
import tensorflow as tf

from d2l_gpu import tensorflow as d2l
from d2l_gpu.exercises.cases import in_all
from d2l_gpu.exercises.registry import Claim
from d2l_gpu.exercises.shared import lesson_07 as common
from d2l_gpu.exercises.tensorflow.arrays import ARRAYS

EXERCISES = common.exercises(ARRAYS)


@EXERCISES.add(
    "07.5", "strategy, w, batch, losses", returns=tf.Tensor, gpus=common.GPUS
)
def gradient_of_all(answer):
    strategy = tf.distribute.MirroredStrategy(d2l.try_all_gpus()[:2])
    return in_all(_gradient_of_all(answer, strategy, n) for n in (8, 7))


def _gradient_of_all(answer, strategy, n):
    rng = np.random.RandomState(n)
    X = rng.randn(n, 3).astype(np.float32)
    y = rng.randn(n).astype(np.float32)
    start = rng.randn(3).astype(np.float32)
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

    value = answer(strategy, w, batch, losses).numpy()
    yield Claim(
        "both replicas compute losses, those of their own shards",
        len(replicas) == 2,
        f"{len(replicas)} of 2 replicas did. `strategy.run` calls a function on each.",
    )
    yield Claim(
        "the result has the shape of `w`",
        value.shape == start.shape,
        f"It has the shape {value.shape}, and `w` {start.shape}.",
    )
    if value.shape != start.shape:
        return
    wanted = _gradient(start, X, y)
    half = (n + 1) // 2  # where the strategy splits the batch
    shards = [_gradient(start, X[part], y[part]) for part in _halves(half)]
    known = (
        (
            sum(shards) / 2,
            "It is the mean of what the replicas found, in which an image of the "
            f"smaller shard counts for more; {n} images cannot be halved.",
        ),
        (
            sum(shards),
            "It is the sum of the shards' means, twice as large as a mean.",
        ),
        (
            wanted * n,
            f"It is {n} times as large: it was summed over the images, not divided.",
        ),
        (
            wanted / 2,
            "It is half as large: it was divided by the number of all images, and "
            "then averaged over the replicas.",
        ),
        (
            shards[0],
            "It is the gradient of one shard: that of the other replica is left out.",
        ),
        (
            wanted * n / 8,
            f"It fits a batch of 8, and this one has {n}: ask the shards.",
        ),
    )
    hint = next(
        (hint for each, hint in known if np.allclose(value, each, atol=1e-5)),
        f"With {n} images it is {value.round(3).tolist()}, and was to be "
        f"{wanted.round(3).tolist()}.",
    )
    yield Claim(
        "it is the gradient of the mean of all losses, also if shards are unequal",
        np.allclose(value, wanted, atol=1e-5),
        hint,
    )


def _halves(half):
    return slice(None, half), slice(half, None)


def _gradient(w, X, y):
    return X.T @ (X @ w - y) / len(y)
