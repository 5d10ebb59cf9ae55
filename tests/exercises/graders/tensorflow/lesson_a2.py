import numpy as np
import tensorflow as tf

from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_a2 import add_shared

ANSWERS = Answers()


def to(x, device):
    with tf.device(device):
        return tf.identity(x)


add_shared(ANSWERS, to, lambda x: x.device, lambda x: x.numpy(), tf.device)


@ANSWERS.wrong("A2.1", "which is where new arrays go by default")
def without_a_scope(x, device):
    return to(x, device) - tf.reduce_mean(x)


@ANSWERS.wrong("A2.2", "For an `X` of int64, the shards contain float32")
def always_in_single_precision(X, devices):
    parts = np.array_split(X, len(devices))
    return [
        to(tf.cast(part, tf.float32), device)
        for part, device in zip(parts, devices, strict=True)
    ]
