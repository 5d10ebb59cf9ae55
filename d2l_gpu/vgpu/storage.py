"""``X.untyped_storage()`` of a virtual tensor: its memory, without the shape."""

import torch


class VirtualStorage(torch.UntypedStorage):
    """The memory of a virtual tensor: the host's storage, on the virtual GPU.

    A wrapper's own storage has no memory behind it, and C++ would let it be resized
    all the same. This one stands for the host's, and keeps the account when its size
    changes, as ``fully_shard`` does to free parameters that are not in use.

    It is an ``UntypedStorage`` because ``TypedStorage`` and ``set_`` take no other; as
    such it is empty.

    Attributes:
        device: the virtual GPU.
    """

    device: torch.device = None

    def __new__(cls, host: torch.UntypedStorage, device: torch.device):
        self = super().__new__(cls, 0)
        self._host, self.device = host, device
        return self

    def nbytes(self) -> int:
        """Return the number of bytes."""
        return self._host.nbytes()

    size = __len__ = nbytes

    def data_ptr(self) -> int:
        """Return the address of the first byte, 0 if there is none."""
        return self._host.data_ptr()

    @property
    def _cdata(self) -> int:
        return self._host._cdata

    def element_size(self) -> int:
        return 1

    def resize_(self, nbytes: int) -> "VirtualStorage":
        """Change the number of bytes; all tensors that share this memory see it.

        Raises:
            torch.OutOfMemoryError: they do not fit on the virtual GPU.
        """
        grows = nbytes > self._host.nbytes()
        if grows:
            self._host._vgpu_charge.resize(nbytes)
        self._host.resize_(nbytes)
        if not grows:
            self._host._vgpu_charge.resize(nbytes)
        return self
