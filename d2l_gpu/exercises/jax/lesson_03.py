"""Copying between devices."""

import random
import re
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from d2l_gpu.exercises.crossing import HOST
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.jax.port import PORT, compilations
from d2l_gpu.exercises.registry import Claim, Run
from d2l_gpu.exercises.shared import lesson_03 as common
from d2l_gpu.exercises.shared import lesson_03_training as training
from d2l_gpu.exercises.shared.lesson_03_training import BATCH, STEPS, WEIGHTS

EXERCISES = common.exercises(PORT, leave_out=["03.3"])


# ------------------------------------------------------------------ a loop


def _values() -> np.ndarray:
    return np.arange(6, dtype=np.float32).reshape(2, 3)


def _decayed(answer: Callable, gpus: Gpus, rounds: int) -> dict:
    """Compute this many rounds, and count copies and compilations."""
    X = PORT.watched(_values())
    with PORT.watch(numbers=True) as copies:
        before = compilations()
        result = answer(X, rounds)
        compiled = compilations() - before
    return {
        "targets": [target for _, _, target in gpus.crossings(copies)],
        "compiled": compiled,
        "values": PORT.values(result),
        "stayed": PORT.home(result) == PORT.home(X),
    }


@EXERCISES.add("03.3", "X, rounds", returns=jax.Array)
def decay(run: Run):
    values = _values()
    few, many = 10, 40
    refused = run(_refused, few)
    sort = "One number"
    if "int32" in refused:
        sort = "An argument of a compiled function"
    elif refused and "[]" not in refused:
        sort = "An array"
    yield Claim(
        "no implicit copies are made",
        not refused,
        f"{sort} was sent implicitly: the guard refused {refused}.",
    )
    if refused:
        return
    cases = {rounds: run(_decayed, rounds) for rounds in (few, many)}
    copies = {rounds: len(case["targets"]) for rounds, case in cases.items()}
    compiled = {rounds: case["compiled"] for rounds, case in cases.items()}
    wanted = 2 + 0.5**many * (values - 2)
    found = cases[many]["values"]
    after_one = "" if np.ptp(found) < 1e-3 else ", as after a single round"
    yield Claim(
        "all rounds are computed",
        found.shape == wanted.shape and np.allclose(found, wanted, atol=1e-5),
        f"After {many} rounds every value should be close to 2, but your largest is "
        f"{found.max():g}{after_one}.",
    )
    yield Claim(
        "`X` stays on its device",
        cases[many]["stayed"] and HOST not in cases[many]["targets"],
        "You fetched its values to the host and computed there.",
    )
    yield Claim(
        "the number of copies doesn't depend on the number of rounds",
        copies[many] == copies[few],
        f"{few} rounds made {copies[few]} copies, and {many} rounds {copies[many]}: "
        "your copies are explicit, but inside the loop.",
    )
    yield Claim(
        "the number of compilations doesn't depend on the number of rounds",
        compiled[many] <= max(compiled[few], 1),
        f"In {few} rounds, JAX compiled {compiled[few]} "
        f"program{'s' * (compiled[few] != 1)}, and in {many} rounds {compiled[many]}. "
        "It recognizes a function by its identity, not by its source code.",
    )


def _refused(answer: Callable, gpus: Gpus, rounds: int) -> str:
    """Return which transfer JAX's transfer guard refused; empty if it refused none."""
    X = PORT.watched(_values())
    try:
        with (
            jax.transfer_guard_host_to_device("disallow"),
            jax.transfer_guard_device_to_device("disallow"),
        ):
            answer(X, rounds)
    except jax.errors.JaxRuntimeError as error:
        found = re.search(r"Disallowed (\S+ transfer: aval=\S+\])", str(error))
        if found is None:
            raise
        what, _, shape = found[1].partition(": aval=ShapedArray(")
        return f"a {what} of {shape}"
    return ""


# ------------------------------------------------------------------ a slow program

_WEIGHTS = np.array(WEIGHTS, np.float32)


def _digits(seed: int) -> tuple[dict, np.ndarray, np.ndarray]:
    """Return the parameters of a small network, and images and labels for it."""
    rng = np.random.default_rng(seed)
    params = {
        "W1": rng.standard_normal((16, 8)) / 4,
        "b1": np.zeros(8),
        "W2": rng.standard_normal((8, 10)) / 3,
        "b2": np.zeros(10),
    }
    n = BATCH * (max(STEPS) + 1)
    images = rng.random((n, 4, 4, 1)).astype(np.float32)
    labels = rng.integers(10, size=n).astype(np.int32)
    return {k: v.astype(np.float32) for k, v in params.items()}, images, labels


def _loss(params: dict, X: jax.Array, y: jax.Array, weighted: bool) -> jax.Array:
    H = jax.nn.relu(X.reshape(len(X), -1) @ params["W1"] + params["b1"])
    log_p = jax.nn.log_softmax(H @ params["W2"] + params["b2"])
    each = -jnp.take_along_axis(log_p, y[:, None], axis=1)[:, 0]
    weights = _WEIGHTS[y] if weighted else np.ones(len(y), np.float32)
    return (weights * each).sum() / weights.sum()


def _reference(seed: int, steps: int, weighted: bool = True) -> tuple[list, dict]:
    """Return the losses of all steps, and the parameters after them."""
    params, images, labels = _digits(seed)
    losses = []
    for step in range(steps):
        batch = slice(BATCH * step, BATCH * (step + 1))
        value, grads = jax.value_and_grad(_loss)(
            params, images[batch], labels[batch], weighted
        )
        params = jax.tree.map(lambda p, g: p - 0.5 * g, params, grads)
        losses.append(float(value))
    return losses, {name: np.asarray(p) for name, p in params.items()}


def _fitted(answer: Callable, gpus: Gpus, seed: int) -> dict:
    """Train with the answer for few and for many steps; return what it did."""
    params, images, labels = jax.tree.map(PORT.watched, _digits(seed))
    copies, compiled = [], []
    # The first run compiles what the others can use.
    for steps in (STEPS[0], *STEPS):
        before = compilations()
        with PORT.watch(numbers=True) as log:
            trained, history, best = answer(params, images, labels, steps)
        copies.append([(each.nbytes, each.target == HOST) for each in log])
        compiled.append(compilations() - before)
    return {
        "copies": copies[1:],
        "compiled": compiled[1:],
        "numbers": all(isinstance(x, float) for x in history),
        "history": [float(x) for x in history],
        "best": float(best),
        "best is a number": isinstance(best, float),
        "parameters": {name: PORT.values(p) for name, p in trained.items()},
    }


@EXERCISES.add("03.5", "params, images, labels, steps", returns=(tuple, list))
def fit(run: Run):
    seed = random.randrange(1000)
    found, steps = run(_fitted, seed), STEPS[1]
    losses, parameters = _reference(seed, steps)
    complete = yield from training.losses_of(
        found,
        losses,
        lambda: _reference(seed, steps, weighted=False)[0],
        "an array",
        "arrays",
    )
    if not complete:
        return
    yield Claim(
        "the parameters are those that `fit_slowly` returns",
        found["parameters"].keys() == parameters.keys()
        and all(
            np.allclose(found["parameters"][name], p, rtol=1e-3, atol=1e-5)
            for name, p in parameters.items()
        ),
        "You return other parameters. Are they those after the last step?",
    )
    few, many = found["compiled"]
    yield Claim(
        "the number of compilations doesn't depend on the number of steps",
        many <= max(few, 1),
        f"In {STEPS[0]} steps, JAX compiled {few} programs, and in {STEPS[1]} steps "
        f"{many}. Which of your functions is a new one in each step?",
    )
    few, many = found["copies"]
    yield Claim(
        "the number of copies doesn't depend on the number of steps",
        len(many) <= len(few),
        f"{STEPS[0]} steps make {len(few)} copies, and {STEPS[1]} steps "
        f"{len(many)}. {_in_each_step(few, many)}",
    )


def _in_each_step(few: Sequence[tuple], many: Sequence[tuple]) -> str:
    """Return which of the copies is made again and again, given bytes and direction."""
    more = {each for each in many if many.count(each) > few.count(each) + 1}
    fetched = {nbytes for nbytes, to_host in more if to_host}
    if 1 in fetched:
        return "Again and again one byte comes to the host: a truth value."
    if fetched:
        return f"Again and again {min(fetched)} bytes come to the host: a loss."
    return (
        "Again and again something goes to the GPU. The transfer guard tells you its "
        "shape."
    )
