"""What the clock has to know about an operator: its work, from shapes and types.

A call leaves a *key*, a tuple that says what was called on tensors of which sizes: the
operator, the bytes of all operands and results, those of the largest, the type of the
first, and, if the operator's record names a formula, the shapes that the formula needs.
Only when somebody asks the clock does it turn a key into numbers of operations and
bytes, once for all calls with the same key: by the formulas of
``torch.utils.flop_counter`` for products and convolutions, by sizes for everything
else.
"""

from collections.abc import Callable
from math import prod
from typing import NamedTuple

import torch
from torch.utils.flop_counter import flop_registry

from .sim.clock import Part

KINDS = {
    torch.float64: "fp64",
    torch.complex128: "fp64",
    torch.float32: "fp32",
    torch.complex64: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
}

WIDTHS = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}  # bytes


# Whether fp32 may run as TF32 on devices that have it: in products, where PyTorch's
# default is not to (``torch.set_float32_matmul_precision``), and in convolutions, where
# it is.
tf32_in_products = torch._C._get_cublas_allow_tf32
tf32_in_convolutions = torch._C._get_cudnn_allow_tf32


# ------------------------------------------------------------------ products

# What is noted about a call of an operator with a formula: shapes and settings.


def _two(args, results):
    return args[0].shape, args[1].shape, tf32_in_products()


def _added(args, results):
    return args[1].shape, args[2].shape, tf32_in_products()


def _attention(args, results):
    return (*(x.shape for x in args[:3]), tf32_in_products())


def _attention_backward(args, results):
    return (*(x.shape for x in args[:4]), tf32_in_products())


def _convolution(args, results):
    return (
        args[0].shape,
        args[1].shape,
        results.shape,
        args[6],
        args[8],
        tf32_in_convolutions(),
    )


def _convolution_backward(args, results):
    grad, x, weight = args[:3]
    return (
        *(grad.shape, x.shape, weight.shape, args[7], args[9], tuple(args[10])),
        tf32_in_convolutions(),
    )


def _formula(name: str) -> Callable[..., int]:
    return flop_registry[getattr(torch.ops.aten, name)]


def _product(a, b, dtype, nbytes: int) -> list[Part]:
    name = "bmm" if len(a) == 3 else "mm"
    batch = a[0] if len(a) == 3 else 1
    shape = batch, a[-2], b[-1], a[-1]
    return [Part(_formula(name)(a, b), dtype, nbytes, shape)]


def _convolved(x, weight, out, transposed, groups, kind, nbytes: int) -> list[Part]:
    """A convolution as a product: a row for each place of each example, a column for
    each channel that comes out; the patch that it looks at is the inner dimension."""
    operations = _formula("convolution")(
        x, weight, None, None, None, None, transposed, out_val=out
    )
    places = x if transposed else out
    rows = places[0] * prod(places[2:])
    shape = groups, rows, weight[0] // groups, prod(weight[1:])
    return [Part(operations, kind, nbytes, shape)]


def _convolved_backward(
    grad, x, weight, transposed, groups, mask, kind, nbytes: int
) -> list[Part]:
    """The gradient of the input and that of the weight, each a kernel."""
    small, large = (x, grad) if transposed else (grad, x)
    places = small[0] * prod(small[2:])
    shapes = (
        (
            groups,
            large[0] * prod(large[2:]),
            weight[1],
            prod(weight) // groups // weight[1],
        ),
        (groups, weight[0] // groups, prod(weight[1:]), places),
    )
    sizes = prod(grad) + prod(x) + prod(weight)
    parts = []
    for i in (0, 1):
        if mask[i]:
            operations = _formula("convolution_backward")(
                *(grad, x, weight, None, None, None, None, transposed, None, groups),
                [i == 0, i == 1, False],
                out_val=[x, weight, None],
            )
            if i == 1:  # the formula knows no groups here
                operations //= groups
            parts.append(Part(operations, kind, sizes * WIDTHS[kind], shapes[i]))
    return parts or [Part(0, kind, nbytes)]  # the gradient of the bias alone


def _attended(query, key, value, kind, nbytes: int) -> list[Part]:
    operations = _formula("_scaled_dot_product_flash_attention")(query, key, value)
    shape = prod(query[:-2]), query[-2], key[-2], query[-1]
    return [Part(operations, kind, nbytes, shape)]


def _attended_backward(grad, query, key, value, kind, nbytes: int) -> list[Part]:
    operations = _formula("_scaled_dot_product_flash_attention_backward")(
        grad, query, key, value
    )
    shape = prod(query[:-2]), query[-2], key[-2], query[-1]
    return [Part(operations, kind, nbytes, shape)]


def _rows(args, results):
    return results.numel(), results.nbytes, False


def _looked_up(elements, size, kind, nbytes: int) -> list[Part]:
    """Read and write the rows that are found; the rest of the table isn't touched."""
    return [Part(elements, kind, 2 * size)]


def _recurrent(args, results):
    return (*(x.shape for x in args[:3]), False)


def _unrolled(x, inputs, hidden, kind, nbytes: int) -> list[Part]:
    """One product for the inputs of all steps, then one for each step."""
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
    """For each product forward, the gradients of its two factors."""
    return 2 * _unrolled(x, inputs, hidden, kind, nbytes)


class Formula(NamedTuple):
    """What an operator does that sizes alone do not say.

    Attributes:
        describe: what is noted about a call, from its arguments and results; its last
            item says whether fp32 may run as TF32.
        parts: its kernels, from that, the type of number and the bytes.
    """

    describe: Callable[..., tuple]
    parts: Callable[..., list[Part]]


PRODUCT = Formula(_two, _product)
ADDED_PRODUCT = Formula(_added, _product)
CONVOLUTION = Formula(_convolution, _convolved)
CONVOLUTION_BACKWARD = Formula(_convolution_backward, _convolved_backward)
ATTENTION = Formula(_attention, _attended)
ATTENTION_BACKWARD = Formula(_attention_backward, _attended_backward)
LOOKUP = Formula(_rows, _looked_up)
RECURRENT = Formula(_recurrent, _unrolled)
RECURRENT_BACKWARD = Formula(_recurrent, _unrolled_backward)


def parts_of(key: tuple) -> tuple[str, list[Part]]:
    """Return the name of what was called, and the work of each of its kernels.

    Args:
        key: of a call of an operator, or of a copy within a device.
    """
    op, nbytes, *rest = key
    if isinstance(op, str):  # a copy
        return op, [Part(0, "fp32", nbytes)]
    largest, dtype, *described = rest
    kind = KINDS.get(dtype, "fp32")
    if not described:
        # One operation for each element, whatever it is: memory decides, here.
        elements = largest // (dtype.itemsize if dtype is not None else 1)
        return op.name, [Part(elements, kind, round(nbytes * op.record.traffic))]
    *shapes, tf32 = described[0]
    if kind == "fp32" and tf32:
        kind = "tf32"
    return op.name, op.record.formula.parts(*shapes, kind, nbytes)
