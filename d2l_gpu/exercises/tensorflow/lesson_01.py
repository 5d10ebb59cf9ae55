"""Devices: how fast they are, numbering GPUs, scopes, and names that TensorFlow doesn't
check."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from d2l_gpu import tensorflow as d2l
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run, given
from d2l_gpu.exercises.shared import lesson_01 as common
from d2l_gpu.exercises.shared.lesson_01_speed import share_of_peak
from d2l_gpu.exercises.tensorflow.arrays import ARRAYS

EXERCISES = Registry()
_DEVICES = common.Devices(ARRAYS, d2l._gpus, lambda: tf.ones(1))

EXERCISES.add("01.1", "m, k, n, seconds, peak", returns=(float, int))(share_of_peak)
EXERCISES.add("01.2", "i", returns=str)(given(common.gpu_in_turn, _DEVICES))
EXERCISES.add("01.3", "i, visible")(common.on_machine)
EXERCISES.add("01.4", "f, device")(given(common.run_on, _DEVICES))

_MISSING = "/GPU:99", "/CPU:99"


def _made(answer: Callable, gpus: Gpus, soft: bool) -> list[dict]:
    """Have tensors made on devices that exist and on others, with soft placement on
    or off."""
    cases = []
    for device in (*gpus, "/CPU:0", *_MISSING):
        tf.config.set_soft_device_placement(soft)
        result, failed = None, False
        try:
            result = answer((2, 3), device)
        except Exception:
            if device not in _MISSING:
                raise
            failed = True
        finally:
            now = tf.config.get_soft_device_placement()
            tf.config.set_soft_device_placement(True)
        tensor = isinstance(result, tf.Tensor)
        cases.append(
            {
                "device": device if device in _MISSING else gpus.name(device),
                "soft": soft,
                "soft afterwards": now,
                "failed": failed,
                "values": ARRAYS.fetch(result) if tensor else None,
                "home": gpus.where(result),
                "shown": repr(result),
            }
        )
    return cases


@EXERCISES.add("01.5", "shape, device")
def ones_on(run: Run):
    """Check `ones_on`, with soft placement on and off."""
    cases = [*run(_made, True), *run(_made, False)]
    made = [case for case in cases if case["device"] not in _MISSING]
    missing = [case for case in cases if case["device"] in _MISSING]
    yield Claim(
        "it returns tensors of ones, in the given shape",
        all(
            case["values"] is not None
            and case["values"].shape == (2, 3)
            and bool((case["values"] == 1).all())
            for case in made
        ),
        f"For the shape (2, 3), you return {made[0]['shown']}.",
    )
    wrong = [case for case in made if case["home"] != case["device"]]
    yield Claim(
        "the tensors are on `device`",
        not wrong,
        f"For {wrong[0]['device']}, the tensor is on {wrong[0]['home']}."
        if wrong
        else "",
    )
    passed = [case for case in missing if not case["failed"]]
    yield Claim(
        "a device that doesn't exist raises an error",
        not passed,
        _passed_over(passed[0]) if passed else "",
    )
    left = [case for case in cases if case["soft"] != case["soft afterwards"]]
    yield Claim(
        "without an error, the setting for soft placement is the same as before",
        all(case["failed"] for case in left),
        _setting_left([case for case in left if not case["failed"]]),
    )
    yield Claim(
        "after an error, it's the same as before too",
        not any(case["failed"] for case in left),
        "Python doesn't run the lines that come after one that raises an error.",
    )


def _passed_over(case: dict) -> str:
    if case["values"] is not None:
        return (
            f"For {case['device']!r}, which doesn't exist, you return a tensor on "
            f"{case['home']}."
        )
    return (
        f"For {case['device']!r}, which doesn't exist, you raise no error and return "
        f"{case['shown']}."
    )


def _setting_left(left: Sequence[dict]) -> str:
    if any(case["soft"] for case in left):
        return "It was on, and you left it off for everything that follows."
    return "It was off, which somebody had wanted, and you left it on."
