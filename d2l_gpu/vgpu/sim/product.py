"""One matrix product by itself: how long a processor of the catalogue takes for it."""

from .catalogue import LINKS, Model
from .clock import Clock, Part, Work
from .commands import HostWaits

FP32 = 4  # bytes


def product_seconds(model: Model, m: int, k: int, n: int) -> float:
    """Return how long a host has to wait for a product of matrices in fp32.

    The matrices, m × k and k × n, are in the processor's memory already. The time is
    the one that a simulator says, from before the host issues the product until it has
    heard that it's done, without TF32. This function needs no simulator, and so no
    virtual GPUs in the process.

    Args:
        model: an entry of ``MODELS``.
        m: rows of the first matrix, and of the product.
        k: columns of the first matrix, and rows of the second.
        n: columns of the second matrix, and of the product.
    Returns:
        Simulated seconds.
    """
    nbytes = FP32 * (m * k + k * n + m * n)
    part = Part(2 * m * n * k, "fp32", nbytes, (1, m, n, k))
    clock = Clock({0: model}, LINKS[model.link], lambda key: Work("mm", [part]))
    clock.note(("mm",), 0, 0)
    clock.note(HostWaits([0]), 0, 0)
    return clock.now()
