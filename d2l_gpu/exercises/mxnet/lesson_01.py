"""Devices: numbering GPUs, and the current context."""

import mxnet as mx
from mxnet import np, npx

from d2l_gpu import mxnet as d2l
from d2l_gpu.exercises.mxnet.arrays import ARRAYS
from d2l_gpu.exercises.shared import lesson_01 as common

npx.set_np()

EXERCISES = common.exercises(
    common.Devices(ARRAYS, d2l._gpus, lambda: np.ones(1)), mx.Context
)
