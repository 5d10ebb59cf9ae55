"""Copying between devices."""

import random
from collections.abc import Callable, Sequence

import numpy as np

from d2l_gpu import tensorflow as d2l
from d2l_gpu.exercises.gpus import HOST, Gpus
from d2l_gpu.exercises.registry import Claim, Run
from d2l_gpu.exercises.shared import lesson_03 as common
from d2l_gpu.exercises.shared import lesson_03_training as training
from d2l_gpu.exercises.shared.lesson_03_training import BATCH, STEPS, WEIGHTS
from d2l_gpu.exercises.tensorflow.port import PORT
from d2l_gpu.tensorflow import keras, tf

EXERCISES = common.exercises(PORT, leave_out=["03.3"])


# ------------------------------------------------------------------ a decision


def _clipped(answer: Callable, gpus: Gpus, norm: float, seed: int) -> dict:
    """Have gradients of a norm clipped; return what they are then, and what it took."""
    grads = [PORT.array(x, gpus[0]) for x in training.gradients(norm, seed)]
    with d2l.transfers() as log:
        clipped, before = answer(grads, training.MOST)
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
    if [x.shape for x in large["grads"]] != list(training.SHAPES):
        yield Claim(
            "it returns as many gradients as it gets, in their shapes",
            False,
            f"They had the shapes {list(training.SHAPES)}, but you return "
            f"{[x.shape for x in large['grads']]}.",
        )
        return
    yield training.scaled(
        large["grads"], norms[0], seed, "You return the gradients as they were."
    )
    kept = training.all_close(small["grads"], training.gradients(norms[1], seed))
    yield training.unchanged(kept, small["grads"], norms[1])
    yield training.still_zero(zero["grads"])
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
    rng, n = np.random.default_rng(seed), BATCH * max(STEPS)
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
    weights = np.array(WEIGHTS if weighted else [1.0] * 10, np.float32)
    losses = []
    for i in range(steps):
        rows = slice(BATCH * i, BATCH * (i + 1))
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
    yield from training.fit(run, _fitted, _reference, _in_each_step)


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
