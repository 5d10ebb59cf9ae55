"""Devices: GPUs by their numbers, and the default device."""

import jax
import jax.numpy as jnp

from d2l_gpu import jax as d2l
from d2l_gpu.exercises.common import lesson_01 as common
from d2l_gpu.exercises.jax.arrays import ARRAYS
from d2l_gpu.exercises.registry import Registry

EXERCISES = Registry()


@EXERCISES.add("01.1", "i", returns=jax.Device)
def gpu_in_turn(answer):
    return common.gpu_in_turn(answer, d2l._gpus)


@EXERCISES.add("01.2", "i, visible")
def on_machine(answer):
    return common.on_machine(answer)


@EXERCISES.add("01.3", "f, device")
def run_on(answer):
    devices = [d2l.gpu(1), d2l.gpu(0)]
    return common.run_on(answer, devices, lambda: jnp.ones(1), ARRAYS.where)


@EXERCISES.add("01.4", "gpus")
def doubling_times(answer):
    return common.doubling_times(answer)
