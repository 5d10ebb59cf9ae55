"""The helper for JAX: names, the decision, and training on two devices.

An import of JAX takes seconds, and its devices are settled by its first use. So one
process answers all questions before that, and those after it.
"""

import json
import sys
from importlib.util import find_spec

import pytest

from d2l_gpu.common.requirements import install
from tests.helpers import attempts
from tests.helpers.fresh_process import run_program_without_torch, run_without_torch

needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")

PRELUDE = (
    attempts.RETURNED
    + """
import json, os, sys
from pathlib import Path
from types import SimpleNamespace as Named
from d2l_gpu import jax as d2l
import jax
import jax.numpy as jnp
import numpy as np

module = sys.modules["d2l_gpu.jax"]
answers = {}

def names(devices):
    return [str(device) for device in devices]
"""
)

# What a machine with real GPUs would answer. Each is a machine with a decision of its
# own, and nothing is told to the JAX of this process.
PRETENDED = """
class Device:
    platform, device_kind = "gpu", "Tesla T4"
    def __init__(self, i):
        self.i = i
    def __str__(self):
        return f"cuda:{self.i}"

class Cpu(Device):
    platform = "cpu"
    def __str__(self):
        return f"cpu:{self.i}"

def machine(count, in_use=False):
    settings = {"jax_num_cpu_devices": -1}

    def update(name, value):
        if in_use:
            raise RuntimeError("should be updated before backends are initialized")
        settings[name] = value

    def local_devices(backend=None):
        cpus = [Cpu(i) for i in range(max(1, settings["jax_num_cpu_devices"]))]
        return [Device(i) for i in range(count)] if count and not backend else cpus

    class Config(Named):
        jax_num_cpu_devices = property(lambda _: settings["jax_num_cpu_devices"])

    module.jax = Named(config=Config(update=update), local_devices=local_devices)
    return module.JaxGpus(), settings

gpus, settings = machine(16)
answers["16 real"] = [
    attempt(gpus.gpu, 0), gpus.num_gpus(), str(gpus.gpu(9)), attempt(gpus.gpu, 16),
    attempt(gpus.require_gpus, 2), names(gpus.try_all_gpus()), attempt(gpus.gpu, 2),
    [row[2] for row in gpus.devices().rows][1], "jax_default_device" in settings]
gpus, settings = machine(1)
answers["1 real"] = [
    attempt(gpus.require_gpus, 2), str(settings["jax_default_device"]),
    settings["jax_num_cpu_devices"]]
gpus, settings = machine(0)
answers["0 real"] = [gpus.num_gpus(), names(gpus.try_all_gpus()), str(gpus.try_gpu(1))]
gpus, settings = machine(0, in_use=True)
answers["in use"] = attempt(gpus.use_virtual_gpus, 2)
gpus, settings = machine(2, in_use=True)
answers["in use, real"] = attempt(gpus.require_gpus, 2)

# NPROC before, while threads are made, and after.
answers["NPROC"] = []
inherited = os.environ.pop("NPROC", None)
for value in (None, "", "1", "7", "64"):
    if value is not None:
        os.environ["NPROC"] = value
    gpus, settings = machine(0)
    ask, during = module.jax.local_devices, []
    module.jax.local_devices = lambda backend=None: (
        during.append(os.environ.get("NPROC")), ask(backend))[1]
    for _ in range(2):
        attempt(gpus.require_gpus, 2)
    answers["NPROC"].append([value, during[0], os.environ.pop("NPROC", None)])
if inherited is not None:
    os.environ["NPROC"] = inherited
module.jax = jax
"""

BEFORE = """
answers["torch"] = "torch" in sys.modules
answers["unknown"] = attempt(d2l.gpu)
answers["bad"] = [attempt(d2l.gpu, i) for i in (-1, 1.5, "0")]
answers["too many"] = attempt(d2l.require_gpus, 2.5)
"""

AFTER = """
answers["line"] = attempt(d2l.require_gpus, 2)
answers["again"] = attempt(d2l.require_gpus, 1)
answers["more"] = attempt(d2l.require_gpus, 3)
answers["beyond"] = attempt(d2l.gpu, 2)
answers["devices"] = [str(d2l.cpu()), d2l.num_gpus(), names(d2l.try_all_gpus()),
                      str(d2l.try_gpu(5))]
answers["rows"] = [row[:2] for row in d2l.devices().rows]
answers["too late"] = attempt(module.JaxGpus().require_gpus, 3)
answers["still enough"] = attempt(module.JaxGpus().use_virtual_gpus, 1)

answers["threads"] = [
    os.cpu_count(), os.environ.get("NPROC"),
    sum(path.read_text().strip() == "tf_XLAEigen"
        for path in Path("/proc/self/task").glob("*/comm"))]

X = jnp.ones((2, 3), device=d2l.gpu(0))
Y = jnp.ones((2, 3), device=d2l.gpu(1))
answers["placed"] = [str(jnp.ones(1).device), str(X.device), str((Y + 1).device)]
answers["mixed"] = attempt(lambda: X + Y)
"""

NETWORK = """
(images, labels), (test_images, test_labels) = d2l.load_data_digits()
answers["data"] = [images.shape, test_images.shape, str(images.dtype),
                   float(images.min()), float(images.max()), str(labels.dtype)]

init, net = d2l.resnet18(num_classes=10)
params = init(seed=0)
same = jax.tree.map(np.array_equal, params, init(0))
answers["init"] = [sum(p.size for p in jax.tree.leaves(params)),
                   all(jax.tree.leaves(same)),
                   bool((init(1)["conv"]["W"] == params["conv"]["W"]).all())]
answers["logits"] = [jax.eval_shape(net, params, image).shape for image in (
    jax.ShapeDtypeStruct((3, side, side, 1), jnp.float32) for side in (8, 28))]

# A convolution of its own, where XLA's is slow.
errors = []
rng = np.random.default_rng(0)
for size in (1, 3):
    W = rng.standard_normal((size, size, 4, 5)).astype(np.float32)
    for height, width in [(side, side) for side in range(1, 8)] + [(2, 7), (5, 2)]:
        X = rng.standard_normal((2, height, width, 4)).astype(np.float32)
        for strides in (1, 2):
            whole = jax.lax.conv_general_dilated(
                X, W, (strides, strides), ((size // 2, size // 2),) * 2,
                dimension_numbers=("NHWC", "HWIO", "NHWC"))
            ours = module._convolved({"W": W, "b": np.ones(5, np.float32)}, X, strides)
            assert ours.shape == whole.shape, (size, height, width, strides)
            errors.append(float(abs(ours - whole - 1).max()))
answers["convolution"] = max(errors)

# Each example's groups of channels have a mean of 0 and a deviation of 1, and the
# channels of a group keep their proportions.
X = rng.standard_normal((3, 4, 4, 64)).astype(np.float32) * np.arange(1, 65)
norm = {"scale": np.ones(64, np.float32), "shift": np.zeros(64, np.float32)}
Y = np.asarray(module._normalized(norm, X)).reshape(3, 16, module.GROUPS, -1)
groups = X.reshape(3, 16, module.GROUPS, -1)
answers["groups"] = [
    float(abs(Y.mean(axis=(1, 3))).max()), float(abs(Y.std(axis=(1, 3)) - 1).max()),
    float(abs(Y.std(axis=1) - groups.std(axis=1)
              / groups.std(axis=(1, 3), keepdims=True)[:, 0]).max())]
"""

# The block of the network that changes the shape, in double precision: one step on
# the whole batch, on one device and on two.
TRAIN = """
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

jax.config.update("jax_enable_x64", True)
small = jax.tree.map(lambda p: p.astype(np.float64), params["blocks"][2])
X, y = rng.standard_normal((8, 4, 4, 64)), rng.standard_normal((8, 2, 2, 128))

def loss(params, X, y):
    return ((module._residual(params, X) - y) ** 2).mean()

mesh = jax.make_mesh((2,), ("batch",), axis_types=(AxisType.Auto,),
                     devices=d2l.try_all_gpus())
parts, everywhere = NamedSharding(mesh, P("batch")), NamedSharding(mesh, P())
gradient = jax.jit(jax.grad(loss))
one = gradient(*jax.device_put((small, X, y), d2l.gpu(0)))
placed = jax.device_put(small, everywhere), *jax.device_put((X, y), parts)
two = gradient(*placed)

@jax.jit
def by_hand(params, X, y):
    def shard(params, X, y):
        return jax.lax.pmean(jax.grad(loss)(params, X, y), "batch")
    return jax.shard_map(shard, mesh=mesh, in_specs=(P(), P("batch"), P("batch")),
                         out_specs=P(), check_vma=False)(params, X, y)

def distance(a, b):
    return max(jax.tree.leaves(jax.tree.map(
        lambda a, b: float(np.abs(np.asarray(a) - np.asarray(b)).max()), a, b)))

answers["distances"] = [distance(one, two), distance(one, by_hand(*placed))]
half = gradient(*jax.device_put((small, X[:4], y[:4]), d2l.gpu(0)))
answers["half"] = distance(one, half)
answers["where"] = sorted(str(d) for d in jax.tree.leaves(two)[0].devices())
answers["reduced"] = "all-reduce" in gradient.lower(*placed).compile().as_text()
"""


@pytest.fixture(scope="module")
def answers():
    code = [PRELUDE, BEFORE, PRETENDED, AFTER, NETWORK, TRAIN]
    return json.loads(run_without_torch("".join(code) + "print(json.dumps(answers))"))


@needs_jax
def test_the_helper_does_not_import_pytorch(answers):
    assert answers["torch"] is False


@needs_jax
def test_before_a_decision_gpu_does_not_use_jax(answers):
    assert answers["unknown"] == (
        "RuntimeError: gpu(0) is not known yet, since JAX has no names for devices "
        "that may not exist: call require_gpus(1) first."
    )
    # Had it been used, there would be no virtual GPUs.
    assert answers["line"].startswith("Using 2 virtual GPUs")


@needs_jax
def test_bad_input_gets_one_sentence(answers):
    negative, fraction, text = answers["bad"]
    assert negative == "ValueError: GPUs are counted from 0, so there is no GPU -1."
    assert fraction.startswith(
        "TypeError: A GPU's index must be an integer such as 0, but got"
    )
    assert text.startswith(
        "TypeError: A GPU's index must be an integer such as 0, but got '0'"
    )
    assert answers["too many"].startswith(
        "TypeError: The number of GPUs must be an integer"
    )


@needs_jax
def test_virtual_gpus_are_cpu_devices_beside_the_first(answers):
    assert answers["line"] == (
        "Using 2 virtual GPUs, cpu:1 and cpu:2: computed on the CPU."
    )
    assert answers["again"] == answers["line"]
    assert answers["devices"] == ["cpu:0", 2, ["cpu:1", "cpu:2"], "cpu:0"]
    assert answers["rows"] == [
        ["cpu:0", "real"],
        ["cpu:1", "virtual"],
        ["cpu:2", "virtual"],
    ]
    assert answers["placed"] == ["cpu:0", "cpu:1", "cpu:2"]
    assert "device ids [1]" in answers["mixed"]
    assert "device ids [2]" in answers["mixed"]


@needs_jax
def test_what_is_not_there_is_refused(answers):
    assert answers["beyond"] == (
        "ValueError: gpu(2) does not exist: this process uses 2 GPUs, cpu:1 and cpu:2."
    )
    assert answers["more"].startswith(
        "RuntimeError: This process has used 2 GPUs since the first"
    )


@needs_jax
def test_virtual_gpus_cannot_be_had_after_the_first_use_of_jax(answers):
    assert answers["too late"] == (
        "RuntimeError: JAX has already been used with 3 CPU devices, so it is too "
        "late for 3 virtual GPUs: restart Python (the notebook's kernel), and ask for "
        "them before you first use JAX."
    )
    assert answers["in use"].startswith(
        "RuntimeError: JAX has already been used with 1 CPU device, so it is too late"
    )


@needs_jax
def test_late_is_no_harm_where_there_are_enough_devices(answers):
    assert answers["still enough"] == (
        "Using 1 virtual GPU, cpu:1: computed on the CPU."
    )
    assert answers["in use, real"] == "Using 2 GPUs, cuda:0 and cuda:1: Tesla T4."


@needs_jax
@pytest.mark.skipif(sys.platform != "linux", reason="threads have names in /proc")
def test_all_devices_can_wait_for_each_other(answers):
    cores, left_behind, threads = answers["threads"]
    # With one thread per core, two devices on two cores wait for ever.
    assert threads == 2 * 3 + cores
    assert left_behind is None


@needs_jax
def test_a_number_of_threads_that_the_user_has_set_stays(answers):
    for before, during, after in answers["NPROC"]:
        assert after == before
        assert before is None or during == before
        assert during is not None


@needs_jax
def test_real_gpus_are_used_where_there_are_enough(answers):
    unknown, count, tenth, none, line, visible, beyond, model, default = answers[
        "16 real"
    ]
    assert unknown.startswith("RuntimeError: gpu(0) is not known yet")
    assert (count, tenth) == (16, "cuda:9")
    assert none == (
        "ValueError: gpu(16) does not exist: the machine has 16, and JAX has no names "
        "for devices that do not exist."
    )
    assert line == "Using 2 GPUs, cuda:0 and cuda:1: Tesla T4."
    assert visible == ["cuda:0", "cuda:1"]
    assert beyond.startswith(
        "ValueError: gpu(2) does not exist: this process uses 2 GPUs"
    )
    assert model == "Tesla T4"
    assert default is False


@needs_jax
def test_beside_one_real_gpu_the_host_is_the_default(answers):
    line, default, cpus = answers["1 real"]
    assert line == "Using 2 virtual GPUs, cpu:1 and cpu:2: computed on the CPU."
    assert (default, cpus) == ("cpu:0", 3)


@needs_jax
def test_without_a_gpu_there_is_always_the_cpu(answers):
    assert answers["0 real"] == [0, ["cpu:0"], "cpu:0"]


@needs_jax
def test_the_variable_forbids_and_limits_virtual_gpus():
    said = run_without_torch(
        PRELUDE
        + """
import os
for limit in ("0", "2", "16"):
    os.environ["D2L_GPU_VIRTUAL"] = limit
    print(attempt(d2l.require_gpus, 16))
""",
        JAX_PLATFORMS="cpu",
    ).splitlines()
    # Forbidden is said after JAX was asked; it was prepared before, so 16 can be had.
    assert "the machine has 0, and D2L_GPU_VIRTUAL=0 forbids virtual ones" in said[0]
    assert "needs 16 GPUs, but D2L_GPU_VIRTUAL=2 allows only 2" in said[1]
    assert said[2] == "Using 16 virtual GPUs, cpu:1 to cpu:16: computed on the CPU."


@needs_jax
def test_the_digits_are_images_from_0_to_1(answers):
    shape, test_shape, dtype, least, most, labels = answers["data"]
    assert (shape, test_shape) == ([1437, 8, 8, 1], [360, 8, 8, 1])
    assert (dtype, least, most, labels) == ("float32", 0, 1, "int32")


@needs_jax
def test_the_network_is_resnet18(answers):
    parameters, same, other = answers["init"]
    assert parameters == 11_175_818
    assert same is True
    assert other is False
    assert answers["logits"] == [[3, 10], [3, 10]]


@needs_jax
def test_the_convolution_of_small_images_is_a_convolution(answers):
    assert answers["convolution"] < 1e-5


@needs_jax
def test_normalization_is_that_of_groups_of_channels(answers):
    assert max(answers["groups"]) < 1e-4


@needs_jax
def test_two_devices_compute_the_gradient_of_the_whole_batch(answers):
    assert max(answers["distances"]) < 1e-12
    assert answers["half"] > 1e-4  # so a shard's gradient would have been noticed
    assert answers["where"] == ["cpu:1", "cpu:2"]
    assert answers["reduced"] is True


def test_without_jax_one_sentence_says_how_to_get_it():
    said = run_program_without_torch("jax/without_jax.py")
    assert said == f"JAX is not installed: {install('jupyter,jax')}\n"
