"""The helper of MXNet's edition, asked in the environment that MXNet needs.

One Python there answers all questions, since starting it takes seconds. What a process
decides once, about real and virtual GPUs, is tried on instances of `MxnetGpus`.
"""

import importlib
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest

from d2l_gpu.common.frameworks import framework
from tests.helpers import attempts
from tests.helpers.cells import sanitised_by_nbval
from tests.helpers.paths import REPOSITORY
from tools import environments

SERVER = """
import contextlib, io, json, sys, traceback
for line in sys.stdin:
    printed, failed = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        try:
            exec(json.loads(line), {})
        except Exception:
            failed = traceback.format_exc()
    print(json.dumps([printed.getvalue(), failed]), flush=True)
"""

PRELUDE = (
    attempts.PRINTED
    + """
import mxnet as mx
import numpy
from mxnet import autograd, gluon, init, np, npx
from mxnet.gluon import nn
from d2l_gpu import mxnet as d2l
npx.set_np()

def machine(real):
    "The GPUs of a process on a machine that has so many real ones."
    gpus = d2l.MxnetGpus()
    gpus.real = lambda: [mx.gpu(i) for i in range(real)]
    gpus.model = lambda device: "a GPU with 16 GiB"
    return gpus
"""
)


@pytest.fixture(scope="module")
def ask() -> Iterator[Callable[[str], list[str]]]:
    """A function that runs code after the prelude, and returns the printed lines."""
    if reason := environments.missing(framework("mxnet")):
        pytest.skip(reason)
    python = environments.interpreter("mxnet")
    hidden = {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(REPOSITORY)}
    inherited = {k: v for k, v in os.environ.items() if k != "D2L_GPU_VIRTUAL"}
    with subprocess.Popen(
        [python, "-c", SERVER],
        env=inherited | hidden,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:

        def ask(code: str) -> list[str]:
            print(json.dumps(PRELUDE + textwrap.dedent(code)), file=process.stdin)
            process.stdin.flush()
            printed, failed = json.loads(process.stdout.readline())
            assert failed is None, failed
            return printed.splitlines()

        yield ask
        process.stdin.close()


# ------------------------------------------------------------------ import


def test_without_mxnet_the_helper_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "d2l_gpu.mxnet", raising=False)
    monkeypatch.setitem(sys.modules, "mxnet", None)
    monkeypatch.setattr("d2l_gpu.common.frameworks.find_spec", lambda name: None)
    with pytest.raises(ImportError) as caught:
        importlib.import_module("d2l_gpu.mxnet")
    assert str(caught.value) == (
        "MXNet is not installed: pip install -r environments/mxnet.txt"
    )


def test_with_a_newer_numpy_the_helper_says_so(tmp_path, monkeypatch):
    planted = tmp_path / "mxnet.py"
    planted.write_text("import numpy\nnumpy.bool_that_is_gone\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "d2l_gpu.mxnet", raising=False)
    monkeypatch.delitem(sys.modules, "mxnet", raising=False)
    with pytest.raises(
        ImportError, match=r"MXNet 1\.9\.1 needs NumPy 1\.23, but this is \d"
    ):
        importlib.import_module("d2l_gpu.mxnet")


def test_import_needs_no_pytorch_and_probes_nothing(ask):
    lines = ask(
        """
        import importlib, sys
        mx.context.num_gpus, kept = None, mx.context.num_gpus
        importlib.reload(d2l)
        mx.context.num_gpus = kept
        print(sorted({"torch", "tensorflow", "jax", "matplotlib"} & set(sys.modules)))
        print([name for name in d2l.__all__ if not hasattr(d2l, name)])
        """
    )
    assert lines == ["[]", "[]"]


# ------------------------------------------------------------------ devices


def test_names_need_no_device(ask):
    lines = ask(
        """
        print(d2l.cpu(), machine(0).gpu(), machine(0).gpu(7))
        for index in (-1, True, "0"):
            attempt(machine(2).gpu, index)
        print(machine(0).num_gpus(), machine(0).try_gpu(), machine(0).try_all_gpus())
        """
    )
    assert lines[0] == "cpu(0) gpu(0) gpu(7)"
    assert lines[1] == "ValueError: GPUs are counted from 0, so there is no GPU -1."
    assert [line.partition(":")[0] for line in lines[2:4]] == ["TypeError"] * 2
    assert lines[4] == "0 cpu(0) [cpu(0)]"


def test_virtual_gpus_are_contexts_beside_the_host(ask):
    lines = ask(
        """
        gpus = machine(1)
        gpus.require_gpus(2)
        print(gpus.num_gpus(), gpus.try_all_gpus(), gpus.try_gpu(2))
        attempt(gpus.gpu, 2)
        attempt(gpus.require_gpus, 3)
        print(np.ones(2, ctx=gpus.gpu(1)).ctx)
        print(*gpus.devices().rows[2])
        """
    )
    assert lines == [
        "Using 2 virtual GPUs, cpu(1) and cpu(2): computed on the CPU.",
        "2 [cpu(1), cpu(2)] cpu(0)",
        "ValueError: gpu(2) does not exist: this process uses 2 GPUs, cpu(1) "
        "and cpu(2).",
        "RuntimeError: This process has used 2 GPUs since the first call, and cannot "
        "switch to 3 now: restart Python (the notebook's kernel) to ask for 3.",
        "cpu(2)",
        "cpu(2) virtual computed on the CPU",
    ]


def test_real_gpus_where_there_are_enough(ask):
    lines = ask(
        """
        gpus = machine(16)
        gpus.require_gpus(2)
        print(gpus.num_gpus(), gpus.try_all_gpus(), gpus.virtual_count())
        attempt(gpus.use_virtual_gpus, 2)
        """
    )
    assert lines[:2] == [
        "Using 2 GPUs, gpu(0) and gpu(1): a GPU with 16 GiB.",
        "2 [gpu(0), gpu(1)] 0",
    ]
    assert "This can no longer be changed" in lines[2]


def test_the_model_of_a_real_gpu_is_its_size(ask):
    lines = ask(
        """
        kept, mx.context.gpu_memory_info = mx.context.gpu_memory_info, (
            lambda index: (0, 2**34)
        )
        print(d2l.MxnetGpus().model(mx.gpu(1)))
        mx.context.gpu_memory_info = kept
        """
    )
    assert lines == ["an NVIDIA GPU with 16 GiB"]


# ------------------------------------------------------------------ data


def test_digits(ask):
    lines = ask(
        """
        numpy.random.seed(0)
        train, test = d2l.load_data_digits(64, resize=16)
        X, y = next(iter(train))
        print(X.shape, X.dtype, y.shape, y.dtype, X.ctx)
        print(float(X.min()), 0.9 < float(X.max()) <= 1, int(y.min()), int(y.max()))
        print(sum(len(y) for _, y in train), sum(len(y) for _, y in test))
        first = [y.tolist() for _, y in train]
        numpy.random.seed(0)
        next(iter(train))
        print(first == [y.tolist() for _, y in train])
        print(next(iter(d2l.load_data_digits(8)[1]))[0].shape)
        attempt(d2l.load_data_digits, 0)
        attempt(d2l.load_data_digits, 8, resize=1.5)
        """
    )
    assert lines == [
        "(64, 1, 16, 16) float32 (64,) int32 cpu(0)",
        "0.0 True 0 9",
        "1437 360",
        "False",
        "(8, 1, 28, 28)",
        "ValueError: The batch size must be at least 1, but got 0.",
        "TypeError: The image size must be an integer such as 28, but got 1.5 (float).",
    ]


def test_a_batch_is_split_without_a_rest(ask):
    lines = ask(
        """
        devices = [mx.cpu(1), mx.cpu(2)]
        Xs, ys = d2l.split_batch(np.arange(10).reshape(5, 2), np.arange(5), devices)
        print([X.shape for X in Xs], [X.ctx for X in Xs], [y.tolist() for y in ys])
        attempt(d2l.split_batch, np.ones((1, 2)), np.ones(1), devices)
        attempt(d2l.split_batch, np.ones((4, 2)), np.ones(3), devices)
        """
    )
    assert lines == [
        "[(3, 2), (2, 2)] [cpu(1), cpu(2)] [[0.0, 1.0, 2.0], [3.0, 4.0]]",
        "ValueError: A batch of 1 cannot be split across 2 devices: give each device "
        "at least one example, or use fewer devices.",
        "ValueError: A batch must have as many labels as examples, but got 4 "
        "examples and 3 labels.",
    ]


# ------------------------------------------------------------------ networks


def test_resnet18_is_the_one_of_the_other_editions(ask):
    lines = ask(
        """
        net = d2l.resnet18(10)
        net.initialize(ctx=mx.cpu(1))
        learned = [p for p in net.collect_params().values() if p.grad_req != "null"]
        print(sum(p.data().size for p in learned))
        print(net(np.zeros((2, 1, 16, 16), ctx=mx.cpu(1))).shape)
        plain = d2l.resnet18(10, norm=lambda channels: nn.LayerNorm(
            axis=1, in_channels=channels))
        print(sum(type(block) is nn.BatchNorm for block in plain))
        print([name for name in plain.collect_params() if "running" in name])
        block = d2l.Residual(4, input_channels=2)
        block.initialize()
        print(block(np.zeros((1, 2, 6, 6))).shape)
        """
    )
    assert lines == ["11175818", "(2, 10)", "0", "[]", "(1, 4, 6, 6)"]


TRAIN = """
X = np.array(numpy.random.RandomState(0).normal(size=(9, 1, 8, 8)))
y = np.arange(9, dtype="int32")
loss = gluon.loss.SoftmaxCrossEntropyLoss()

def trained(norm, devices, kvstore="device"):
    npx.random.seed(0)
    net = nn.Sequential()
    net.add(nn.Conv2D(8, 3, in_channels=1), norm(), nn.Activation("relu"),
            nn.Dense(10, in_units=288))
    net.initialize(init.Xavier(), ctx=devices)
    net.cast("float64")
    trainer = gluon.Trainer(net.collect_params(), "sgd",
                            {"learning_rate": 0.1, "momentum": 0.9}, kvstore=kvstore)
    for _ in range(3):
        shards = zip(*d2l.split_batch(X.astype("float64"), y, devices))
        with autograd.record():
            losses = [loss(net(X_shard), y_shard) for X_shard, y_shard in shards]
        autograd.backward(losses)
        trainer.step(len(y))
    return net

def values(net, device):
    parameters = net.collect_params().values()
    learned = [p for p in parameters if p.grad_req != "null"]
    return numpy.concatenate([p.data(device).asnumpy().ravel() for p in learned])

def distance(norm, **settings):
    "How far training on two devices, in unequal shards, is from training on one."
    one, two = mx.cpu(1), mx.cpu(2)
    whole = values(trained(norm, [one]), one)
    net = trained(norm, [one, two], **settings)
    return max(abs(values(net, device) - whole).max() for device in (one, two))

layer = lambda: nn.LayerNorm(axis=1, in_channels=8)
"""


@pytest.mark.parametrize("kvstore", ["device", "local"])
def test_two_devices_learn_what_one_does(ask, kvstore):
    [difference] = ask(TRAIN + f"print(distance(layer, kvstore={kvstore!r}))")
    assert float(difference) < 1e-12


def test_batch_normalization_and_missing_sums_do_make_a_difference(ask):
    batch, alone = ask(
        TRAIN
        + "print(distance(lambda: nn.BatchNorm(in_channels=8)))\n"
        + "print(distance(layer, kvstore=None))"
    )
    assert float(batch) > 1e-3
    assert float(alone) > 1e-3


# ------------------------------------------------------------------ evaluation


def test_accuracy_is_counted_on_all_devices_and_over_all_examples(ask):
    lines = ask(
        """
        devices = [mx.cpu(1), mx.cpu(2)]
        class Echo(nn.Block):
            "Predicts the number that it is given."
            def __init__(self):
                super().__init__()
                self.scale = gluon.Parameter("scale", shape=(1,), init=init.One())
                self.params.update({"scale": self.scale})
                self.seen = []
            def forward(self, X):
                self.seen.append((X.ctx, len(X)))
                return npx.one_hot(X, 10) * self.scale.data(X.ctx)
        net = Echo()
        net.initialize(ctx=devices)
        labels = np.array([0, 1, 2, 3, 4, 5, 6], dtype="int32")
        guesses = np.array([0, 1, 2, 3, 0, 0, 6], dtype="int32")
        batches = [(guesses[:3], labels[:3]), (guesses[3:6], labels[3:6]),
                   (guesses[6:], labels[6:])]
        print(d2l.evaluate_accuracy_gpus(net, batches) == 5 / 7, net.seen)
        attempt(d2l.evaluate_accuracy_gpus, net, [])
        """
    )
    assert lines[0] == (
        "True [(cpu(1), 2), (cpu(2), 1), (cpu(1), 2), (cpu(2), 1), (cpu(1), 1)]"
    )
    assert lines[1].startswith("ValueError: There is nothing to evaluate")


# ------------------------------------------------------------------ files


def test_files_that_cannot_be_read_change_nothing(ask, tmp_path):
    lines = ask(
        f"""
        import os
        os.chdir({str(tmp_path)!r})

        def network(*widths):
            net = nn.Sequential()
            for width in widths:
                net.add(nn.Dense(width))
            return net

        net = network(4, 2)
        net.initialize(ctx=mx.cpu(1))
        net(np.ones((1, 3), ctx=mx.cpu(1)))
        net.save_parameters("good.params")
        clone = network(4, 2)
        d2l.load_parameters(clone, "good.params", mx.cpu(2))
        print(clone[0].weight.list_ctx())
        print(bool((clone[1].weight.data() == net[1].weight.data().as_in_ctx(
            mx.cpu(2))).all()))

        whole = open("good.params", "rb").read()
        for length in (0, 10, 100, len(whole) - 1):
            open("cut.params", "wb").write(whole[:length])
            attempt(d2l.load_parameters, clone, "cut.params")
        attempt(d2l.load_parameters, clone, "none.params")
        npx.save("list.params", [np.zeros(2)])
        attempt(d2l.load_parameters, clone, "list.params")

        other = network(4, 5)
        other.initialize()
        other(np.ones((1, 3)))
        before = other[0].weight.data().copy()
        attempt(d2l.load_parameters, other, "good.params")
        attempt(d2l.load_parameters, network(4), "good.params")
        print(bool((other[0].weight.data() == before).all()))

        single = nn.Dense(1, in_units=2)
        single.initialize(ctx=mx.cpu(1))
        single.save_parameters("single.params")
        d2l.load_parameters(nn.Dense(1), "single.params", [mx.cpu(1), mx.cpu(2)])
        """
    )
    assert lines[:2] == ["[cpu(2)]", "True"]
    cut_off = (
        "ValueError: cut.params holds no parameters, or only some of them; "
        "perhaps it was cut off: save it again."
    )
    assert lines[2:6] == [cut_off] * 4
    assert lines[6:] == [
        "FileNotFoundError: There is no file none.params.",
        "ValueError: list.params holds arrays without names: save parameters with the "
        "network's method save_parameters.",
        "ValueError: good.params holds the parameters of another network: '1.weight' "
        "has shape (2, 4) there, but (5, 4) here.",
        "ValueError: good.params holds the parameters of another network: only the "
        "file has '1.bias'.",
        "True",
    ]


def test_an_error_of_mxnet_without_its_own_lines(ask):
    lines = ask(
        """
        try:
            np.ones((2, 2)).as_in_ctx(mx.gpu(0))
        except mx.MXNetError as error:
            print(d2l.message(error))
        """
    )
    assert lines == ["GPU is not enabled"]


# ------------------------------------------------------------------ comparison


@pytest.mark.parametrize(
    ("virtual", "real"),
    [
        ("(cpu(0), cpu(1), cpu(2))", "(cpu(0), gpu(0), gpu(1))"),
        (
            "Using 2 virtual GPUs, cpu(1) and cpu(2): computed on the CPU.",
            "Using 2 GPUs, gpu(0) and gpu(1): an NVIDIA GPU with 16 GiB.",
        ),
        ("array([[1.],\n       [1.]])", "array([[1.],\n       [1.]], ctx=gpu(0))"),
    ],
)
def test_notebooks_are_compared_on_real_gpus_too(virtual, real):
    assert sanitised_by_nbval(virtual) == sanitised_by_nbval(real)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cpu(0)", "gpu(0)"),
        ("cpu(1)", "gpu(1)"),
        ("cpu(12)", "gpu(02)"),
        ("Using 2 GPUs, gpu(0) and gpu(1): a.", "Using 1 GPU, gpu(0): a."),
        ("array([1.])", "array([2.], ctx=gpu(0))"),
    ],
)
def test_contexts_that_differ_stay_different(one, other):
    assert sanitised_by_nbval(one) != sanitised_by_nbval(other)
