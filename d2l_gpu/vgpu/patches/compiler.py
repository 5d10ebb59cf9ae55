"""``torch.compile``, which cannot see through a virtual tensor."""

import functools
import warnings

import torch


def apply() -> None:
    """Apply all changes; ``patches.apply`` calls this once."""
    compiling()


def compiling() -> None:
    """Let ``torch.compile`` leave code as it is, and warn once.

    All: the compiler can't see through a wrapper. It breaks the graph at every
    operator, and each time prints a page of warnings.
    """
    original = torch.compile

    @functools.wraps(original)
    def compile(model=None, *, disable=False, **settings):
        if not disable:
            warnings.warn(
                "torch.compile does nothing while virtual GPUs are in use: the code "
                "runs as it is, with the same results.",
                stacklevel=2,
            )
        return original(model, disable=True, **settings)

    torch.compile = compile
