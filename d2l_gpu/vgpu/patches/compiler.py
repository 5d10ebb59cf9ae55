"""``torch.compile``, which cannot see through a virtual tensor."""

import functools
import warnings

import torch


def apply() -> None:
    """Apply all changes; ``patches.apply`` calls this once."""
    compiling()


def compiling() -> None:
    """Let ``torch.compile`` leave code as it is, with one warning.

    All: the compiler cannot see through a wrapper; it breaks the graph at every
    operator, with a page of warnings each.
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
