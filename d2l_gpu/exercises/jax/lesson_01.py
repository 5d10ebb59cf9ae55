"""Devices: numbering GPUs, and the default device."""

import jax
import jax.numpy as jnp

from d2l_gpu import jax as d2l
from d2l_gpu.exercises.jax.arrays import ARRAYS
from d2l_gpu.exercises.shared import lesson_01 as common

EXERCISES = common.exercises(
    common.Devices(ARRAYS, d2l._gpus, lambda: jnp.ones(1)), jax.Device
)
