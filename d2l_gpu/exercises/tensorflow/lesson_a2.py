"""Functions of CuPy, translated."""

import tensorflow as tf

from d2l_gpu.exercises.common import lesson_a2 as common
from d2l_gpu.exercises.registry import Registry
from d2l_gpu.exercises.tensorflow.arrays import ARRAYS

EXERCISES = Registry()


@EXERCISES.add("A2.1", "x, device", returns=tf.Tensor, gpus=common.GPUS)
def centred(answer):
    return common.centred(answer, ARRAYS)


@EXERCISES.add("A2.2", "X, devices", returns=(list, tuple), gpus=common.GPUS)
def shards(answer):
    return common.shards(answer, ARRAYS)


@EXERCISES.add("A2.3", "parts", returns=(list, tuple), gpus=common.GPUS)
def all_reduce(answer):
    return common.all_reduce(answer, ARRAYS)
