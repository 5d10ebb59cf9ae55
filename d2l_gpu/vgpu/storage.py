"""``X.untyped_storage()`` of a virtual tensor: its memory, without the shape."""

import torch


class VirtualStorage(torch.UntypedStorage):
    """The memory of a virtual tensor: the storage of its backing tensor.

    A wrapper's own storage has no memory behind it, and C++ would let us resize it all
    the same. This class wraps the backing storage instead, and updates the account when
    the size changes. (``fully_shard`` resizes storages to free unused parameters.)

    It is an ``UntypedStorage``, itself empty, because ``TypedStorage`` and ``set_``
    take nothing else.

    Attributes:
        device: the virtual GPU.
    """

    device: torch.device = None

    def __new__(cls, backing: torch.UntypedStorage, device: torch.device):
        self = super().__new__(cls, 0)
        self._backing, self.device = backing, device
        return self

    def nbytes(self) -> int:
        """Return the number of bytes."""
        return self._backing.nbytes()

    size = __len__ = nbytes

    def data_ptr(self) -> int:
        """Return the address of the first byte, 0 if it has none."""
        return self._backing.data_ptr()

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
        grows = nbytes > self._backing.nbytes()
        if grows:
            self._backing._vgpu_charge.resize(nbytes)
        self._backing.resize_(nbytes)
        if not grows:
            self._backing._vgpu_charge.resize(nbytes)
        return self
