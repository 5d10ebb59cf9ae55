"""Copying between devices."""

from collections.abc import Callable

from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Run
from d2l_gpu.exercises.shared import lesson_03 as common
from d2l_gpu.exercises.tensorflow.port import PORT
from d2l_gpu.tensorflow import tf

EXERCISES = common.exercises(PORT)


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


@EXERCISES.add("03.5", "f", returns=bool)
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
