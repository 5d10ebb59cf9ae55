"""Devices: numbering GPUs, scopes, and device names that TensorFlow doesn't check."""

import tensorflow as tf

from d2l_gpu import tensorflow as d2l
from d2l_gpu.exercises.registry import Claim
from d2l_gpu.exercises.shared import lesson_01 as common
from d2l_gpu.exercises.tensorflow.arrays import ARRAYS

EXERCISES = common.exercises(ARRAYS, d2l._gpus, str, lambda: tf.ones(1))


@EXERCISES.add("01.5", "shape, device")
def ones_on(answer):
    """Check `ones_on`, with soft placement on and off."""
    made, refused, settings = [], [], []
    for soft in (True, False):
        for device in (*d2l.try_all_gpus(), "/CPU:0", "/GPU:99", "/CPU:99"):
            tf.config.set_soft_device_placement(soft)
            try:
                result, error = answer((2, 3), device), None
            except Exception as raised:
                if not device.endswith("99"):
                    raise
                result, error = None, raised
            finally:
                settings.append((soft, error, tf.config.get_soft_device_placement()))
                tf.config.set_soft_device_placement(True)
            if device.endswith("99"):
                refused.append((device, error, result))
            else:
                made.append((device, result))
    yield Claim(
        "it returns tensors of ones, in the given shape",
        all(
            isinstance(x, tf.Tensor)
            and x.shape == (2, 3)
            and bool(tf.reduce_all(x == 1))
            for _, x in made
        ),
        f"For the shape (2, 3), you return {made[0][1]!r}.",
    )
    homes = [(d2l.name(device), ARRAYS.where(x)) for device, x in made]
    wrong = [pair for pair in homes if len(set(pair)) > 1]
    yield Claim(
        "the tensors are on `device`",
        not wrong,
        "For {}, the tensor is on {}.".format(*wrong[0]) if wrong else "",
    )
    passed = [(device, result) for device, error, result in refused if error is None]
    yield Claim(
        "a device that doesn't exist raises an error",
        not passed,
        _passed_over(*passed[0]) if passed else "",
    )
    yield Claim(
        "without an error, the setting for soft placement is the same as before",
        all(soft == now for soft, error, now in settings if error is None),
        _setting_left([each for each in settings if each[1] is None]),
    )
    yield Claim(
        "after an error, it's the same as before too",
        all(soft == now for soft, error, now in settings if error is not None),
        "Python doesn't run the lines that come after one that raises an error.",
    )


def _passed_over(device: str, result) -> str:
    if isinstance(result, tf.Tensor):
        return (
            f"For {device!r}, which doesn't exist, you return a tensor on "
            f"{ARRAYS.where(result)}."
        )
    return (
        f"For {device!r}, which doesn't exist, you raise no error and return "
        f"{result!r}."
    )


def _setting_left(settings: list) -> str:
    on_to_off = any(soft and not now for soft, _, now in settings)
    if on_to_off:
        return "It was on, and you left it off for everything that follows."
    return "It was off, which somebody had wanted, and you left it on."
