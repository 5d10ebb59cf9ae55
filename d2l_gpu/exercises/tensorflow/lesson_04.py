"""Models on devices."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Run
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

# ------------------------------------------------------------------ 04.5


def _descended(answer: Callable, gpus: Gpus, rates: Sequence[float]) -> dict:
    with tf.device(gpus[0]):
        w, steps = tf.Variable(tf.zeros(3)), tf.Variable(0.0)
        gradients = [tf.fill(3, float(i + 1)) for i in range(len(rates))]

        @tf.function
        def update(w, gradient, rate):
            steps.assign_add(1.0)
            w.assign_sub(rate * gradient)

        answer(update, w, gradients, list(rates))
        return {
            "w": w.numpy(),
            "steps": int(steps.numpy()),
            "traces": update.experimental_get_tracing_count(),
        }


@EXERCISES.add("04.5", "update, w, gradients, rates", changes="w, gradients")
def descend(run: Run):
    rates = [1.0, 0.5, 0.25, 0.125]
    found, wanted = run(_descended, rates), -(1 + 2 * 0.5 + 3 * 0.25 + 4 * 0.125)
    yield Claim(
        "`update` runs once for each rate",
        found["steps"] == len(rates),
        f"For {len(rates)} rates, it ran {found['steps']} "
        f"time{'s' * (found['steps'] != 1)}.",
    )
    yield Claim(
        "`w` is the same as after the loop above",
        np.allclose(found["w"], wanted),
        f"Each number should be {wanted:g}, but is {found['w'][0]:g}. Does every step "
        "use its own rate?",
    )
    traces = found["traces"]
    yield Claim(
        "`update` is traced once",
        traces == 1,
        "It was never traced: you ran its operations one by one, in Python."
        if not traces
        else f"It was traced {traces} times. What's new to it in every call?",
    )
