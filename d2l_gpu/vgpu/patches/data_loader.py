"""``torch.utils.data`` on virtual GPUs."""

import torch

from ..tensor import VirtualTensor


def apply() -> None:
    """Apply all changes; ``patches.apply`` calls this once."""
    batches()


def batches() -> None:
    """Let workers of a DataLoader stack virtual tensors into a batch.

    All: PyTorch allocates shared memory on the tensors' device. C++ has no allocator
    for virtual GPUs, so the worker dies of a segmentation fault.
    """
    from torch.utils.data._utils.collate import default_collate_fn_map

    default_collate_fn_map[VirtualTensor] = lambda batch, **_: torch.stack(batch)
