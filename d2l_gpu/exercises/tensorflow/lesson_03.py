"""Copying between devices."""

import math
import random
from collections.abc import Callable, Sequence

import numpy as np

from d2l_gpu import tensorflow as d2l
from d2l_gpu.exercises.gpus import HOST, Gpus
from d2l_gpu.exercises.registry import Claim, Run
from d2l_gpu.exercises.shared import lesson_03 as common
from d2l_gpu.exercises.tensorflow.port import PORT
from d2l_gpu.tensorflow import keras, tf

EXERCISES = common.exercises(PORT, leave_out=["03.3"])


# ------------------------------------------------------------------ a decision

_MOST = 2.0
_SHAPES = (3,), (2, 5), (4, 1, 2)


def _gradients(norm: float, seed: int) -> list[np.ndarray]:
    """Return gradients of all shapes, which have a norm together."""
    values = np.random.default_rng(seed).normal(size=sum(map(math.prod, _SHAPES)))
    values = (values * (norm / np.linalg.norm(values))).astype(np.float32)
    ends = np.cumsum([math.prod(shape) for shape in _SHAPES])[:-1]
    parts = np.split(values, ends)
    return [x.reshape(shape) for x, shape in zip(parts, _SHAPES, strict=True)]


def _norm(arrays: Sequence[np.ndarray]) -> float:
    return float(np.linalg.norm(np.concatenate([x.ravel() for x in arrays])))


def _clipped(answer: Callable, gpus: Gpus, norm: float, seed: int) -> dict:
    """Have gradients of a norm clipped; return what they are then, and what it took."""
    grads = [PORT.array(x, gpus[0]) for x in _gradients(norm, seed)]
    with d2l.transfers() as log:
        clipped, before = answer(grads, _MOST)
        clipped = list(clipped)
    return {
        "grads": [np.asarray(x) for x in clipped],
        "norm": np.asarray(before),
        "where": [gpus.where(x) for x in (*clipped, before)],
        "copies": gpus.crossings(log),
    }


@EXERCISES.add("03.3", "grads, max_norm", returns=(tuple, list))
def clip(run: Run):
    seed = random.randrange(1000)
    norms = random.uniform(4, 9), random.uniform(0.5, 1.5), 0.0
    large, small, zero = found = [run(_clipped, norm, seed) for norm in norms]
    before = _gradients(norms[0], seed)
    wanted = [x * (_MOST / norms[0]) for x in before]
    if [x.shape for x in large["grads"]] != list(_SHAPES):
        yield Claim(
            "it returns as many gradients as it gets, in their shapes",
            False,
            f"They had the shapes {list(_SHAPES)}, but you return "
            f"{[x.shape for x in large['grads']]}.",
        )
        return
    now = _norm(large["grads"])
    if _all_close(large["grads"], before):
        hint = "You return the gradients as they were."
    elif max(map(_norm, ([x] for x in large["grads"]))) > 0.99 * _MOST:
        hint = (
            "You clipped each gradient separately. `max_norm` is for the norm of all "
            f"of them together, which is {now:.3g} now."
        )
    else:
        hint = f"Together they have a norm of {now:.3g} now."
    yield Claim(
        "gradients whose norm is too large are scaled to `max_norm`",
        _all_close(large["grads"], wanted),
        hint,
    )
    yield Claim(
        "gradients whose norm is small enough keep their values",
        _all_close(small["grads"], _gradients(norms[1], seed)),
        f"With a norm of {norms[1]:.3g} and a `max_norm` of {_MOST}, they have a norm "
        f"of {_norm(small['grads']):.3g} afterwards.",
    )
    yield Claim(
        "gradients that are all zero stay zero",
        not any(np.any(x) for x in zero["grads"]),
        "They became `nan`. What's 0 divided by 0?"
        if any(np.isnan(x).any() for x in zero["grads"])
        else "They aren't zero afterwards.",
    )
    returned = [float(np.ravel(each["norm"])[0]) for each in found]
    yield Claim(
        "it returns the norm that the gradients had",
        np.allclose(returned, norms, rtol=1e-4, atol=1e-6),
        f"For gradients with a norm of {norms[0]:.4g} you returned {returned[0]:.4g}.",
    )
    copies = large["copies"] or small["copies"]
    yield Claim("nothing is copied", not copies, _of_what(copies))
    elsewhere = {place for each in found for place in each["where"]} - {"GPU 0"}
    yield Claim(
        "the gradients and the norm are on the gradients' GPU",
        not elsewhere,
        f"Some are on {', '.join(sorted(elsewhere))}.",
    )


def _all_close(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> bool:
    return all(
        np.allclose(*pair, rtol=1e-4) for pair in zip(found, wanted, strict=True)
    )


def _of_what(copies: Sequence[tuple[int, str, str]]) -> str:
    if not copies:
        return ""
    nbytes, source, target = max(copies)  # the largest
    if target != HOST:
        return (
            f"{nbytes} bytes were copied from {source} to {target}. Who needs them "
            "there?"
        )
    if nbytes == 1:
        return (
            "One byte was copied to the host: a truth value, which Python needed in "
            "order to choose what to do."
        )
    if nbytes == 4:
        return "One number was copied to the host. Who needs it there?"
    return (
        f"{nbytes} bytes were copied to the host, where an operation ran. In which "
        "scope was it?"
    )


# ------------------------------------------------------------------ a slow script

_BATCH, _WEIGHTS = 64, [1.0] * 5 + [2.0] * 5
_STEPS = 3, 9
_MOST_COPIES = 3


def _digits(seed: int) -> tuple[keras.Model, np.ndarray, np.ndarray]:
    """Return a small network in the scope that is open, and images and labels."""
    keras.utils.set_random_seed(seed)
    net = keras.Sequential(
        [
            keras.Input((4, 4, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    rng, n = np.random.default_rng(seed), _BATCH * max(_STEPS)
    images = rng.random((n, 4, 4, 1), dtype=np.float32)
    return net, images, rng.integers(10, size=n)


def _fitted(answer: Callable, gpus: Gpus, seed: int, steps: int) -> dict:
    """Train with the answer; return what it returned, the parameters, the copies."""
    with tf.device(gpus[0]):
        net, images, labels = _digits(seed)
        images, labels = tf.identity(images), tf.identity(labels)
    with d2l.transfers() as log:
        history, best = answer(net, images, labels, steps)
    return {
        "numbers": all(isinstance(x, float) for x in history),
        "history": [float(x) for x in history],
        "best": float(best),
        "best is a number": isinstance(best, float),
        "parameters": net.get_weights(),
        "copies": gpus.crossings(log),
    }


def _reference(seed: int, steps: int, weighted: bool = True) -> tuple[list, list]:
    """Return the losses of all steps, and the parameters after them."""
    net, images, labels = _digits(seed)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    weights = np.array(_WEIGHTS if weighted else [1.0] * 10, np.float32)
    losses = []
    for i in range(steps):
        rows = slice(_BATCH * i, _BATCH * (i + 1))
        with tf.GradientTape() as tape:
            scores = net(images[rows], training=True)
            mean = loss(labels[rows], scores, sample_weight=weights[labels[rows]])
        grads = tape.gradient(mean, net.trainable_variables)
        for variable, grad in zip(net.trainable_variables, grads, strict=True):
            variable.assign(variable - 0.5 * grad)
        losses.append(float(mean))
    return losses, net.get_weights()


@EXERCISES.add(
    "03.5", "net, images, labels, steps", returns=(tuple, list), changes="net"
)
def fit(run: Run):
    seed = random.randrange(1000)
    few, many = (run(_fitted, seed, steps) for steps in _STEPS)
    steps, (losses, parameters) = _STEPS[1], _reference(seed, _STEPS[1])
    history = many["history"]
    yield Claim(
        "`history` has one Python number for each step",
        many["numbers"] and len(history) == steps,
        f"It has {len(history)} elements after {steps} steps."
        if len(history) != steps
        else "Its elements are tensors: their values never reached the host.",
    )
    if len(history) != steps:
        return
    i = int(np.argmax(~np.isclose(history, losses, rtol=1e-4)))
    hint = (
        f"In step {i + 1}, the loss should be {losses[i]:.4f}, but you have "
        f"{history[i]:.4f}."
    )
    if np.allclose(history, _reference(seed, steps, weighted=False)[0], rtol=1e-4):
        hint = "They are the losses without the weights of the classes."
    yield Claim(
        "they are the losses of `fit_slowly`",
        np.allclose(history, losses, rtol=1e-4),
        hint,
    )
    best = min(losses)
    yield Claim(
        "`best` is the smallest of them, as a Python number",
        math.isclose(many["best"], best, rel_tol=1e-4) and many["best is a number"],
        f"The smallest loss is {best:.4f}, but you return {many['best']:.4f}."
        if many["best is a number"]
        else "`best` is a tensor: its value never reached the host.",
    )
    yield Claim(
        "the network is trained as before",
        all(
            np.allclose(*pair, rtol=1e-3, atol=1e-5)
            for pair in zip(many["parameters"], parameters, strict=True)
        ),
        "Afterwards its parameters aren't those that `fit_slowly` would leave.",
    )
    copies = many["copies"]
    yield Claim(
        f"it makes at most {_MOST_COPIES} copies, however many the steps",
        len(copies) <= _MOST_COPIES and len(few["copies"]) <= _MOST_COPIES,
        f"It makes {len(copies)} copies in {steps} steps. {_in_each_step(copies)}",
    )


def _in_each_step(copies: Sequence[tuple[int, str, str]]) -> str:
    """Return one of the things that are copied again and again."""
    again = {copy for copy in copies if copies.count(copy) > 1}
    fetched = {nbytes for nbytes, _, to in again if to == HOST}
    sent = {nbytes for nbytes, _, to in again if to != HOST}
    if max(fetched, default=0) > 1000:
        return (
            f"Again and again {max(fetched):,} bytes come to the host: the "
            "parameters, or a batch. Where does the operation run that needs them?"
        )
    if max(sent, default=0) > 1000:
        return (
            f"Again and again {max(sent):,} bytes go to the GPU: a batch. In which "
            "scope was it cut out?"
        )
    if 4 in sent:
        return "Again and again 4 bytes go to the GPU: the learning rate."
    if sent:
        return f"Again and again {max(sent):,} bytes go to the GPU."
    if 1 in fetched:
        return "Again and again one byte comes to the host: a truth value."
    return f"Again and again {max(fetched, default=0)} bytes come to the host: a loss."


# ------------------------------------------------------------------ a test


def _asked_all(answer: Callable, gpus: Gpus) -> dict:
    """Ask about functions that copy in different ways, or raise errors."""
    first, second = gpus[:2]
    with tf.device(first):
        X = tf.ones((2, 3))
    with tf.device(second):
        Y = tf.ones((2, 3))
    calls = []

    def silent():
        calls.append("silent")
        with tf.device(second):
            return X + Y

    def explicit():
        calls.append("explicit")
        with tf.device(second):
            return tf.identity(X) + Y

    def invalid():
        with tf.device(first):
            return tf.reshape(X, (7,))

    def missing():
        raise FileNotFoundError("there are no data")

    functions = silent, explicit, invalid, missing
    said = {f.__name__: _asked(answer, f) for f in functions}
    return {"said": said, "calls": calls}


@EXERCISES.add("03.6", "f", returns=bool)
def copies_silently(run: Run):
    found = run(_asked_all)
    said, calls = found["said"], found["calls"]
    yield Claim(
        "a silent copy is noticed",
        said["silent"]["value"] is True,
        "In a scope for the second GPU, `X + Y` copied `X` from the first one. "
        f"Your function gave {said['silent']['shown']}.",
    )
    yield Claim(
        "an explicit copy isn't a silent one",
        said["explicit"]["value"] is False,
        "`tf.identity(X) + Y` copies nothing silently. "
        f"Your function gave {said['explicit']['shown']}.",
    )
    yield Claim(
        "`f` is called exactly once",
        sorted(calls) == ["explicit", "silent"],
        f"You called it {calls.count('silent')} times, so everything it does happened "
        "that often.",
    )
    other = "a missing file"
    if said["missing"]["error"] == "missing":
        other = "a `tf.reshape` to an impossible shape, an error of the same class,"
    yield Claim(
        "any other error in `f` is raised",
        said["missing"]["error"] == "missing" and said["invalid"]["error"] == "invalid",
        f"You took {other} for an answer about copies.",
    )
    policies = {name: each["policy"] for name, each in said.items()}
    left = [name for name, policy in policies.items() if policy != "silent"]
    when = "" if len(left) == len(policies) else " if an error was raised in `f`"
    yield Claim(
        "afterwards, silent copies are allowed again",
        not left,
        f"Afterwards, the policy was still {policies['missing']!r}{when}.",
    )


def _asked(answer: Callable, f: Callable) -> dict:
    """Call the answer on f; return its result, or the kind of exception it raises, and
    the device policy that it leaves behind. Reset the policy."""
    value, error = None, ""
    try:
        value = answer(f)
        shown = repr(value)
    except FileNotFoundError as raised:
        error, shown = "missing", repr(raised)
    except tf.errors.InvalidArgumentError as raised:
        error, shown = "invalid", repr(raised)
    except Exception as raised:
        error, shown = "other", repr(raised)
    policy = tf.config.experimental.get_device_policy()
    tf.config.experimental.set_device_policy("silent")
    return {"value": value, "error": error, "shown": shown, "policy": policy}
