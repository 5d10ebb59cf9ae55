"""Arrays on devices: bytes, keys, donated arguments and memory plans."""

import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from d2l_gpu import jax as d2l
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.jax.arrays import ARRAYS
from d2l_gpu.exercises.registry import Claim, Run
from d2l_gpu.exercises.shared import lesson_02 as common

HALVED = (
    "JAX creates a smaller type than the one you ask for, unless you tell it otherwise."
)


def _zeros(shape, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the one that float64 is not available
        return jnp.zeros(shape, dtype, device=d2l.gpu(1))


EXERCISES = common.exercises(
    common.Tensors(
        ARRAYS,
        _zeros,
        ["float16", "bfloat16", "bool", "uint8", "int32", "float64", "int64"],
        (RuntimeError, ValueError),
        {"bool": common.WHOLE_BYTES, "float64": HALVED, "int64": HALVED},
        {"NumPy's generator": (np.random.seed, np.random.rand)},
    )
)


def _stepped(answer: Callable, gpus: Gpus) -> dict:
    device = gpus[1]
    # Not from a NumPy array: JAX might share its memory, which it can't write to.
    W = jnp.arange(12.0, device=device).reshape(3, 4)
    gradient = jax.device_put(np.full((3, 4), 2, np.float32), device)
    place = W.unsafe_buffer_pointer()
    result = answer(W, gradient, 0.5)
    return {
        "result": np.asarray(result),
        "home": gpus.where(result),
        "places": (
            place,
            result.unsafe_buffer_pointer() if len(result.devices()) == 1 else None,
        ),
        "old deleted": W.is_deleted(),
        "gradient deleted": gradient.is_deleted(),
    }


@EXERCISES.add("02.4", "W, gradient, lr", returns=jax.Array, changes="W")
def step(run: Run):
    found = run(_stepped)
    result, (before, after) = found["result"], found["places"]
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    right = result.shape == values.shape and np.allclose(result, values - 1)
    yield Claim(
        "it returns the new parameters", right, common.wrong_step(result, values)
    )
    yield Claim(
        "the new parameters are on the device of the old ones",
        found["home"] == "GPU 1",
        f"They're on {found['home']}, but the old ones are on GPU 1.",
    )
    yield Claim(
        "the gradient isn't donated",
        not found["gradient deleted"],
        "The gradient's memory was given up too. Which of the arguments do you donate?",
    )
    yield Claim(
        "the old parameters are donated",
        found["old deleted"],
        "The old parameters still exist, so both they and the new ones take memory.",
    )
    yield Claim(
        "the new parameters use the memory of the old ones",
        right and after == before,
        "The new parameters have memory of their own, so for a moment both existed. "
        "Deleting the old ones afterwards is too late.",
    )


@EXERCISES.add("02.5", returns=(set, list, tuple))
def sharing(answer):
    A = jnp.ones((8, 8), device=d2l.gpu(1))
    names = {"A": A, "jax": jax, "jnp": jnp, "d2l": d2l}
    rows = "Can a JAX array begin in the middle of another?"
    there = "Is there anything left to do if the array is already what you ask for?"
    questions = {
        "A[0]": f"{rows} Look at the lesson's row.",
        "A.T": (
            "In what order are the numbers of the transpose, and in what order are "
            "those of `A`?"
        ),
        "A.reshape(-1)": f"{rows} Is another shape another array?",
        "A + 0": "Does JAX look at the number that is added?",
        "jnp.asarray(A)": there,
        "jnp.array(A)": (
            "What does NumPy's function of this name do, and what does `asarray` do?"
        ),
        "jax.device_put(A, d2l.gpu(1))": f"{there} Where does `A` live?",
    }
    place = A.unsafe_buffer_pointer()
    return common.sharing(
        answer,
        questions,
        lambda expression: eval(expression, names).unsafe_buffer_pointer() == place,
    )


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


@EXERCISES.add("02.6", "A, B, x", returns=jax.Array)
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
