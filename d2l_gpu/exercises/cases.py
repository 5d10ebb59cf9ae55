"""Claims about an answer that is tried on several cases."""

from collections.abc import Iterable, Iterator

from d2l_gpu.exercises.registry import Claim


def in_all(cases: Iterable[Iterable[Claim]]) -> Iterator[Claim]:
    """Yield each claim once; it holds if it holds in every case.

    Args:
        cases: the claims for each case. A claim that fails keeps the hint of the first
            case where it fails.
    """
    found: dict[str, Claim] = {}
    for claims in cases:
        for claim in claims:
            if found.setdefault(claim.text, claim).holds:
                found[claim.text] = claim
    yield from found.values()
