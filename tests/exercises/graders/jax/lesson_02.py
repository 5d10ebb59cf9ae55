import functools

import jax
import jax.numpy as jnp
import numpy as np

from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_02 import (
    add_bytes_of,
    add_parameters,
    add_random_on,
)

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong

add_bytes_of(ANSWERS, jnp.zeros, {"float64": 4, "int64": 4})
add_parameters(ANSWERS)
add_random_on(ANSWERS, jax.device_put)


@wrong("02.1", "JAX creates a smaller type")
def trusts_the_name(shape, dtype):
    return jnp.dtype(dtype).itemsize * jax.ShapeDtypeStruct(shape, dtype).size


@wrong("02.3", "is on the host, but you were given GPU 0")
def forgets_the_device(shape, seed, device):
    return jax.random.uniform(jax.random.key(seed), shape)


@right("02.4")
@functools.partial(jax.jit, donate_argnames="W")
def donates_by_name(W, gradient, lr):
    return W.at[:].add(-lr * gradient)


@wrong("02.4", "so both they and the new ones take memory")
def makes_a_new_array(W, gradient, lr):
    return W - lr * gradient


@wrong("02.4", "Deleting the old ones afterwards is too late")
def deletes_by_hand(W, gradient, lr):
    new = (W - lr * gradient).block_until_ready()
    W.delete()
    return new


@wrong("02.4", "Which of the arguments do you donate?")
@functools.partial(jax.jit, donate_argnums=1)
def donates_the_gradient(W, gradient, lr):
    return W - lr * gradient


@wrong("02.4", "They're on the host, but the old ones are on GPU 1")
def goes_through_numpy(W, gradient, lr):
    return jnp.asarray(np.asarray(W) - lr * np.asarray(gradient))


@wrong("02.4", "where the loss grows")
@functools.partial(jax.jit, donate_argnums=0)
def goes_uphill(W, gradient, lr):
    return W + lr * gradient


@wrong("02.4", "whatever the learning rate")
@functools.partial(jax.jit, donate_argnums=0)
def forgets_the_rate(W, gradient, lr):
    return W - gradient


right("02.5")(["jax.device_put(A, d2l.gpu(1))", "jnp.asarray(A)"])
wrong("02.5", "begin in the middle of another? Look")(
    ["A[0]", "A.T", "A.reshape(-1)", "jnp.asarray(A)"]
)
wrong("02.5", "already what you ask for")({"jax.device_put(A, d2l.gpu(1))"})
wrong("02.5", "Where does `A` live?")({"jnp.asarray(A)"})
wrong("02.5", "Does JAX look at the number")(
    {"A + 0", "jnp.asarray(A)", "jax.device_put(A, d2l.gpu(1))"}
)
wrong("02.5", "What does NumPy's function of this name")({"jnp.array(A)"})
wrong("02.5", "In what order")({"A.T"})
wrong("02.5", "Is another shape another array")({"A.reshape(-1)"})
wrong("02.5", "isn't one of them")({"A.t"})


@right("02.6")
def lets_numpy_choose(A, B, x):
    return jnp.linalg.multi_dot([A, B, x])


@wrong("02.6", "Which of the products has a matrix")
def from_left_to_right(A, B, x):
    return A @ B @ x


@wrong("02.6", "You can't swap matrices in a product")
def changes_places(A, B, x):
    return B @ (A @ x)


@wrong("02.6", "it should be a vector")
def scales_columns(A, B, x):
    return A @ (B * x)
