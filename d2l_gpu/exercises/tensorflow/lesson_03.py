"""Copying between devices."""

from collections.abc import Callable
from typing import Any

from d2l_gpu import tensorflow as d2l
from d2l_gpu.exercises.registry import Claim
from d2l_gpu.exercises.shared import lesson_03 as common
from d2l_gpu.exercises.tensorflow.port import PORT
from d2l_gpu.tensorflow import tf

EXERCISES = common.exercises(PORT)


@EXERCISES.add("03.5", "f", returns=bool)
def copies_silently(answer):
    first, second = d2l.gpu(0), d2l.gpu(1)
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

    said, policies = {}, {}
    for f in (silent, explicit, invalid, missing):
        said[f], policies[f] = _asked(answer, f)
    yield Claim(
        "a silent copy is noticed",
        said[silent] is True,
        "In a scope for the second GPU, `X + Y` copied `X` from the first one. "
        f"Your function gave {said[silent]!r}.",
    )
    yield Claim(
        "an explicit copy isn't a silent one",
        said[explicit] is False,
        "`tf.identity(X) + Y` copies nothing silently. "
        f"Your function gave {said[explicit]!r}.",
    )
    yield Claim(
        "`f` is called exactly once",
        sorted(calls) == ["explicit", "silent"],
        f"You called it {calls.count('silent')} times, so everything it does happened "
        "that often.",
    )
    other = "a missing file"
    if isinstance(said[missing], FileNotFoundError):
        other = "a `tf.reshape` to an impossible shape, an error of the same class,"
    yield Claim(
        "any other error in `f` is raised",
        isinstance(said[missing], FileNotFoundError)
        and isinstance(said[invalid], tf.errors.InvalidArgumentError),
        f"You took {other} for an answer about copies.",
    )
    left = [f.__name__ for f, policy in policies.items() if policy != "silent"]
    when = "" if len(left) == len(policies) else " if an error was raised in `f`"
    yield Claim(
        "afterwards, silent copies are allowed again",
        not left,
        f"Afterwards, the policy was still {policies[missing]!r}{when}.",
    )


def _asked(answer: Callable, f: Callable) -> tuple[Any, str]:
    """Call the answer on f; return its result, or the exception it raises, and the
    device policy that it leaves behind. Reset the policy."""
    try:
        said = answer(f)
    except Exception as error:
        said = error
    policy = tf.config.experimental.get_device_policy()
    tf.config.experimental.set_device_policy("silent")
    return said, policy
