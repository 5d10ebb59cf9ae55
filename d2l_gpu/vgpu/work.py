"""The work of an operator, in operations and bytes, computed from shapes and types.

Each call leaves a *key*, a tuple that says what was called on tensors of which sizes:
the operator, the bytes of all operands and results together, the bytes of the largest,
the type of the first, and, if the operator's record names a formula, the shapes that
the formula needs. Once somebody asks the clock, ``work_of`` turns each distinct key
into operations and bytes. It uses the formulas of ``torch.utils.flop_counter`` for
products and convolutions, and sizes for everything else.
"""

from collections.abc import Callable
from math import prod
from typing import NamedTuple

import torch
from torch.utils.flop_counter import flop_registry

from . import convolutions
from .sim.clock import Choice, Part, Work
from .sim.cudnn import WIDTHS

KINDS = {
    torch.float64: "fp64",
    torch.complex128: "fp64",
    torch.float32: "fp32",
    torch.complex64: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
}

# Whether fp32 may run as TF32 on devices that have it. PyTorch's default is no for
# products (``torch.set_float32_matmul_precision``) and yes for convolutions.
tf32_in_products = torch._C._get_cublas_allow_tf32


# ------------------------------------------------------------------ products

# What a key holds besides sizes for an operator with a formula: shapes and settings.


def _two(args, results):
    return args[0].shape, args[1].shape, tf32_in_products()


def _added(args, results):
    return args[1].shape, args[2].shape, tf32_in_products()


def _attention(first: int, causal: int) -> Callable[..., tuple]:
    """Describe attention whose query, and whether it is causal, are at these places."""

    def describe(args, results):
        shapes = (x.shape for x in args[first : first + 3])
        return *shapes, len(args) > causal and bool(args[causal]), tf32_in_products()

    return describe


def _formula(name: str) -> Callable[..., int]:
    return flop_registry[getattr(torch.ops.aten, name)]


def _product(a, b, dtype, nbytes: int) -> list[Part]:
    name = "bmm" if len(a) == 3 else "mm"
    batch = a[0] if len(a) == 3 else 1
    shape = batch, a[-2], b[-1], a[-1]
    return [Part(_formula(name)(a, b), dtype, nbytes, shape)]


def _attended(query, key, value, causal: bool, kind, nbytes: int) -> list[Part]:
    operations = _formula("_scaled_dot_product_flash_attention")(query, key, value)
    return [_attention_part(operations, query, key, causal, kind, nbytes)]


def _attended_backward(
    query, key, value, causal: bool, kind, nbytes: int
) -> list[Part]:
    formula = _formula("_scaled_dot_product_flash_attention_backward")
    operations = formula((*query[:-1], value[-1]), query, key, value)
    return [_attention_part(operations, query, key, causal, kind, nbytes)]


def _attention_part(operations, query, key, causal, kind, nbytes) -> Part:
    """Return the work of one kernel. Under a causal mask it leaves out half of it."""
    if causal:
        operations //= 2
    shape = prod(query[:-2]), query[-2], key[-2], query[-1]
    return Part(operations, kind, nbytes, shape, "attention")


def _rows(args, results):
    return results.numel(), results.nbytes, False


def _looked_up(elements, size, kind, nbytes: int) -> list[Part]:
    """Read and write the rows that are looked up, not the rest of the table."""
    return [Part(elements, kind, 2 * size)]


def _recurrent(args, results):
    return (*(x.shape for x in args[:3]), False)


def _unrolled(x, inputs, hidden, kind, nbytes: int) -> list[Part]:
    """Describe a recurrent layer: one product for all inputs, then one per step."""
    steps, batch = x[:2]
    width = WIDTHS[kind]
    found = []
    for rows, weight, times in ((steps * batch, inputs, 1), (batch, hidden, steps)):
        elements = rows * weight[1] + prod(weight) + rows * weight[0]
        operations = 2 * rows * prod(weight)
        shape = 1, rows, *weight
        found += [Part(operations, kind, width * elements, shape)] * times
    return found


def _unrolled_backward(x, inputs, hidden, kind, nbytes: int) -> list[Part]:
    """Describe its backward: for each product, the gradients of both factors."""
    return 2 * _unrolled(x, inputs, hidden, kind, nbytes)


class Formula(NamedTuple):
    """How to find the work of an operator that depends on more than sizes.

    Attributes:
        describe: returns what the key needs, given a call's arguments and results; the
            last item says whether fp32 may run as TF32.
        parts: returns its kernels, given those items, the type of number and the bytes.
    """

    describe: Callable[..., tuple]
    parts: Callable[..., list[Part | Choice]]


PRODUCT = Formula(_two, _product)
ADDED_PRODUCT = Formula(_added, _product)
CONVOLUTION = Formula(convolutions.describe, convolutions.forward)
CONVOLUTION_BACKWARD = Formula(convolutions.describe_backward, convolutions.backward)
FLASH = Formula(_attention(0, 4), _attended)
EFFICIENT = Formula(_attention(0, 6), _attended)
FLASH_BACKWARD_ON_CPU = Formula(_attention(1, 7), _attended_backward)
FUSED_BACKWARD = Formula(_attention(1, 11), _attended_backward)
LOOKUP = Formula(_rows, _looked_up)
RECURRENT = Formula(_recurrent, _unrolled)
RECURRENT_BACKWARD = Formula(_recurrent, _unrolled_backward)


def work_of(key: tuple) -> Work:
    """Return the work of an operator's call, or of a copy within a device."""
    op, nbytes, *rest = key
    if isinstance(op, str):  # a copy
        return Work(op, [Part(0, "fp32", nbytes)])
    largest, dtype, *described = rest
    kind = KINDS.get(dtype, "fp32")
    if not described:
        # Count one operation per element: memory traffic decides the time anyway.
        elements = largest // (dtype.itemsize if dtype is not None else 1)
        part = Part(elements, kind, round(nbytes * op.record.traffic))
        return Work(op.name, [part], op.record.layer)
    *shapes, tf32 = described[0]
    if kind == "fp32" and tf32:
        kind = "tf32"
    parts = op.record.formula.parts(*shapes, kind, nbytes)
    return Work(op.name, parts, op.record.layer)
