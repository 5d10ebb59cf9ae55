"""Facts about an operator that the dispatch needs, gathered at its first use.

Most of them come from the operator's schema and tags, the rest from its record in
``records.py``.

They are stored as an attribute of the operator (``func._vgpu``), because looking up an
overload in a dictionary would run its ``__hash__`` in Python at every call.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch._ops import OpOverload

if TYPE_CHECKING:
    from .records import Record

# How the single result relates to the arguments; GENERAL if it's more complicated.
GENERAL, FRESH, VIEW, IN_PLACE, DETACH = range(5)

# Integer arguments that can't make a result larger than the operands.
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

_INDEX_TYPES = (torch.int64, torch.int32, torch.uint8, torch.bool)


class Operator:
    """Facts about one operator overload.

    They are plain attributes because the dispatch reads them at every call.

    Attributes:
        record: what the schema doesn't say. An attribute of the same name here is a
            copy of the record's, or what schema and record say together.
        call: runs the operator, without the cost of ``OpOverload.__call__``, or the
            record's substitute.
        form: GENERAL, or what the single result is: FRESH memory no larger than the
            product of the operands, a VIEW of the first argument, that argument
            itself changed IN_PLACE, or an alias of all its memory (DETACH).
        leading: number of tensor arguments, if they all come first; otherwise 0.
        aliases: for each result, the argument that it is (a position or a name), or
            None for a new tensor.
        draws: whether it draws random numbers.
        takes_generator: whether it can be given a generator for them.
        kernel: whether a kernel runs; views and the like only change geometry.
        allocates: whether a result needs memory of its own.
        has_device: whether it takes ``device=``.
        changes_geometry: whether it can change an argument's sizes, strides or storage.
        pointwise: whether CPU tensors without dimensions count as numbers, and errors
            are worded as TensorIterator words them, which runs most such operators.
        indexes: whether its operands are indices, which may be on the CPU.
        host_lengths: whether an operand holds lengths, which are on the CPU.
        host_results: positions of the results that stay on the CPU.
        places: positions of arguments that can hold tensors.
        bound: returns an upper bound of the bytes of its results, given its arguments
            and the bytes of its operands; None if only ``size_bound`` is known.
        handler: runs in its place; None if there is no handler.
        describe: returns what the clock needs to know about a call besides sizes, given
            its arguments and results; None if the sizes are enough.
        remembered: whether its results, new tensors, have layouts that follow from its
            arguments, so that ``shapes.py`` may remember them.
        out_list: name of the argument, a list of tensors, that it writes without
            returning it.
        waits: returns whether the host waits for the device, given the call's
            arguments, before they are unwrapped. None if never.
        written: positions of the arguments that it writes, if it returns nothing.
    """

    __slots__ = (
        "aliases",
        "allocates",
        "bound",
        "call",
        "changes_geometry",
        "describe",
        "draws",
        "form",
        "handler",
        "has_device",
        "host_lengths",
        "host_results",
        "indexes",
        "kernel",
        "leading",
        "name",
        "out_list",
        "places",
        "pointwise",
        "record",
        "remembered",
        "schema",
        "sizes",
        "takes_generator",
        "waits",
        "written",
    )

    def __init__(self, func: OpOverload, record: "Record"):
        schema = func._schema
        arguments, returns = schema.arguments, schema.returns
        self.schema, self.record = schema, record
        self.call = record.substitute or func._op
        self.name = name_of(func)
        self.pointwise = record.pointwise
        if record.pointwise is None:
            self.pointwise = _is_pointwise(func)
        self.indexes, self.host_lengths = record.indexes, record.host_lengths
        self.host_results = record.host_results
        self.changes_geometry = torch.Tag.inplace_view in func.tags
        self.has_device = any(a.name == "device" and a.kwarg_only for a in arguments)
        self.draws = torch.Tag.nondeterministic_seeded in func.tags
        self.takes_generator = any(a.name == "generator" for a in arguments)
        self.kernel = record.kernel and not func.is_view
        self.handler, self.bound = record.handler, record.bound
        self.describe = record.formula and record.formula.describe
        self.waits = record.waits
        if self.waits is None and torch.Tag.dynamic_output_shape in func.tags:
            self.waits = always
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
        self.remembered = (
            func.namespace == "aten"
            and not (func.is_view or schema.is_mutable or self.draws or self.waits)
            and not (self.host_results or record.substitute)
            and all(r.alias_info is None and _has_tensor(r.type) for r in returns)
            and any(_has_tensor(a.type) for a in arguments)
        )

        tensors = [i for i, a in enumerate(arguments) if _has_tensor(a.type)]
        self.places = [
            i for i, a in enumerate(arguments) if i in tensors or _is_storage(a.type)
        ]
        plain = all(_is_tensor(arguments[i].type) for i in tensors)
        self.leading = len(tensors) if tensors == list(range(len(tensors))) else 0
        self.form = GENERAL
        if (
            plain
            and self.handler is None
            and self.waits is None
            and not self.draws
            and 1 <= self.leading <= 2
            and not (self.has_device or self.changes_geometry)
            and func.namespace == "aten"
            and len(returns) == 1
            and _is_tensor(returns[0].type)
        ):
            if record.form is not None:
                self.form = record.form
            elif returns[0].alias_info is None:
                self.form = GENERAL if any(map(_can_grow, arguments)) else FRESH
            elif not returns[0].alias_info.is_write:
                self.form = VIEW
            elif self.aliases == (0,):
                self.form = IN_PLACE

    def accepts_host(self, tensor: torch.Tensor) -> bool:
        """Whether this CPU tensor may be an operand among tensors on a device."""
        if self.host_lengths:
            return tensor.dtype is torch.int64
        if self.indexes:
            return tensor.dtype in _INDEX_TYPES or not tensor.dim()
        return self.pointwise and not tensor.dim()

    def result_sizes(self, args, kwargs) -> tuple[int, ...]:
        """Return the bytes that each new result of this call will occupy.

        To find out, we run the operator on the meta device, which computes shapes and
        no values. Answers are cached by shape. If the size depends on values
        (``nonzero``), or on the number of elements in a sparse operand, there is no
        answer, and the machine counts the result afterwards.
        """
        key = _signature((args, kwargs))
        try:
            return self.sizes[key]
        except KeyError:
            pass
        if len(self.sizes) >= 1024:
            self.sizes.clear()
        sizes = self.sizes[key] = self._measure(args, kwargs)
        return sizes

    def _measure(self, args, kwargs) -> tuple[int, ...]:
        if any(_is_sparse(x) for x in (*args, *kwargs.values())):
            densified = self.record.densified
            return () if densified is None else (densified(args),)
        kwargs = {k: v for k, v in kwargs.items() if k not in ("generator", "out")}
        if self.has_device:
            kwargs["device"] = torch.device("meta")
        try:
            results = self.call(*_to_meta(args), **_to_meta(kwargs))
        except Exception:
            # There is no meta kernel, the size depends on values, or the arguments are
            # wrong. In that case the operator itself, which runs next, will complain.
            return ()
        if not isinstance(results, list | tuple):
            results = (results,)
        sizes = []
        for result, alias in zip(results, self.aliases, strict=False):
            if alias is None:
                for x in result if isinstance(result, list | tuple) else (result,):
                    if isinstance(x, torch.Tensor) and not _is_sparse(x):
                        sizes.append(x.untyped_storage().nbytes())
        return tuple(sizes)


def operator(func: OpOverload) -> Operator:
    """Return the facts about func, gathered at its first use."""
    try:
        return func._vgpu
    except AttributeError:
        # Not at the top of the file: records import handlers, which import this one.
        from .own_kernels import choosing
        from .records import record_of

        func._vgpu = facts = Operator(func, record_of(func))
        if func.namespace != "aten":
            facts.handler = choosing(func, facts.handler)
        return facts


def name_of(func: OpOverload) -> str:
    """Return an operator's name, with its namespace unless that is aten."""
    return func._schema.name.removeprefix("aten::")


def _is_pointwise(func: OpOverload) -> bool:
    """Whether an operator, or the one that it's the form in place of, has the tag."""
    name = name_of(func)
    if name.endswith("_") and not name.endswith("__"):
        func = overload(f"{name[:-1]}.{func._schema.overload_name}") or func
    return torch.Tag.pointwise in func.tags


def overload(name: str) -> OpOverload | None:
    """Return the operator with a name such as ``mm.out``.

    Returns None if only TorchScript or another version of PyTorch has it.
    """
    packet, _, overload = name.removeprefix("aten::").partition(".")
    try:
        return getattr(getattr(torch.ops.aten, packet), overload or "default")
    except (AttributeError, RuntimeError):
        return None


def overloads(name: str) -> Iterator[OpOverload]:
    """Yield the overload named ``mm.out``, or all overloads of ``mm``."""
    names = [name]
    if "." not in name:
        packet = getattr(torch.ops.aten, name, None)
        names = [f"{name}.{x}" for x in packet.overloads()] if packet else []
    for found in map(overload, names):
        if found is not None:
            yield found


def all_operators() -> Iterator[tuple[str, OpOverload]]:
    """Yield the name and the overload of each of PyTorch's operators."""
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("aten::"):
            func = overload(name)
            if func is not None:
                yield name, func


def always(args) -> bool:
    """Say that the host waits, whatever the arguments of a call are."""
    return True


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


def _is_sparse(value) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is not torch.strided


def _signature(x):
    """Describe arguments in a hashable form: shapes, types and numbers, no values."""
    if _is_sparse(x):
        return x.shape, x.layout, x.dtype
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
            return x  # the operator treats it as a number, on any device
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
    if isinstance(x, list | tuple):
        return type(x)([_to_meta(y) for y in x])
    if isinstance(x, dict):
        return {k: _to_meta(v) for k, v in x.items()}
    return x
