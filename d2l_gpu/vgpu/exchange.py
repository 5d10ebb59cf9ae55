"""What collectives compute, given what all ranks bring.

Every rank of a small world (``ranks.py``) brings a ``Call``. ``COMPUTE`` has a function
for each kind of collective. It gets the calls of all ranks in their order, and writes
the results. Numbers are added in the order of the ranks, so the sum is the same at each
run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.distributed import ReduceOp

from .collectives import scaled


@dataclass
class Call:
    """What one rank brings to a collective.

    Attributes:
        kind: the name of the collective.
        gives, takes: ordinary tensors that it reads, and those that it writes.
        root: the rank that gives to all others, or takes from them.
        reduction: how numbers are combined.
        on_device: whether they belong to a virtual GPU, so that its clock hears of it.
    """

    kind: str
    gives: Sequence[torch.Tensor]
    takes: Sequence[torch.Tensor]
    root: int | None = None
    reduction: ReduceOp | None = None
    on_device: bool = True

    @property
    def operator(self):
        return None if self.reduction is None else self.reduction.op

    @property
    def nbytes(self) -> int:
        """The bytes that go in or come out, whichever are more."""
        return max(sum(x.nbytes for x in side) for side in (self.gives, self.takes))

    def agrees_with(self, other: "Call") -> bool:
        """Whether two ranks call the same collective for tensors that fit."""
        if (self.kind, self.root) != (other.kind, other.root):
            return False
        if self.operator != other.operator:
            return False
        mine, others = (*self.gives, *self.takes), (*other.gives, *other.takes)
        if mine and others and mine[0].dtype != others[0].dtype:
            return False
        if self.kind not in SAME_SIZE:
            return True
        return [x.numel() for x in self.gives] == [x.numel() for x in other.gives]

    def __str__(self) -> str:
        tensors, parts = self.gives or self.takes, [self.kind]
        if tensors:
            shapes = [str(tuple(x.shape)) for x in tensors]
            if len(shapes) > 3:
                shapes = [*shapes[:2], f"{len(shapes) - 2} more"]
            parts.append(f"of {_plain(tensors[0].dtype)} {' and '.join(shapes)}")
        if self.reduction is not None:
            parts.append(f"by {_plain(self.operator)}")
        if self.root is not None:
            parts.append(f"with root {self.root}")
        return " ".join(parts)


def _plain(name) -> str:
    """Return the last part of a name such as torch.float32."""
    return str(name).rpartition(".")[2]


def _put(target: torch.Tensor, source: torch.Tensor, kind: str) -> None:
    if target.numel() != source.numel() or target.dtype != source.dtype:
        raise ValueError(
            f"{kind} brings {source.numel()} elements of {_plain(source.dtype)} to a "
            f"tensor of {target.numel()} elements of {_plain(target.dtype)}."
        )
    target.copy_(source.reshape(target.shape))


# ------------------------------------------------------------------ reductions

_COMBINE = {
    ReduceOp.SUM: torch.Tensor.add_,
    ReduceOp.AVG: torch.Tensor.add_,  # each rank's share
    ReduceOp.PREMUL_SUM: torch.Tensor.add_,
    ReduceOp.PRODUCT: torch.Tensor.mul_,
    ReduceOp.MIN: lambda x, y: torch.minimum(x, y, out=x),
    ReduceOp.MAX: lambda x, y: torch.maximum(x, y, out=x),
    ReduceOp.BAND: torch.Tensor.bitwise_and_,
    ReduceOp.BOR: torch.Tensor.bitwise_or_,
    ReduceOp.BXOR: torch.Tensor.bitwise_xor_,
}


def _reduced(calls: Sequence[Call], place: int) -> torch.Tensor:
    """Combine the tensors that all ranks give at one place."""
    total = None
    for call in calls:
        x = call.gives[place]
        if call.operator == ReduceOp.AVG:
            x = scaled(x, 1 / len(calls), in_place=False)
        elif call.operator == ReduceOp.PREMUL_SUM:
            x = scaled(x, float(call.reduction.factor), in_place=False)
        if total is None:
            total = x.clone()
        else:
            _COMBINE[call.operator](total, x.view_as(total))
    return total


def _all_reduce(calls: Sequence[Call]) -> None:
    for place in range(len(calls[0].gives)):
        total = _reduced(calls, place)
        for call in calls:
            if call.takes:
                _put(call.takes[place], total, call.kind)


def _reduce_scatter(calls: Sequence[Call]) -> None:
    for rank, call in enumerate(calls):
        _put(call.takes[0], _reduced(calls, rank), call.kind)


# ------------------------------------------------------------------ the others


def _broadcast(calls: Sequence[Call]) -> None:
    root = calls[calls[0].root]
    for call in calls:
        if call is not root:
            for target, source in zip(call.takes, root.gives, strict=True):
                _put(target, source, call.kind)


def _all_gather(calls: Sequence[Call]) -> None:
    for call in calls:
        if call.takes:
            for target, other in zip(call.takes, calls, strict=True):
                _put(target, other.gives[0], call.kind)


def _scatter(calls: Sequence[Call]) -> None:
    root = calls[calls[0].root]
    for call, source in zip(calls, root.gives, strict=True):
        _put(call.takes[0], source, call.kind)


def _all_to_all(calls: Sequence[Call]) -> None:
    for rank, call in enumerate(calls):
        for target, other in zip(call.takes, calls, strict=True):
            _put(target, other.gives[rank], call.kind)


def _send(calls: Sequence[Call]) -> None:
    sender, receiver = calls
    _put(receiver.takes[0], sender.gives[0], "send")


# A reduction to one rank is one where the others take nothing. So is gathering.
COMPUTE: dict[str, Callable[[Sequence[Call]], None]] = {
    "all_reduce": _all_reduce,
    "reduce": _all_reduce,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "gather": _all_gather,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "barrier": lambda calls: None,
    "send": _send,
}

# Those to which all ranks give as much.
SAME_SIZE = ("all_reduce", "reduce", "broadcast", "reduce_scatter")
