"""Models on devices."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from d2l_gpu.exercises.shared.lesson_04 import UNITS, Models, exercises
from d2l_gpu.exercises.tensorflow.port import PORT
from d2l_gpu.tensorflow import keras, layers, tf

OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.1),
}


class KerasModels(Models):
    def training_bytes(self, optimizer: str) -> int:
        inputs, *outputs = UNITS
        with tf.device(self.port.gpu(0)):
            net = keras.Sequential(
                [keras.Input((inputs,)), *map(layers.Dense, outputs)]
            )
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(net(tf.ones((1, inputs))))
            gradients = tape.gradient(loss, net.trainable_variables)
            its = OPTIMIZERS[optimizer]()
            its.apply(gradients, net.trainable_variables)
        kept = (*net.weights, *gradients, *its.variables)
        # Leave out the optimizer's scalars, its learning rate and step counter.
        tensors = [x for x in map(tf.convert_to_tensor, kept) if x.shape.rank]
        return sum(x.dtype.size * x.shape.num_elements() for x in tensors)

    def whole(self, device: str) -> keras.Model:
        return keras.Sequential([_dense(3, 4, device), _dense(4, 2, device)])

    def spread(self, first: str, second: str) -> Mapping[str, keras.Model]:
        inner = [_dense(4, 5, second), _dense(5, 4, first)]
        nested = [
            _dense(3, 4, second),
            keras.Sequential(inner),
            _dense(4, 2, second),
        ]
        return {
            "the layers are on two devices": keras.Sequential(
                [_dense(3, 4, first), _dense(4, 2, second)]
            ),
            "a layer inside a layer is on another device": keras.Sequential(nested),
        }

    def weight(self, values: np.ndarray, device: str) -> tf.Variable:
        with tf.device(device):
            return tf.Variable(values)

    def layers(
        self,
        parameters: Sequence[tuple[np.ndarray, np.ndarray]],
        devices: Sequence[str],
    ) -> list:
        made = []
        for (W, b), device in zip(parameters, devices, strict=True):
            made.append(_dense(*W.shape, device))
            made[-1].set_weights([W, b])
        return made

    def gradients(
        self, answer: Callable, layers: list, devices: Sequence[str], X: tf.Tensor
    ) -> list:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(answer(layers, devices, X))
        found = tape.gradient(loss, [layer.kernel.value for layer in layers])
        return [None if each is None else each.numpy() for each in found]


def _dense(inputs: int, outputs: int, device: str) -> layers.Dense:
    with tf.device(device):
        layer = layers.Dense(outputs)
        layer.build((None, inputs))
    return layer


EXERCISES = exercises(KerasModels(PORT))
