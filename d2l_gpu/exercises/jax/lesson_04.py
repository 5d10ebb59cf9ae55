"""Models on devices."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from d2l_gpu.exercises.jax.port import PORT
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
