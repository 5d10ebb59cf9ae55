"""Methods of ``torch.Tensor`` that C++ implements without asking the backend."""

import torch
from torch.nn.parameter import UninitializedTensorMixin

from ..devices import as_device
from ..tensor import is_virtual


def apply() -> None:
    """Apply all changes; ``patches.apply`` calls this once."""
    data()
    pinned_memory()
    cuda_methods()


def data() -> None:
    """Let ``p.data = p.data.to('vgpu:1')`` move a parameter, as to any device.

    All: C++ accepts only data of the same tensor type, but a plain tensor and a wrapper
    have different types. FSDP moves parameters this way, in both directions.
    """
    original = torch.Tensor.data

    def set_data(self, new):
        if is_virtual(new) != is_virtual(self):
            grad, new = self.grad, new.detach().requires_grad_(self.requires_grad)
            if isinstance(self, torch.nn.Parameter):
                new = torch.nn.Parameter(new, self.requires_grad)
            become(self, new)
            if grad is not None and grad.shape == self.shape:
                self.grad = grad.to(self.device)
        else:
            original.__set__(self, new)

    torch.Tensor.data = property(original.__get__, set_data)


def pinned_memory() -> None:
    """Mark CPU tensors as pinned: nothing is locked, but the clock respects the mark.

    All: PyTorch asks a C++ hook for an allocator of pinned memory. With CUDA we change
    nothing, and PyTorch uses real pinned memory.
    """
    if torch.cuda.is_available():
        return

    def pin_memory(self, device=None):
        if self.is_pinned():
            return self
        pinned = self.clone()
        pinned._vgpu_pinned = True
        return pinned

    def is_pinned(self, device=None):
        return getattr(self, "_vgpu_pinned", False)

    torch.Tensor.pin_memory = pin_memory
    torch.Tensor.is_pinned = is_pinned


def cuda_methods() -> None:
    """Let ``.cuda(i)`` of CPU tensors and modules mean virtual GPU i.

    All: without CUDA they raise. With CUDA they keep their meaning.
    """
    if torch.cuda.is_available():
        return

    def cuda(
        self, device=None, non_blocking=False, memory_format=torch.preserve_format
    ):
        return self.to(
            as_device(device),
            non_blocking=non_blocking,
            memory_format=memory_format,
        )

    def module_cuda(self, device=None):
        return self.to(as_device(device))

    torch.Tensor.cuda = cuda
    torch.nn.Module.cuda = module_cuda
    # Lazy parameters allow only the methods on this list.
    UninitializedTensorMixin._allowed_methods.append(cuda)


def become(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """Swap two tensor objects, both their C++ and their Python halves.

    ``torch.utils.swap_tensors`` does the same but refuses while a graph holds the
    tensor. Here such a graph keeps the old values, and its backward no longer reaches
    this tensor.
    """
    torch._C._swap_tensor_impl(tensor, other)
    tensor.__class__, other.__class__ = other.__class__, tensor.__class__
    ours, theirs = tensor.__dict__, other.__dict__
    tensor.__dict__, other.__dict__ = theirs, ours
    # What a program has noted on a tensor stays with the object.
    noted = {k: v for k, v in ours.items() if k not in WRAPPERS}
    tensor.__dict__.update(noted)


# Attributes that belong to the memory of a virtual tensor, or to its class.
WRAPPERS = ("_backing", "_index", "_is_param", "_vgpu_device", "_vgpu_pinned")
