"""Functions of CuPy, translated."""

from d2l_gpu.exercises.common import lesson_a2 as common
from d2l_gpu.exercises.jax.arrays import ARRAYS

EXERCISES = common.exercises(ARRAYS)
