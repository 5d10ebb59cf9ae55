"""The helper for TensorFlow: names, the decision, and training on two devices.

An import of TensorFlow takes seconds, and its devices are fixed by its first use. So
one process answers all questions before that, and those after it.
"""

import json
from importlib.util import find_spec

import pytest

from d2l_gpu.common.requirements import install
from tests.helpers import attempts
from tests.helpers.fresh_process import run_without_torch

needs_tensorflow = pytest.mark.skipif(
    find_spec("tensorflow") is None, reason="TensorFlow is not installed"
)

PRELUDE = (
    attempts.RETURNED
    + """
import json, sys
from types import SimpleNamespace as Named
import numpy as np
from d2l_gpu import tensorflow as d2l
import tensorflow as tf
import keras

answers = {}
"""
)

# What a machine with real GPUs would answer. Each is a machine with a decision of its
# own, and nothing is told to the TensorFlow of this process.
PRETENDED = """
def machine(count):
    told = []
    names = [Named(name=f"/physical_device:GPU:{i}") for i in range(count)]
    config = Named(
        get_visible_devices=lambda kind: names,
        list_physical_devices=lambda kind: names if kind == "GPU" else ["the CPU"],
        set_visible_devices=lambda devices, kind: told.append(
            ["visible", [device.name for device in devices]]),
        set_logical_device_configuration=lambda device, parts: told.append(
            [getattr(device, "name", device), [part.memory_limit for part in parts]]),
        LogicalDeviceConfiguration=tf.config.LogicalDeviceConfiguration,
        experimental=Named(get_device_details=lambda device: {"device_name": "T4"}))
    module = sys.modules["d2l_gpu.tensorflow"]
    module.tf = Named(config=config, test=Named(is_built_with_gpu_support=lambda: True))
    return module.TensorFlowGpus(), told

for count in (16, 1):
    gpus, told = machine(count)
    answers[f"{count} real"] = [
        gpus.num_gpus(), gpus.gpu(9), attempt(gpus.require_gpus, 2),
        gpus.try_all_gpus(), attempt(gpus.gpu, 2), told]
sys.modules["d2l_gpu.tensorflow"].tf = tf
"""

BEFORE = """
answers["torch"] = "torch" in sys.modules
answers["names"] = [d2l.cpu(), d2l.gpu(), d2l.gpu(7), d2l.num_gpus(), d2l.try_gpu(1)]
answers["none"] = d2l.try_all_gpus()
answers["bad"] = [attempt(d2l.gpu, i) for i in (-1, 1.5, "0")]
answers["too many"] = attempt(d2l.require_gpus, 2.5)
"""

AFTER = """
answers["line"] = attempt(d2l.require_gpus, 2)
answers["again"] = attempt(d2l.require_gpus, 1)
answers["more"] = attempt(d2l.require_gpus, 3)
answers["beyond"] = attempt(d2l.gpu, 2)
answers["in use"] = [d2l.num_gpus(), d2l.try_all_gpus(), d2l.try_gpu(5)]
answers["rows"] = [row[:2] for row in d2l.devices().rows]

with tf.device(d2l.gpu(0)):
    X = tf.ones((2, 3))
with tf.device(d2l.gpu(1)):
    Z, copy = X, tf.identity(X)
answers["placed"] = [d2l.name(x.device) for x in (X, Z, copy)]
tf.config.experimental.set_device_policy("explicit")
answers["mixed"] = attempt(lambda: X + copy)
tf.config.experimental.set_device_policy(None)
answers["too late"] = attempt(
    sys.modules["d2l_gpu.tensorflow"].TensorFlowGpus().require_gpus, 3)
"""

TRAIN = """
(images, labels), (test_images, test_labels) = d2l.load_data_digits(resize=16)
answers["data"] = [images.shape, test_images.shape, str(images.dtype),
                   float(images.min()), float(images.max()), str(labels.dtype)]
keras.config.set_floatx("float64")

def trained(devices, norm):
    with tf.distribute.MirroredStrategy(devices).scope():
        keras.utils.set_random_seed(0)
        net = keras.Sequential([
            keras.Input((8, 8, 1)), keras.layers.Conv2D(8, 3), norm(),
            d2l.residual(8, 16, 2, norm), keras.layers.Flatten(),
            keras.layers.Dense(10)])
        net.compile(
            keras.optimizers.SGD(0.1, momentum=0.9),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=False)
    net.fit(images[:96, ::2, ::2], labels[:96], batch_size=32, shuffle=False, verbose=0)
    return net

def distance(a, b):
    return max(float(np.abs(x - y).max()) for x, y in
               zip(a.get_weights(), b.get_weights(), strict=True))

for norm in (lambda: keras.layers.GroupNormalization(4),
             keras.layers.BatchNormalization):
    one, two = (trained(d2l.try_all_gpus()[:n], norm) for n in (1, 2))
    answers.setdefault("distances", []).append(distance(one, two))
kernel = two.layers[0].kernel.value
answers["mirrored"] = [d2l.name(value.device) for value in kernel.values]
answers["equal replicas"] = bool((kernel.values[0] == kernel.values[1]).numpy().all())

keras.config.set_floatx("float32")
net = d2l.resnet18(10)
answers["resnet18"] = [
    sum(int(np.prod(w.shape)) for w in net.trainable_weights),
    net(images[:2]).shape.as_list(), len(net.layers)]

# All normalizations begin with a mean of 0, and look at a batch once.
first = net.layers[0](images[:32])
net(images[:32], training=True)
seen = np.mean(first, axis=(0, 1, 2))
answers["share of a batch"] = [
    float((layer.moving_mean.numpy() @ seen) / (seen @ seen))
    for layer in net.layers if hasattr(layer, "moving_mean")]

# Where values hardly differ, the number under the root decides on the result: it is to
# be that of the book and of PyTorch.
def normalizations(layer):
    inner = getattr(layer, "layers", [])
    return [layer] * hasattr(layer, "moving_mean") + [
        found for each in inner for found in normalizations(each)]

own = d2l.resnet18(10, norm=lambda: keras.layers.GroupNormalization(4))
def kinds(layer):
    inner = getattr(layer, "layers", [])
    return [type(layer).__name__] + [kind for each in inner for kind in kinds(each)]

own(images[:2])
answers["own normalizations"] = [kinds(own).count(kind) for kind in (
    "GroupNormalization", "BatchNormalization")]

rng = np.random.default_rng(0)
found = normalizations(net)
answers["normalizations"] = len(found)
answers["off by"] = []
for deviation in (0, 1e-4, 1e-3, 1e-2, 1):
    for layer in (found[0], found[len(found) // 2], found[-1]):
        channels = layer.moving_mean.shape[0]
        X = deviation * rng.standard_normal((5, 3, 1, channels))
        mean, variance = X.mean((0, 1, 2)), X.var((0, 1, 2))
        expected = (X - mean) / np.sqrt(variance + 1e-5)
        Y = np.asarray(layer(X.astype(np.float32), training=True))
        answers["off by"].append(float(np.abs(Y - expected).max()))
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers():
    return json.loads(run_without_torch(PRELUDE + PRETENDED + BEFORE + AFTER + TRAIN))


def test_without_tensorflow_one_sentence_says_what_to_install():
    code = """
    import sys
    sys.modules["tensorflow"] = None
    try:
        import d2l_gpu.tensorflow
    except ImportError as error:
        print(error)
    """
    assert run_without_torch(code) == (
        f"TensorFlow is not installed: {install('jupyter,tensorflow')}\n"
    )


@needs_tensorflow
def test_the_helper_needs_no_pytorch(answers):
    assert answers["torch"] is False


@needs_tensorflow
def test_names_promise_nothing_before_the_decision(answers):
    assert answers["names"] == ["/CPU:0", "/GPU:0", "/GPU:7", 0, "/CPU:0"]
    assert answers["none"] == ["/CPU:0"]
    assert answers["bad"][0] == (
        "ValueError: GPUs are counted from 0, so there is no GPU -1."
    )
    assert all(
        said.startswith("TypeError: A GPU's index") for said in answers["bad"][1:]
    )
    assert answers["too many"].startswith(
        "TypeError: The number of GPUs must be an integer"
    )


@needs_tensorflow
def test_two_virtual_gpus_beside_the_host(answers):
    line = "Using 2 virtual GPUs, CPU:1 and CPU:2: computed on the CPU."
    assert answers["line"] == answers["again"] == line
    assert answers["more"].startswith(
        "RuntimeError: This process has used 2 GPUs since the first"
    )
    assert answers["beyond"].startswith(
        "ValueError: gpu(2) does not exist: this process"
    )
    assert answers["in use"] == [2, ["/CPU:1", "/CPU:2"], "/CPU:0"]
    assert answers["rows"] == [
        ["CPU:0", "real"],
        ["CPU:1", "virtual"],
        ["CPU:2", "virtual"],
    ]


@needs_tensorflow
def test_once_tensorflow_is_in_use_one_sentence_says_so(answers):
    assert answers["too late"] == (
        "RuntimeError: TensorFlow has already been used and its devices are fixed, so "
        "it is too late for 3 virtual GPUs: restart Python (the notebook's kernel) and "
        "ask for them before you create the first tensor."
    )


@needs_tensorflow
def test_real_gpus_are_used_where_there_are_enough(answers):
    count, name, line, devices, beyond, told = answers["16 real"]
    assert (count, name, devices) == (16, "/GPU:9", ["/GPU:0", "/GPU:1"])
    assert line == "Using 2 GPUs, GPU:0 and GPU:1: T4."
    assert beyond.startswith("ValueError: gpu(2) does not exist")
    assert told == [["visible", [f"/physical_device:GPU:{i}" for i in (0, 1)]]]


@needs_tensorflow
def test_one_real_gpu_is_divided(answers):
    count, name, line, devices, _, told = answers["1 real"]
    assert (count, name, devices) == (1, "/GPU:9", ["/GPU:0", "/GPU:1"])
    assert line == (
        "Using 2 virtual GPUs, GPU:0 and GPU:1: parts of T4, 1024 MiB of its memory "
        "each."
    )
    assert told == [["/physical_device:GPU:0", [1024, 1024]]]


@needs_tensorflow
def test_tensors_are_where_the_lessons_say(answers):
    assert answers["placed"] == ["CPU:1", "CPU:1", "CPU:2"]
    assert answers["mixed"].startswith("InvalidArgumentError: Tensors on conflicting d")


@needs_tensorflow
def test_two_devices_train_as_one_on_the_whole_batch(answers):
    by_group, by_batch = answers["distances"]
    assert by_group < 1e-12
    assert by_batch > 1e-4  # each shard has statistics of its own
    assert answers["mirrored"] == ["CPU:1", "CPU:2"]
    assert answers["equal replicas"]


@needs_tensorflow
def test_digits_and_network_are_those_of_the_other_editions(answers):
    assert answers["data"] == [
        [1437, 16, 16, 1],
        [360, 16, 16, 1],
        "float32",
        0,
        1,
        "int64",
    ]
    assert answers["resnet18"] == [11_175_818, [2, 10], 13]


@needs_tensorflow
def test_a_tenth_of_the_running_statistics_is_new_at_each_step(answers):
    assert answers["share of a batch"] == pytest.approx([0.1], rel=1e-3)


@needs_tensorflow
def test_a_batch_is_normalized_as_by_pytorch_however_little_its_values_differ(answers):
    assert answers["own normalizations"] == [17, 0]
    assert answers["normalizations"] == 17  # one, and two in each of eight blocks
    assert max(answers["off by"]) < 1e-4
