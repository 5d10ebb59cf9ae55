"""What the dispatch has to know of an operator, read once from its schema.

The facts hang on the operator itself (``func._vgpu``), because looking an overload up
in a dictionary runs its Python ``__hash__`` and an attribute does not.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch._ops import OpOverload

from .work import FORMULAS

# How the result relates to the arguments, where that is simple.
GENERAL, FRESH, VIEW, IN_PLACE, DETACH = range(5)

# Operators that look at geometry only, beside the views: no kernel runs for them.
_NO_KERNEL = {
    "_reshape_alias",
    "_unsafe_view",
    "alias",
    "detach",
    "detach_",
    "empty_like",
    "lift_fresh",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "set_",
}

# Losses that TensorIterator runs, beside the operators with the tag pointwise.
_ITERATED = {"huber_loss", "mse_loss", "smooth_l1_loss"}

# Operators with a vector of lengths that PyTorch keeps on the CPU, beside its others.
_HOST_LENGTHS = {
    "_pack_padded_sequence",
    "_pack_padded_sequence_backward",
    "gru",
    "lstm",
    "rnn_relu",
    "rnn_tanh",
}

# Integer arguments that cannot make a result larger than the tensors it comes from.
_HARMLESS = {
    "correction",
    "diagonal",
    "dim",
    "dim0",
    "dim1",
    "dims",
    "dtype",
    "index",
    "input_dtype",
    "k",
    "reduction",
}

# What runs in place of an operator, by its name: a function of the operator's facts
# and of the same arguments.
SPECIAL: dict[str, Callable] = {}

_INDEX_TYPES = (torch.int64, torch.int32, torch.uint8, torch.bool)


# ------------------------------------------------------------------ sizes of results

# The widest element (complex128) in bytes: an upper bound for any result's.
WIDEST = 16

# Operators with up to three results, each of which has as many elements as one of the
# operands has at most.
_NO_LARGER = {
    "_log_softmax",
    "_log_softmax_backward_data",
    "_softmax",
    "_softmax_backward_data",
    "convolution_backward",
    "max_pool2d_with_indices",
    "max_pool2d_with_indices_backward",
    "native_batch_norm",
    "native_batch_norm_backward",
    "native_dropout",
    "native_dropout_backward",
    "native_group_norm",
    "native_group_norm_backward",
    "native_layer_norm",
    "native_layer_norm_backward",
    "nll_loss_backward",
    "nll_loss_forward",
    "threshold_backward",
}


def _no_larger(args, nbytes: int) -> int:
    return 3 * WIDEST * nbytes


def _product(a: torch.Tensor, b: torch.Tensor) -> int:
    return a.shape[0] * b.shape[-1] * WIDEST


def _convolution(args, nbytes: int) -> int:
    x, weight, _, _, padding, _, transposed = args[:7]
    if transposed:
        return 2**62  # larger by its stride; asked exactly
    n = x.shape[0] * weight.shape[0] * WIDEST
    for size, pad in zip(x.shape[2:], itertools.cycle(padding), strict=False):
        n *= size + 2 * pad
    return n


_BOUNDS: dict[str, Callable[[Sequence, int], int]] = {
    "addmm": lambda args, nbytes: _product(args[1], args[2]),
    "bmm": lambda args, nbytes: args[0].shape[1] * _product(args[0], args[1]),
    "convolution": _convolution,
    "mm": lambda args, nbytes: _product(args[0], args[1]),
}


class Operator:
    """Facts about one operator overload.

    Attributes:
        call: runs the operator, without the cost of ``OpOverload.__call__``.
        form: GENERAL, or what a single result is: FRESH memory no larger than the
            product of its operands, a VIEW of the first argument, that argument
            itself, changed IN_PLACE, or all of its memory again (DETACH).
        leading: number of tensors at the head of its arguments, if all are there.
        aliases: for each result the argument that it is (a position or a name), or
            None for a new tensor.
        kernel: whether a kernel runs; views and the like only look at geometry.
        allocates: whether a result needs memory of its own.
        has_device: whether it takes ``device=``.
        changes_geometry: whether sizes, strides or storage of an argument can change.
        pointwise: whether TensorIterator runs it (zero-dimensional CPU tensors may
            stand beside tensors of a device, and mismatches are worded its way).
        places: positions of arguments that can hold tensors.
        bound: a bound of the bytes of its results, from its arguments and the bytes
            of its operands; None where only ``size_bound`` is known.
        special: what runs in its place, if anything.
        describe: what the clock has to know of a call beside sizes, as a function of
            its arguments and results; None if nothing.
        out_list: name of a list of tensors that it writes and does not return.
        written: positions of the arguments that it writes, if it returns nothing.
    """

    __slots__ = (
        "aliases",
        "allocates",
        "bound",
        "call",
        "changes_geometry",
        "describe",
        "form",
        "has_device",
        "indexes",
        "kernel",
        "leading",
        "name",
        "out_list",
        "places",
        "pointwise",
        "schema",
        "sizes",
        "special",
        "written",
    )

    def __init__(self, func: OpOverload):
        schema = func._schema
        arguments, returns = schema.arguments, schema.returns
        self.schema, self.call = schema, func._op
        # Operators of other libraries keep their namespace: c10d::scatter_.
        self.name = schema.name.removeprefix("aten::")
        self.pointwise = (
            torch.Tag.pointwise in func.tags
            or self.name in _ITERATED
            or self.name.startswith("_foreach")
        )
        self.indexes = self.name.startswith(("index", "_index_put", "_unsafe_index"))
        self.changes_geometry = torch.Tag.inplace_view in func.tags
        self.has_device = any(a.name == "device" and a.kwarg_only for a in arguments)
        self.kernel = not func.is_view and self.name not in _NO_KERNEL
        self.special = SPECIAL.get(self.name)
        formula = FORMULAS.get(self.name)
        self.describe = formula and formula.describe
        self.bound = _BOUNDS.get(self.name)
        if self.name in _NO_LARGER or self.name.startswith("_foreach"):
            self.bound = _no_larger
        self.sizes: dict = {}

        written = {}
        for position, a in enumerate(arguments):
            if a.alias_info is not None and a.alias_info.is_write:
                key = a.name if a.kwarg_only else position
                written.update(dict.fromkeys(a.alias_info.before_set, key))
        self.aliases = tuple(
            next((written[s] for s in r.alias_info.before_set if s in written), None)
            if r.alias_info is not None and r.alias_info.is_write
            else None
            for r in returns
        )
        self.out_list = next(
            (a.name for a in arguments if a.is_out and str(a.type) == "List[Tensor]"),
            None,
        )
        self.written = [
            i
            for i, a in enumerate(arguments)
            if a.alias_info is not None and a.alias_info.is_write and not returns
        ]
        self.allocates = not func.is_view and None in self.aliases

        tensors = [i for i, a in enumerate(arguments) if _has_tensor(a.type)]
        self.places = [
            i for i, a in enumerate(arguments) if i in tensors or _is_storage(a.type)
        ]
        plain = all(_is_tensor(arguments[i].type) for i in tensors)
        self.leading = len(tensors) if tensors == list(range(len(tensors))) else 0
        self.form = GENERAL
        if (
            plain
            and self.special is None
            and 1 <= self.leading <= 2
            and not (self.has_device or self.changes_geometry)
            and func.namespace == "aten"
            and len(returns) == 1
            and _is_tensor(returns[0].type)
        ):
            if self.name == "detach":
                self.form = DETACH
            elif returns[0].alias_info is None:
                self.form = GENERAL if any(map(_can_grow, arguments)) else FRESH
            elif not returns[0].alias_info.is_write:
                self.form = VIEW
            elif self.aliases == (0,):
                self.form = IN_PLACE

    def accepts_host(self, tensor: torch.Tensor) -> bool:
        """Whether a CPU tensor may stand beside tensors of a device here."""
        if self.name in _HOST_LENGTHS:
            return tensor.dtype is torch.int64
        if self.indexes:
            return tensor.dtype in _INDEX_TYPES or not tensor.dim()
        return self.pointwise and not tensor.dim()

    def result_bytes(self, args, kwargs) -> int:
        """Bytes that the new results of this call will occupy, worked out beforehand.

        The operator runs on the meta device, which knows shapes and no values; answers
        are kept by shapes. 0 where the size depends on values (``nonzero``): it is
        then accounted for once the result is there.
        """
        key = _signature((args, kwargs))
        try:
            return self.sizes[key]
        except KeyError:
            pass
        if len(self.sizes) >= 1024:
            self.sizes.clear()
        nbytes = self.sizes[key] = self._measure(args, kwargs)
        return nbytes

    def _measure(self, args, kwargs) -> int:
        kwargs = {k: v for k, v in kwargs.items() if k not in ("generator", "out")}
        if self.has_device:
            kwargs["device"] = torch.device("meta")
        try:
            results = self.call(*_to_meta(args), **_to_meta(kwargs))
        except Exception:
            # No meta kernel, a size that depends on values, or wrong arguments. The
            # operator itself, which runs next, is the one to complain.
            return 0
        if not isinstance(results, list | tuple):
            results = (results,)
        total = 0
        for result, alias in zip(results, self.aliases, strict=False):
            if alias is None:
                for x in result if isinstance(result, list | tuple) else (result,):
                    if isinstance(x, torch.Tensor):
                        total += x.untyped_storage().nbytes()
        return total


def operator(func: OpOverload) -> Operator:
    """Return the facts about func, gathered at its first use."""
    try:
        return func._vgpu
    except AttributeError:
        func._vgpu = facts = Operator(func)
        return facts


def overload(name: str) -> OpOverload | None:
    """Return the operator of a name such as ``mm.out``; None if TorchScript's only."""
    packet, _, overload = name.removeprefix("aten::").partition(".")
    try:
        return getattr(getattr(torch.ops.aten, packet), overload or "default")
    except (AttributeError, RuntimeError):
        return None


def all_operators() -> Iterator[tuple[str, OpOverload]]:
    """Yield name and overload of each of PyTorch's operators."""
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("aten::"):
            func = overload(name)
            if func is not None:
                yield name, func


def size_bound(args) -> float:
    """An upper bound, cheap to compute, of the elements in a call's results.

    The product of all numbers of elements and all integers: no operator can make more
    of its arguments than that (an outer product, ``repeat``, padding).
    """
    bound = 1
    for a in args:
        if isinstance(a, torch.Tensor):
            bound *= max(1, a.numel())
        elif isinstance(a, int):
            bound *= abs(a) + 1
        elif isinstance(a, float) and math.isfinite(a) and a:
            bound *= max(abs(a), 1 / abs(a)) + 1  # arange with a small step
        elif isinstance(a, list | tuple):
            if a and isinstance(a[0], torch.Tensor):
                bound *= 1 + sum(x.numel() for x in a if x is not None)
            else:
                bound *= size_bound(a)
    return bound


def _is_tensor(kind) -> bool:
    return str(kind) in ("Tensor", "Optional[Tensor]")


def _can_grow(argument) -> bool:
    kind = str(argument.type)
    # Calls with keywords never take the simple path, so only positions matter.
    return "int" in kind and not argument.kwarg_only and argument.name not in _HARMLESS


def _is_storage(kind) -> bool:
    return str(kind) == "Storage"


def _has_tensor(kind) -> bool:
    return "Tensor" in str(kind)


def _signature(x):
    """A hashable description of arguments: shapes, types and numbers, no values."""
    if isinstance(x, torch.Tensor):
        return x.shape, x.stride(), x.dtype
    if isinstance(x, list | tuple):
        return tuple([_signature(y) for y in x])
    if isinstance(x, dict):
        return tuple([(k, _signature(v)) for k, v in x.items()])
    return x if x.__hash__ is not None else repr(x)


def _to_meta(x):
    if isinstance(x, torch.Tensor):
        if x.device.type == "cpu" and not x.dim():
            return x  # a number to the operator, whatever the others' device
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
    if isinstance(x, list | tuple):
        return type(x)([_to_meta(y) for y in x])
    if isinstance(x, dict):
        return {k: _to_meta(v) for k, v in x.items()}
    return x
