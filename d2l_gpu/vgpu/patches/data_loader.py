"""``torch.utils.data`` on virtual GPUs."""

import torch

from ..tensor import VirtualTensor


def apply() -> None:
    """Apply all changes; ``patches.apply`` calls this once."""
    batches()


def batches() -> None:
    """Let workers of a DataLoader stack virtual tensors to a batch.

    All: for tensors PyTorch makes shared memory on their device, which ends the worker
    with a segmentation fault, since C++ has no allocator for this one.
    """
    from torch.utils.data._utils.collate import default_collate_fn_map

    default_collate_fn_map[VirtualTensor] = lambda batch, **_: torch.stack(batch)
