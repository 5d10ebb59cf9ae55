"""Helpers for the MXNet lessons: ``from d2l_gpu import mxnet as d2l``.

MXNet was retired in 2023 and runs only with old versions of Python and NumPy, so this
module has its own environment, ``environments/mxnet.txt``. It needs neither PyTorch nor
any part of the package that does.

Virtual GPUs are MXNet's own: its contexts ``cpu(1)``, ``cpu(2)`` … are different
devices by name but share the host's memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy

from d2l_gpu.common.arguments import check_integer, refuse_folder
from d2l_gpu.common.frameworks import framework, not_installed
from d2l_gpu.common.gpu_choice import Gpus
from d2l_gpu.common.speaking import speak
from d2l_gpu.data.digits import TEST, TRAIN, mixed_digits
from d2l_gpu.exercises import Exercises
from d2l_gpu.quizzes import Quizzes
from d2l_gpu.show.bars import bars
from d2l_gpu.show.curves import plot
from d2l_gpu.show.panels import panels
from d2l_gpu.show.training_curves import Animator, ProgressBoard

_exercises = Exercises("mxnet")
check, exercise = _exercises.check, _exercises.exercise
quiz = Quizzes("mxnet").quiz
speak()

__all__ = [
    "Animator",
    "ProgressBoard",
    "Residual",
    "bars",
    "check",
    "cpu",
    "devices",
    "evaluate_accuracy_gpus",
    "exercise",
    "gpu",
    "load_data_digits",
    "load_parameters",
    "message",
    "num_gpus",
    "panels",
    "plot",
    "quiz",
    "require_gpus",
    "resnet18",
    "split_batch",
    "try_all_gpus",
    "try_gpu",
    "use_virtual_gpus",
    "virtual_count",
]

try:
    import mxnet as mx
    from mxnet import gluon, npx
    from mxnet import np as mxnp
    from mxnet.gluon import nn
except ImportError as error:
    raise not_installed("mxnet", error) from None
except AttributeError as error:
    raise ImportError(
        f"MXNet 1.9.1 needs NumPy 1.23, but this is {numpy.__version__}: give MXNet "
        f"an environment of its own: {framework('mxnet').install}",
        name="mxnet",
    ) from error


# ------------------------------------------------------------------ devices


class MxnetGpus(Gpus[mx.Context]):
    """MXNet's contexts: of type gpu, or of type cpu with an index above 0."""

    title = "MXNet"

    def cpu(self) -> mx.Context:
        """Return the CPU, cpu(0): all cores and all of the host's memory."""
        return mx.cpu()

    def real(self) -> list[mx.Context]:
        """Return the machine's NVIDIA GPUs, if this MXNet was built for them."""
        return [mx.gpu(i) for i in range(mx.context.num_gpus())]

    def named(self, i: int) -> mx.Context:
        return mx.gpu(i)

    def make_virtual(self, n: int) -> tuple[list[mx.Context], str]:
        """Return n CPU contexts besides cpu(0), which remains the host."""
        return [mx.cpu(i + 1) for i in range(n)], "computed on the CPU"

    def model(self, device: mx.Context) -> str:
        """Return a GPU's memory size, because MXNet doesn't know its model."""
        _, total = mx.context.gpu_memory_info(device.device_id)
        return f"an NVIDIA GPU with {total / 2**30:.0f} GiB"


_gpus = MxnetGpus()
cpu, gpu, num_gpus = _gpus.cpu, _gpus.gpu, _gpus.num_gpus
try_gpu, try_all_gpus = _gpus.try_gpu, _gpus.try_all_gpus
require_gpus, use_virtual_gpus = _gpus.require_gpus, _gpus.use_virtual_gpus
virtual_count, devices = _gpus.virtual_count, _gpus.devices


# ------------------------------------------------------------------ data


def load_data_digits(
    batch_size: int, resize: int | None = None
) -> tuple[gluon.data.DataLoader, gluon.data.DataLoader]:
    """Return batches of the handwritten digits that ship with scikit-learn.

    1,797 real greyscale images of 8×8 pixels, 1,437 for training and 360 for testing,
    are shuffled once, always in the same order. No download is needed. A batch is a
    pair of arrays on the CPU: images of shape (n, 1, height, width), float32, from 0 to
    1, and labels of shape (n,), int32.

    Args:
        batch_size: number of examples per batch.
        resize: height and width of the images; default: 28, as in Fashion-MNIST.
    Returns:
        Training batches, shuffled in each epoch by NumPy's generator
        (``numpy.random.seed`` sets it), and test batches, in order.
    Raises:
        TypeError, ValueError: an argument is not a positive integer.
        ImportError: scikit-learn is not installed.
    Source: Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, 1998,
        https://doi.org/10.24432/C50P49, from scikit-learn's ``load_digits``.
    """
    size = 28 if resize is None else resize
    check_integer("The batch size", batch_size, least=1, example=64)
    check_integer("The image size", size, least=1, example=28)
    digits, labels = mixed_digits()
    with _numpy_semantics():
        images = mxnp.array(digits[..., None] / 16, dtype="float32")
        images = npx.image.resize(images, (size, size)).asnumpy()
    images = images.transpose(0, 3, 1, 2)
    labels = labels.astype(numpy.int32)
    train, test = (gluon.data.ArrayDataset(images[p], labels[p]) for p in (TRAIN, TEST))
    return (
        gluon.data.DataLoader(train, batch_size, shuffle=True),
        gluon.data.DataLoader(test, batch_size),
    )


def split_batch(
    X: mxnp.ndarray, y: mxnp.ndarray, devices: Sequence[mx.Context]
) -> tuple[list[mxnp.ndarray], list[mxnp.ndarray]]:
    """Split a batch into shards, one per device, whose sizes differ by at most one.

    Args:
        X: examples, shape (n, …).
        y: labels, shape (n, …).
        devices: where the shards go, in order.
    Returns:
        The shards of X and the shards of y.
    Raises:
        ValueError: X and y differ in length, or there are fewer examples than devices.
    Source: d2l 0.17 ``split_batch``, section 12.5 (MXNet).
    """
    if len(X) != len(y):
        raise ValueError(
            f"A batch must have as many labels as examples, but got {len(X)} examples "
            f"and {len(y)} labels."
        )
    if len(X) < len(devices):
        raise ValueError(
            f"A batch of {len(X)} cannot be split across {len(devices)} devices: give "
            "each device at least one example, or use fewer devices."
        )
    return tuple(
        gluon.utils.split_and_load(part, list(devices), even_split=False)
        for part in (X, y)
    )


# ------------------------------------------------------------------ networks


class Residual(nn.HybridBlock):
    """A residual block: two 3×3 convolutions and a shortcut around them.

    It returns relu(f(X) + X), or relu(f(X) + conv1x1(X)) if the shape changes. All
    shapes are known, so the parameters exist as soon as they are initialized.

    Args:
        num_channels: channels of the output.
        input_channels: channels of the input; default: ``num_channels``. If they
            differ, a 1×1 convolution on the shortcut adapts X.
        strides: stride of the first convolution and of the 1×1 convolution.
        norm: function that takes the number of channels and returns the normalization
            after a 3×3 convolution; default: batch normalization.
    Source: He et al., Deep Residual Learning for Image Recognition, CVPR 2016
        (arXiv:1512.03385); d2l 1.0.3 ``Residual``, section 8.6.
    """

    def __init__(self, num_channels, input_channels=None, strides=1, norm=None):
        super().__init__()
        norm = _batch_norm if norm is None else norm
        input_channels = num_channels if input_channels is None else input_channels
        self.conv1 = nn.Conv2D(
            num_channels, 3, strides, padding=1, in_channels=input_channels
        )
        self.norm1 = norm(num_channels)
        self.conv2 = nn.Conv2D(num_channels, 3, padding=1, in_channels=num_channels)
        self.norm2 = norm(num_channels)
        self.conv3 = None
        if strides != 1 or input_channels != num_channels:
            self.conv3 = nn.Conv2D(num_channels, 1, strides, in_channels=input_channels)

    def hybrid_forward(self, F, X):
        """Map (n, input_channels, h, w) to (n, num_channels, ⌈h/strides⌉, …)."""
        Y = F.npx.relu(self.norm1(self.conv1(X)))
        Y = self.norm2(self.conv2(Y))
        return F.npx.relu(Y + (X if self.conv3 is None else self.conv3(X)))


def resnet18(num_classes: int, in_channels: int = 1, norm=None) -> nn.HybridSequential:
    """Return ResNet-18 for small images, without downsampling before the blocks.

    It maps images (n, in_channels, h, w) to logits (n, num_classes). It starts with a
    3×3 convolution of stride 1 instead of a 7×7 one of stride 2 and max-pooling. As in
    the book, all convolutions have biases, and shortcuts have no batch normalization:
    11,175,818 parameters for 10 classes and one channel.

    Args:
        num_classes: number of logits.
        in_channels: channels of the images.
        norm: function that takes the number of channels and returns a normalization;
            default: batch normalization.
    Source: He et al. 2016 (arXiv:1512.03385); d2l 1.0.3 ``resnet18``, section 13.6.
    """
    norm = _batch_norm if norm is None else norm
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(64, 3, padding=1, in_channels=in_channels),
        norm(64),
        nn.Activation("relu"),
    )
    channels = 64
    for num_channels in (64, 128, 256, 512):
        strides = 1 if num_channels == channels else 2
        net.add(
            Residual(num_channels, channels, strides, norm),
            Residual(num_channels, norm=norm),
        )
        channels = num_channels
    net.add(nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(num_classes, in_units=512))
    return net


def _batch_norm(channels: int) -> nn.BatchNorm:
    return nn.BatchNorm(in_channels=channels)


# ------------------------------------------------------------------ evaluation


def evaluate_accuracy_gpus(
    net: gluon.Block,
    data_iter: Iterable,
    devices: Sequence[mx.Context] | None = None,
) -> float:
    """Return a network's accuracy, with each batch split over devices.

    Each device counts the correct predictions of its shards, and Python waits for the
    counts only once, at the end.

    Args:
        net: a block that is initialized on all of the devices.
        data_iter: batches (X, y) of arrays, y of shape (n,).
        devices: where to evaluate; default: wherever net is initialized.
    Returns:
        The accuracy, from 0 to 1.
    Raises:
        ValueError: data_iter holds no examples.
    Source: d2l 1.0.3 ``evaluate_accuracy_gpus``, section 13.6 (MXNet), which fetches a
        number from each device after every batch.
    """
    if devices is None:
        devices = next(iter(net.collect_params().values())).list_ctx()
    examples = 0
    with _numpy_semantics():
        right = [mxnp.zeros((), dtype="int64", ctx=device) for device in devices]
        for X, y in data_iter:
            # The last batch may have fewer examples than there are devices.
            shards = split_batch(X, y, list(devices)[: len(y)])
            for i, (X_shard, y_shard) in enumerate(zip(*shards, strict=True)):
                predicted = net(X_shard).argmax(axis=1).astype(y_shard.dtype)
                right[i] += (predicted == y_shard).sum().astype("int64")
            examples += len(y)
        if examples == 0:
            raise ValueError(
                "There is nothing to evaluate: data_iter yielded no examples. (An "
                "iterator works only once; pass the DataLoader itself.)"
            )
        return sum(count.item() for count in right) / examples


# ------------------------------------------------------------------ files and errors


def load_parameters(
    net: gluon.Block,
    path: str | Path,
    devices: mx.Context | Sequence[mx.Context] | None = None,
) -> None:
    """Load parameters that ``net.save_parameters`` wrote; on an error, change nothing.

    Args:
        net: the block; its parameters need not be initialized yet.
        path: the file.
        devices: where to put the parameters; default: where they are now, or cpu() if
            they aren't initialized.
    Raises:
        FileNotFoundError: there is no such file.
        IsADirectoryError: the path is a folder.
        ValueError: the file is incomplete, or its parameters aren't those of net.
    """
    path = Path(path)
    refuse_folder(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    with _numpy_semantics():
        try:
            saved = npx.load(str(path))
        except mx.MXNetError as error:
            raise ValueError(
                f"{path} holds no parameters, or only some of them; perhaps it was "
                "cut off: save it again."
            ) from error
        if not isinstance(saved, dict):
            raise ValueError(
                f"{path} holds arrays without names: save parameters with the "
                "network's method save_parameters."
            )
        # Gluon notices a wrong parameter only after changing those before it.
        _check_shapes(net, saved, path)
        net.load_parameters(str(path), ctx=devices)


def _check_shapes(net: gluon.Block, saved: dict, path: Path) -> None:
    wanted = net._collect_params_with_prefix()
    if wanted.keys() != saved.keys():
        odd = sorted(wanted.keys() ^ saved.keys())[0]
        where = "the network has" if odd in wanted else "the file has"
        raise ValueError(
            f"{path} holds the parameters of another network: only {where} {odd!r}."
        )
    for name, parameter in wanted.items():
        shape = parameter.shape
        if shape is not None and not _fits(saved[name].shape, shape):
            raise ValueError(
                f"{path} holds the parameters of another network: {name!r} has shape "
                f"{saved[name].shape} there, but {shape} here."
            )


def _fits(shape: Sequence[int], pattern: Sequence[int]) -> bool:
    """Return whether a shape matches a parameter's, in which -1 is not yet known."""
    return len(shape) == len(pattern) and all(
        wanted in (-1, size) for size, wanted in zip(shape, pattern, strict=True)
    )


def message(error: Exception) -> str:
    """Return the message of an MXNet error, without the stack trace above it."""
    return str(error).strip().splitlines()[-1].removeprefix("MXNetError: ")


@contextmanager
def _numpy_semantics() -> Iterator[None]:
    """Use ``mxnet.np`` arrays, as the lessons do after ``npx.set_np()``."""
    with mx.util.np_shape(True), mx.util.np_array(True):
        yield
