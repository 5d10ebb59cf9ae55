"""Helpers for the JAX lessons: ``from d2l_gpu import jax as d2l``.

A device is a ``jax.Device``. Virtual GPUs are additional CPU devices of JAX; the first
CPU device remains the host. JAX fixes their number when it is first used, and even
asking for its devices counts as use. Neither their time nor their memory is simulated.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from d2l_gpu.common.frameworks import not_installed
from d2l_gpu.common.gpu_choice import Gpus
from d2l_gpu.common.speaking import speak
from d2l_gpu.data.digits import TEST, TRAIN, mixed_digits
from d2l_gpu.exercises import Exercises
from d2l_gpu.quizzes import Quizzes
from d2l_gpu.show.bars import bars
from d2l_gpu.show.curves import plot
from d2l_gpu.show.panels import panels
from d2l_gpu.show.training_curves import Animator

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise not_installed("jax", error) from error

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "Animator",
    "bars",
    "check",
    "cpu",
    "devices",
    "exercise",
    "gpu",
    "load_data_digits",
    "num_gpus",
    "panels",
    "plot",
    "quiz",
    "require_gpus",
    "resnet18",
    "try_all_gpus",
    "try_gpu",
    "use_virtual_gpus",
]

_exercises = Exercises("jax")
check, exercise = _exercises.check, _exercises.exercise
quiz = Quizzes("jax").quiz
speak()

# ------------------------------------------------------------------ devices


class JaxGpus(Gpus[jax.Device]):
    """Accelerators as JAX lists them; virtual ones are additional CPU devices."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = False

    def cpu(self) -> jax.Device:
        """Return the CPU device: all cores and all of the host's memory."""
        return jax.local_devices(backend="cpu")[0]

    def real(self) -> list[jax.Device]:
        """Return the machine's accelerators, all of one kind."""
        self._asked = True
        return [device for device in jax.local_devices() if device.platform != "cpu"]

    def named(self, i: int) -> jax.Device:
        # Looking it up would initialise JAX, and a decision would then come too late.
        if not self._asked:
            raise RuntimeError(
                f"gpu({i}) is not known yet, since JAX has no names for devices that "
                f"may not exist: call require_gpus({i + 1}) first."
            )
        real = self.real()
        if i >= len(real):
            raise ValueError(
                f"gpu({i}) does not exist: the machine has {len(real)}, and JAX has "
                "no names for devices that do not exist."
            )
        return real[i]

    def prepare(self, n: int) -> None:
        wanted = max(n + 1, jax.config.jax_num_cpu_devices)
        # JAX may be in use already, with enough devices; if not, make_virtual raises.
        with suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", wanted)
        with _threads(2 * wanted + (os.cpu_count() or 1)):
            jax.local_devices()

    def make_virtual(self, n: int) -> tuple[list[jax.Device], str]:
        host, *others = jax.local_devices(backend="cpu")
        if len(others) < n:
            raise RuntimeError(
                f"JAX has already been used with {len(others) + 1} CPU "
                f"device{'s' * bool(others)}, so it is too late for {n} virtual GPUs: "
                "restart Python (the notebook's kernel), and ask for them before you "
                "first use JAX."
            )
        # By default, JAX would put arrays on a real GPU if it sees one.
        jax.config.update("jax_default_device", host)
        return others[:n], "computed on the CPU"

    def name(self, device: jax.Device) -> str:
        """Return a device's name as JAX prints it: ``cpu:1``, ``cuda:0``."""
        return str(device)

    def model(self, device: jax.Device) -> str:
        return device.device_kind


@contextmanager
def _threads(n: int) -> Iterator[None]:
    """Let XLA create n threads for all its CPU devices, if it creates any now.

    By default it creates one per core. A device waiting in an all-reduce holds a thread
    until all the others arrive, and they need threads to get there. With few cores they
    all wait, and XLA ends the process after a minute (seen with jax 0.8 to 0.10 on two
    cores). XLA reads the number from NPROC (xla/pjrt/utils.cc, DefaultThreadPoolSize);
    there is no setting for it.
    """
    if "NPROC" in os.environ:
        yield
        return
    os.environ["NPROC"] = str(n)
    try:
        yield
    finally:
        del os.environ["NPROC"]


_gpus = JaxGpus()
cpu, gpu, num_gpus = _gpus.cpu, _gpus.gpu, _gpus.num_gpus
try_gpu, try_all_gpus = _gpus.try_gpu, _gpus.try_all_gpus
require_gpus, use_virtual_gpus = _gpus.require_gpus, _gpus.use_virtual_gpus
devices = _gpus.devices

# ------------------------------------------------------------------ data


def load_data_digits() -> tuple[
    tuple["np.ndarray", "np.ndarray"], tuple["np.ndarray", "np.ndarray"]
]:
    """Return scikit-learn's handwritten digits for training and for testing.

    They are shuffled, always in the same order, because in the original each writer's
    digits follow one another.

    Returns:
        ``(images, labels), (images, labels)``: 1,437 examples for training and 360 for
        testing, as NumPy arrays on the host. Images are float32 (n, 8, 8, 1), from 0 to
        1; labels are int32 (n,).
    Raises:
        ImportError: scikit-learn is not installed.
    """
    import numpy as np

    images, labels = mixed_digits()
    images = (images[..., np.newaxis] / 16).astype(np.float32)
    labels = labels.astype(np.int32)
    return (images[TRAIN], labels[TRAIN]), (images[TEST], labels[TEST])


# ------------------------------------------------------------------ a network

GROUPS = 8  # in group normalization
STAGES = (64, 128, 256, 512)  # channels of each stage of two blocks

Params = dict[str, Any]


def resnet18(
    num_classes: int, in_channels: int = 1
) -> tuple[Callable[[int], Params], Callable[[Params, jax.Array], jax.Array]]:
    """Return ResNet-18 for small images, as two functions.

    It is the book's network, with group normalization instead of batch normalization,
    so that the loss of an example doesn't depend on the rest of the batch. It has
    11,175,818 parameters for 10 classes and one channel. The last normalization in each
    block starts with a scale of zero, so only the shortcut contributes at first.

    Args:
        num_classes: number of logits.
        in_channels: channels of the images.
    Returns:
        ``init(seed)``, which returns the parameters: a pytree of float32 arrays on the
        host, drawn by NumPy, so that they don't depend on the device and nothing has to
        be compiled. And ``net(params, X)``, which maps images (n, height, width,
        in_channels) to logits (n, num_classes).
    Source: He et al. 2016 (arXiv:1512.03385); d2l 1.0.3 ``resnet18``, section 13.6; Wu
        and He 2018 (arXiv:1803.08494) for group normalization; Goyal et al. 2017
        (arXiv:1706.02677), section 5.1, for the scale of zero.
    """

    def init(seed: int) -> Params:
        import numpy as np

        rng = np.random.default_rng(seed)

        def weights(*shape: int) -> "np.ndarray":
            deviation = np.sqrt(2 / np.prod(shape[:-1]))  # He et al., arXiv:1502.01852
            return (rng.standard_normal(shape) * deviation).astype(np.float32)

        def layer(*shape: int) -> Params:
            return {"W": weights(*shape), "b": np.zeros(shape[-1], np.float32)}

        def norm(channels: int, scale: float = 1.0) -> Params:
            return {
                "scale": np.full(channels, scale, np.float32),
                "shift": np.zeros(channels, np.float32),
            }

        blocks = []
        for before, channels in zip((64, *STAGES), STAGES, strict=False):
            for inputs in (before, channels):
                block = {
                    "conv1": layer(3, 3, inputs, channels),
                    "norm1": norm(channels),
                    "conv2": layer(3, 3, channels, channels),
                    "norm2": norm(channels, 0.0),
                }
                if inputs != channels:
                    block["around"] = layer(1, 1, inputs, channels)
                blocks.append(block)
        return {
            "conv": layer(3, 3, in_channels, 64),
            "norm": norm(64),
            "blocks": blocks,
            "dense": layer(512, num_classes),
        }

    def net(params: Params, X: jax.Array) -> jax.Array:
        X = jax.nn.relu(_normalized(params["norm"], _convolved(params["conv"], X)))
        for block in params["blocks"]:
            X = _residual(block, X)
        dense = params["dense"]
        return X.mean(axis=(1, 2)) @ dense["W"] + dense["b"]

    return init, net


def _residual(block: Params, X: jax.Array) -> jax.Array:
    """Return relu(f(X) + X), or relu(f(X) + conv1x1(X)) if the shape changes."""
    strides = 2 if "around" in block else 1
    Y = _normalized(block["norm1"], _convolved(block["conv1"], X, strides))
    Y = _normalized(block["norm2"], _convolved(block["conv2"], jax.nn.relu(Y)))
    if "around" in block:
        X = _convolved(block["around"], X, strides)
    return jax.nn.relu(Y + X)


def _convolved(layer: Params, X: jax.Array, strides: int = 1) -> jax.Array:
    """Return the convolution of images (n, height, width, channels), zero-padded."""
    W = layer["W"]
    size, pad = W.shape[0], W.shape[0] // 2
    outputs = [-(-side // strides) for side in X.shape[1:3]]
    if min(outputs) >= size:
        Y = jax.lax.conv_general_dilated(
            X,
            W,
            (strides, strides),
            ((pad, pad), (pad, pad)),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
    else:
        # If the kernel is larger than the image, XLA swaps the two, and its CPU
        # compiler has no fast path for the result: 512 channels of 2×2 pixels take a
        # hundred times as long as 128 of 8×8 (jax 0.10). A matrix product is fast.
        X = jnp.pad(X, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
        height, width = outputs
        parts = [
            X[:, i : i + height * strides : strides, j : j + width * strides : strides]
            for i in range(size)
            for j in range(size)
        ]
        Y = jnp.concatenate(parts, axis=-1) @ W.reshape(-1, W.shape[-1])
    return Y + layer["b"]


def _normalized(norm: Params, X: jax.Array) -> jax.Array:
    """Apply group normalization, which looks at one example at a time."""
    groups = X.reshape(*X.shape[:3], GROUPS, -1)
    mean = groups.mean(axis=(1, 2, 4), keepdims=True)
    variance = groups.var(axis=(1, 2, 4), keepdims=True)
    groups = (groups - mean) * jax.lax.rsqrt(variance + 1e-5)
    return groups.reshape(X.shape) * norm["scale"] + norm["shift"]
