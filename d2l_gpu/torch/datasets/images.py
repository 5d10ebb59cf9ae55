"""The images on which the course trains: Fashion-MNIST, and digits without a network.

Both loaders have the same arguments and results: the networks that take one take the
other.
"""

import gzip
import math
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from d2l_gpu.common.settings import data_folder
from d2l_gpu.data.digits import TEST, TRAIN, mixed_digits
from d2l_gpu.data.download import fetch
from d2l_gpu.data.sources import FASHION_MNIST, Source

from .batches import Batches, check_settings

DIGITS_SIZE = 28  # of Fashion-MNIST


def load_data_fashion_mnist(
    batch_size: int,
    resize: int | tuple[int, int] | None = None,
    *,
    device: torch.device | str | None = None,
    seed: int = 0,
) -> tuple[Batches, Batches]:
    """Return batches of Fashion-MNIST: 60,000 images for training, 10,000 for testing.

    Grey images of 28×28 pixels, of ten kinds of clothing. The first call downloads
    30 MB, into the folder that the environment variable ``D2L_GPU_DATA`` names.

    Args:
        batch_size: number of examples of a batch.
        resize: height and width of the images, one integer where they are equal.
        device: where batches are made; default the CPU.
        seed: of the order of the training data.
    Returns:
        Batches for training, shuffled, and batches for testing, in order.
    Raises:
        ValueError: an argument makes no sense.
        ConnectionError: the data could not be downloaded. OSError: nor kept.
        ImportError: the data are not there, and pooch is not installed.
    Source: d2l 1.0.3 ``load_data_fashion_mnist``, section 4.2; data by Xiao, Rasul and
        Vollgraf, https://arxiv.org/abs/1708.07747.
    """
    check_settings(batch_size, resize, seed)
    data = _read(FASHION_MNIST)
    return _loaders(data[:2], data[2:], batch_size, resize, device, seed)


def load_data_digits(
    batch_size: int,
    resize: int | tuple[int, int] | None = None,
    *,
    device: torch.device | str | None = None,
    seed: int = 0,
) -> tuple[Batches, Batches]:
    """Return batches of handwritten digits, which come with scikit-learn: no network.

    1,797 real grey images of 8×8 pixels, 1,437 for training and 360 for testing. They
    are mixed once and for all, since those of one writer follow each other: so the
    writers of the test images are those of the training images.

    Args:
        batch_size: number of examples of a batch.
        resize: height and width of the images, one integer where they are equal;
            default 28, that of Fashion-MNIST.
        device: where batches are made; default the CPU.
        seed: of the order of the training data.
    Returns:
        Batches for training, shuffled, and batches for testing, in order.
    Raises:
        ValueError: an argument makes no sense.
        ImportError: scikit-learn is not installed.
    Source: Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, 1998,
        https://doi.org/10.24432/C50P49, by way of scikit-learn's ``load_digits``.
    """
    check_settings(batch_size, resize, seed)
    images, labels = _digits()
    train, test = ((images[part], labels[part]) for part in (TRAIN, TEST))
    resize = DIGITS_SIZE if resize is None else resize
    return _loaders(train, test, batch_size, resize, device, seed)


def _loaders(
    train: Sequence[torch.Tensor],
    test: Sequence[torch.Tensor],
    batch_size: int,
    resize: int | tuple[int, int] | None,
    device: torch.device | str | None,
    seed: int,
) -> tuple[Batches, Batches]:
    """Return batches of images and labels: for training, shuffled, and for testing."""
    common = {"resize": resize, "device": device}
    return (
        Batches(*train, batch_size, shuffle=True, seed=seed, **common),
        Batches(*test, batch_size, **common),
    )


def _digits() -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = mixed_digits()
    images = (images * (255 / 16)).round().astype(np.uint8)
    return torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels)


# ------------------------------------------------------------------ IDX files


def _read(source: Source) -> list[torch.Tensor]:
    """Return the tensors of a data set in the order of its files, downloading them."""
    folder = data_folder() / source.folder
    instead = "use d2l.load_data_digits, which needs no network"
    paths = [
        fetch(name, source.mirrors, md5, folder, instead=instead)
        for name, md5 in source.files.items()
    ]
    kinds = (_images, _labels, _images, _labels)
    return [read(path) for read, path in zip(kinds, paths, strict=True)]


def _images(path: Path) -> torch.Tensor:
    return torch.from_numpy(_idx(path, dims=3)).unsqueeze(1)


def _labels(path: Path) -> torch.Tensor:
    return torch.from_numpy(_idx(path, dims=1).astype(np.int64))


def _idx(path: Path, dims: int) -> np.ndarray:
    """Return the array of bytes in a compressed IDX file.

    Raises:
        ValueError: the file is something else.
    Source: the IDX format, http://yann.lecun.com/exdb/mnist/: two zeros, the type of
        the values (8: uint8), the number of dimensions; each dimension, big-endian, in
        four bytes; the values.
    """
    try:
        content = gzip.decompress(path.read_bytes())
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path} is not a whole gzip file: remove it, and it is downloaded again."
        ) from error
    begin = 4 + 4 * dims
    header = content[:4]
    if header != bytes([0, 0, 8, dims]) or len(content) < begin:
        raise ValueError(
            f"{path} begins with the bytes {header.hex(' ')}, but an IDX file of uint8 "
            f"in {dims} dimension{'s' * (dims > 1)} begins with 00 00 08 {dims:02x} "
            "and its sizes: give one."
        )
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", dims, offset=4))
    values = np.frombuffer(content, np.uint8, offset=begin)
    if values.size != math.prod(shape):
        raise ValueError(
            f"{path} has {values.size:,} values, but its sizes {shape} make "
            f"{math.prod(shape):,}: give a complete IDX file."
        )
    return values.reshape(shape).copy()  # of its own, to be written to
