"""Splitting layers and stages: what each GPU does in `shard_map`, and plans for it."""

from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.jax.programs import collected
from d2l_gpu.exercises.registry import Claim, Registry, Run
from d2l_gpu.exercises.shared import lesson_14 as common

EXERCISES = Registry()
_GPUS = 4


def _on_each(
    gpus: Gpus, n: int, f: Callable, specs: Sequence[P], arrays: Sequence[np.ndarray]
) -> tuple[Callable, list[jax.Array]]:
    """Return a function that calls another on each GPU, and its arguments.

    The results come in one array, with a row for each GPU, so that it doesn't matter
    whether JAX knows them to be the same.
    """
    mesh = jax.make_mesh((n,), ("model",), devices=gpus[:n])
    rows = jax.shard_map(
        lambda *args: jnp.asarray(f(*args))[None],
        mesh=mesh,
        in_specs=tuple(specs),
        out_specs=P("model"),
    )
    shardings = [NamedSharding(mesh, spec) for spec in specs]
    return rows, [jax.device_put(*each) for each in zip(arrays, shardings, strict=True)]


# ------------------------------------------------------------------ a bias too many


def _layer() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    shapes = (5, 24), (24, 6), (6,)
    return tuple(rng.standard_normal(each).astype(np.float32) for each in shapes)


def _row_parallel(answer: Callable, gpus: Gpus, n: int) -> dict:
    """Return what each GPU gets, and of which type it was."""
    kinds = set()

    def checked(H, W, b):
        found = answer(H, W, b)
        kinds.add(type(found).__name__ if not isinstance(found, jax.Array) else "")
        return found if isinstance(found, jax.Array) else jnp.zeros(())

    specs = P(None, "model"), P("model"), P()
    rows, given = _on_each(gpus, n, checked, specs, _layer())
    return {"values": np.asarray(rows(*given)), "kinds": sorted(kinds)}


@EXERCISES.add("14.1", "H, W, b", gpus=_GPUS)
def row_parallel(run: Run):
    H, W, b = _layer()
    right = H @ W + b
    cases = {n: run(_row_parallel, n) for n in (_GPUS, 2)}
    kinds = {kind for each in cases.values() for kind in each["kinds"]} - {""}
    yield Claim(
        "it returns an array",
        not kinds,
        f"You return a value of type {', '.join(kinds)}.",
    )
    if kinds:
        return
    values = {n: each["values"] for n, each in cases.items()}
    strange = [each.shape[1:] for each in values.values() if each[0].ndim != 2]
    strange += [x.shape[1:] for x in values.values() if x.shape[1:] != right.shape]
    yield Claim(
        "the result has a row for each row of `H` and a column for each output",
        not strange,
        f"With {right.shape[0]} rows and {right.shape[1]} outputs, yours has the shape "
        f"{strange[0] if strange else ''}.",
    )
    if strange:
        return
    alike = all(np.allclose(each[0], each, atol=1e-4) for each in values.values())
    yield Claim(
        "all GPUs get the same",
        alike,
        "They don't: some have added what others haven't.",
    )
    if alike:
        yield Claim(
            "it's the output of the layer, with two GPUs and with four",
            all(np.allclose(each[0], right, atol=1e-4) for each in values.values()),
            common.wrong_output(
                {n: each[0] for n, each in values.items()}, right, b, "GPU"
            ),
        )


# ------------------------------------------------------------------ heads in order

_HEADS, _SIZE = 8, 4
_WIDTH = _HEADS * _SIZE


def _weight() -> np.ndarray:
    """Return a weight whose rows and columns can be told from its numbers."""
    return np.arange(3.0 * _WIDTH**2, dtype=np.float32).reshape(3 * _WIDTH, _WIDTH)


def _loaded(answer: Callable, gpus: Gpus, n: int) -> dict:
    mesh = jax.make_mesh((n,), ("model",), devices=gpus[:n])
    found = answer(_weight(), _HEADS, mesh)
    shards = sorted(found.addressable_shards, key=lambda each: gpus.name(each.device))
    return {
        "values": np.asarray(found),
        "devices": len(found.devices()),
        "part": tuple(shards[0].data.shape),
        "heads": [each.index[2].start or 0 if each.index else 0 for each in shards],
    }


@EXERCISES.add("14.2", "W, heads, mesh", returns=jax.Array, gpus=_GPUS)
def load_qkv(run: Run):
    cases = {n: run(_loaded, n) for n in (_GPUS, 2)}
    shape = (_WIDTH, 3, _HEADS, _SIZE)
    found = cases[_GPUS]
    yield Claim(
        "its shape is (width, 3, heads, width / heads)",
        found["values"].shape == shape,
        f"With {_HEADS} heads and a width of {_WIDTH}, yours is "
        f"{found['values'].shape} instead of {shape}.",
    )
    if found["values"].shape != shape:
        return
    right = _weight().T.reshape(shape)
    values = np.array_equal(found["values"], right)
    yield Claim(
        "each number is where `block` looks for it",
        values,
        "" if values else _wrong_number(found["values"], right),
    )
    if not values:
        return
    for n, each in cases.items():
        part = (_WIDTH, 3, _HEADS // n, _SIZE)
        yield Claim(
            f"each of {('two', 'four')[n == _GPUS]} GPUs has an equal share of the "
            "heads, and nothing else is split",
            each["devices"] == n and each["part"] == part,
            _wrong_part(each, n, part),
        )


def _wrong_number(found: np.ndarray, right: np.ndarray) -> str:
    if np.array_equal(found, _weight().reshape(right.shape)):
        return (
            "The shape is right, but the first dimension of `W` belongs to the outputs "
            "and the last one to the inputs."
        )
    wrong = np.argwhere(found != right)[0]
    row = int(found[tuple(wrong)]) // _WIDTH
    column = int(found[tuple(wrong)]) % _WIDTH
    wanted = int(right[tuple(wrong)]) // _WIDTH
    if column != wrong[0]:
        return f"The number at {tuple(map(int, wrong))} belongs to input {column}."
    return (
        f"At {tuple(map(int, wrong))} there's a number of row {row}, {_named(row)}, "
        f"but it should be one of row {wanted}, {_named(wanted)}."
    )


def _named(row: int) -> str:
    kind = ("queries", "keys", "values")[row // _WIDTH]
    return f"from the {kind} of head {row % _WIDTH // _SIZE}"


def _wrong_part(found: dict, n: int, part: tuple) -> str:
    if found["devices"] != n:
        gpus = f"{found['devices']} GPU{'s' * (found['devices'] > 1)}"
        return f"The mesh has {n}, but your array is on {gpus}."
    hint = f"Each has a part of shape {found['part']} instead of {part}."
    if found["part"] == (_WIDTH, 3, _HEADS, _SIZE):
        return f"{hint} That's the whole array."
    if found["part"] == (_WIDTH, 3, _HEADS, _SIZE // n):
        return f"{hint} Every GPU has a bit of every head."
    if found["part"] == (_WIDTH // n, 3, _HEADS, _SIZE):
        return f"{hint} That would be row-parallel."
    return hint


# ------------------------------------------------------------------ in plain Python

common.add_shared(EXERCISES, "GPU")

# ------------------------------------------------------------------ a split loss

_TOKENS, _WORDS = 512, 256  # words of one GPU
_SPLIT = P(None, "model"), P()


def _logits(large: bool) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    words = _GPUS * _WORDS
    logits = rng.standard_normal((_TOKENS, words)) * (150 if large else 2)
    return logits.astype(np.float32), rng.integers(words, size=_TOKENS, dtype=np.int32)


def _cross_entropy(logits: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the loss and its gradient, computed in double precision."""
    logits = logits.astype(np.float64)
    powers = np.exp(logits - logits.max(1, keepdims=True))
    shares = powers / powers.sum(1, keepdims=True)
    loss = np.log(powers.sum(1)) + logits.max(1) - logits[np.arange(len(y)), y]
    shares[np.arange(len(y)), y] -= 1
    return float(loss.mean()), shares / len(y)


def _losses(answer: Callable, gpus: Gpus, large: bool) -> dict:
    """Return each GPU's loss, and how many numbers per token its program sends."""
    rows, given = _on_each(gpus, _GPUS, answer, _SPLIT, _logits(large))
    program = jax.jit(rows).lower(*given).compile()
    most = max(collected(program.as_text()), default=0)
    return {
        "losses": np.asarray(program(*given)),
        "numbers": most / _TOKENS,
    }


def _gradient(answer: Callable, gpus: Gpus) -> np.ndarray | None:
    """Return the gradient of the loss; None if JAX can't differentiate it."""
    rows, (logits, y) = _on_each(gpus, _GPUS, answer, _SPLIT, _logits(False))
    try:
        with jax.set_mesh(logits.sharding.mesh):
            found = jax.grad(lambda logits: rows(logits, y).mean())(logits)
    except NotImplementedError:
        return None
    return np.asarray(found)


@EXERCISES.add("14.5", "logits, y", gpus=_GPUS)
def split_loss(run: Run) -> Iterator[Claim]:
    small, large = run(_losses, False), run(_losses, True)
    shape = small["losses"].shape[1:]
    yield Claim(
        "every GPU returns an array with a single number",
        shape == (),
        f"Its shape is {shape}.",
    )
    if shape:
        return
    logits, y = _logits(False)
    wanted, slope = _cross_entropy(logits, y)
    right = np.allclose(small["losses"], wanted, rtol=1e-3)
    yield Claim(
        "it's the loss for all words together, on every GPU",
        right,
        _wrong_loss(small["losses"], logits, wanted),
    )
    if not right:
        return
    wanted, _ = _cross_entropy(*_logits(True))
    found = large["losses"]
    yield Claim(
        "large logits don't matter",
        np.allclose(found, wanted, rtol=1e-3),
        f"With logits beyond 500, it should be {wanted:.1f}, but yours is "
        f"{found[0]:.1f}.",
    )
    yield Claim(
        "no GPU gathers all logits",
        small["numbers"] < 3 * _GPUS,
        f"Your program sends an array with {small['numbers']:,.0f} numbers per token.",
    )
    gradient = run(_gradient)
    yield Claim(
        "JAX can differentiate it",
        gradient is not None,
        "It can't: some operation in it has no derivative. Does the loss depend on the "
        "result of that operation?",
    )
    if gradient is not None:
        yield Claim(
            "the gradient is right",
            np.allclose(gradient, slope, atol=1e-5),
            _wrong_slope(gradient, slope),
        )


def _wrong_loss(losses: np.ndarray, logits: np.ndarray, wanted: float) -> str:
    if not np.allclose(losses, losses[0], rtol=1e-4):
        return "The GPUs return different numbers. Has each of them heard of all?"
    found = losses[0]
    if np.isclose(found, wanted * _TOKENS, rtol=1e-3):
        return "It's the sum over the tokens, not their mean."
    if np.isclose(found, np.log(np.exp(logits).sum(1)).mean(), rtol=1e-3):
        return "The logit of the right word is missing."
    return f"It should be {wanted:.4f}, but yours is {found:.4f}."


def _wrong_slope(found: np.ndarray, right: np.ndarray) -> str:
    if np.allclose(found, right * (right < 0), atol=1e-4):
        return "The gradient knows only the logits of the right words."
    ratio = float((found * right).sum() / (right**2).sum())
    return f"Along the right gradient, yours is {ratio:.2g} times as long."
