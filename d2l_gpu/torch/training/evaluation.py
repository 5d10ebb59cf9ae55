"""Counting on the device: sums that reach the host only when they are read."""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ..gpus.torch_gpus import try_all_gpus
from ..parallel.pieces import device_of, replicate, split_batch


class Accumulator:
    """n running sums that don't make the host wait for a device.

    Tensors are added on their own device, numbers on the host. Values reach the host
    only when a sum is read, ``metric[i]``: reading one after each batch would wait for
    the device each time. A sum of tensors on several devices keeps one partial sum on
    each. Integers and bools are summed as int64, floating-point tensors in their own
    precision, but at least in float32.

    Args:
        n: number of sums.
    Raises:
        ValueError: n is not a positive integer.
    Source: d2l 1.0.3 ``Accumulator``, section 3.1, which calls ``float`` on every value
        that is added.
    """

    def __init__(self, n: int):
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise ValueError(f"An Accumulator must keep at least 1 sum, but got {n!r}.")
        self._n = n
        self.reset()

    def add(self, *args: torch.Tensor | float) -> None:
        """Add one value to each sum.

        Args:
            args: n values, each a number or a tensor of one element on any device.
        Raises:
            ValueError: there aren't n values, or a tensor doesn't have exactly one
                element.
        """
        if len(args) != self._n:
            raise ValueError(
                f"This Accumulator keeps {self._n} sums, but got {len(args)} values: "
                "pass one for each."
            )
        for value in args:
            if isinstance(value, torch.Tensor) and value.numel() != 1:
                raise ValueError(
                    "An Accumulator adds single values, but got a tensor of shape "
                    f"{tuple(value.shape)}: reduce it first, for example with sum()."
                )
        for i, value in enumerate(args):
            if isinstance(value, torch.Tensor):
                value = value.detach().reshape(())
                sums, device = self._on_device[i], value.device
                if device in sums:
                    sums[device] = sums[device] + value
                else:
                    # Copy, so that changing the value in place later doesn't change the
                    # sum.
                    sums[device] = value.to(_sum_dtype(value.dtype), copy=True)
            else:
                self._on_host[i] += float(value)

    def reset(self) -> None:
        """Set all sums to zero."""
        self._on_host = [0.0] * self._n
        self._on_device: list[dict[torch.device, torch.Tensor]] = [
            {} for _ in range(self._n)
        ]

    def __getitem__(self, i: int) -> float:
        """Return the i-th sum, waiting for the devices that hold a part of it."""
        return self._on_host[i] + sum(
            float(part) for part in self._on_device[i].values()
        )


def _sum_dtype(dtype: torch.dtype) -> torch.dtype:
    if not dtype.is_floating_point:
        return torch.int64
    return torch.float32 if dtype.itemsize < 4 else dtype


def accuracy(y_hat: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the number of correct predictions: a count, not a fraction.

    The count stays on the arguments' device, so counting doesn't make the host wait;
    ``float(accuracy(…))`` and ``Accumulator`` read it.

    Args:
        y_hat: scores, shape (n, classes) or (n, classes, …), the largest of which is
            the prediction; or predicted labels, with the shape of y.
        y: labels, shape (n,) or (n, …), integer, on the same device.
    Returns:
        A tensor of shape () and dtype int64, on the same device.
    Raises:
        ValueError: the shapes don't match.
    Source: d2l 1.0.3 ``accuracy``, section 3.1, which returns a float.
    """
    if y_hat.dim() == y.dim() + 1 and y_hat.dim() > 1:
        y_hat = y_hat.argmax(dim=1)
    if y_hat.shape != y.shape:
        raise ValueError(
            f"Predictions of shape {tuple(y_hat.shape)} do not match labels of shape "
            f"{tuple(y.shape)}: pass scores of shape (n, classes) and labels of shape "
            "(n,)."
        )
    return (y_hat.to(y.dtype) == y).sum()


def evaluate_accuracy_gpu(
    net: nn.Module | Callable,
    data_iter: Iterable,
    device: torch.device | str | None = None,
) -> float:
    """Return the accuracy of a network on a data set.

    The network runs in evaluation mode, without gradients; afterwards, each of its
    modules is back in its previous mode. The host waits for the device once, at the
    end.

    Args:
        net: a module, or a function, from inputs to scores of shape (n, classes).
        data_iter: batches (X, y); X is a tensor or a list of tensors that net takes as
            one argument, y holds labels of shape (n,).
        device: where to move the batches; default: the device of net's first parameter.
            Without parameters, batches stay where they are.
    Returns:
        The accuracy, from 0 to 1.
    Raises:
        ValueError: data_iter holds no examples.
    Source: d2l 1.0.3 ``evaluate_accuracy_gpu``, section 7.6.
    """
    modules = [net] if isinstance(net, nn.Module) else []
    if device is None and modules:
        device = device_of(net)

    def scored() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for X, y in data_iter:
            yield net(move(X, device)), move(y, device)

    with evaluation_mode(*modules):
        return _fraction_right(scored())


def evaluate_accuracy_gpus(
    net: nn.Module | Sequence[nn.Module],
    data_iter: Iterable,
    devices: Sequence[torch.device | str] | None = None,
) -> float:
    """Return the accuracy of a network, with each batch split over devices.

    This is ``evaluate_accuracy_gpu`` with one replica of the network on every device.
    The host waits for each device once, at the end.

    Args:
        net: a module, of which temporary replicas are made; or the replicas themselves,
            one for each device, if training has made them already.
        data_iter: batches (X, y) of tensors, y of shape (n,).
        devices: where to evaluate; default: all GPUs (the CPU if there are none), or
            where the replicas are.
    Returns:
        The accuracy, from 0 to 1.
    Raises:
        ValueError: data_iter holds no examples, or the replicas aren't on these
            devices.
    Source: d2l 1.0.3 ``evaluate_accuracy_gpus``, section 13.6 (MXNet only).
    """
    if isinstance(net, nn.Module):
        devices = try_all_gpus() if devices is None else devices
        replicas = replicate(copy.deepcopy(net), devices)
    else:
        replicas = list(net)
        there = [device_of(replica) for replica in replicas]
        if devices is not None and [torch.device(d) for d in devices] != there:
            raise ValueError(
                f"The replicas are on {there}, not on {list(devices)}: leave devices "
                "out, or pass a module instead of replicas."
            )
        devices = there

    def scored() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for X, y in data_iter:
            if len(X) == len(y) == 0:  # as a rank's share of a small batch may be
                continue
            shards = split_batch(X, y, devices)
            for replica, X_shard, y_shard in zip(replicas, *shards, strict=False):
                yield replica(X_shard), y_shard

    with evaluation_mode(*replicas):
        return _fraction_right(scored())


def _fraction_right(scored: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Return the accuracy of pairs of scores and labels, read once at the end."""
    correct, examples = Accumulator(1), 0
    with torch.no_grad():
        for y_hat, y in scored:
            correct.add(accuracy(y_hat, y))
            examples += y.numel()
    if examples == 0:
        raise ValueError(
            "There is nothing to evaluate: data_iter yielded no examples. (An "
            "iterator works only once; pass the DataLoader itself.)"
        )
    return correct[0] / examples


@contextmanager
def evaluation_mode(*nets: nn.Module) -> Iterator[None]:
    """Put networks into evaluation mode, and restore each module's mode afterwards.

    The modules may differ: some may stay in evaluation mode while others train.
    """
    modes = {module: module.training for net in nets for module in net.modules()}
    for net in nets:
        net.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def move(batch: Any, device: torch.device | str | None) -> Any:
    """Return a batch with all its tensors on a device.

    Args:
        batch: a tensor, or lists, tuples and dictionaries of tensors; anything else is
            left alone.
        device: where to move them; None: nothing is moved.
    Returns:
        The batch with the same structure, but tuples become lists; with None, the batch
        itself.
    """
    if device is None:
        return batch
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, (list, tuple)):
        return [move(part, device) for part in batch]
    if isinstance(batch, dict):
        return {key: move(part, device) for key, part in batch.items()}
    return batch
