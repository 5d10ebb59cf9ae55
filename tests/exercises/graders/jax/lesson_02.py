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


@wrong("02.1", "asked for, and JAX creates another")
def trusts_the_name(shape, dtype):
    return jnp.dtype(dtype).itemsize * jax.ShapeDtypeStruct(shape, dtype).size


@wrong("02.3", "was asked for")
def forgets_the_device(shape, seed, device):
    return jax.random.uniform(jax.random.key(seed), shape)


@right("02.4")
@functools.partial(jax.jit, donate_argnames="W")
def donates_by_name(W, gradient, lr):
    return W.at[:].add(-lr * gradient)


@wrong("02.4", "the new ones are beside them")
def makes_a_new_array(W, gradient, lr):
    return W - lr * gradient


@wrong("02.4", "to delete the old ones afterwards")
def deletes_by_hand(W, gradient, lr):
    new = (W - lr * gradient).block_until_ready()
    W.delete()
    return new


@wrong("02.4", "Which of the arguments are donated?")
@functools.partial(jax.jit, donate_argnums=1)
def donates_the_gradient(W, gradient, lr):
    return W - lr * gradient


@wrong("02.4", "They live on cpu:0")
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
wrong("02.5", "is so already")({"jax.device_put(A, d2l.gpu(1))"})
wrong("02.5", "Where does `A` live?")({"jnp.asarray(A)"})
wrong("02.5", "Does JAX look at the number")(
    {"A + 0", "jnp.asarray(A)", "jax.device_put(A, d2l.gpu(1))"}
)
wrong("02.5", "What does NumPy's function of this name")({"jnp.array(A)"})
wrong("02.5", "In which order")({"A.T"})
wrong("02.5", "Is another shape another array")({"A.reshape(-1)"})
wrong("02.5", "is none of them")({"A.t"})


@right("02.6")
def lets_numpy_choose(A, B, x):
    return jnp.linalg.multi_dot([A, B, x])


@wrong("02.6", "Which of the products has a matrix")
def from_left_to_right(A, B, x):
    return A @ B @ x


@wrong("02.6", "Matrices may not change places")
def changes_places(A, B, x):
    return B @ (A @ x)


@wrong("02.6", "a vector is wanted")
def scales_columns(A, B, x):
    return A @ (B * x)
