"""Minibatches by indexing: all images are one tensor, from which a batch is taken."""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from ..gpus.torch_gpus import cpu

SHARE_OF_MEMORY = 0.5  # of a device's free memory; training needs the rest


class Batches:
    """Minibatches ``(X, y)`` of images and labels, for any number of epochs.

    Images stay uint8 until their batch is made. If they take at most half of the
    device's free memory, they are copied there once, when they are first used.
    Otherwise each batch is copied as bytes, which is a quarter of what floats would
    take. Shuffling depends only on the seed and the epoch, so every device and every
    rank sees the same batches.

    Each ``iter()`` begins the next epoch. All attributes describe whole batches, even
    on the shards that ``shard`` returns.

    Args:
        images: shape (n, c, h, w), uint8.
        labels: shape (n,), int64.
        batch_size: number of examples; the last batch may be smaller.
        shuffle: whether to shuffle the examples anew in each epoch.
        seed: seed for shuffling, at least 0.
        resize: height and width of X, or one integer for both; bilinear, with
            antialiasing if images shrink. None: original size.
        device: where batches are made; default: the CPU. It isn't accessed before the
            first batch.
    Attributes:
        device, batch_size, seed, shuffle, resize: as given; resize is a pair or None.
        epoch: number of the epoch that the next ``iter()`` begins.
        batch: number of the batch at which it begins; 0 unless ``set_epoch`` chose
            another.
    Raises:
        TypeError: images or labels are not tensors of their dtype.
        ValueError: shapes or lengths don't match, there are no images, or another
            argument is invalid.
    Source: d2l 1.0.3 ``load_data_fashion_mnist``, section 4.2, gives the same batches
        by way of one PIL image per example.
    """

    def __init__(
        self,
        images: torch.Tensor,
        labels: torch.Tensor,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        resize: int | tuple[int, int] | None = None,
        device: torch.device | str | None = None,
    ):
        check_settings(batch_size, resize, seed)
        _check_data(images, labels)
        self.batch_size, self.shuffle, self.seed = batch_size, shuffle, seed
        self.resize = None if resize is None else _sides(resize)
        self.device = cpu() if device is None else torch.device(device)
        self.epoch = self.batch = 0
        self._data = _Data(images, labels, self.device)
        self._shards: tuple[tuple[int, int], ...] = ()

    @property
    def num_examples(self) -> int:
        """Number of examples in an epoch, in all shards together."""
        return len(self._data.labels)

    @property
    def labels(self) -> torch.Tensor:
        """Labels of all examples, shape (n,), int64, in their original order."""
        return self._data.labels

    @property
    def batch_sizes(self) -> list[int]:
        """Number of examples in each whole batch that the next ``iter()`` yields.

        A rank that trains on a shard divides the *sum* of its losses by this number,
        and the gradients are then summed over the ranks. That gives shards of different
        sizes, even empty ones, the right weight.
        """
        whole, rest = divmod(self.num_examples, self.batch_size)
        return ([self.batch_size] * whole + [rest] * (rest > 0))[self.batch :]

    @property
    def resident(self) -> bool:
        """Whether the images are kept on the device; finding out may access it."""
        return self._data.resident

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return -(-self.num_examples // self.batch_size)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Begin the next epoch.

        Returns:
            An iterator over batches: X of shape (batch, c, h, w), float32 in [0, 1],
            and y of shape (batch,), int64, both on the device and sharing no memory
            with the data.
        """
        epoch, batch = self.epoch, self.batch
        self.epoch, self.batch = epoch + 1, 0
        # The generator runs only from its first batch on, when self.epoch may differ.
        return self._batches(epoch, batch)

    def set_epoch(self, epoch: int, batch: int = 0) -> None:
        """Choose the epoch that the next ``iter()`` begins, as in DistributedSampler.

        Batches are made by index, so an epoch that begins in the middle, for example
        after a crash, skips the earlier batches without making them. After ``step``
        training steps in total, the next batch is that of
        ``set_epoch(*divmod(step, len(batches)))``.

        Args:
            epoch: the epoch, counted from 0.
            batch: the first batch to make, counted from 0; if it's the number of
                batches in an epoch, there is nothing left.
        Raises:
            ValueError: epoch is not an integer of at least 0, or there is no such
                batch.
        """
        if not _is_integer(epoch, least=0):
            raise ValueError(
                f"The epoch must be an integer, counted from 0, but got {epoch!r}."
            )
        if not _is_integer(batch, least=0) or batch > len(self):
            raise ValueError(
                f"An epoch of {len(self)} batches must begin at one of them, counted "
                f"from 0, but got batch {batch!r}."
            )
        self.epoch, self.batch = epoch, batch

    def to(self, device: torch.device | str) -> "Batches":
        """Return the same batches on another device, beginning at the same epoch."""
        moved = copy.copy(self)
        moved.device = torch.device(device)
        if moved.device != self.device:
            moved._data = _Data(self._data.images, self._data.labels, moved.device)
        return moved

    def shard(self, index: int, count: int) -> "Batches":
        """Return a shard of each batch; all shards together make up the batch.

        Their sizes differ by at most one, with larger shards first. The number of
        batches stays the same: if a batch has too few examples, some of its shards are
        empty, with X of shape (0, c, h, w). A shard can itself be sharded.

        Args:
            index: which shard, from 0 to count - 1: the rank.
            count: how many shards there are: the world size.
        Raises:
            ValueError: count is not a positive integer, or there is no such shard.
        """
        if not _is_integer(count, least=1):
            raise ValueError(
                f"The number of shards must be a positive integer, but got {count!r}."
            )
        if not _is_integer(index, least=0) or index >= count:
            raise ValueError(
                f"There is no shard {index!r} of {count}: shards are counted from 0 "
                f"to {count - 1}."
            )
        part = copy.copy(self)
        part._shards = (*self._shards, (index, count))
        return part

    def _batches(
        self, epoch: int, batch: int
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        images, labels = self._data.placed
        order = self._order(epoch, images.device) if self.shuffle else None
        # CUDA divides by a number on the host by multiplying by its inverse (torch 2.10
        # to 2.13). Dividing by a number on the device rounds as on the CPU.
        white = torch.full((), 255.0, device=self.device)
        first = batch * self.batch_size
        for start in range(first, self.num_examples, self.batch_size):
            begin, end = self._part(start, min(start + self.batch_size, len(labels)))
            if order is None:
                # Clone, because callers must not get a view of the stored labels.
                X, y = images[begin:end], labels[begin:end].clone()
            else:
                chosen = order[begin:end]
                X, y = images.index_select(0, chosen), labels.index_select(0, chosen)
            # Copy bytes, and convert them to floats on the device.
            X = X.to(self.device).to(torch.float32).div_(white)
            yield _resized(X, self.resize), y.to(self.device)

    def _order(self, epoch: int, device: torch.device) -> torch.Tensor:
        """Return an epoch's order of examples, copied to the images' device."""
        random = np.random.default_rng([self.seed, epoch])
        order = random.permutation(self.num_examples)
        # Half the bytes of int64, and enough for two billion images.
        return torch.from_numpy(order.astype(np.int32)).to(device)

    def _part(self, begin: int, end: int) -> tuple[int, int]:
        for index, count in self._shards:
            size, larger = divmod(end - begin, count)
            begin += index * size + min(index, larger)
            end = begin + size + (index < larger)
        return begin, end


@dataclass
class _Data:
    """Images and labels, and where they are kept once they are used."""

    images: torch.Tensor
    labels: torch.Tensor
    device: torch.device

    @cached_property
    def resident(self) -> bool:
        if self.device in (cpu(), self.images.device):
            return True
        needed = self.images.nbytes + self.labels.nbytes
        return needed <= SHARE_OF_MEMORY * _free_memory(self.device)

    @cached_property
    def placed(self) -> tuple[torch.Tensor, torch.Tensor]:
        where = self.device if self.resident else cpu()
        return self.images.to(where), self.labels.to(where)

    def __getstate__(self) -> dict:
        # Another process decides for itself, on its own device.
        cached = ("resident", "placed")
        return {k: v for k, v in self.__dict__.items() if k not in cached}


def choose_epoch(data: Iterable, epoch: int) -> None:
    """Set the epoch of batches whose order depends on it.

    Args:
        data: Batches, a DataLoader with a DistributedSampler, or any other iterable.
        epoch: the epoch, counted from 0.
    """
    for owner in (data, getattr(data, "sampler", None)):
        if hasattr(owner, "set_epoch"):
            owner.set_epoch(epoch)


def first_batch(data: Iterable) -> Any:
    """Return the first batch without changing the order of those that follow.

    A DataLoader draws its order from PyTorch's generator, whose state is restored. For
    ``Batches``, an epoch counts as begun, so call ``choose_epoch`` afterwards.
    """
    with torch.random.fork_rng(devices=[]):
        return next(iter(data))


def check_settings(batch_size: int, resize, seed: int) -> None:
    """Raise ValueError if an argument is invalid, before any data are fetched."""
    if not _is_integer(batch_size, least=1):
        raise ValueError(
            f"batch_size must be a positive integer, but got {batch_size!r}."
        )
    sides = _sides(1 if resize is None else resize)
    if len(sides) != 2 or not all(_is_integer(side, least=1) for side in sides):
        raise ValueError(
            "resize must be a positive number of pixels or a pair of them, (height, "
            f"width), but got {resize!r}."
        )
    if not _is_integer(seed, least=0):
        raise ValueError(f"seed must be an integer of at least 0, but got {seed!r}.")


def _check_data(images: torch.Tensor, labels: torch.Tensor) -> None:
    for name, data, dtype, dims, shape in (
        ("images", images, torch.uint8, 4, "(n, c, h, w)"),
        ("labels", labels, torch.int64, 1, "(n,)"),
    ):
        wanted = f"a tensor of dtype {dtype} and shape {shape}"
        if not isinstance(data, torch.Tensor):
            raise TypeError(
                f"The {name} must be {wanted}, but got a {type(data).__name__}."
            )
        if data.dtype != dtype:
            raise TypeError(f"The {name} must be {wanted}, but got dtype {data.dtype}.")
        if data.dim() != dims:
            raise ValueError(
                f"The {name} must be {wanted}, but got shape {tuple(data.shape)}."
            )
    if len(images) != len(labels):
        raise ValueError(
            f"There must be one label for each image, but got {len(images)} images "
            f"and {len(labels)} labels."
        )
    if not images.numel():
        raise ValueError(
            "There is nothing to make batches from: the images have shape "
            f"{tuple(images.shape)}."
        )


def _sides(resize) -> tuple:
    return tuple(resize) if isinstance(resize, (tuple, list)) else (resize, resize)


def _is_integer(value, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _free_memory(device: torch.device) -> int:
    """Return a device's free memory in bytes, 0 if it doesn't report any."""
    module = torch.get_device_module(device)
    if device.type == "mps":  # without mem_get_info in torch 2.10 to 2.13
        return module.recommended_max_memory() - module.current_allocated_memory()
    return module.mem_get_info(device)[0] if hasattr(module, "mem_get_info") else 0


def _resized(X: torch.Tensor, size: tuple[int, int] | None) -> torch.Tensor:
    old = tuple(X.shape[2:])
    if size is None or size == old:
        return X
    shrinks = size[0] < old[0] or size[1] < old[1]
    X = F.interpolate(X, size, mode="bilinear", antialias=shrinks)
    return X.clamp_(0, 1)  # rounding: the weights may not add up to exactly 1
