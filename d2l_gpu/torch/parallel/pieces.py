"""The building blocks of data parallelism: one model on several devices."""

import copy
import itertools
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional as F


def split_batch(
    X: torch.Tensor, y: torch.Tensor, devices: Sequence[torch.device | str]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Split a batch into shards, and send each to its device.

    The shards are consecutive, and their sizes differ by at most one. If there are
    fewer examples than devices, the spare devices get nothing: there are as many shards
    as examples.

    Args:
        X: inputs, shape (n, …), on any device.
        y: labels, shape (n, …).
        devices: where the shards go, in order; CPUs are devices too.
    Returns:
        The shards of X and the shards of y.
    Raises:
        TypeError: X or y isn't a tensor, or devices is a single device.
        ValueError: X and y differ in length or are empty, or there are no devices.
    Source: d2l 1.0.3 ``split_batch``, section 13.5.
    """
    for name, whole in (("X", X), ("y", y)):
        if not isinstance(whole, torch.Tensor):
            raise TypeError(
                f"split_batch splits tensors, and {name} is a {type(whole).__name__}: "
                f"pass torch.as_tensor({name}), or torch.stack({name}) if it holds "
                "tensors."
            )
    if isinstance(devices, str | torch.device):
        raise TypeError(
            f"split_batch takes a list of devices: pass [{str(devices)!r}], not "
            f"{devices!r}."
        )
    if len(X) != len(y):
        raise ValueError(
            f"A batch must have as many labels as inputs, but got {len(X)} inputs and "
            f"{len(y)} labels."
        )
    if len(X) == 0:
        raise ValueError("There is nothing to split: the batch is empty.")
    if len(devices) == 0:
        raise ValueError(
            "A batch must be split across at least one device, but got none."
        )
    parts = min(len(X), len(devices))

    def shards(whole: torch.Tensor) -> list[torch.Tensor]:
        pieces = whole.tensor_split(parts)
        return [
            piece.to(device) for piece, device in zip(pieces, devices, strict=False)
        ]

    return shards(X), shards(y)


def allreduce(data: Sequence[torch.Tensor]) -> None:
    """Replace each of several tensors with the sum of all of them, in place.

    The first tensor's device collects the sum and sends it to the others. For k tensors
    of b bytes, that takes 2(k - 1) messages of b bytes, all of them to or from that
    device. Afterwards, all tensors are equal to the last bit.

    Args:
        data: tensors of the same shape and dtype, each on its own device, or at least
            in its own memory.
    Raises:
        ValueError: shapes or dtypes differ, or two tensors share storage, so that
            adding to one could change the other.
    Source: d2l 1.0.3 section 13.5.
    """
    if len({(x.shape, x.dtype) for x in data}) > 1:
        described = ", ".join(f"{tuple(x.shape)} {x.dtype}" for x in data)
        raise ValueError(
            f"allreduce needs tensors of the same shape and dtype, but got {described}."
        )
    storages = [
        (x.device, x.untyped_storage().data_ptr()) for x in data if x.numel() > 0
    ]
    if len(set(storages)) < len(storages):
        raise ValueError(
            "Two of the tensors share their memory, so a sum could be added to "
            "itself: give every device its own copy (clone, or to with copy=True)."
        )
    with torch.no_grad():
        for other in data[1:]:
            data[0].add_(other.to(data[0].device))
        for other in data[1:]:
            other.copy_(data[0])


def replicate(net: nn.Module, devices: Sequence[torch.device | str]) -> list[nn.Module]:
    """Return one replica of a network per device; the first is the network itself.

    Args:
        net: the network; it is moved to the first device.
        devices: at least one, all different.
    Raises:
        ValueError: there are no devices, one appears twice or is a GPU without an
            index, or the network has lazy layers.
    """
    devices = [torch.device(device) for device in devices]
    if any(device.index is None and device.type != "cpu" for device in devices):
        raise ValueError(
            f"Replicas need devices with an index, such as {devices[0].type}:0, which "
            "shows whether two are the same."
        )
    if not devices or len(set(devices)) < len(devices):
        names = ", ".join(map(str, devices))
        raise ValueError(
            f"Replicas need distinct devices, at least one, but got [{names}]."
        )
    if is_lazy(net):
        raise ValueError(
            "The network has lazy layers, whose parameters do not exist yet: pass "
            "one batch through it first, so that all replicas start with the same "
            "parameters."
        )
    copies = [copy.deepcopy(net).to(device) for device in devices[1:]]
    return [net.to(devices[0]), *copies]


def is_lazy(net: nn.Module) -> bool:
    """Return whether any parameter or buffer of a network has no shape yet."""
    states = itertools.chain(net.parameters(), net.buffers())
    return any(nn.parameter.is_lazy(state) for state in states)


def device_of(net: nn.Module) -> torch.device | None:
    """Return the device of a network's first parameter, or None if it has none."""
    first = next(net.parameters(), None)
    return first.device if first is not None else None


def shard_gradients(
    replicas: Sequence[nn.Module],
    X: torch.Tensor,
    y: torch.Tensor,
    loss: Callable = F.cross_entropy,
) -> torch.Tensor:
    """Compute a batch's gradients, one shard per replica, and add them up.

    Afterwards, every replica holds the gradients of ``loss`` over the whole batch,
    apart from rounding and from layers that mix examples, such as batch normalization.

    Args:
        replicas: equal networks on different devices, from ``replicate``.
        X: inputs, shape (n, …), on any device.
        y: labels, shape (n, …).
        loss: function of outputs and labels that returns the mean over the examples.
    Returns:
        The loss of the batch, shape (), on the first replica's device.
    Raises:
        ValueError: X and y differ in length or are empty.
    """
    for net in replicas:
        net.zero_grad()
    shards = split_batch(X, y, [device_of(net) for net in replicas])
    # Not strict: spare replicas have no shard. The loop does not wait for a device, so
    # that all of them compute at the same time.
    losses = []
    for net, X_shard, y_shard in zip(replicas, *shards, strict=False):
        share = len(y_shard) / len(y)
        losses.append(loss(net(X_shard), y_shard) * share)
        losses[-1].backward()
    for parameters in zip(*(net.parameters() for net in replicas), strict=True):
        if all(parameter.grad is None for parameter in parameters):
            continue
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        allreduce([parameter.grad for parameter in parameters])
    first = losses[0].device
    return torch.stack([part.detach().to(first) for part in losses]).sum()


def average_buffers(replicas: Sequence[nn.Module]) -> None:
    """Set the floating-point buffers of all replicas to their mean.

    These are the running statistics of batch normalization. Each replica has only seen
    its own shards, so the replicas would otherwise differ in evaluation.
    """
    if len(replicas) == 1:
        return
    for buffers in zip(*(net.buffers() for net in replicas), strict=True):
        if buffers[0].is_floating_point():
            allreduce(buffers)
            for buffer in buffers:
                buffer /= len(replicas)
