"""The dense tensors that a tensor consists of: itself, or the parts of a sparse one."""

import torch

from . import errors


def parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the dense tensors that hold a tensor's memory.

    They are the tensor itself if it's strided, indices and values if it's a sparse COO
    tensor, and both kinds of indices and values if it's a sparse CSR or CSC tensor.

    Raises:
        NotImplementedError: the tensor has another layout.
    """
    if tensor.is_nested:
        raise errors.unsupported_layout("nested")
    if tensor.layout is torch.strided:
        return (tensor,)
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout is torch.sparse_csr:
        tensor = tensor.detach()
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout is torch.sparse_csc:
        tensor = tensor.detach()
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    raise errors.unsupported_layout(tensor.layout)


def bytes_of(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor's values, and of the indices of a sparse one."""
    if tensor.layout is torch.strided:
        return tensor.nbytes
    return sum(x.nbytes for x in parts(tensor))


def total_bytes(values) -> int:
    """Return the bytes of all tensors among values, a value or nested lists of them."""
    total = 0
    for x in values if isinstance(values, list | tuple) else (values,):
        if isinstance(x, torch.Tensor):
            total += bytes_of(x)
        elif isinstance(x, list | tuple):
            total += total_bytes(x)
    return total
