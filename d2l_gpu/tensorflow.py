"""Helpers for the TensorFlow lessons: ``from d2l_gpu import tensorflow as d2l``.

A device is a string such as ``'/GPU:0'``, which ``with tf.device(...)`` accepts.
Virtual GPUs are TensorFlow's own *logical devices*, which divide up the CPU, or the
machine's GPU if it has exactly one. They compute as fast as the device they belong to,
and neither their time nor their memory is simulated.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from unittest import mock

from d2l_gpu.common.frameworks import not_installed
from d2l_gpu.common.gpu_choice import Gpus
from d2l_gpu.common.speaking import speak
from d2l_gpu.common.transfers import Transfer, Transfers
from d2l_gpu.data.digits import TEST, TRAIN, mixed_digits
from d2l_gpu.exercises import Exercises
from d2l_gpu.quizzes import Quizzes
from d2l_gpu.show.bars import bars
from d2l_gpu.show.curves import plot
from d2l_gpu.show.panels import panels
from d2l_gpu.show.training_curves import Animator, ProgressBoard

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "Animator",
    "ProgressBoard",
    "bars",
    "check",
    "cpu",
    "devices",
    "exercise",
    "gpu",
    "load_data_digits",
    "name",
    "num_gpus",
    "panels",
    "plot",
    "quiz",
    "require_gpus",
    "residual",
    "resnet18",
    "transfers",
    "try_all_gpus",
    "try_gpu",
    "use_virtual_gpus",
]

_exercises = Exercises("tensorflow")
check, exercise = _exercises.check, _exercises.exercise
quiz = Quizzes("tensorflow").quiz
speak()

# MiB of memory for each part of a divided GPU: two parts fit on any current GPU.
PART_OF_A_GPU = 1024

# ------------------------------------------------------------------ a quiet import

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
SILENT = "3"


@contextmanager
def _quiet() -> Iterator[None]:
    """Hold back what compiled code writes to stderr, unless an error follows.

    On import, TensorFlow 2.21 writes a few lines at any log level, because they come
    before its log is set up.
    """
    try:
        stderr = os.dup(2)
    except OSError:  # a program without stderr
        yield
        return
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        except BaseException:
            log.seek(0)
            os.write(stderr, log.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def _import():
    """Import TensorFlow and return it, with a silent log unless the user chose a level.

    TensorFlow imports Keras, which must use TensorFlow as its backend.
    """
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    if os.environ.setdefault(LOG_LEVEL, SILENT) != SILENT:
        import tensorflow
    else:
        with _quiet():
            import tensorflow
        tensorflow.get_logger().setLevel("ERROR")
    return tensorflow


try:
    tf = _import()
    import keras
    from keras import layers
except ImportError as error:
    raise not_installed("tensorflow", error) from error

# ------------------------------------------------------------------ devices


class TensorFlowGpus(Gpus[str]):
    """GPUs by their names in TensorFlow; virtual ones are logical devices."""

    def cpu(self) -> str:
        return "/CPU:0"

    def real(self) -> Sequence[str]:
        return _numbered("GPU", range(len(tf.config.get_visible_devices("GPU"))))

    def named(self, i: int) -> str:
        return f"/GPU:{i}"

    def make_virtual(self, n: int) -> tuple[Sequence[str], str]:
        gpus = tf.config.get_visible_devices("GPU")
        if len(gpus) == 1 and tf.test.is_built_with_gpu_support():
            _divide(gpus[0], n, n, memory_limit=PART_OF_A_GPU)
            return _numbered("GPU", range(n)), (
                f"parts of {self.model('/GPU:0')}, {PART_OF_A_GPU} MiB of its memory "
                "each"
            )
        _divide(tf.config.list_physical_devices("CPU")[0], n + 1, n)
        # By default, TensorFlow would run operations on a real GPU if it sees one.
        tf.config.set_visible_devices([], "GPU")
        return _numbered("CPU", range(1, n + 1)), "computed on the CPU"

    def use_real(self, devices: Sequence[str]) -> None:
        # If TensorFlow is in use already, it's too late; then only `gpu` hides the
        # others.
        with suppress(RuntimeError):
            visible = tf.config.get_visible_devices("GPU")[: len(devices)]
            tf.config.set_visible_devices(visible, "GPU")

    def name(self, device: str) -> str:
        """Return a device's short name, such as ``CPU:1``.

        The full name, from ``x.device``, is
        ``/job:localhost/replica:0/task:0/device:CPU:1``.
        """
        return device.rpartition("device:")[2].lstrip("/")

    def model(self, device: str) -> str:
        index = int(device.rpartition(":")[2])
        physical = tf.config.list_physical_devices("GPU")[index]
        details = tf.config.experimental.get_device_details(physical)
        return details.get("device_name", "GPU")


def _numbered(kind: str, numbers: Sequence[int]) -> list[str]:
    return [f"/{kind}:{i}" for i in numbers]


def _divide(device, parts: int, n: int, memory_limit: int | None = None) -> None:
    """Divide a physical device into several logical devices.

    Raises:
        RuntimeError: TensorFlow is in use already, so its devices are fixed.
    """
    part = tf.config.LogicalDeviceConfiguration(memory_limit=memory_limit)
    try:
        tf.config.set_logical_device_configuration(device, [part] * parts)
    except RuntimeError as error:
        raise RuntimeError(
            "TensorFlow has already been used and its devices are fixed, so it is "
            f"too late for {n} virtual GPUs: restart Python (the notebook's kernel) "
            "and ask for them before you create the first tensor."
        ) from error


_gpus = TensorFlowGpus()
cpu, gpu, num_gpus = _gpus.cpu, _gpus.gpu, _gpus.num_gpus
try_gpu, try_all_gpus = _gpus.try_gpu, _gpus.try_all_gpus
require_gpus, use_virtual_gpus = _gpus.require_gpus, _gpus.use_virtual_gpus
devices, name = _gpus.devices, _gpus.name

# ------------------------------------------------------------------ copies


@contextmanager
def transfers() -> Iterator[Transfers]:
    """Log the copies between devices inside a ``with`` block.

    An operation that TensorFlow runs at once copies each operand that isn't on its
    device, and Python copies what it reads. TensorFlow keeps a copy as long as the
    tensor exists, so a tensor is logged once for each device; what was copied before
    the block is logged once more. Missing are copies inside a ``tf.function``, reads by
    NumPy's functions, and copies of integers of the type int32, which are sizes and
    positions: TensorFlow keeps them on the host, even in the scope of a GPU.

    Returns:
        A context manager whose value is the list of transfers, filled as they are
        made. It has ``len``, ``nbytes`` and ``summary()``, and displays as a table.
    """
    log = Transfers()

    def note(x: Any, target: str) -> None:
        nbytes = x.shape.num_elements() * x.dtype.size
        if x.device != target and x.dtype != tf.int32 and nbytes:
            log.append(Transfer(nbytes, name(x.device), name(target)))

    with watch_copies(note):
        yield log


@contextmanager
def watch_copies(note: Callable[[Any, str], None]) -> Iterator[None]:
    """Inside the block, tell of each tensor that an operation or Python needs.

    It tells of a tensor once for each device, because TensorFlow keeps the copies (its
    *local mirrors* of the tensor).

    Args:
        note: called with the tensor, wherever it is, and the full name of the device
            on which it's needed.
    """
    # TensorFlow's debugger uses these callbacks; there is no public API for them. They
    # see each operation, and so each operand. Fetching a value isn't an operation, so
    # we patch `_numpy`, too. Reads by NumPy through the buffer protocol go unnoticed.
    # (Checked with TensorFlow 2.21.)
    from tensorflow.python.framework import op_callbacks, ops

    seen: set[tuple[int, str]] = set()  # TensorFlow never reuses an id

    def needed(x: Any, target: str) -> None:
        if (x._id, target) not in seen:
            seen.add((x._id, target))
            note(x, target)

    def operation(kind, inputs, attrs, outputs, op_name=None, graph=None):
        where = [x for x in (*outputs, *inputs) if getattr(x, "device", None)]
        if graph is None and where:
            for x in inputs:
                if x.dtype not in (tf.resource, tf.variant):
                    needed(x, where[0].device)

    host = "/job:localhost/replica:0/task:0/device:CPU:0"
    original = ops._EagerTensorBase._numpy

    def fetched(x):
        needed(x, host)
        return original(x)

    op_callbacks.add_op_callback(operation)
    try:
        with mock.patch.object(ops._EagerTensorBase, "_numpy", fetched):
            yield
    finally:
        op_callbacks.remove_op_callback(operation)


# ------------------------------------------------------------------ data


def load_data_digits(
    resize: int | None = None,
) -> tuple[tuple["np.ndarray", "np.ndarray"], tuple["np.ndarray", "np.ndarray"]]:
    """Return scikit-learn's handwritten digits, in the form of ``keras.datasets``.

    Args:
        resize: height and width of the images, by bilinear interpolation; default: 8,
            the original size.
    Returns:
        ``(images, labels), (images, labels)``: 1,437 examples for training and 360 for
        testing, shuffled, always in the same order. Images are float32 arrays (n,
        height, width, 1) with values from 0 to 1; labels are int64 arrays (n,).
    Raises:
        ImportError: scikit-learn is not installed.
    """
    import numpy as np

    images, labels = mixed_digits()
    images = (images[..., np.newaxis] / 16).astype(np.float32)
    if resize is not None:
        with tf.device(cpu()):
            images = tf.image.resize(images, (resize, resize)).numpy()
    return (images[TRAIN], labels[TRAIN]), (images[TEST], labels[TEST])


# ------------------------------------------------------------------ a network


def residual(
    input_channels: int,
    num_channels: int,
    strides: int = 1,
    norm: Callable[[], layers.Layer] | None = None,
) -> keras.Model:
    """Return a residual block: two 3×3 convolutions and a shortcut around them.

    It computes relu(f(X) + X), or relu(f(X) + conv1x1(X)) if the shape changes.

    Args:
        input_channels: channels of the input, images (n, height, width, channels).
        num_channels: channels of the output.
        strides: stride of the first convolution and of the 1×1 convolution.
        norm: function that returns a new normalization layer; default: as in
            `resnet18`.
    Source: He et al., Deep Residual Learning for Image Recognition, CVPR 2016
        (arXiv:1512.03385); d2l 1.0.3 ``Residual``, section 8.6.
    """
    norm = norm or _batch_normalization
    X = keras.Input((None, None, input_channels))
    Y = layers.Conv2D(num_channels, 3, strides, padding="same")(X)
    Y = layers.ReLU()(norm()(Y))
    Y = norm()(layers.Conv2D(num_channels, 3, padding="same")(Y))
    around = X
    if strides != 1 or input_channels != num_channels:
        around = layers.Conv2D(num_channels, 1, strides)(X)
    return keras.Model(X, layers.ReLU()(layers.Add()([Y, around])))


def resnet18(
    num_classes: int,
    in_channels: int = 1,
    norm: Callable[[], layers.Layer] | None = None,
) -> keras.Sequential:
    """Return ResNet-18 for small images, without downsampling before the blocks.

    It maps images (n, height, width, in_channels) to logits (n, num_classes). All its
    variables exist from the start, on the device or under the strategy in whose scope
    it was created. It is the network of the book and of the PyTorch lessons, with
    11,175,818 trainable parameters for 10 classes and one channel.

    Args:
        num_classes: number of logits.
        in_channels: channels of the images.
        norm: function that returns a new normalization layer; default: batch
            normalization with momentum 0.9, as in the book. With Keras's default of
            0.99, the running statistics take hundreds of steps to become useful.
    Source: He et al. 2016 (arXiv:1512.03385); d2l 1.0.3 ``resnet18``, section 13.6.
    """
    norm = norm or _batch_normalization
    net = keras.Sequential([keras.Input((None, None, in_channels))])
    net.add(layers.Conv2D(64, 3, padding="same"))
    net.add(norm())
    net.add(layers.ReLU())
    channels = 64
    for num_channels in (64, 128, 256, 512):
        strides = 1 if num_channels == channels else 2
        net.add(residual(channels, num_channels, strides, norm))
        net.add(residual(num_channels, num_channels, 1, norm))
        channels = num_channels
    net.add(layers.GlobalAveragePooling2D())
    net.add(layers.Dense(num_classes))
    return net


def _batch_normalization() -> layers.Layer:
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5)
