import jax
import numpy as np

from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_a2 import add_shared

ANSWERS = Answers()

add_shared(ANSWERS, jax.device_put, lambda x: x.device, np.asarray)


@ANSWERS.wrong("A2.2", "For an `X` of int32, the shards contain float32")
def always_in_single_precision(X, devices):
    parts = np.array_split(X.astype(np.float32), len(devices))
    return list(map(jax.device_put, parts, devices))
