"""Answers to the exercises of lesson 02 that TensorFlow, JAX and MXNet share."""

import math
from collections.abc import Callable

import numpy as np

from tests.exercises.graders.answers import Answers

SIZES = {"bool": 1, "uint8": 1, "float16": 2, "bfloat16": 2, "float32": 4, "int32": 4}


def add_bytes_of(answers: Answers, zeros: Callable, sizes: dict[str, int]) -> None:
    """Register the answers to 02.1.

    Args:
        answers: of the framework.
        zeros: creates an array of a shape and a type.
        sizes: of the elements of the types that differ among frameworks.
    """
    right, wrong = answers.right, answers.wrong
    sizes = SIZES | sizes

    @right("02.1")
    def with_a_table(shape, dtype):
        return math.prod(shape) * sizes[dtype]

    @wrong("02.1", "That's the number of elements")
    def forgets_the_type(shape, dtype):
        return math.prod(shape)

    @wrong("02.1", "That's in bits")
    def counts_bits(shape, dtype):
        return math.prod(shape) * sizes[dtype] * 8

    @wrong("02.1", "What does `dtype` tell you")
    def knows_one_type(shape, dtype):
        return math.prod(shape) * 4

    @wrong("02.1", "addressed in bytes, not in bits")
    def packs_truth_values(shape, dtype):
        if dtype == "bool":
            return -(-math.prod(shape) // 8)
        return with_a_table(shape, dtype)

    @wrong("02.1", "It has one element")
    def forgets_that_there_may_be_no_dimension(shape, dtype):
        return math.prod(shape) * sizes[dtype] if shape else 0

    @wrong("02.1", "which has no elements, you return 4 bytes")
    def takes_a_number_at_least(shape, dtype):
        return max(1, math.prod(shape)) * sizes[dtype]

    @wrong("02.1", "has overflowed")
    def multiplies_in_32_bits(shape, dtype):
        return int(np.prod(shape, dtype=np.int32)) * sizes[dtype]

    @wrong("02.1", "You create the array")
    def creates_it(shape, dtype):
        array = zeros(shape, dtype)
        return math.prod(array.shape) * sizes[dtype]


def add_parameters(answers: Answers) -> None:
    """Register the answers to 02.2."""
    right, wrong = answers.right, answers.wrong
    right("02.2")(16 * 2**30 / 16)
    wrong("02.2", "nothing but the parameters")(2**32)
    wrong("02.2", "without Adam's own numbers")(2**31)
    wrong("02.2", "three numbers per parameter")(16 * 2**30 // 12)
    wrong("02.2", "five numbers per parameter")(16 * 2**30 // 20)
    wrong("02.2", "A GiB has 2³⁰ bytes")(10**9)
    wrong("02.2", "or how many billions there are")(1)


def add_random_on(answers: Answers, put: Callable) -> None:
    """Register answers to 02.3.

    Args:
        answers: of the framework.
        put: makes an array of one of NumPy's, on a device.
    """
    right, wrong = answers.right, answers.wrong

    def drawn(seed, shape):
        return np.random.default_rng(seed).random(shape, np.float32)

    @right("02.3")
    def with_a_generator_of_numpy(shape, seed, device):
        return put(drawn(seed, shape), device)

    @wrong("02.3", "3 and 4 gave the same")
    def forgets_the_seed(shape, seed, device):
        return put(drawn(0, shape), device)

    @wrong("02.3", "gave different numbers the second time")
    def draws_anew(shape, seed, device):
        return put(drawn(None, shape), device)

    @wrong("02.3", "A different device gives different numbers")
    def mixes_the_device_into_the_seed(shape, seed, device):
        return put(drawn([seed, *str(device).encode()], shape), device)

    @wrong("02.3", "the smallest number -3.91")
    def draws_from_a_normal_distribution(shape, seed, device):
        values = np.random.default_rng(seed).standard_normal(shape, np.float32)
        return put(values, device)

    @wrong("02.3", "Most numbers occur more than once")
    def draws_whole_numbers(shape, seed, device):
        return put(drawn(seed, shape).round(1) * np.float32(0.9), device)

    @wrong("02.3", "You draw from NumPy's generator")
    def seeds_numpy(shape, seed, device):
        np.random.seed(seed)
        return put(np.random.rand(*shape).astype(np.float32), device)
