"""What a compiled program sends, read from its text."""

import math
import re
from collections.abc import Iterator

# GPUs have …-start and …-done of each, and only the latter has the result's type.
_COLLECTIVE = re.compile(
    r"= (.*?) (?:all-\w+|reduce-scatter|collective-permute)(?:-done)?\("
)


def collected(program: str) -> Iterator[int]:
    """Yield the size of each array that a collective returns, in numbers."""
    for shapes in _COLLECTIVE.findall(program):
        for sizes in re.findall(r"\w\d+\[([\d,]*)\]", shapes):
            yield math.prod(int(x) for x in sizes.split(",") if x)
