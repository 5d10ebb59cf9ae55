"""``torch.load`` on virtual GPUs.

PyTorch moves *storages* to the device that a file or ``map_location`` names, but a
virtual tensor's storage has no values. So storages stay on the CPU with a note of their
device. Once the whole file is read, we move the tensors made from them.
"""

import functools
import threading

import torch

from ..devices import Devices, as_device
from ..tensor import is_virtual


class _Load(threading.local):
    """Whether ``torch.load`` is running in this thread."""

    active = False


_load = _Load()


def apply() -> None:
    """Apply all changes; ``patches.apply`` calls this once."""
    moving()
    places_of_own_files()


def moving() -> None:
    """Let ``torch.load(map_location='vgpu:1')`` move tensors to that device.

    All: PyTorch raises, because the storage can't be there.
    """
    original = torch.load

    def restore(storage, location):
        # None lets another of PyTorch's functions restore it.
        virtual = location.partition(":")[0] in Devices.types
        return storage if virtual and note_place(storage, location) else None

    @functools.wraps(original)
    def load(*args, **kwargs):
        outer, _load.active = _load.active, True
        try:
            loaded = original(*args, **kwargs)
        finally:
            _load.active = outer
        return torch.utils._pytree.tree_map(_to_its_place, loaded)

    torch.serialization.register_package(5, lambda storage: None, restore)
    torch.load = load


def places_of_own_files() -> None:
    """Let ``map_location`` be a function for tensors saved from virtual GPUs.

    All: their files name a device instead of holding a storage, and PyTorch refuses to
    pass that name to a function.
    """
    original = torch._utils._get_restore_location

    @functools.wraps(original)
    def _get_restore_location(device):
        rule = torch.serialization._serialization_tls.map_location
        if rule is None or isinstance(rule, str | torch.device | dict):
            return original(device)
        storage = rule(torch.UntypedStorage(0), device)
        return device if storage is None else getattr(storage, "_vgpu_place", "cpu")

    torch._utils._get_restore_location = _get_restore_location


def note_place(storage: torch.UntypedStorage, device) -> bool:
    """Note where the tensors of a storage belong, if a file is being read.

    Returns:
        Whether a file is being read.
    """
    if _load.active:
        storage._vgpu_place = as_device(device)
    return _load.active


def _memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a dense tensor itself, or the values of a sparse one."""
    if tensor.layout is torch.strided:
        return tensor
    return tensor._values() if tensor.is_sparse else tensor.detach().values()


def _to_its_place(value):
    """Move a tensor or a module to where its storages belong, and return it."""
    if isinstance(value, torch.nn.Module):
        return value._apply(_to_its_place)
    if not isinstance(value, torch.Tensor) or is_virtual(value):
        return value
    place = getattr(_memory_of(value).untyped_storage(), "_vgpu_place", None)
    if place is None:
        return value
    with torch.no_grad():
        new = value.detach().to(place)
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(new, value.requires_grad)
    return new.requires_grad_(value.requires_grad)
