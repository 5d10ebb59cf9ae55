import jax
import numpy as np

from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_a2 import add_shared

ANSWERS = Answers()

add_shared(ANSWERS, jax.device_put, lambda x: x.device, np.asarray)
