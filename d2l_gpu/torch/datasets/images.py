"""The images that the course trains on: Fashion-MNIST, and digits without a download.

Both loaders take the same arguments and return batches of the same form, so a network
that works with one works with the other.
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

DIGITS_SIZE = 28  # as in Fashion-MNIST


def load_data_fashion_mnist(
    batch_size: int,
    resize: int | tuple[int, int] | None = None,
    *,
    device: torch.device | str | None = None,
    seed: int = 0,
) -> tuple[Batches, Batches]:
    """Return batches of Fashion-MNIST: 60,000 images for training, 10,000 for testing.

    They are greyscale images of 28×28 pixels, of ten kinds of clothing. The first call
    downloads 30 MB, to the folder that the environment variable ``D2L_GPU_DATA`` names
    or else to the system's cache folder.

    Args:
        batch_size: number of examples per batch.
        resize: height and width of the images, or one integer for both.
        device: where batches are made; default: the CPU.
        seed: seed for shuffling the training data.
    Returns:
        Training batches, shuffled, and test batches, in order.
    Raises:
        ValueError: an argument is invalid.
        ConnectionError: the data can't be downloaded.
        OSError: the data can't be written to the folder, or can't be read there.
        ImportError: pooch, which downloads data and finds the cache folder, is needed
            but not installed.
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
    """Return batches of the handwritten digits that ship with scikit-learn.

    There are 1,797 real greyscale images of 8×8 pixels, 1,437 for training and 360 for
    testing; no download is needed. They are shuffled, always in the same order, because
    in the original each writer's digits follow one another. So the same people wrote
    the training images and the test images.

    Args:
        batch_size: number of examples per batch.
        resize: height and width of the images, or one integer for both; default: 28, as
            in Fashion-MNIST.
        device: where batches are made; default: the CPU.
        seed: seed for shuffling the training data.
    Returns:
        Training batches, shuffled, and test batches, in order.
    Raises:
        ValueError: an argument is invalid.
        ImportError: scikit-learn is not installed.
    Source: Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, 1998,
        https://doi.org/10.24432/C50P49, from scikit-learn's ``load_digits``.
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
    """Return shuffled training batches, and test batches in order."""
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
    """Return a data set's tensors in the order of its files, downloading if needed."""
    folder = data_folder() / source.folder
    instead = "use d2l.load_data_digits, which needs no network"
    paths = [
        fetch(
            *(name, source.mirrors, md5, folder),
            sha256=source.sha256.get(name, ""),
            instead=instead,
        )
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
        ValueError: the file is not a complete IDX file of bytes in ``dims`` dimensions.
    Source: the IDX format, http://yann.lecun.com/exdb/mnist/: two zero bytes, the type
        of the values (8: uint8), the number of dimensions; each dimension in four
        bytes, big-endian; the values.
    """
    try:
        content = gzip.decompress(path.read_bytes())
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path} is not a complete gzip file: remove it, and it will be "
            "downloaded again."
        ) from error
    begin = 4 + 4 * dims
    header = content[:4]
    if header != bytes([0, 0, 8, dims]) or len(content) < begin:
        raise ValueError(
            f"{path} begins with the bytes {header.hex(' ')}, but an IDX file of "
            f"uint8 in {dims} dimension{'s' * (dims > 1)} must begin with 00 00 08 "
            f"{dims:02x} and its sizes."
        )
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", dims, offset=4))
    values = np.frombuffer(content, np.uint8, offset=begin)
    if values.size != math.prod(shape):
        raise ValueError(
            f"{path} has {values.size:,} values, but its sizes {shape} make "
            f"{math.prod(shape):,}: use a complete IDX file."
        )
    return values.reshape(shape).copy()  # a copy, because the buffer is read-only
