"""Upper bounds of the bytes in a call's results.

Before an operator runs, we check that its results will fit on the device. Asking
PyTorch for their exact size takes longer than a small operator, so the dispatch first
compares the free memory with a bound. It asks only if the bound is larger.

``size_bound`` holds for every operator. The other functions hold for the operators
whose records name them (``records.py``). Each takes the arguments of a call, with
backing tensors, and the bytes of these tensors.
"""

import itertools
import math
from collections.abc import Sequence

import torch

# The widest element (complex128) in bytes: an upper bound for any result's.
WIDEST = 16


def size_bound(args) -> float:
    """Return an upper bound, cheap to compute, of the elements in a call's results.

    It multiplies the sizes of all tensors and all integers among the arguments. No
    operator makes more elements than that, not even an outer product, ``repeat`` or
    padding.
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


# ------------------------------------------------------------------ bounds by operator


def no_larger(args: Sequence, nbytes: int) -> int:
    """Up to three results, each with no more elements than the operands have."""
    return 3 * WIDEST * nbytes


def product(args: Sequence, nbytes: int) -> int:
    """A product of two matrices."""
    return _product(args[0], args[1])


def added_product(args: Sequence, nbytes: int) -> int:
    """A product of two matrices, added to the first argument."""
    return _product(args[1], args[2])


def batched_product(args: Sequence, nbytes: int) -> int:
    """A product for each pair of matrices in two batches."""
    return args[0].shape[1] * _product(args[0], args[1])


def convolution(args: Sequence, nbytes: int) -> int:
    """A convolution. A transposed one grows by its stride: ask for its exact size."""
    x, weight, _, _, padding, _, transposed = args[:7]
    if transposed:
        return 2**62
    n = x.shape[0] * weight.shape[0] * WIDEST
    for size, pad in zip(x.shape[2:], itertools.cycle(padding), strict=False):
        n *= size + 2 * pad
    return n


# ------------------------------------------------------------------ dense from sparse

# The bytes of a dense result, exactly, for operators with sparse operands.


def dense(args: Sequence) -> int:
    """The first argument, as a dense tensor."""
    return args[0].numel() * args[0].element_size()


def dense_product(args: Sequence) -> int:
    """A product of two matrices, which is sparse if both are."""
    a, b = args[:2]
    if torch.strided not in (a.layout, b.layout):
        return 0
    return a.shape[0] * b.shape[-1] * a.element_size()


def dense_added_product(args: Sequence) -> int:
    """A product of two matrices, added to the first argument."""
    return dense_product(args[1:])


def _product(a: torch.Tensor, b: torch.Tensor) -> int:
    return a.shape[0] * b.shape[-1] * WIDEST
