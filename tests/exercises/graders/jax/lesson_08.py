import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong

# ------------------------------------------------------------------ 08.1

right("08.1")((12, 1.2))
wrong("08.1", "too short")((16, 0.1))
wrong("08.1", "steps are too long")((16, 3.2))
wrong("08.1", "Batches of 32 make how many steps")((4, 1.6))
wrong("08.1", "would take longer")((64, 0.8))
wrong("08.1", "the first epoch is the warm-up")((1, 1.6))
wrong("08.1", "-0.5 isn't a learning rate above zero")((16, -0.5))
wrong("08.1", "Your answer has length 3")((512, 16, 1.6))

# ------------------------------------------------------------------ 08.2


def padded(X, y, more, label=-1):
    X = np.concatenate([X, np.zeros((more, *X.shape[1:]), X.dtype)])
    y = np.concatenate([y, np.full(more, label, y.dtype)])
    return jax.device_put((X, y), P("batch"))


def count(net, X, y):
    return float((net(X).argmax(axis=1) == y).sum())


@right("08.2")
def masked(net, X, y):
    n = len(X)
    X, y = padded(X, y, -n % 4, 0)
    found = np.asarray(net(X)).argmax(axis=1) == np.asarray(y)
    return float(found[:n].mean())


@wrong("08.2", "2 of the 14 images were left out")
def drops_the_rest(net, X, y):
    n = max(len(X) // 4 * 4, 4)
    return count(net, *padded(X[:n], y[:n], 0)) / n


@wrong("08.2", "because the network takes a blank image for a 0")
def labels_of_zero(net, X, y):
    return count(net, *padded(X, y, -len(X) % 4, 0)) / len(X)


@wrong("08.2", "You count the 2 padded images as if they were real")
def counts_the_padding(net, X, y):
    X, y = padded(X, y, -len(X) % 4, 0)
    return count(net, X, y) / len(X)


@wrong("08.2", "You divide by 16")
def divides_by_all(net, X, y):
    X, y = padded(X, y, -len(X) % 4)
    return count(net, X, y) / len(X)


@wrong("08.2", "all 14 images on every device")
def replicated(net, X, y):
    return count(net, *jax.device_put((X, y), P())) / len(X)


@wrong("08.2", "The next multiple of 4 is 16")
def always_pads(net, X, y):
    return count(net, *padded(X, y, 4 - len(X) % 4 + 4)) / len(X)


@wrong("08.2", "not the fraction")
def forgets_to_divide(net, X, y):
    return count(net, *padded(X, y, -len(X) % 4))


@wrong("08.2", "You call it 4 times")
def four_calls(net, X, y):
    X, y = padded(X, y, 4 * (-len(X) % 4) + 3 * len(X) % 4)
    return sum(count(net, X, y) for _ in range(4)) / len(X)


# ------------------------------------------------------------------ 08.3


def mean_loss(params, X, y):
    errors = X @ params["W"] + params["b"] - y
    return (errors**2).sum(axis=1).mean()


def down(params, gradient, lr):
    return jax.tree.map(lambda p, g: p - lr * g, params, gradient)


def on_shards(step, params, X, y, check=True):
    return jax.shard_map(
        step,
        in_specs=(P(), P("batch"), P("batch")),
        out_specs=P(),
        check_vma=check,
    )(params, X, y)


@right("08.3")
def without_shard_map(params, X, y, lr):
    return down(params, jax.grad(mean_loss)(params, X, y), lr)


@right("08.3")
def as_with_pmap(params, X, y, lr):
    def step(params, X, y):
        gradient = jax.lax.pmean(jax.grad(mean_loss)(params, X, y), "batch")
        return down(params, gradient, lr)

    return on_shards(step, params, X, y, check=False)


@right("08.3")
def of_its_own_copy(params, X, y, lr):
    def step(params, X, y):
        own = jax.lax.pcast(params, "batch", to="varying")
        gradient = jax.lax.pmean(jax.grad(mean_loss)(own, X, y), "batch")
        return down(params, gradient, lr)

    return on_shards(step, params, X, y)


@wrong("08.3", "They differ by up to")
def as_it_was(params, X, y, lr):
    def step(params, X, y):
        gradient = jax.grad(mean_loss)(params, X, y)
        gradient["W"] = jax.lax.pmean(gradient["W"], "batch")
        return down(params, gradient, lr)

    return on_shards(step, params, X, y, check=False)


@wrong("08.3", "four times too long")
def only_checks(params, X, y, lr):
    def step(params, X, y):
        gradient = jax.lax.pmean(jax.grad(mean_loss)(params, X, y), "batch")
        return down(params, gradient, lr)

    return on_shards(step, params, X, y)


@wrong("08.3", "go uphill")
def uphill(params, X, y, lr):
    return without_shard_map(params, X, y, -lr)


@wrong("08.3", "8.00 times as long")
def sums_the_loss(params, X, y, lr):
    return without_shard_map(params, X, y, lr * len(X))


@wrong("08.3", "doesn't follow the gradient of the whole batch")
def first_shard_only(params, X, y, lr):
    X, y = jax.reshard(X, P()), jax.reshard(y, P())
    return without_shard_map(params, X[:2], y[:2], lr)


@wrong("08.3", "Give them the sharding")
def on_one_device(params, X, y, lr):
    new = without_shard_map(params, X, y, lr)
    return jax.tree.map(lambda x: x.addressable_shards[0].data, new)


# ------------------------------------------------------------------ 08.4


def laid_out(X, W, devices, of_X, of_W, shape=(2, 2)):
    axes = ("batch", "model")[: len(shape)]
    mesh = jax.make_mesh(shape, axes, devices=devices)
    X, W = (
        jax.device_put(x, NamedSharding(mesh, P(*parts)))
        for x, parts in ((X, of_X), (W, of_W))
    )
    return X, W, jax.jit(jnp.matmul)(X, W)


@right("08.4")
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


@wrong("08.4", "Every device has the whole of `W`")
def matrix_everywhere(X, W, devices):
    return laid_out(X, W, devices, ["batch"], [])


@wrong("08.4", "You split it by rows")
def matrix_by_rows(X, W, devices):
    return laid_out(X, W, devices, ["batch"], ["model"])


@wrong("08.4", "and no other axis of the mesh")
def batch_both_ways(X, W, devices):
    return laid_out(X, W, devices, ["batch", "model"], [None, "model"])


@wrong("08.4", "along the same axis")
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


@wrong("08.4", "or gathered it")
def brings_it_together(X, W, devices):
    X, W, product = laid_out(X, W, devices, ["batch"], [None, "model"])
    return X, W, jax.device_put(product, NamedSharding(X.sharding.mesh, P()))


@wrong("08.4", "Not on all four devices: X and W and the product")
def two_devices(X, W, devices):
    return laid_out(X, W, devices[:2], ["batch"], [], shape=(2,))


@wrong("08.4", "You return ndarray, ArrayImpl, ArrayImpl")
def returns_what_it_was_given(X, W, devices):
    _, W, product = laid_out(X, W, devices, ["batch"], [None, "model"])
    return X, W, product


@wrong("08.4", "The values of X are wrong")
def another_order(X, W, devices):
    X, W, product = laid_out(X, W, devices, ["batch"], [None, "model"])
    return product, X, W


# ------------------------------------------------------------------ 08.5


@right("08.5")
def in_two_parts(x):
    mean = jax.lax.pmean(x.mean(axis=0), "batch")
    spread = x.var(axis=0) + (x.mean(axis=0) - mean) ** 2
    return mean, jax.lax.psum(spread, "batch") / jax.lax.axis_size("batch")


@wrong("08.5", "The devices return different means")
def of_the_shard(x):
    return x.mean(axis=0), x.var(axis=0)


@wrong("08.5", "The devices return different variances")
def variance_of_the_shard(x):
    mean = jax.lax.pmean(x.mean(axis=0), "batch")
    return mean, ((x - mean) ** 2).mean(axis=0)


@wrong("08.5", "how far the shards' means are apart")
def mean_of_variances(x):
    return jax.lax.pmean((x.mean(axis=0), x.var(axis=0)), "batch")


@wrong("08.5", "Do you subtract two large numbers")
def of_squares(x):
    mean, square = jax.lax.pmean((x.mean(axis=0), (x**2).mean(axis=0)), "batch")
    return mean, square - mean**2


@wrong("08.5", "You gather examples or statistics")
def gathers(x):
    x = jax.lax.all_gather(x, "batch", tiled=True)
    return x.mean(axis=0), x.var(axis=0)


@wrong("08.5", "Take the mean on the device first")
def sends_every_example(x):
    mean = jax.lax.pmean(x, "batch").mean(axis=0)
    return mean, jax.lax.pmean((x - mean) ** 2, "batch").mean(axis=0)


@wrong("08.5", "one less than the number of examples")
def corrected(x):
    mean = jax.lax.pmean(x.mean(axis=0), "batch")
    n = 4 * len(x)
    return mean, jax.lax.psum(((x - mean) ** 2).sum(axis=0), "batch") / (n - 1)


@wrong("08.5", "a device returns arrays of the shapes")
def over_everything(x):
    mean = jax.lax.pmean(x.mean(keepdims=True)[0], "batch")
    return mean, mean


@wrong("08.5", "The mean of the first channel should be")
def sums_means(x):
    mean = jax.lax.psum(x.mean(axis=0), "batch")
    return mean, jax.lax.pmean(((x - mean / 4) ** 2).mean(axis=0), "batch")
