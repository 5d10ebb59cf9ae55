"""Strategies: what the replicas compute, and how their results are combined."""

from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf

from d2l_gpu.exercises.cases import in_all
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run, given
from d2l_gpu.exercises.shared import lesson_08 as common
from d2l_gpu.exercises.tensorflow.arrays import ARRAYS

EXERCISES = Registry()
GPUS = common.GPUS

EXERCISES.add("08.1", None, returns=(list, tuple), gpus=GPUS)(common.settings)
EXERCISES.add("08.2", "nets, X, y, devices", returns=float, gpus=GPUS)(
    given(common.accuracy, ARRAYS)
)


# ------------------------------------------------------------------ a step

_RATE, _BATCH = 0.5, 8


def _network() -> tuple[keras.Model, keras.optimizers.Optimizer]:
    """Return a small network with batch normalization, and SGD for it."""
    keras.utils.set_random_seed(8)
    net = keras.Sequential(
        [
            keras.Input((5,)),
            keras.layers.Dense(6),
            keras.layers.BatchNormalization(momentum=0.9),
            keras.layers.ReLU(),
            keras.layers.Dense(3),
        ]
    )
    optimizer = keras.optimizers.SGD(_RATE)
    optimizer.build(net.trainable_variables)
    return net, optimizer


def _examples() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.RandomState(8)
    X = rng.randn(_BATCH, 5).astype(np.float32)
    X[_BATCH // 2 :] += 1  # so that the shards' losses and statistics differ
    return X, rng.randint(3, size=_BATCH)


def _losses(y, scores):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(y, scores)


def _stepped(answer: Callable, gpus: Gpus) -> dict:
    """Have the answer take a step; return how far it went, and the loss."""
    # In one process, collectives of two strategies would get into each other's way.
    strategy = tf.distribute.MirroredStrategy(
        gpus[:2], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    with strategy.scope():
        net, optimizer = _network()
    data = tf.data.Dataset.from_tensor_slices(_examples()).batch(_BATCH)
    [batch] = strategy.experimental_distribute_dataset(data)
    trained = [x.numpy() for x in net.trainable_weights]
    collected = [x.numpy() for x in net.non_trainable_weights]
    sizes = []

    def losses_of(y, scores):
        sizes.append(y.shape[0])
        return _losses(y, scores)

    loss = answer(strategy, net, optimizer, batch, losses_of)
    moved = [
        (x.numpy() - old).ravel()
        for x, old in zip(net.trainable_weights, trained, strict=True)
    ]
    kept = [
        np.array_equal(x.numpy(), old)
        for x, old in zip(net.non_trainable_weights, collected, strict=True)
        if x.dtype == "float32" and "seed" not in x.path
    ]
    return {
        "loss": float(loss),
        "moved": np.concatenate(moved),
        "statistics": not all(kept),
        "sizes": sizes,
    }


def _step_on_one_device() -> tuple[np.ndarray, list[float], np.ndarray]:
    """Return the right step, the shards' mean losses, and the step without training."""
    net, _ = _network()
    X, y = _examples()
    halves = [(X[part], y[part]) for part in _halves(_BATCH // 2)]

    def step(training):
        losses, total = [], 0
        for rows, labels in halves:
            with tf.GradientTape() as tape:
                mean = tf.reduce_mean(_losses(labels, net(rows, training=training)))
            grads = tape.gradient(mean, net.trainable_variables)
            total = total + np.concatenate([np.ravel(x) for x in grads]) / 2
            losses.append(float(mean))
        return -_RATE * total, losses

    tested, _ = step(False)
    right, losses = step(True)
    return right, losses, tested


@EXERCISES.add(
    "08.3",
    "strategy, net, optimizer, batch, losses_of",
    returns=float,
    gpus=GPUS,
    changes="net, optimizer",
    repeat=False,  # in one process, TensorFlow makes one group of two devices
)
def train_step(run: Run):
    found = run(_stepped)
    right, losses, tested = _step_on_one_device()
    moved, loss = found["moved"], found["loss"]
    yield Claim(
        "the losses are computed for shards",
        bool(found["sizes"]) and set(found["sizes"]) == {_BATCH // 2},
        "`losses_of` was never called."
        if not found["sizes"]
        else f"`losses_of` was called with {found['sizes'][0]} examples, but a shard "
        f"has {_BATCH // 2}.",
    )
    yield Claim(
        "batch normalization updates its running statistics",
        found["statistics"],
        "They are as they were. How does a layer know that it's being trained?",
    )
    ratio = float(moved @ right / (right @ right))
    like = np.allclose(moved, ratio * right, rtol=1e-3, atol=1e-5)
    if not moved.any():
        hint = "The parameters haven't changed."
    elif like and abs(ratio - 1) > 0.01:
        hint = f"It goes in the right direction, but it's {ratio:.3g} times too long."
        if ratio < 1:
            hint = (
                "It goes in the right direction, but its length is only "
                f"{ratio:.3g} of what it should be."
            )
    elif np.allclose(moved, tested, rtol=1e-3, atol=1e-5):
        hint = "The gradient is that of a network that is being tested, not trained."
    else:
        hint = "It doesn't go in the direction of the gradient of the mean loss."
    yield Claim(
        "the step is that of the mean loss of the whole batch",
        np.allclose(moved, right, rtol=1e-3, atol=1e-5),
        hint,
    )
    mean = sum(losses) / 2
    hint = f"It should be {mean:.4g}, but you return {loss:.4g}."
    if any(abs(loss - each) < 1e-4 for each in losses):
        hint = f"You return {loss:.4g}, which is the mean loss of one shard."
    elif abs(loss - 2 * mean) < 1e-4:
        hint = f"You return {loss:.4g}, which is the sum of the shards' mean losses."
    elif abs(loss - mean / 2) < 1e-4:
        hint = f"You return {loss:.4g}, only half of the mean loss."
    yield Claim(
        "it returns the mean loss of the whole batch", abs(loss - mean) < 1e-4, hint
    )


# ------------------------------------------------------------------ a gradient


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
    "08.4",
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
