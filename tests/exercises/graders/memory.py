"""Answers to 04.1, what training takes of memory: the same for several frameworks."""

from collections.abc import Callable

WEIGHTS, BIASES = 784 * 256 + 256 * 10, 256 + 10
NBYTES = 4 * (WEIGHTS + BIASES)


def answers(right: Callable, wrong: Callable) -> None:
    """Register them."""
    right("04.1")(_memory(float(NBYTES)))
    wrong("04.1", "how many numbers")(_memory(WEIGHTS + BIASES))
    wrong("04.1", "biases are parameters")(_memory(4 * WEIGHTS))
    wrong("04.1", "too small by the size")(_memory(NBYTES, 1, 2, 3))
    wrong("04.1", "too large by the size")(_memory(NBYTES, adam=5))
    wrong("04.1", "You say 0 bytes")(_memory(NBYTES, sgd=0, momentum=1))
    wrong("04.1", "You say 4,070,600 bytes, but it's less")(_memory(NBYTES, momentum=5))
    wrong("04.1", "The keys must be")({"sgd": 1, "adam": 2})


def _memory(one: float, sgd: int = 2, momentum: int = 3, adam: int = 4) -> dict:
    """Return an answer that is so many times one number for each optimizer."""
    return {"sgd": sgd * one, "momentum": momentum * one, "adam": adam * one}
