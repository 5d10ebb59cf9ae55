import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_08 import add_shared

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


def add_up(parts, device):
    return sum(jax.device_put(part, device) for part in parts)


add_shared(ANSWERS, jax.device_put, add_up, np.asarray)


def laid_out(X, W, devices, of_X, of_W, shape=(2, 2)):
    axes = ("batch", "model")[: len(shape)]
    mesh = jax.make_mesh(shape, axes, devices=devices)
    X, W = (
        jax.device_put(x, NamedSharding(mesh, P(*parts)))
        for x, parts in ((X, of_X), (W, of_W))
    )
    return X, W, jax.jit(jnp.matmul)(X, W)


@right("08.5")
def explicit(X, W, devices):
    mesh = jax.sharding.Mesh(np.array(devices).reshape(2, 2), ("model", "batch"))
    rows, columns = (
        NamedSharding(mesh, P("batch")),
        NamedSharding(mesh, P(None, "model")),
    )
    product = jax.shard_map(
        jnp.matmul,
        mesh=mesh,
        in_specs=(rows.spec, columns.spec),
        out_specs=P("batch", "model"),
    )
    X, W = jax.device_put(X, rows), jax.device_put(W, columns)
    return X, W, product(X, W)


@wrong("08.5", "Every device has the whole of `W`")
def matrix_everywhere(X, W, devices):
    return laid_out(X, W, devices, ["batch"], [])


@wrong("08.5", "You split it by rows")
def matrix_by_rows(X, W, devices):
    return laid_out(X, W, devices, ["batch"], ["model"])


@wrong("08.5", "and no other axis of the mesh")
def batch_both_ways(X, W, devices):
    return laid_out(X, W, devices, ["batch", "model"], [None, "model"])


@wrong("08.5", "along the same axis")
def both_along_one(X, W, devices):
    mesh = jax.make_mesh((2, 2), ("batch", "model"), devices=devices)
    X, W, product = (
        jax.device_put(x, NamedSharding(mesh, P(*parts)))
        for x, parts in (
            (X, ["batch"]),
            (W, [None, "batch"]),
            (X @ W, ["batch", "model"]),
        )
    )
    return X, W, product


@wrong("08.5", "or gathered it")
def brings_it_together(X, W, devices):
    X, W, product = laid_out(X, W, devices, ["batch"], [None, "model"])
    return X, W, jax.device_put(product, NamedSharding(X.sharding.mesh, P()))


@wrong("08.5", "Not on all four devices: X and W and the product")
def two_devices(X, W, devices):
    return laid_out(X, W, devices[:2], ["batch"], [], shape=(2,))


@wrong("08.5", "You return ndarray, ArrayImpl, ArrayImpl")
def returns_what_it_was_given(X, W, devices):
    _, W, product = laid_out(X, W, devices, ["batch"], [None, "model"])
    return X, W, product


@wrong("08.5", "The values of X are wrong")
def another_order(X, W, devices):
    X, W, product = laid_out(X, W, devices, ["batch"], [None, "model"])
    return product, X, W
