"""``torch.autocast``: parameters that it has cast and keeps."""

import functools

import torch

from .. import autocast


def apply() -> None:
    """Apply all changes; ``patches.apply`` calls this once."""
    cache()


def cache() -> None:
    """Forget our copies of parameters where PyTorch forgets those that C++ has made.

    All: autocast calls this function where its outermost context ends. Without the
    change, a copy would outlive the optimizer's step.
    """
    original = torch.clear_autocast_cache

    @functools.wraps(original)
    def clear_autocast_cache():
        autocast.forget()
        original()

    torch.clear_autocast_cache = clear_autocast_cache
