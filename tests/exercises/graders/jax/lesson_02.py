import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from d2l_gpu import jax as d2l
from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_02 import add_bytes_of

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong

add_bytes_of(ANSWERS, jnp.zeros, {"float64": 4, "int64": 4})


@wrong("02.1", "JAX creates a smaller type")
def trusts_the_name(shape, dtype):
    return jnp.dtype(dtype).itemsize * jax.ShapeDtypeStruct(shape, dtype).size


@right("02.2")
def folds_in(key, shape, devices):
    arrays = []
    for i, device in enumerate(devices):
        with jax.default_device(device):
            arrays.append(jax.random.uniform(jax.random.fold_in(key, i), shape))
    return arrays


@wrong("02.2", "Which key does each of them use?")
def one_key(key, shape, devices):
    return [
        jax.random.uniform(jax.device_put(key, device), shape) for device in devices
    ]


@wrong("02.2", "bytes of numbers to a device")
def sends_the_numbers(key, shape, devices):
    keys = jax.random.split(key, len(devices))
    return [
        jax.device_put(jax.random.uniform(k, shape), device)
        for k, device in zip(keys, devices, strict=True)
    ]


@wrong("02.2", "the arrays are on the host and the host")
def stays_on_the_host(key, shape, devices):
    with jax.default_device(d2l.cpu()):
        keys = jax.random.split(key, len(devices))
        return [jax.random.uniform(k, shape) for k in keys]


@wrong("02.2", "Do you use the key at all?")
def makes_a_key(key, shape, devices):
    return [
        jax.random.uniform(jax.device_put(jax.random.key(i), device), shape)
        for i, device in enumerate(devices)
    ]


CALLS = itertools.count()


@wrong("02.2", "A second call with the same key")
def counts_calls(key, shape, devices):
    keys = jax.random.split(jax.random.fold_in(key, next(CALLS)), len(devices))
    return [
        jax.random.uniform(jax.device_put(k, device), shape)
        for k, device in zip(keys, devices, strict=True)
    ]


@wrong("02.2", "They're from -")
def draws_from_a_normal_distribution(key, shape, devices):
    keys = jax.random.split(key, len(devices))
    return [
        jax.random.normal(jax.device_put(k, device), shape)
        for k, device in zip(keys, devices, strict=True)
    ]


@right("02.3")
@functools.partial(jax.jit, donate_argnames="W")
def rounds_the_rate(W, gradient, lr):
    return W.at[:].add(-jnp.asarray(lr).astype(W.dtype) * gradient)


@wrong("02.3", "The old parameters still exist")
def makes_a_new_array(W, gradient, lr):
    return W - lr * gradient


@wrong("02.3", "With np.float32, the result is float32. Which operand decides?")
@functools.partial(jax.jit, donate_argnums=0)
def only_donates(W, gradient, lr):
    return W - lr * gradient


@wrong("02.3", "Deleting the old ones afterwards is too late")
def deletes_by_hand(W, gradient, lr):
    new = (W - lr * gradient).astype(W.dtype).block_until_ready()
    W.delete()
    return new


@wrong("02.3", "Which of the arguments do you donate?")
@functools.partial(jax.jit, donate_argnums=1)
def donates_the_gradient(W, gradient, lr):
    return W - lr * gradient


@wrong("02.3", "It's float32, although")
@functools.partial(jax.jit, donate_argnums=0)
def stays_in_32_bits(W, gradient, lr):
    return W.astype(jnp.float32) - lr * gradient


@wrong("02.3", "They're on the host, but the old ones are on GPU 1")
def goes_through_numpy(W, gradient, lr):
    return jax.device_put(np.asarray(W) - lr * np.asarray(gradient), d2l.cpu())


@wrong("02.3", "where the loss grows")
@functools.partial(jax.jit, donate_argnums=0)
def goes_uphill(W, gradient, lr):
    return W + lr * gradient


@wrong("02.3", "whatever the learning rate")
@functools.partial(jax.jit, donate_argnums=0)
def forgets_the_rate(W, gradient, lr):
    return W - gradient


@right("02.4")
def lets_numpy_choose(A, B, x):
    return jnp.linalg.multi_dot([A, B, x])


@wrong("02.4", "Which of the products has a matrix")
def from_left_to_right(A, B, x):
    return A @ B @ x


@wrong("02.4", "You can't swap matrices in a product")
def changes_places(A, B, x):
    return B @ (A @ x)


@wrong("02.4", "it should be a vector")
def scales_columns(A, B, x):
    return A @ (B * x)


def _total(f, n, width, parts=("argument", "output", "temp")):
    batch = jax.ShapeDtypeStruct((n, width), jnp.float32)
    plan = jax.jit(f).lower(batch).compile().memory_analysis()
    return sum(getattr(plan, f"{part}_size_in_bytes") for part in parts)


def _search(fits):
    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@right("02.5")
def bit_by_bit(f, width, limit):
    n = 0
    for bit in reversed(range(16)):
        if _total(f, n + 2**bit, width) <= limit:
            n += 2**bit
    return n


@wrong("02.5", "Do you count the results?")
def counts_the_arguments(f, width, limit):
    return _search(lambda n: _total(f, n, width, ["argument"]) <= limit)


@wrong("02.5", "100 examples take exactly the limit")
def wants_room(f, width, limit):
    return _search(lambda n: _total(f, n, width) < limit)


@wrong("02.5", "a power of two")
def only_doubles(f, width, limit):
    n = 1
    while _total(f, 2 * n, width) <= limit:
        n *= 2
    return n


@wrong("02.5", "how many batch sizes can you rule out?")
def one_by_one(f, width, limit):
    n = 0
    while _total(f, n + 1, width) <= limit:
        n += 1
    return n


@wrong("02.5", "With a limit too small")
def at_least_one(f, width, limit):
    return max(1, _search(lambda n: _total(f, n, width) <= limit))


@wrong("02.5", "examples would fit as well")
def one_too_few(f, width, limit):
    return _search(lambda n: _total(f, n + 1, width) <= limit)
