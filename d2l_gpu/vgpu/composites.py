"""Composite operators that run as a whole on the backing tensors.

PyTorch defines a composite operator in C++ by other operators, and usually these reach
``tensor.py`` one by one. But some composites first look at the device or at the class
of their arguments, and choose another path for a virtual GPU than for the CPU: they
round differently, or forget to write ``out=``. These we intercept above autograd and
run as a whole on the backing tensors, with PyTorch's own autograd inside.
``records.py`` says which they are; those with ``out=`` are found by their schemas.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from .devices import Devices
from .generator import default_generators, standing_in
from .operators import all_operators, operator, overload, overloads
from .tensor import (
    Operands,
    VirtualTensor,
    charge_parts,
    contained,
    is_virtual,
    reserve,
    run,
    unwrap,
    wrap,
)

if TYPE_CHECKING:
    from .records import Record

KEYS = ("AutogradPrivateUse1", "PrivateUse1")


def register(records: Mapping[str, "Record"]) -> list[torch.library.Library]:
    """Register the kernels; they last as long as the returned libraries.

    Args:
        records: records by operator name; some name a ``composite``.
    """
    library = torch.library.Library("aten", "IMPL")
    for key in KEYS:
        for name, record in records.items():
            if record.composite is not None:
                for func in overloads(name):
                    if not _has_out(func):
                        library.impl(func, record.composite(func), key)
        for name in _composites_with_out():
            library.impl(name, _into_out(overload(name)), key)
    return [library]


# ------------------------------------------------------------------ with gradients


def on_backing(func, watched: bool = True, cost: Callable | None = None):
    """Make the kernel that computes an operator and its gradients on backing tensors.

    Args:
        watched: whether the machine is told of each operator inside, or of none.
        cost: returns, for the arguments of a call, what tells the machine of a single
            kernel in their place: a function that is told whether it's backward's.
            None if the machine is to be told of each.
    """
    op = operator(func)

    def kernel(*args, **kwargs):
        leaves, spec = tree_flatten((args, kwargs))
        if any(map(is_foreign, leaves)):
            return func.decompose(*args, **kwargs)
        try:
            index = unwrap(op, args, kwargs)[0].index
            function = _Drawing(func, index) if op.draws else func
            charge = None if cost is None else cost(*args, **kwargs)
            call = _Call(function, index, spec, watched and charge is None, charge)
            results = _OnBacking.apply(call, *leaves)
            return tree_unflatten(list(results), call.structure)
        except BaseException as error:
            return contained(error, sys._getframe(1), op)

    return kernel


def is_foreign(value) -> bool:
    """Whether a tensor contains others: DTensor, for example.

    Such a tensor has to see the operators that a composite is made of.
    """
    kind = type(value)
    if kind in (torch.Tensor, torch.nn.Parameter, VirtualTensor):
        return False
    return isinstance(value, torch.Tensor) and hasattr(kind, "__tensor_flatten__")


@dataclass
class _Call:
    """A function of backing tensors, and how to call it with a flat list of them.

    Attributes:
        spec: rebuilds arguments and keywords from a flat list.
        watched: whether the machine is told of each operator inside, or of none.
        charge: tells the machine of a kernel in their place; None for none.
        structure: rebuilds the results from a flat list; known after the call.
    """

    function: Callable
    index: int
    spec: TreeSpec
    watched: bool
    charge: Callable[[bool], None] | None = None
    structure: TreeSpec | None = None

    def __call__(self, leaves) -> list:
        args, kwargs = tree_unflatten(leaves, self.spec)
        results, self.structure = tree_flatten(self.function(*args, **kwargs))
        return results

    def watch(self):
        return _InnerOperators(self.index) if self.watched else nullcontext()


class _Drawing:
    """A function that draws random numbers of a device, in each call the same ones."""

    def __init__(self, function: Callable, index: int):
        self.function, self.index, self.state = function, index, None

    def __call__(self, *args, **kwargs):
        if Devices.backings[self.index].type != "cpu":
            return self.function(*args, **kwargs)
        source = default_generators.of(self.index)
        if self.state is None:
            self.state = source.get_state()
        else:
            source = torch.Generator()
            source.set_state(self.state)
        with standing_in(source):
            return self.function(*args, **kwargs)


class _OnBacking(torch.autograd.Function):
    """A call on backing tensors, differentiated by PyTorch's own autograd.

    Gradients of any order work. Those beyond the first order repeat the call. So does
    backward where a program has a say in what is kept until then, as in
    ``torch.utils.checkpoint``: the call keeps its arguments only, and those as any
    operator keeps tensors.
    """

    @staticmethod
    def forward(ctx, call: _Call, *leaves):
        needed = ctx.needs_input_grad[1:]
        backings = _backings(leaves, needed)
        ctx.call, ctx.again = call, _saved_tensors_are_watched()
        with torch.set_grad_enabled(any(needed)), call.watch(), _keeping_tensors():
            results = call(backings)
        if call.charge is not None:
            call.charge(False)
        if ctx.again:
            ctx.save_for_backward(*(x for x in leaves if isinstance(x, torch.Tensor)))
            ctx.others = [None if isinstance(x, torch.Tensor) else (x,) for x in leaves]
        else:
            ctx.leaves, ctx.backings, ctx.results = leaves, backings, results
        # What is detached keeps the graph, for forward mode; x.data doesn't.
        return tuple(
            wrap(x.data if ctx.again else x.detach(), call.index)
            if isinstance(x, torch.Tensor)
            else x
            for x in results
        )

    @staticmethod
    def backward(ctx, *grads):
        call: _Call = ctx.call
        leaves, backings, results = _OnBacking._kept(ctx)
        if not torch._C._autograd._get_current_graph_task_keep_graph():
            # As any operator does, it lets go of what it kept (retain_graph=False).
            ctx.leaves = ctx.backings = ctx.results = None
        wanted = [i for i, needs in enumerate(ctx.needs_input_grad[1:]) if needs]
        given = [i for i, g in enumerate(grads) if g is not None]
        grads = [grads[i] for i in given]
        if torch.is_grad_enabled():  # create_graph=True
            found = _differentiable_gradients(call, leaves, wanted, given, grads)
        else:
            with call.watch(), _keeping_tensors():
                found = _vjp(
                    [results[i] for i in given],
                    [backings[i] for i in wanted],
                    [g._backing for g in grads],
                )
            if call.charge is not None:
                call.charge(True)
            found = [None if g is None else wrap(g.detach(), call.index) for g in found]
        gradients = [None] * len(leaves)
        for i, gradient in zip(wanted, found, strict=True):
            gradients[i] = gradient
        return None, *gradients

    @staticmethod
    def _kept(ctx) -> tuple:
        """Return what the call was given, its backing tensors, and what came out."""
        if not ctx.again:
            if ctx.leaves is None:
                raise RuntimeError(
                    "Trying to backward through the graph a second time: specify "
                    "retain_graph=True the first time."
                )
            return ctx.leaves, ctx.backings, ctx.results
        saved = iter(ctx.saved_tensors)
        leaves = [next(saved) if x is None else x[0] for x in ctx.others]
        backings = _backings(leaves, ctx.needs_input_grad[1:])
        # Unwatched: the machine was told of these operators in forward.
        with torch.enable_grad(), _keeping_tensors():
            return leaves, backings, ctx.call(backings)


def _backings(leaves, needed) -> list:
    """Return arguments with backing tensors, which need gradients as they do."""
    return [
        x._backing.detach().requires_grad_(needs) if is_virtual(x) else x
        for x, needs in zip(leaves, needed, strict=True)
    ]


def _saved_tensors_are_watched() -> bool:
    """Whether a program has hooks for what operators keep for backward."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def _keeping_tensors():
    """Return a context in which operators keep tensors as they are, not by hooks."""
    if not _saved_tensors_are_watched():
        return nullcontext()
    # Kept as it is, an operator's own result would keep the operator, which keeps it.
    return torch.autograd.graph.saved_tensors_hooks(lambda x: x.data, lambda x: x)


def _differentiable_gradients(call: _Call, leaves, wanted, given, grads):
    """Compute the gradients by another such call, which has gradients in turn."""

    def gradients(leaves, grads):
        results = call(leaves)
        outputs, inputs = [results[i] for i in given], [leaves[i] for i in wanted]
        return _vjp(outputs, inputs, grads)

    flat, spec = tree_flatten(((list(leaves), grads), {}))
    again = _Call(gradients, call.index, spec, call.watched)
    return tree_unflatten(list(_OnBacking.apply(again, *flat)), again.structure)


def _vjp(outputs, inputs, grads):
    """Return the gradients with respect to the inputs, of outputs that have one."""
    pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if o.requires_grad]
    if not pairs:
        return [None] * len(inputs)
    outputs, grads = zip(*pairs, strict=True)
    again = torch.is_grad_enabled()
    return torch.autograd.grad(
        outputs, inputs, grads, allow_unused=True, retain_graph=True, create_graph=again
    )


class _InnerOperators(TorchDispatchMode):
    """Tell the machine about the kernels and the memory of operators."""

    def __init__(self, index: int):
        super().__init__()
        self.index = index

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        op = operator(func)
        operands = Operands()
        operands.count(args)
        if op.allocates:
            reserve(op, self.index, args, kwargs, operands.nbytes)
        results = func(*args, **kwargs)
        if op.kernel:
            operands.issued(op, self.index, args, results)
        if op.allocates:
            for x in results if isinstance(results, list | tuple) else (results,):
                if isinstance(x, torch.Tensor):
                    charge_parts(x, self.index)
        return results


def on_backing_unwatched(func):
    """Make the kernel of an operator that would compute differently when watched.

    For tensor subclasses, and under a dispatch mode, ``linalg_eigvalsh`` and
    ``linalg_svdvals`` use another algorithm, which computes the vectors as well.
    """
    return on_backing(func, watched=False)


# ------------------------------------------------------------------ without gradients


def split_at_values(func):
    """Make the kernel of ``tensor_split`` that reads the places to split from a tensor.

    PyTorch's own kernel accepts that tensor on the CPU only.
    """

    def kernel(tensor, tensor_indices_or_sections, dim=0):
        places = tensor_indices_or_sections.cpu()
        # For the errors that PyTorch's kernel raises.
        torch.empty(tensor.shape, device="meta").tensor_split(places, dim)
        return tensor.tensor_split(places.tolist(), dim)

    return kernel


def with_lengths(func):
    """Make the kernel of CTC loss for lengths in tensors, on the CPU or the device.

    For subclasses PyTorch doesn't read the lengths, but divides by them where they are.
    """

    def kernel(log_probs, targets, input_lengths, target_lengths, *options):
        lengths = [x.reshape(-1).tolist() for x in (input_lengths, target_lengths)]
        return torch.ops.aten.ctc_loss.IntList(log_probs, targets, *lengths, *options)

    return kernel


def ones_in_zeros(func):
    """Make the kernel of ``one_hot`` that GPUs run, which writes ones into zeros.

    For subclasses PyTorch compares every value with every class, and one that is out of
    range would go unnoticed.
    """

    def kernel(tensor, num_classes=-1):
        if tensor.dtype is not torch.int64:
            raise RuntimeError(
                "one_hot is only applicable to index tensor of type LongTensor."
            )
        if num_classes < 1 and not tensor.numel():
            raise RuntimeError(
                "Can not infer total number of classes from empty tensor."
            )
        if num_classes == -1:
            num_classes = tensor.max().item() + 1
        if num_classes < 1:
            raise RuntimeError("num_classes should be positive")
        rows = tensor.new_zeros((*tensor.shape, num_classes))
        return rows.scatter_(-1, tensor.unsqueeze(-1), 1)

    return kernel


def _has_out(func) -> bool:
    return any(a.is_out for a in func._schema.arguments)


def _composites_with_out() -> list[str]:
    """Return the names of composites that write ``out=``.

    Some reshape ``out`` on the way and ask whether two tensors share memory, which C++
    can't tell for virtual ones. Others return a new tensor for subclasses.
    """
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return [
        name.removeprefix("aten::")
        for name, func in all_operators()
        if has(name, "CompositeImplicitAutograd") and _has_out(func)
    ]


def _into_out(func):
    op = operator(func)

    def kernel(*args, **kwargs):
        leaves, _ = tree_flatten((args, kwargs))
        if torch.is_grad_enabled() and any(
            isinstance(x, torch.Tensor) and x.requires_grad for x in leaves
        ):
            raise RuntimeError(
                f"{op.name}(): functions with out=... arguments don't support "
                "automatic differentiation, but one of the arguments requires grad."
            )
        try:
            return run(op, args, kwargs)
        except BaseException as error:
            return contained(error, sys._getframe(1), op)

    return kernel
