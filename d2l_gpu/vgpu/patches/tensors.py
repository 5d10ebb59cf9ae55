"""Methods of ``torch.Tensor`` that C++ implements without asking the backend."""

import functools
from collections.abc import Sequence

import torch
from torch.nn.parameter import UninitializedTensorMixin

from ..devices import Devices, as_device
from ..methods import OURS, Passed
from ..operators import all_operators
from ..storage import VirtualStorage, copy_bytes, has_pinned_mark, set_pinned_mark
from ..tensor import is_virtual
from .names import known_to_torchscript


def apply() -> None:
    """Apply all changes; ``patches.apply`` calls this once."""
    data()
    storages()
    from_memory()
    pinned_memory()
    pinned_factories()
    cuda_methods()
    dlpack()


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


def storages() -> None:
    """Let storages be made on virtual GPUs, and copied to and from there.

    All: C++ allocates and copies by device types that it knows.
    """
    kind = torch.UntypedStorage
    make, copy, is_pinned = kind.__new__, kind.copy_, kind.is_pinned

    def __new__(cls, *args, device=None, **options):
        if device is not None and torch.device(device).type in Devices.types:
            if cls is kind:
                return _new_storage(device, *args, **options)
            return make(cls, *args, device, **options)
        if device is not None:
            options["device"] = device
        return make(cls, *args, **options)

    @functools.wraps(copy)
    def copy_(self, source, non_blocking=False):
        if not isinstance(source, VirtualStorage):
            return copy(self, source, non_blocking)
        copy_bytes(self, source, non_blocking)
        return self

    @functools.wraps(is_pinned)
    def _is_pinned(self, device="cuda"):
        return getattr(self, "_vgpu_pinned", False) or is_pinned(self, device)

    kind.__new__, kind.copy_, kind.is_pinned = __new__, copy_, _is_pinned

    wrapped = torch.TypedStorage._new_wrapped_storage

    @functools.wraps(wrapped)
    def _new_wrapped_storage(self, storage):
        if not isinstance(storage, VirtualStorage):
            return wrapped(self, storage)
        options = {} if type(self) is not torch.TypedStorage else {"dtype": self.dtype}
        return type(self)(wrap_storage=storage, **options)

    torch.TypedStorage._new_wrapped_storage = _new_wrapped_storage


def _new_storage(device, size: int | Sequence[int] = 0) -> VirtualStorage:
    """Make a storage of so many bytes, or of these bytes."""
    if isinstance(size, int):
        return VirtualStorage(size, device)
    return VirtualStorage(len(size), device).copy_(torch.UntypedStorage(size))


def from_memory() -> None:
    """Let ``torch.tensor`` and its like take virtual storages, and what DLPack passes.

    All: C++ sees the storage that a wrapper would have, which is empty.
    """
    for name in ("tensor", "as_tensor", "asarray"):
        setattr(torch, name, _taking_memory(getattr(torch, name)))


def _taking_memory(function):
    @functools.wraps(function)
    def taking(*args, **options):
        source = args[0] if args else None
        if isinstance(source, Passed):
            args = (source.tensor, *args[1:])
        elif isinstance(getattr(source, "_untyped_storage", source), VirtualStorage):
            return _around(source, **options)
        return function(*args, **options)

    return known_to_torchscript(taking, function)


def _around(storage, dtype=None, device=None, requires_grad=False, **ignored):
    """Return a tensor that has a storage as its memory, as C++ does.

    Raises:
        RuntimeError: the storage is one of another type.
    """
    known = getattr(storage, "dtype", None)
    if None not in (dtype, known) and dtype != known:
        names = [str(x).removeprefix("torch.") for x in (dtype, known)]
        raise RuntimeError(
            f"Expected a Storage of type {names[0]} or an UntypedStorage, but got "
            f"{names[1]}"
        )
    kind = dtype or known or torch.int64
    tensor = torch.empty(0, dtype=kind, device=storage.device).set_(storage)
    return tensor.to(device).requires_grad_(requires_grad)


def pinned_memory() -> None:
    """Mark CPU tensors as pinned: nothing is locked, but the clock respects the mark.

    All: PyTorch asks a C++ hook for an allocator of pinned memory. With CUDA we change
    nothing, and PyTorch uses real pinned memory.
    """
    if torch.cuda.is_available():
        return

    def pin_memory(self, device=None):
        pinned = self if self.is_pinned() else self.clone()
        set_pinned_mark(pinned)
        return pinned

    def is_pinned(self, device=None):
        return has_pinned_mark(self)

    torch.Tensor.pin_memory = pin_memory
    torch.Tensor.is_pinned = is_pinned


def pinned_factories() -> None:
    """Let ``torch.empty(..., pin_memory=True)`` and its like mark what they make.

    All: as for ``Tensor.pin_memory``.
    """
    if torch.cuda.is_available():
        return
    names = {
        name.removeprefix("aten::").partition(".")[0]
        for name, func in all_operators()
        if "bool? pin_memory" in str(func._schema)
    }
    for name in ("tensor", *sorted(names)):
        if hasattr(torch, name):
            setattr(torch, name, _marking(getattr(torch, name)))


def _marking(function):
    @functools.wraps(function)
    def marking(*args, pin_memory=False, **options):
        result = function(*args, **options)
        if pin_memory:
            set_pinned_mark(result)
        return result

    return known_to_torchscript(marking, function)


def dlpack() -> None:
    """Let ``torch.from_dlpack`` take virtual tensors, without a copy.

    All: C++ has no memory to pass on. Other libraries can't use such a tensor.
    """
    module = torch.utils.dlpack
    take = torch.from_dlpack

    @functools.wraps(take)
    def from_dlpack(ext_tensor, **options):
        if isinstance(ext_tensor, Passed):
            return ext_tensor.tensor
        if is_virtual(ext_tensor):
            return ext_tensor.detach()
        return take(ext_tensor, **options)

    give = module.to_dlpack

    @functools.wraps(give)
    def to_dlpack(tensor):
        return Passed(tensor.detach()) if is_virtual(tensor) else give(tensor)

    torch.from_dlpack = module.from_dlpack = from_dlpack
    torch.to_dlpack = module.to_dlpack = to_dlpack


def cuda_methods() -> None:
    """Let ``.cuda(i)`` of CPU tensors, storages and modules mean virtual GPU i.

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

    def storage_cuda(self, device=None, non_blocking=False):
        return self.to(device=as_device(device), non_blocking=non_blocking)

    torch.Tensor.cuda = cuda
    torch.nn.Module.cuda = module_cuda
    torch.UntypedStorage.cuda = storage_cuda
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
    noted = {k: v for k, v in ours.items() if k not in OURS}
    tensor.__dict__.update(noted)
