"""Copying between devices."""

import re
from collections.abc import Callable

import jax
import numpy as np

from d2l_gpu.exercises.crossing import HOST
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.jax.port import PORT, compilations
from d2l_gpu.exercises.registry import Claim, Run
from d2l_gpu.exercises.shared import lesson_03 as common

EXERCISES = common.exercises(PORT)


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


@EXERCISES.add("03.5", "X, rounds", returns=jax.Array)
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
        compiled[many] <= compiled[few],
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
