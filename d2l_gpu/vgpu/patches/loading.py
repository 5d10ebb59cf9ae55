"""Files of ``torch.save``: what they say of virtual GPUs, and how it is read.

As for other devices, a file holds the bytes of each memory once and names the device
that it was on; ``torch.load`` copies them there, or to where ``map_location`` says.
"""

import functools

import torch

from .. import errors
from ..devices import Devices, as_device
from ..storage import VirtualStorage
from ..tensor import is_virtual


def apply() -> None:
    """Apply all changes; ``patches.apply`` calls this once."""
    torch.serialization.register_package(5, _name_of_device, _restored)
    storages()
    bits()


def storages() -> None:
    """Let ``torch.is_storage`` know storages of virtual GPUs, and so ``torch.save``.

    All: it asks for the classes that PyTorch defines, not for their subclasses.
    """
    original = torch.is_storage

    @functools.wraps(original)
    def is_storage(obj, /) -> bool:
        return isinstance(obj, VirtualStorage) or original(obj)

    torch.is_storage = is_storage


def bits() -> None:
    """Let a tensor that was saved conjugated or negated be so when it's loaded.

    All: C++ sets the bits of the tensor, but values are computed from its backing.
    """
    original = torch._utils.set_tensor_metadata

    @functools.wraps(original)
    def set_tensor_metadata(tensor, metadata):
        original(tensor, metadata)
        if is_virtual(tensor):
            original(tensor._backing, metadata)

    torch._utils.set_tensor_metadata = set_tensor_metadata


def _name_of_device(storage: torch.UntypedStorage) -> str | None:
    """Return what a file says of where a storage was; None leaves that to PyTorch."""
    return str(storage.device) if isinstance(storage, VirtualStorage) else None


def _restored(storage: torch.UntypedStorage, location: str):
    """Return a copy of a storage on a virtual GPU; None leaves it to PyTorch.

    Raises:
        RuntimeError: there is no such device.
        torch.OutOfMemoryError: it doesn't fit there.
    """
    if location.partition(":")[0] not in Devices.types:
        return None
    there = torch.device(location)
    if there.index is not None and Devices.machines[there.index] is None:
        raise errors.not_loaded(there, Devices.machine.count if Devices.machine else 0)
    return storage.to(device=as_device(location))
