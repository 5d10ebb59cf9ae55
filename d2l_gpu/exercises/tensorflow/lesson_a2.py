"""CuPy functions, ported."""

from d2l_gpu.exercises.shared import lesson_a2 as common
from d2l_gpu.exercises.tensorflow.arrays import ARRAYS

EXERCISES = common.exercises(ARRAYS)
