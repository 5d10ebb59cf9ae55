"""Meshes and shards: how arrays are divided, and what devices add up."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run
from d2l_gpu.exercises.shared import lesson_08 as common

EXERCISES = Registry()
GPUS = common.GPUS


def _mesh(gpus: Gpus) -> jax.sharding.Mesh:
    return jax.make_mesh((GPUS,), ("batch",), devices=gpus[:GPUS])


# ------------------------------------------------------------------ 08.1

EXERCISES.add("08.1", None, returns=(list, tuple), gpus=GPUS)(common.settings)


# ------------------------------------------------------------------ 08.2

PIXELS = 5


def _test_set(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels. A network that sums pixels gets some of them right;
    a blank image it takes for a 0."""
    rng = np.random.RandomState(n)
    X = np.zeros((n, PIXELS), np.float32)
    best = rng.randint(1, 10, n)
    X[:, 0] = best
    X[:, 1] = 1 + np.arange(n)  # so that no image looks like the padding
    # The last shards have more mistakes than the first.
    y = np.where(np.arange(n) % 5 < 3 - 2 * (np.arange(n) >= n // 2), best, 0)
    return X, y.astype(np.int32)


def _tested(answer: Callable, gpus: Gpus, n: int) -> dict:
    X, y = _test_set(n)
    calls = []

    def net(images):
        spec = tuple(jax.typeof(images).sharding.spec)
        calls.append((tuple(images.shape), bool(spec) and spec[0] == "batch"))
        return -((images[:, :1] - jnp.arange(10.0, dtype=np.float32)) ** 2)

    with jax.set_mesh(_mesh(gpus)):
        result = answer(net, X, y)
    return {"result": result, "calls": calls}


@EXERCISES.add("08.2", "net, X, y", returns=float, gpus=GPUS)
def accuracy(run: Run):
    for n in (14, 16, 3):
        claims = list(_accuracy_of(run, n))
        yield from claims
        if not all(claim.holds for claim in claims):
            return


def _accuracy_of(run: Run, n: int) -> Iterator[Claim]:
    found = run(_tested, n)
    calls, result = found["calls"], found["result"]
    yield Claim(
        f"with {n} images, `net` is called once",
        len(calls) == 1,
        f"You call it {len(calls)} times.",
    )
    if len(calls) != 1:
        return
    [(shape, divided)] = calls
    yield Claim(
        "its images are divided along `batch`",
        divided,
        f"`net` got all {shape[0]} images on every device. Which `P` divides them?",
    )
    need = -(-n // GPUS) * GPUS
    few = shape[0] < n
    yield Claim(
        f"with {n} images, `net` gets {need}, padding included",
        shape[0] == need,
        f"It got {shape[0]}. "
        + (
            f"{n - shape[0]} of the {n} images were left out."
            if few
            else f"The next multiple of {GPUS} is {need}, so {shape[0] - need} are "
            "computed for nothing."
        ),
    )
    if shape[0] != need:
        return
    X, y = _test_set(n)
    right = np.rint(X[:, 0]) == y
    wanted = float(right.mean())
    more = need - n

    def near(value: float) -> bool:
        return abs(result - value) < 1e-6

    if near(right.sum() / need) and more:
        hint = f"You divide by {need}, but only {n} of the images are real."
    elif near((right.sum() + more) / need) and more:
        hint = f"You count the {more} padded images as if they were real."
    elif near((right.sum() + more) / n) and more:
        hint = (
            f"The {more} padded images count as correct, because the network takes a "
            "blank image for a 0."
        )
    elif near(float(right.sum())):
        hint = "That's the number of correct images, not the fraction."
    else:
        hint = f"You return {result:.4f}, but it should be {wanted:.4f}."
    yield Claim("the accuracy is that over all real images", near(wanted), hint)


# ------------------------------------------------------------------ 08.3


def _regression() -> tuple[dict, np.ndarray, np.ndarray]:
    rng = np.random.RandomState(83)
    X = rng.randn(8, 6).astype(np.float32)
    y = (rng.randn(8, 2) + 1 + np.arange(8)[:, None]).astype(np.float32)
    params = {
        "W": rng.randn(6, 2).astype(np.float32),
        "b": rng.randn(2).astype(np.float32),
    }
    return params, X, y


RATE = 0.05


def _stepped(answer: Callable, gpus: Gpus) -> dict:
    params, X, y = _regression()
    with jax.set_mesh(_mesh(gpus)):
        placed = jax.device_put(params, P())
        result = answer(placed, *jax.device_put((X, y), P("batch")), RATE)
    found = {}
    for name in ("W", "b"):
        shards = result[name].addressable_shards
        found[name] = [np.asarray(shard.data) for shard in shards]
    return found


@EXERCISES.add("08.3", "params, X, y, lr", returns=dict, gpus=GPUS)
def train_step(run: Run):
    found = run(_stepped)
    params, X, y = _regression()
    errors = X.astype(np.float64) @ params["W"] + params["b"] - y
    gradient = {
        "W": 2 * X.T.astype(np.float64) @ errors / len(X),
        "b": 2 * errors.mean(axis=0),
    }
    whole = [name for name, shards in found.items() if len(shards) == GPUS]
    yield Claim(
        "the new parameters are on all four devices",
        len(whole) == 2
        and all(x.shape == params[n].shape for n in found for x in found[n]),
        "Give them the sharding `P()`, like the old ones.",
    )
    if len(whole) != 2:
        return
    for name, what in ("b", "biases"), ("W", "weights"):
        shards = found[name]
        apart = max(float(np.abs(shard - shards[0]).max()) for shard in shards)
        yield Claim(
            f"all devices have the same {what}",
            apart < 1e-6,
            f"They differ by up to {apart:.2f}, although `out_specs=P()` promises that "
            "they're equal. Whose gradient do the devices use?",
        )
        if apart >= 1e-6:
            return
    for name, what in ("W", "weights"), ("b", "biases"):
        moved = (params[name] - found[name][0]) / RATE
        size = float((moved * gradient[name]).sum() / (gradient[name] ** 2).sum())
        off = float(np.linalg.norm(moved - gradient[name]))
        good = off < 1e-3 * np.linalg.norm(gradient[name])
        parallel = np.linalg.norm(moved - size * gradient[name]) < 1e-3 * abs(
            size
        ) * np.linalg.norm(gradient[name])
        if parallel and size < 0:
            hint = f"The {what} go uphill: you add the gradient."
        elif parallel and abs(size - GPUS) < 1e-2:
            hint = (
                f"The step of the {what} is four times too long. Was the gradient "
                "summed before your `pmean`? Look at its type."
            )
        elif parallel:
            hint = (
                f"The step of the {what} is {size:.2f} times as long as it should be."
            )
        else:
            hint = (
                f"The step of the {what} doesn't follow the gradient of the whole "
                "batch. Does every device's shard count?"
            )
        yield Claim(f"the {what} follow the gradient of the whole batch", good, hint)
        if not good:
            return


# ------------------------------------------------------------------ 08.4


def _operands() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.RandomState(0)
    X = rng.randn(6, 4).astype(np.float32)
    return X, rng.randn(4, 8).astype(np.float32)


def _laid_out(answer: Callable, gpus: Gpus) -> dict:
    X, W = _operands()
    result = answer(X, W, gpus[:])
    three = len(result) == 3 and all(isinstance(x, jax.Array) for x in result)
    return {
        "kinds": [type(x).__name__ for x in result],
        "arrays": [
            {
                "values": np.asarray(x),
                "devices": len(x.devices()),
                "piece": x.addressable_shards[0].data.shape,
                "slices": _by_device(x),
            }
            for x in (result if three else ())
        ],
    }


@EXERCISES.add("08.4", "X, W, devices", returns=(tuple, list), gpus=GPUS)
def lay_out(run: Run):
    found = run(_laid_out)
    result, (X, W) = found["arrays"], _operands()
    names = ("X", "W", "the product")
    yield Claim(
        "it returns three JAX arrays",
        len(result) == 3,
        f"You return {', '.join(found['kinds'])}.",
    )
    if len(result) != 3:
        return
    right = [
        x["values"].shape == value.shape and np.allclose(x["values"], value, atol=1e-5)
        for x, value in zip(result, (X, W, X @ W), strict=True)
    ]
    yield Claim(
        "they have the values of `X`, `W` and `X @ W`, in this order",
        all(right),
        f"The values of {names[right.index(False)] if False in right else ''} are "
        "wrong.",
    )
    if not all(right):
        return
    few = [name for name, x in zip(names, result, strict=True) if x["devices"] != 4]
    yield Claim(
        "each is a single array on all four devices",
        not few,
        f"Not on all four devices: {' and '.join(few)}.",
    )
    pieces = [x["piece"] for x in result]
    yield Claim(
        "each device has half of the rows of `X`, and all its columns",
        pieces[0] == (3, 4),
        f"A device's part has the shape {pieces[0]}. Split the batch along `batch` "
        "and no other axis of the mesh.",
    )
    hint = f"A device's part has the shape {pieces[1]}. "
    hint += {
        (4, 8): "Every device has the whole of `W`.",
        (2, 8): "You split it by rows: the axes of an array are named in order.",
        (2, 4): "You split both rows and columns.",
        (4, 2): "You split it into four: how many devices does the axis `model` have?",
    }.get(pieces[1], "")
    yield Claim(
        "each device has half of the columns of `W`, and all its rows",
        pieces[1] == (4, 4),
        hint,
    )
    yield Claim(
        "each device has a quarter of the product",
        pieces[2] == (3, 4),
        f"A device's part has the shape {pieces[2]}: "
        + (
            "you computed it elsewhere, or gathered it."
            if pieces[:2] == [(3, 4), (4, 4)]
            else "each axis is split like the axis of the operand it comes from."
        ),
    )
    pairs = zip(*(x["slices"] for x in result[:2]), strict=True)
    yield Claim(
        "devices with the same rows of `X` have different columns of `W`",
        len(set(pairs)) == GPUS,
        "You split both along the same axis of the mesh, so no device has the first "
        "rows and the last columns.",
    )


def _by_device(x: jax.Array) -> list[str]:
    """Return the slice of an array that each device has, in device order."""
    shards = sorted(x.addressable_shards, key=lambda shard: shard.device.id)
    return [str(shard.index) for shard in shards]


# ------------------------------------------------------------------ 08.5

CHANNELS = 3
OTHERS = (
    "psum_scatter",
    "reduce_scatter",
    "all_gather",
    "all_to_all",
    "ppermute",
    "pmax",
    "pmin",
)


def _values() -> np.ndarray:
    rng = np.random.RandomState(85)
    x = rng.randn(8, CHANNELS) * (1, 2, 3) + np.arange(8)[:, None] + 10_000
    return x.astype(np.float32)


def _sent(jaxpr, times: int = 1) -> tuple[int, int]:
    """Return how many numbers a program sums over devices, and how many it sends
    in other collectives."""
    summed = other = 0
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        size = times * sum(int(np.prod(x.aval.shape)) for x in equation.outvars)
        if name.startswith(OTHERS):
            other += size
        elif name.startswith("psum"):
            summed += size
        inside = times * equation.params.get("length", 1) if name == "scan" else times
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                a, b = _sent(inner, inside)
                summed, other = summed + a, other + b
    return summed, other


def _mapped(answer: Callable, gpus: Gpus) -> dict:
    x = _values()
    with jax.set_mesh(_mesh(gpus)):
        placed = jax.device_put(x, P("batch"))
        # Without the check, so that answers may return what devices have of their own.
        mapped = jax.shard_map(
            answer, in_specs=P("batch"), out_specs=P("batch"), check_vma=False
        )
        program = jax.make_jaxpr(mapped)(placed)
        result = mapped(placed)
    return {
        "shapes": [tuple(each.shape) for each in result],
        "values": [np.asarray(each) for each in result],
        "sent": _sent(program.jaxpr),
    }


@EXERCISES.add("08.5", "x", returns=(), gpus=GPUS)
def statistics(run: Run):
    found = run(_mapped)
    shapes = found["shapes"]
    yield Claim(
        "it returns two arrays, with one number per channel",
        shapes == [(GPUS * CHANNELS,)] * 2,
        f"With {CHANNELS} channels, a device returns arrays of the shapes "
        + ", ".join(str((n[0] // GPUS, *n[1:]) if n else n) for n in shapes)
        + ".",
    )
    if shapes != [(GPUS * CHANNELS,)] * 2:
        return
    x = _values().astype(np.float64)
    means, variances = (each.reshape(GPUS, CHANNELS) for each in found["values"])
    shards = x.reshape(GPUS, -1, CHANNELS)
    if np.ptp(means, axis=0).max() > 1e-2:
        hint = "The devices return different means. Which collective is missing?"
    else:
        hint = (
            f"The mean of the first channel should be {x.mean(0)[0]:.2f}, but you "
            f"return {means[0, 0]:.2f}."
        )
    yield Claim(
        "the mean is that of the whole batch",
        np.allclose(means, x.mean(0), rtol=0, atol=1e-2),
        hint,
    )
    within = shards.var(axis=1).mean(axis=0)
    right = x.var(axis=0)
    if np.allclose(variances, within, rtol=1e-2):
        hint = (
            "That's the mean of the shards' variances. It misses how far the shards' "
            "means are apart."
        )
    elif np.allclose(variances, right * len(x) / (len(x) - 1), rtol=1e-2):
        hint = "You divide by one less than the number of examples."
    elif np.ptp(variances, axis=0).max() > 1e-2:
        hint = "The devices return different variances. Which collective is missing?"
    else:
        hint = (
            f"The variance of the first channel should be {right[0]:.2f}, but you "
            f"return {variances[0, 0]:.2f}. Do you subtract two large numbers?"
        )
    yield Claim(
        "the variance is that of the whole batch",
        np.allclose(variances, right, rtol=1e-2),
        hint,
    )
    summed, other = found["sent"]
    yield Claim(
        "a device sends at most two numbers per channel",
        summed + other <= 2 * CHANNELS,
        f"Your collectives return {summed + other} numbers for {CHANNELS} channels. "
        + (
            "You gather examples or statistics that a sum would do for."
            if other
            else "Take the mean on the device first, then over the devices."
        ),
    )
