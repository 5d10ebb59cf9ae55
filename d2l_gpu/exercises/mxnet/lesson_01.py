"""Devices: GPUs by their numbers, and the current context."""

import mxnet as mx
from mxnet import np, npx

from d2l_gpu import mxnet as d2l
from d2l_gpu.exercises.common import lesson_01 as common
from d2l_gpu.exercises.mxnet.arrays import ARRAYS
from d2l_gpu.exercises.registry import Registry

npx.set_np()

EXERCISES = Registry()


@EXERCISES.add("01.1", "i", returns=mx.Context)
def gpu_in_turn(answer):
    return common.gpu_in_turn(answer, d2l._gpus)


@EXERCISES.add("01.2", "i, visible")
def on_machine(answer):
    return common.on_machine(answer)


@EXERCISES.add("01.3", "f, device")
def run_on(answer):
    devices = [d2l.gpu(1), d2l.gpu(0)]
    return common.run_on(answer, devices, lambda: np.ones(1), ARRAYS.where)


@EXERCISES.add("01.4", "gpus")
def doubling_times(answer):
    return common.doubling_times(answer)
