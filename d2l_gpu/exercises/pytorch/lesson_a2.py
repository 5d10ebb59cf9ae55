"""CuPy functions, ported."""

from d2l_gpu.exercises.pytorch.arrays import ARRAYS
from d2l_gpu.exercises.shared import lesson_a2 as common

EXERCISES = common.exercises(ARRAYS)
