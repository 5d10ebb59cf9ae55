"""Models on devices."""

import itertools
from collections.abc import Callable, Mapping, Sequence

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn

from d2l_gpu.exercises.mxnet.port import PORT
from d2l_gpu.exercises.shared.lesson_04 import UNITS, Models, exercises

OPTIMIZERS = {
    "sgd": ("sgd", {}),
    "momentum": ("sgd", {"momentum": 0.9}),
    "adam": ("adam", {}),
}


class Blocks(Models):
    def training_bytes(self, optimizer: str) -> int:
        device = self.port.gpu(0)
        net = _sequential(*itertools.pairwise(UNITS))
        net.initialize(ctx=device)
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS[optimizer])
        with autograd.record():
            loss = net(mx.np.ones((1, UNITS[0]), ctx=device)).sum()
        loss.backward()
        trainer.step(1)
        kept = []
        for state in trainer._updaters[0].states.values():
            kept += state if isinstance(state, (list, tuple)) else [state]
        parameters = net.collect_params().values()
        arrays = [x for each in parameters for x in (each.data(), each.grad())]
        arrays += [x for x in kept if x is not None]
        return sum(x.size * np.dtype(x.dtype).itemsize for x in arrays)

    def whole(self, device: mx.Context) -> nn.Block:
        net = _sequential((3, 4), (4, 2))
        net.initialize(ctx=device)
        return net

    def spread(self, first: mx.Context, second: mx.Context) -> Mapping[str, nn.Block]:
        layers, deep = self.whole(first), self.whole(second)
        layers[1].collect_params().reset_ctx(second)
        inner = self.whole(second)
        inner[0].collect_params().reset_ctx(first)
        deep.add(inner)
        return {
            "the layers are on two devices": layers,
            "a layer inside a layer is on another device": deep,
            "it was initialized on both": self.whole([first, second]),
        }

    def weight(self, values: np.ndarray, device: mx.Context) -> mx.np.ndarray:
        return self.port.array(values, device)

    def layers(
        self,
        parameters: Sequence[tuple[np.ndarray, np.ndarray]],
        devices: Sequence[mx.Context],
    ) -> list:
        made = []
        for (W, b), device in zip(parameters, devices, strict=True):
            layer = nn.Dense(W.shape[1], in_units=W.shape[0])
            layer.initialize(ctx=device)
            layer.weight.set_data(mx.np.array(W.T))
            layer.bias.set_data(mx.np.array(b))
            made.append(layer)
        return made

    def gradients(
        self,
        answer: Callable,
        layers: list,
        devices: Sequence[mx.Context],
        X: mx.np.ndarray,
    ) -> list:
        with autograd.record():
            loss = answer(layers, devices, X).sum()
        try:
            loss.backward()
        except mx.MXNetError:  # nothing was recorded
            return [None] * len(layers)
        return [layer.weight.grad().asnumpy().T for layer in layers]


def _sequential(*sizes: tuple[int, int]) -> nn.Sequential:
    net = nn.Sequential()
    net.add(*(nn.Dense(outputs, in_units=inputs) for inputs, outputs in sizes))
    return net


EXERCISES = exercises(Blocks(PORT))
