"""Arrays on devices: bytes, keys, donated arguments and memory plans."""

import warnings
from collections.abc import Callable, Sequence
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

from d2l_gpu import jax as d2l
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.jax.arrays import ARRAYS
from d2l_gpu.exercises.registry import Claim, Registry, Run, given
from d2l_gpu.exercises.shared import lesson_02 as common

EXERCISES = Registry()

# ------------------------------------------------------------------ 02.1

HALVED = (
    "JAX creates a smaller type than the one you ask for, unless you tell it otherwise."
)


def _zeros(shape, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the one that float64 is not available
        return jnp.zeros(shape, dtype, device=d2l.gpu(1))


TENSORS = common.Tensors(
    ARRAYS,
    _zeros,
    ["float16", "bfloat16", "bool", "uint8", "int32", "float64", "int64"],
    (RuntimeError, ValueError),
    {"bool": common.WHOLE_BYTES, "float64": HALVED, "int64": HALVED},
    {},
)
EXERCISES.add("02.1", "shape, dtype", returns=int)(given(common.bytes_of, TENSORS))

# ------------------------------------------------------------------ 02.2

KEY = 16  # bytes, at least as many as a key has


def _drawn(answer: Callable, gpus: Gpus, seed: int) -> dict:
    """Return the arrays that are drawn on two devices, and the largest one sent."""
    sent, put = [0], jax.device_put

    def recorded(x, *arguments, **options):
        for each in jax.tree.leaves(x):
            if not jnp.issubdtype(jnp.asarray(each).dtype, jax.dtypes.prng_key):
                sent.append(np.asarray(each).nbytes)
        return put(x, *arguments, **options)

    with patch.object(jax, "device_put", recorded):
        arrays = answer(jax.random.key(seed), (4, 5), [gpus[0], gpus[1]])
    return {
        "homes": [gpus.where(x) for x in arrays],
        "dtypes": [str(x.dtype) for x in arrays],
        "arrays": [np.asarray(x) for x in arrays],
        "sent": max(sent),
    }


@EXERCISES.add("02.2", "key, shape, devices", returns=(list, tuple))
def noise(run: Run):
    first = run(_drawn, 3)
    homes, arrays = first["homes"], first["arrays"]
    shapes = [x.shape for x in arrays]
    yield Claim(
        "there's one array per device, on that device",
        homes == ["GPU 0", "GPU 1"],
        f"For two devices, the arrays are on {' and '.join(homes) or 'none'}.",
    )
    if homes != ["GPU 0", "GPU 1"]:
        return
    yield Claim(
        "shape and dtype are right",
        shapes == [(4, 5)] * 2 and first["dtypes"] == ["float32"] * 2,
        f"The shapes are {shapes[0]} and {shapes[1]}, of {first['dtypes'][0]}.",
    )
    if shapes != [(4, 5)] * 2:
        return
    a, b = arrays
    shared = np.isin(a, b).mean()
    hint = "Both devices have the same numbers. Which key does each of them use?"
    if 0 < shared < 1:
        hint = f"{shared:.0%} of the first device's numbers are on the second one too."
    yield Claim("each device has numbers of its own", shared == 0, hint)
    low, high = min(a.min(), b.min()), max(a.max(), b.max())
    yield Claim(
        "they're from 0 to 1",
        low >= 0 and high <= 1 and high - low > 0.5,
        f"They're from {low:.2f} to {high:.2f}.",
    )
    again, other = run(_drawn, 3)["arrays"], run(_drawn, 4)["arrays"]
    yield Claim(
        "the same key gives the same numbers again",
        np.array_equal(again, arrays),
        "A second call with the same key gave other numbers.",
    )
    yield Claim(
        "another key gives other numbers",
        not np.isin(other, arrays).any(),
        "Two different keys gave the same numbers. Do you use the key at all?",
    )
    yield Claim(
        "only keys are sent to devices",
        first["sent"] <= KEY,
        f"You send {first['sent']} bytes of numbers to a device. A key is smaller, "
        "and JAX draws where the key lives.",
    )


# ------------------------------------------------------------------ 02.3

# How a learning rate may be given.
RATES = {"a Python number": float, "np.float32": np.float32, "a JAX array": jnp.asarray}


def _updated(answer: Callable, gpus: Gpus, rate: str) -> dict:
    device = gpus[1]
    # Not from a NumPy array: JAX might share its memory, which it can't write to.
    W = jnp.arange(12.0, dtype=jnp.bfloat16, device=device).reshape(3, 4)
    gradient = jnp.full((3, 4), 2, jnp.bfloat16, device=device)
    place = W.unsafe_buffer_pointer()
    result = answer(W, gradient, RATES[rate](0.5))
    one = len(result.devices()) == 1
    return {
        "result": np.asarray(result).astype(np.float32),
        "dtype": str(result.dtype),
        "home": gpus.where(result),
        "places": (place, result.unsafe_buffer_pointer() if one else None),
        "old deleted": W.is_deleted(),
        "gradient deleted": gradient.is_deleted(),
    }


@EXERCISES.add("02.3", "W, gradient, lr", returns=jax.Array, changes="W")
def update(run: Run):
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    found = run(_updated, "a Python number")
    result, (before, after) = found["result"], found["places"]
    yield Claim(
        "it returns the new parameters",
        result.shape == values.shape and np.allclose(result, values - 1),
        common.wrong_step(result, values),
    )
    yield Claim(
        "they're on the device of the old ones",
        found["home"] == "GPU 1",
        f"They're on {found['home']}, but the old ones are on GPU 1.",
    )
    yield Claim(
        "the gradient isn't donated",
        not found["gradient deleted"],
        "The gradient's memory was given up too. Which of the arguments do you donate?",
    )
    yield Claim(
        "their dtype is that of the old ones",
        found["dtype"] == "bfloat16",
        f"It's {found['dtype']}, although `W` and the gradient are bfloat16.",
    )
    yield Claim(
        "the old parameters are deleted",
        found["old deleted"],
        "The old parameters still exist, so both they and the new ones take memory.",
    )
    yield Claim(
        "the new parameters use their memory",
        after == before,
        "The new parameters have memory of their own, so for a moment both existed. "
        "Deleting the old ones afterwards is too late.",
    )
    for rate in list(RATES)[1:]:
        found = run(_updated, rate)
        before, after = found["places"]
        yield Claim(
            f"the same holds if `lr` is {rate}",
            found["dtype"] == "bfloat16" and before == after,
            f"With {rate}, the result is {found['dtype']}. Which operand decides?",
        )


# ------------------------------------------------------------------ 02.4


def _factors() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape) for shape in ((256, 256), (256, 256), (256,))]


def _multiplied(answer: Callable, gpus: Gpus) -> np.ndarray:
    return np.asarray(answer(*_on(gpus[1])))


def _planned(answer: Callable, gpus: Gpus) -> int:
    """Return how many bytes the memory plan needs besides arguments and result."""
    plan = jax.jit(answer).lower(*_on(gpus[1])).compile().memory_analysis()
    return plan.temp_size_in_bytes


def _on(device: jax.Device) -> list[jax.Array]:
    return [jax.device_put(each.astype(np.float32), device) for each in _factors()]


@EXERCISES.add("02.4", "A, B, x", returns=jax.Array)
def product(run: Run):
    A, B, x = _factors()
    wanted = A @ B @ x
    result = run(_multiplied)
    hint = "The values aren't those of A B x. You can't swap matrices in a product."
    if result.shape != x.shape:
        hint = (
            f"The result has the shape {result.shape}; it should be a vector of shape "
            f"{x.shape}."
        )
    yield Claim(
        "the result is A B x",
        result.shape == x.shape and np.allclose(result, wanted, rtol=1e-3, atol=0.05),
        hint,
    )
    matrices = run(_planned) / A.astype(np.float32).nbytes
    yield Claim(
        "the memory plan needs less than one matrix besides arguments and result",
        matrices < 1,
        f"It needs {matrices:.2g} matrices. Which of the products has a matrix as its "
        "result?",
    )


# ------------------------------------------------------------------ 02.5

MOST = 40  # compilations
WIDTH = 256


class _TooMany(Exception):
    """An answer compiles again and again."""


def _layer(X: jax.Array) -> jax.Array:
    return jnp.tanh(X @ jnp.ones((WIDTH, 2 * WIDTH)))


def _sum(X: jax.Array) -> jax.Array:
    return X.sum()


FUNCTIONS = {"a layer": _layer, "a sum": _sum}


def _searched(answer: Callable, gpus: Gpus, name: str, limit: int) -> tuple[int, int]:
    """Return the answer's result, -1 if it gave up, and how often it traced `f`."""
    traced = []

    def f(X):
        traced.append(X.shape)
        if len(traced) > 2 * MOST:
            raise _TooMany
        return FUNCTIONS[name](X)

    try:
        return int(answer(f, WIDTH, limit)), len(traced)
    except _TooMany:
        return -1, len(traced)


def _parts(name: str, n: int) -> Sequence[int]:
    batch = jax.ShapeDtypeStruct((n, WIDTH), jnp.float32)
    plan = jax.jit(FUNCTIONS[name]).lower(batch).compile().memory_analysis()
    return (
        plan.argument_size_in_bytes,
        plan.output_size_in_bytes,
        plan.temp_size_in_bytes,
        -plan.alias_size_in_bytes,
    )


@EXERCISES.add("02.5", "f, width, limit", returns=int, seconds=60)
def largest_batch(run: Run):
    limit = sum(_parts("a layer", 1000)) + 100  # 1,001 don't fit
    n, times = run(_searched, "a layer", limit)
    if times > MOST:
        yield Claim(
            f"it compiles at most {MOST} times",
            False,
            f"For a result of 1,000, it compiles more than {MOST} times. After each "
            "plan, how many batch sizes can you rule out?",
        )
        return
    yield Claim(
        "for a layer, it finds the largest batch", n == 1000, _not_largest(n, limit)
    )
    exact = sum(_parts("a sum", 100))
    n, _ = run(_searched, "a sum", exact)
    yield Claim(
        "a batch that takes exactly `limit` bytes fits",
        n == 100,
        f"For a sum and a limit of {exact:,} bytes, you return {n}; 100 examples take "
        "exactly the limit.",
    )
    n, _ = run(_searched, "a sum", 4 * WIDTH)
    yield Claim(
        "if not even one example fits, it returns 0",
        n == 0,
        f"With a limit too small for one example and its sum, you return {n}.",
    )


def _not_largest(n: int, limit: int) -> str:
    if n <= 0:
        return f"You return {n}, but 1,000 examples fit."
    parts = _parts("a layer", n)
    if sum(parts) > limit:
        counted = f"You return {n:,}, which takes {sum(parts):,} of {limit:,} bytes. "
        if parts[0] <= limit < parts[0] + parts[1]:
            return counted + "Do you count the results?"
        return counted + "What belongs to the total?"
    if n & (n - 1) == 0:
        return (
            f"You return {n}, a power of two. There's room for more, but not for twice "
            "as many."
        )
    return f"You return {n:,}, but {n + 1:,} examples would fit as well."
