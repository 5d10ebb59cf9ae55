"""A network small enough to train in a moment, for trying out settings.

It is written in NumPy, so that it learns the same whatever the framework.
"""

import functools
from typing import TYPE_CHECKING

from d2l_gpu.common.arguments import check_integer
from d2l_gpu.data.digits import TEST, TRAIN, mixed_digits

if TYPE_CHECKING:
    import numpy as np

HIDDEN = 32
IMAGES = 1437  # for training


def train_small(batch_size: int, epochs: int, lr: float, seed: int = 0) -> float:
    """Train a network with one hidden layer on the digits; return its test accuracy.

    It has 32 hidden units and trains with plain SGD. With batches larger than 32, the
    learning rate warms up linearly over the first epoch; it then decays linearly to
    zero. Incomplete batches are dropped.

    Args:
        batch_size: images per batch; at most 1,437, the whole training set.
        epochs: passes over the training set; at least 2.
        lr: the peak learning rate.
        seed: seeds the initial parameters and the order of the images.
    Raises:
        TypeError: `batch_size` or `epochs` is not an integer.
        ValueError: an argument is out of range, or `lr` is not a number.
    """
    import numpy as np

    (X_train, y_train), (X_test, y_test) = _digits()
    check_integer("The size of a batch", batch_size, least=1, example=32)
    check_integer("The number of epochs", epochs, least=2, example=4)
    if batch_size > IMAGES:
        raise ValueError(
            f"There are only {IMAGES:,} images, so a batch can't have {batch_size:,}. "
            "Choose a smaller batch."
        )
    if isinstance(lr, bool) or not isinstance(lr, (int, float)) or not lr > 0:
        raise ValueError(
            f"The learning rate must be a number above 0, such as 0.1, but it was {lr}."
        )
    rng = np.random.RandomState(seed)
    shapes = (X_train.shape[1], HIDDEN), (HIDDEN, 10)
    W, V = (rng.randn(*shape) * np.sqrt(2 / shape[0]) for shape in shapes)
    per_epoch = IMAGES // batch_size
    steps, warmup = epochs * per_epoch, per_epoch * (batch_size > 32)
    done = 0
    with np.errstate(all="ignore"):  # too high a learning rate overflows
        for _ in range(epochs):
            order = rng.permutation(IMAGES)
            for start in range(0, per_epoch * batch_size, batch_size):
                chosen = order[start : start + batch_size]
                X = X_train[chosen]
                H = np.maximum(X @ W, 0)
                P = _softmax(H @ V)
                P[np.arange(batch_size), y_train[chosen]] -= 1
                gradients = X.T @ (P @ V.T * (H > 0)), H.T @ P
                rate = lr * _part(done, steps, warmup)
                W, V = (
                    w - rate / batch_size * gradient
                    for w, gradient in zip((W, V), gradients, strict=True)
                )
                done += 1
        found = (np.maximum(X_test @ W, 0) @ V).argmax(axis=1)
    return float((found == y_test).mean())


def _part(done: int, steps: int, warmup: int) -> float:
    """Return a step's learning rate as a fraction of the peak."""
    if done < warmup:
        return (done + 1) / warmup
    return (steps - done) / (steps - warmup)


def _softmax(Z: "np.ndarray") -> "np.ndarray":
    import numpy as np

    E = np.exp(Z - Z.max(axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True)


@functools.cache
def _digits():
    images, labels = mixed_digits()
    X = images.reshape(len(images), -1) / 16
    return (X[TRAIN], labels[TRAIN]), (X[TEST], labels[TEST])
