"""Time: norms of the products of a loop."""

import math
from collections.abc import Sequence


def wrong_norms(
    found: Sequence[float], wanted: Sequence[float], first: float, digits: str
) -> str:
    """Return what's wrong with the norms of ``X @ X``, ``X @ X @ X`` and so on.

    Args:
        found: the norms.
        wanted: the right ones.
        first: the norm of ``X``.
        digits: how norms are formatted, such as ``.4g``.
    """
    if math.isclose(found[0], first, rel_tol=1e-3):
        return "The first one is the norm of `X` itself, not of the first product."
    if math.isclose(found[0], wanted[0] ** 2, rel_tol=1e-3):
        return "The first one is the square of the norm: the square root is missing."
    if math.isclose(found[-1], wanted[0], rel_tol=1e-3):
        return (
            "All of them are the norm of `X @ X`. Each step has to multiply the result "
            "of the previous step."
        )
    for i, (value, norm) in enumerate(zip(found, wanted, strict=True), 1):
        if not math.isclose(value, norm, rel_tol=1e-3):
            return (
                f"The norm of step {i} should be {norm:{digits}}, but yours is "
                f"{value:{digits}}."
            )
    return ""
