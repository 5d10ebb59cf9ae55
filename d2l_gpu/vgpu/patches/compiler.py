"""``torch.compile`` and ``torch.export``, which trace code to get its operators.

Backends that run the graph, such as ``eager``, ``aot_eager`` or a function of one's
own, get it as on a GPU. The default one, Inductor, would write kernels for the GPU.
"""

import functools
import sys
import warnings

import torch

from ..tensor import VirtualTensor
from .when_imported import when_imported

# Backends that write or record kernels of a real device.
GENERATING = ("inductor", "cudagraphs")
PACKAGE = __package__.removesuffix(".patches")
DYNAMO = "torch._dynamo"


def apply() -> None:
    """Apply all changes; ``patches.apply`` calls this once."""
    compiling()
    higher_order()
    when_imported(DYNAMO, tracing)


def compiling() -> None:
    """Let ``torch.compile`` leave code as it is for Inductor, and warn once.

    All: Inductor has no code generator for this device.
    """
    original = torch.compile

    @functools.wraps(original)
    def compile(model=None, *, backend="inductor", disable=False, **settings):
        if backend in GENERATING and not disable:
            warnings.warn(
                f"torch.compile with the backend {backend} does nothing while virtual "
                "GPUs are in use: the code runs as it is, with the same results. The "
                "backends eager and aot_eager trace it.",
                stacklevel=2,
            )
            disable = True
        return original(model, backend=backend, disable=disable, **settings)

    torch.compile = compile


def higher_order() -> None:
    """Let operators on functions, such as ``torch.cond``, take virtual tensors.

    All: for a class with ``__torch_dispatch__`` they want a rule of its own. Ours is
    the one for all devices.
    """
    from torch._ops import HigherOrderOperator, _higher_order_ops

    original = HigherOrderOperator.py_impl
    everywhere = torch._C.DispatchKey.CompositeExplicitAutograd

    @functools.wraps(original)
    def py_impl(self, key):
        register = original(self, key)

        def registered(function):
            if key is everywhere:
                self.python_key_table.setdefault(VirtualTensor, function)
            return register(function)

        return registered

    HigherOrderOperator.py_impl = py_impl
    for each in _higher_order_ops.values():
        if everywhere in each.py_kernels:
            rule = each.py_kernels[everywhere]
            each.python_key_table.setdefault(VirtualTensor, rule)


def tracing() -> None:
    """Let Dynamo trace virtual tensors as plain tensors of their device.

    All: it takes an instance of a class with ``__torch_dispatch__`` for a plain Python
    object, because it can't know what the class does with operators. Ours does what a
    device does. And our own code, which runs between two graphs, is not for tracing.
    """
    from torch._dynamo import trace_rules
    from torch._dynamo.variables import builder

    wrap, infer = builder.VariableBuilder._wrap, builder.infer_subclass_type

    @functools.wraps(wrap)
    def _wrap(self, value):
        if type(value) is VirtualTensor:
            return self.wrap_tensor(value)
        return wrap(self, value)

    @functools.wraps(infer)
    def infer_subclass_type(value):
        return None if type(value) is VirtualTensor else infer(value)

    builder.VariableBuilder._wrap = _wrap
    builder.infer_subclass_type = infer_subclass_type
    trace_rules.add(PACKAGE)
    names_again()


def names_again() -> None:
    """Let Dynamo look up again what the names of functions such as torch.arange mean.

    All: it knows functions by identity, and we put others in their place.
    """
    if DYNAMO in sys.modules:
        from torch._dynamo import trace_rules

        trace_rules.get_torch_obj_rule_map.cache_clear()
