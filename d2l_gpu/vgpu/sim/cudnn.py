"""The kernels of a convolution on a GPU: several algorithms, of which one is chosen.

cuDNN has several algorithms for a convolution, and takes the one that it believes to be
the fastest. The clock does the same with these:

* A matrix product, with a row for each place of each example and a column for each
  output channel. The inner dimension is the patch of the input that an output looks at.
  Tensor cores want the channels last in memory and their number a multiple of 16 bytes.
  Tensors that have them elsewhere are copied before and after. (NVIDIA, Convolutional
  Layers User's Guide, 2023, Tensor Layouts and Channels In and Out.)
* The same product on the general units, whatever the layout.
* Winograd's algorithm for windows of 3 × 3 with stride 1 in fp32. It computes a tile of
  m × m results with (m + 2)² multiplications instead of 9 m². (A. Lavin and S. Gray,
  Fast Algorithms for Convolutional Neural Networks, 2015, arXiv:1509.09308.)
* One pass over the tensors, without a product, for windows that see one channel each
  (depthwise).
"""

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from .clock import Part

WIDTHS = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}  # bytes
ALIGNED = 16  # bytes of channels that tensor cores take at a time

# Winograd's tiles: results along one side, and whether it's a single kernel. Otherwise
# there are three, which leave the transformed tiles in memory in between.
WINOGRAD = ((2, True), (4, False))
WHOLE = 128  # the three compute whole tiles of this many rows and columns

# Of computing each side of a convolution from the others.
NAMES = {
    "small": "forward",
    "large": "gradient of input",
    "weight": "gradient of weight",
}


class Sides(NamedTuple):
    """A convolution between two tensors of (N, channels, …) and a weight.

    Attributes:
        large: the side with the larger space: the input, or, if transposed, the result.
        small: the other side.
        weight: of (channels of small, channels of large / groups, …).
        last: whether the channels of large and of small are last in memory.
    """

    large: tuple[int, ...]
    small: tuple[int, ...]
    weight: tuple[int, ...]
    groups: int
    stride: tuple[int, ...]
    last: tuple[bool, bool]


def ways(
    computed: str, sides: Sides, operations: int, kind: str
) -> Iterator[tuple[Part, ...]]:
    """Yield ways to compute one of large, small and weight from the others."""
    large, small, weight, groups, stride, last = sides
    width = WIDTHS[kind]
    inputs, outputs = large[1] // groups, small[1] // groups
    window = prod(weight[2:])
    places = small[0] * prod(small[2:])
    # With a stride, a place of the large side meets a part of the window. Which part,
    # repeats with the stride, and each is a product of its own.
    apart = [-(-side // step) for side, step in zip(large[2:], stride, strict=True)]
    parts = prod(map(min, weight[2:], stride))
    product = {
        "small": (groups, places, outputs, inputs * window),
        "large": (
            *(groups * parts, large[0] * prod(apart), inputs),
            -(-outputs * window // parts),
        ),
        "weight": (groups, outputs, inputs * window, places),
    }[computed]
    nbytes = width * (prod(large) + prod(small) + prod(weight))
    name = f"convolution, {NAMES[computed]}"
    general = Part(operations, kind, nbytes, product, name, general=True)
    yield (general,)
    if not operations:
        return
    if kind != "fp32":
        step = ALIGNED // width
        aligned = _up(inputs, step) * _up(outputs, step) / (inputs * outputs)
        elsewhere = [
            width * prod(shape)
            for shape, there in zip((large, small), last, strict=True)
            if not there
        ]
        on_tensor_cores = general._replace(done=aligned, general=False)
        yield *(Part(0, kind, 2 * size) for size in elsewhere), on_tensor_cores
    if kind in ("fp32", "tf32") and weight[2:] == (3, 3) and set(stride) == {1}:
        for tile, at_once in WINOGRAD:
            if not (at_once and computed == "weight"):
                yield from _winograd(tile, at_once, computed, sides, operations, nbytes)
    if groups > 1 and inputs == 1:
        yield (Part(operations, kind, nbytes),)


def _winograd(
    tile: int, at_once: bool, computed: str, sides: Sides, operations: int, nbytes: int
) -> Iterator[tuple[Part, ...]]:
    """Yield Winograd's algorithm: a product for each place in a transformed tile."""
    large, small, _, groups, _, _ = sides
    space = large if computed == "large" else small
    tiles = space[0] * prod(-(-side // tile) for side in space[2:])
    places = (tile + 2) ** 2
    inputs, outputs = large[1] // groups, small[1] // groups
    product = {
        "small": (groups * places, tiles, outputs, inputs),
        "large": (groups * places, tiles, inputs, outputs),
        "weight": (groups * places, outputs, inputs, tiles),
    }[computed]
    name = f"Winograd, {NAMES[computed]}"
    if at_once:
        share = 2 * prod(product) / operations
        yield (Part(operations, "fp32", nbytes, product, name, share),)
        return
    batch, m, n, k = product
    transformed = WIDTHS["fp32"] * batch * (m * k + k * n + m * n)
    before = Part(0, "fp32", (nbytes + transformed) // 2)
    product = batch, _up(m, WHOLE), _up(n, WHOLE), k
    share = 2 * prod(product) / operations
    yield (
        before,
        Part(operations, "fp32", transformed, product, name, share),
        before,
    )


def _up(number: int, step: int) -> int:
    return -(-number // step) * step
