"""``X.untyped_storage()`` of a virtual tensor: its memory, without the shape.

Also the mark of pinned memory, which storages of the CPU carry.
"""

import torch

from .devices import Devices, index_of


class VirtualStorage(torch.UntypedStorage):
    """The memory of a virtual tensor: the storage of its backing tensor.

    A wrapper's own storage has no memory behind it, and C++ would let us resize it all
    the same. This class wraps the backing storage instead, and updates the account when
    the size changes. (``fully_shard`` resizes storages to free unused parameters.)

    It is an ``UntypedStorage``, itself empty, because ``TypedStorage`` and ``set_``
    take nothing else. Bytes are read and written by operators on a tensor of them, so
    the log of copies and the clock hear of it.

    Args:
        memory: the storage of a backing tensor, or a number of bytes to allocate.
    Attributes:
        device: the virtual GPU.
    """

    device: torch.device = None

    def __new__(cls, memory: torch.UntypedStorage | int, device: torch.device):
        if isinstance(memory, int):
            memory = torch.empty(memory, dtype=torch.uint8, device=device)
            memory = memory._backing.untyped_storage()
        self = super().__new__(cls, 0)
        self._backing, self.device = memory, Devices.shown[index_of(device)]
        return self

    def __init__(self, *args, **options):
        pass

    def __eq__(self, other) -> bool:
        return isinstance(other, VirtualStorage) and self._cdata == other._cdata

    def __hash__(self) -> int:
        return hash(self._cdata)

    def nbytes(self) -> int:
        """Return the number of bytes."""
        return self._backing.nbytes()

    size = __len__ = nbytes

    def data_ptr(self) -> int:
        """Return the address of the first byte, 0 if it has none."""
        simulated = _simulated(self._backing)
        return self._backing.data_ptr() if simulated is None else simulated

    @property
    def _cdata(self) -> int:
        return self._backing._cdata

    def element_size(self) -> int:
        return 1

    def resize_(self, nbytes: int) -> "VirtualStorage":
        """Change the number of bytes, for all tensors that share this memory.

        Raises:
            torch.OutOfMemoryError: the bytes don't fit on the virtual GPU.
        """
        account = self._backing._vgpu_charge
        account.reserve(nbytes)
        self._backing.resize_(nbytes)
        account.resize(nbytes, self._backing.data_ptr())
        return self

    # -------------------------------------------------------------- bytes

    def copy_(self, source, non_blocking: bool = False) -> "VirtualStorage":
        """Copy the bytes of a storage of the same size, on any device."""
        copy_bytes(self, source, non_blocking)
        return self

    def fill_(self, value: int) -> "VirtualStorage":
        """Set each byte."""
        as_bytes(self).fill_(value)
        return self

    def clone(self) -> "VirtualStorage":
        return VirtualStorage(self.nbytes(), self.device).copy_(self)

    def __getitem__(self, place):
        return as_bytes(self)[place].tolist()

    def __setitem__(self, place, value) -> None:
        as_bytes(self)[place] = value

    def tolist(self) -> list[int]:
        return as_bytes(self).tolist()

    def is_pinned(self, device=None) -> bool:
        return False

    # -------------------------------------------------------------- files

    # PyTorch calls these for files of its first format, which pickling uses too.

    def _write_file(self, *args) -> None:
        self.cpu()._write_file(*args)

    def _set_from_file(self, *args) -> None:
        read = torch.UntypedStorage(self.nbytes())
        read._set_from_file(*args)
        self.copy_(read)


# Files name the class of a storage.
VirtualStorage.__name__ = "UntypedStorage"


def address_of(backing: torch.Tensor) -> int:
    """Return the address of a tensor's first element, given its backing tensor.

    Where the memory is simulated by a caching allocator, it's the allocator's.
    """
    simulated = _simulated(backing.untyped_storage())
    if simulated is None:
        return backing.data_ptr()
    return simulated + backing.storage_offset() * backing.element_size()


def _simulated(backing: torch.UntypedStorage) -> int | None:
    account = getattr(backing, "_vgpu_charge", None)
    return None if account is None else account.address


def as_bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    """Return the memory of a storage, on any device, as a tensor of bytes."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def copy_bytes(target, source, non_blocking: bool = False) -> None:
    """Copy from one storage to another; at least one of them is virtual.

    Raises:
        RuntimeError: their sizes differ.
    """
    if target.nbytes() != source.nbytes():  # worded as C++ words it
        raise RuntimeError(
            f"size does not match, self was {target.nbytes()} bytes but src was "
            f"{source.nbytes()} bytes"
        )
    as_bytes(target).copy_(as_bytes(source), non_blocking)


# ------------------------------------------------------------------ pinned memory


def set_pinned_mark(tensor: torch.Tensor) -> None:
    """Mark a CPU tensor as pinned, and the memory that its views share."""
    tensor._vgpu_pinned = True
    if tensor.layout is torch.strided:
        tensor.untyped_storage()._vgpu_pinned = True


def has_pinned_mark(tensor: torch.Tensor) -> bool:
    """Whether the memory of a CPU tensor is marked as pinned."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        return getattr(tensor, "_vgpu_pinned", False)
    return getattr(tensor.untyped_storage(), "_vgpu_pinned", False)
