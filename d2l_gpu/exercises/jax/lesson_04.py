"""Models on devices."""

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from d2l_gpu.exercises.crossing import HOST
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.jax.port import PORT
from d2l_gpu.exercises.registry import Claim, Run
from d2l_gpu.exercises.shared.lesson_04 import UNITS, Models, exercises

# Numbers that an optimizer keeps per parameter; JAX has no optimizers to measure.
KEPT = {"sgd": 0, "momentum": 1, "adam": 2}


class Pytrees(Models):
    def training_bytes(self, optimizer: str) -> int:
        params = [
            {"W": jnp.zeros((a, b)), "b": jnp.zeros(b)}
            for a, b in itertools.pairwise(UNITS)
        ]
        params = jax.device_put(params, self.port.gpu(0))
        gradient = jax.grad(
            lambda params: sum(x.sum() for x in jax.tree.leaves(params))
        )(params)
        state = [jax.tree.map(jnp.zeros_like, params) for _ in range(KEPT[optimizer])]
        return sum(x.nbytes for x in jax.tree.leaves((params, gradient, state)))

    def whole(self, device: jax.Device) -> Any:
        params = {"first": {"W": jnp.ones((3, 4)), "b": jnp.ones(4)}, "b": jnp.ones(2)}
        return jax.device_put(params, device)

    def spread(self, first: jax.Device, second: jax.Device) -> Mapping[str, Any]:
        deep = self.whole(second)
        deep["first"]["W"] = jax.device_put(deep["first"]["W"], first)
        return {
            "the layers are on two devices": {
                "layer 1": jnp.ones(2, device=first),
                "layer 2": jnp.ones(2, device=second),
            },
            "one array deep in the tree is on another device": deep,
            "one array is on both devices": [self.port.watched(np.ones(2, np.float32))],
        }

    def weight(self, values: np.ndarray, device: jax.Device) -> jax.Array:
        return self.port.watched(values)

    def exchanged(
        self, answer: Callable, weight: jax.Array, i: int, j: int, value: float
    ) -> tuple[Any, Any]:
        pair = answer(weight, i, j, value)
        return pair if isinstance(pair, tuple) and len(pair) == 2 else (pair, weight)

    def layers(
        self,
        parameters: Sequence[tuple[np.ndarray, np.ndarray]],
        devices: Sequence[jax.Device],
    ) -> list:
        return [
            jax.device_put({"W": W, "b": b}, device)
            for (W, b), device in zip(parameters, devices, strict=True)
        ]

    def gradients(
        self,
        answer: Callable,
        layers: list,
        devices: Sequence[jax.Device],
        X: jax.Array,
    ) -> list:
        try:
            found = jax.grad(lambda layers: answer(layers, devices, X).sum())(layers)
        except jax.errors.TracerArrayConversionError:
            return [None] * len(layers)
        return [np.asarray(each["W"]) for each in found]


EXERCISES = exercises(Pytrees(PORT))


_ROUNDS = 6


def _best(answer: Callable, gpus: Gpus, start: float, best_round: int) -> dict:
    """Have an answer find the best of several states; return which one it found.

    The state after round `best_round` scores best; 0 is the one before the first.
    """
    step = jax.jit(
        lambda state, batch: jax.tree.map(lambda x: x + batch, state), donate_argnums=0
    )
    best = start + best_round

    def score(state: dict) -> float:
        # Read a buffer without JAX's noticing, so that no copy is recorded.
        return -abs(float(np.asarray(state["W"].addressable_data(0)).flat[0]) - best)

    state = {name: PORT.watched(np.full(3, start, np.float32)) for name in "Wb"}
    home = PORT.home(state["W"])
    batches = [jax.device_put(np.float32(1), state["W"].sharding)] * _ROUNDS
    with PORT.watch() as copies:
        result = answer(step, score, state, batches)
    arrays = [x for x in jax.tree.leaves(result) if isinstance(x, jax.Array)]
    deleted = any(x.is_deleted() for x in arrays)
    return {
        "keys": sorted(result) if isinstance(result, dict) else [],
        "deleted": deleted,
        "values": {} if deleted else {k: PORT.values(x) for k, x in result.items()},
        "stayed": not deleted
        and all(isinstance(x, jax.Array) for x in result.values())
        and all(PORT.home(x) == home for x in result.values()),
        "fetched": [target for _, _, target in gpus.crossings(copies)].count(HOST),
    }


@EXERCISES.add("04.5", "step, score, state, batches", returns=dict)
def best_state(run: Run):
    start = float(random.randrange(10, 1000))
    cases = {at: run(_best, start, at) for at in (2, 0, _ROUNDS)}
    deleted = [at for at, case in cases.items() if case["deleted"]]
    yield Claim(
        "the arrays of the state still exist",
        not deleted,
        f"{_which(deleted)} the arrays you return have been deleted, because a later "
        "step donated them.",
    )
    if deleted:
        return
    wrong = [
        at
        for at, case in cases.items()
        if case["keys"] != ["W", "b"]
        or not all(np.allclose(x, start + at) for x in case["values"].values())
    ]
    yield Claim(
        "it's the state with the best score",
        not wrong,
        _wrong_state(wrong, start, cases),
    )
    yield Claim(
        "it's on the device it was on",
        all(case["stayed"] for case in cases.values()),
        "The state you return is somewhere else, or isn't made of JAX's arrays.",
    )
    yield Claim(
        "the state isn't fetched to the host",
        not any(case["fetched"] for case in cases.values()),
        "You fetched the state to the host and sent it back.",
    )


def _which(rounds: Sequence[int]) -> str:
    if not rounds:
        return ""
    if rounds[0] == 0:
        return "If the state before the first step is the best,"
    return f"If the state after step {rounds[0]} of {_ROUNDS} is the best,"


def _wrong_state(wrong: Sequence[int], start: float, cases: Mapping[int, dict]) -> str:
    if not wrong:
        return ""
    found = next(iter(cases[wrong[0]]["values"].values()), np.full(1, np.nan))
    after = float(np.ravel(found)[0]) - start
    if after in range(_ROUNDS + 1):
        return f"{_which(wrong)} you return the one after step {after:.0f}."
    return f"{_which(wrong)} you return another one."
