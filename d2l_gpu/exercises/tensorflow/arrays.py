"""TensorFlow's tensors, for shared graders."""

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops

from d2l_gpu import tensorflow as d2l
from d2l_gpu.exercises.arrays import Arrays


def _put(values, device):
    with tf.device(device):
        return tf.identity(values)


# Taken before any grader records copies, which it does by patching this method.
_to_numpy = ops._EagerTensorBase._numpy


def _peek(x: Any) -> dict[str, bytes]:
    """Return the values of a variable, or of a layer's; tensors never change."""
    if not tf.executing_eagerly():
        return {}
    if isinstance(x, tf.keras.layers.Layer):
        return {f".{each.path}": _bytes(each.value) for each in x.variables}
    if isinstance(x, tf.Variable):
        return {"": _bytes(x)}
    return {"": x.tobytes()} if isinstance(x, np.ndarray) else {}


def _bytes(x: tf.Variable) -> bytes:
    return _to_numpy(x.value()).tobytes()


ARRAYS = Arrays(
    kind=tf.Tensor,
    put=_put,
    fetch=lambda x: np.asarray(x.numpy()),  # an array even if it's one number
    device=lambda x: x.device,
    cpu=d2l.cpu,
    gpus=d2l.try_all_gpus,
    name=d2l.name,
    peek=_peek,
)
