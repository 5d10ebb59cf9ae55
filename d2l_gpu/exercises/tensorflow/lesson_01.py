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
        "tensors of ones are returned, in the shape that was asked for",
        all(
            isinstance(x, tf.Tensor)
            and x.shape == (2, 3)
            and bool(tf.reduce_all(x == 1))
            for _, x in made
        ),
        f"For the shape (2, 3), what is returned is {made[0][1]!r}.",
    )
    homes = [(d2l.name(device), ARRAYS.where(x)) for device, x in made]
    wrong = [pair for pair in homes if len(set(pair)) > 1]
    yield Claim(
        "they live on `device`",
        not wrong,
        "For {}, it lives on {}.".format(*wrong[0]) if wrong else "",
    )
    passed = [(device, result) for device, error, result in refused if error is None]
    yield Claim(
        "a device that is not there is an error",
        not passed,
        _passed_over(*passed[0]) if passed else "",
    )
    yield Claim(
        "without an error, soft placement is on afterwards if it was on before, and "
        "off if it was off",
        all(soft == now for soft, error, now in settings if error is None),
        _setting_left([each for each in settings if each[1] is None]),
    )
    yield Claim(
        "after an error as well",
        all(soft == now for soft, error, now in settings if error is not None),
        "A line that comes after one that raises an error is not run.",
    )


def _passed_over(device: str, result) -> str:
    if isinstance(result, tf.Tensor):
        return (
            f"For {device!r}, a tensor came back without a word, and it lives on "
            f"{ARRAYS.where(result)}."
        )
    return f"For {device!r}, no error was raised, and {result!r} came back."


def _setting_left(settings: list) -> str:
    on_to_off = any(soft and not now for soft, _, now in settings)
    if on_to_off:
        return "It was on, and is off for everything that comes after."
    return "It was off, which somebody had wanted, and is on now."
