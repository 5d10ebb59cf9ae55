"""Composite operators that are computed whole on the host.

PyTorch defines a composite operator in C++ by other operators, and these come to
``tensor.py`` one by one. Some composites look at the device or at the class of their
arguments first, and take another path for a virtual GPU than for the CPU: they round
differently, or forget to write ``out=``. Those are given to the host's PyTorch in one
piece here, above autograd, with its own autograd inside.
"""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from .operators import all_operators, operator, overload
from .tensor import (
    Operands,
    charge,
    contained,
    is_virtual,
    reserve,
    run,
    unwrap,
    wrap,
)

KEYS = ("AutogradPrivateUse1", "PrivateUse1")

ON_HOST = (
    # Fused cells on every device but the CPU.
    *(f"{kind}.{form}" for kind in ("gru", "lstm") for form in ("input", "data")),
    *(f"rnn_{f}.{form}" for f in ("relu", "tanh") for form in ("input", "data")),
    *(f"{kind}_cell" for kind in ("gru", "lstm", "rnn_relu", "rnn_tanh")),
    # Each device type has its own choice of kernel.
    "scaled_dot_product_attention",
)

# For tensor subclasses, and while anybody watches, they compute the vectors as well, by
# another algorithm.
UNWATCHED = ("linalg_eigvalsh", "linalg_svdvals")


def register() -> list[torch.library.Library]:
    """Register the kernels; they last as long as the libraries that are returned."""
    library = torch.library.Library("aten", "IMPL")
    for key in KEYS:
        for name in ON_HOST:
            library.impl(name, _on_host(overload(name)), key)
        for name in UNWATCHED:
            library.impl(name, _on_host(overload(name), watched=False), key)
        for name in _composites_with_out():
            library.impl(name, _into_out(overload(name)), key)
        library.impl("tensor_split.tensor_indices_or_sections", _tensor_split, key)
    return [library]


# ------------------------------------------------------------------ with gradients


def _on_host(func, watched: bool = True):
    op = operator(func)

    def kernel(*args, **kwargs):
        try:
            index = unwrap(op, args, kwargs)[0].index
            leaves, spec = tree_flatten((args, kwargs))
            call = _Call(func, index, spec, watched)
            results = _OnHost.apply(call, *leaves)
            return tree_unflatten(list(results), call.structure)
        except Exception as error:
            return contained(error, sys._getframe(1), op)

    return kernel


@dataclass
class _Call:
    """A function of host tensors, to be called with those of virtual ones.

    Attributes:
        spec: how arguments and keywords are made of a flat list.
        watched: whether the machine hears of each operator inside, or of none.
        structure: how its results are made of a flat list, known after the call.
    """

    function: Callable
    index: int
    spec: TreeSpec
    watched: bool
    structure: TreeSpec | None = None

    def __call__(self, leaves) -> list:
        args, kwargs = tree_unflatten(leaves, self.spec)
        results, self.structure = tree_flatten(self.function(*args, **kwargs))
        return results

    def watch(self):
        return _Watch(self.index) if self.watched else nullcontext()


class _OnHost(torch.autograd.Function):
    """A call on the host, with PyTorch's own gradients of it.

    Gradients exist to any order. One of an order beyond the first makes the call once
    more, so it is right only where the function draws no random numbers.
    """

    @staticmethod
    def forward(ctx, call: _Call, *leaves):
        needed = ctx.needs_input_grad[1:]
        hosts = [
            x._host.detach().requires_grad_(needs) if is_virtual(x) else x
            for x, needs in zip(leaves, needed, strict=True)
        ]
        with torch.set_grad_enabled(any(needed)), call.watch():
            results = call(hosts)
        ctx.call, ctx.leaves, ctx.hosts, ctx.results = call, leaves, hosts, results
        return tuple(
            wrap(x.detach(), call.index) if isinstance(x, torch.Tensor) else x
            for x in results
        )

    @staticmethod
    def backward(ctx, *grads):
        call: _Call = ctx.call
        wanted = [i for i, needs in enumerate(ctx.needs_input_grad[1:]) if needs]
        given = [i for i, g in enumerate(grads) if g is not None]
        grads = [grads[i] for i in given]
        if torch.is_grad_enabled():  # create_graph=True
            found = _differentiable_gradients(call, ctx.leaves, wanted, given, grads)
        else:
            with call.watch():
                found = _vjp(
                    [ctx.results[i] for i in given],
                    [ctx.hosts[i] for i in wanted],
                    [g._host for g in grads],
                )
            found = [None if g is None else wrap(g.detach(), call.index) for g in found]
        gradients = [None] * len(ctx.leaves)
        for i, gradient in zip(wanted, found, strict=True):
            gradients[i] = gradient
        return None, *gradients


def _differentiable_gradients(call: _Call, leaves, wanted, given, grads):
    """The gradients as another call on the host, which has gradients in turn."""

    def gradients(leaves, grads):
        results = call(leaves)
        outputs, inputs = [results[i] for i in given], [leaves[i] for i in wanted]
        return _vjp(outputs, inputs, grads)

    flat, spec = tree_flatten(((list(leaves), grads), {}))
    again = _Call(gradients, call.index, spec, call.watched)
    return tree_unflatten(list(_OnHost.apply(again, *flat)), again.structure)


def _vjp(outputs, inputs, grads):
    """Gradients of the outputs that have one, with regard to the inputs."""
    pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if o.requires_grad]
    if not pairs:
        return [None] * len(inputs)
    outputs, grads = zip(*pairs, strict=True)
    again = torch.is_grad_enabled()
    return torch.autograd.grad(
        outputs, inputs, grads, allow_unused=True, retain_graph=True, create_graph=again
    )


class _Watch(TorchDispatchMode):
    """Tell the machine of the kernels and the memory of operators on the host."""

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
                    charge(x, self.index)
        return results


# ------------------------------------------------------------------ without


def _composites_with_out() -> list[str]:
    """Names of composites that write ``out=``.

    They reshape ``out`` on the way and ask whether two tensors share memory, which C++
    cannot see of virtual ones; or they return a new tensor for subclasses.
    """
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return [
        name.removeprefix("aten::")
        for name, func in all_operators()
        if has(name, "CompositeImplicitAutograd")
        and any(a.is_out for a in func._schema.arguments)
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
        except Exception as error:
            return contained(error, sys._getframe(1), op)

    return kernel


def _tensor_split(tensor, tensor_indices_or_sections, dim=0):
    """The places to split at are read, which PyTorch allows of a CPU tensor only."""
    return tensor.tensor_split(tensor_indices_or_sections.tolist(), dim)
