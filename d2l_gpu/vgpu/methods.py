"""What a virtual tensor does outside operators: printing, copying, saving, NumPy.

Each method is here because PyTorch implements it in C++ for the devices that it knows,
without asking the dispatcher. Operators never come here.
"""

import copy
from collections import OrderedDict

import torch
from torch.utils.dlpack import DLDeviceType

from .devices import as_device
from .errors import name_of
from .storage import VirtualStorage, address_of

# Attributes of a virtual tensor that belong to its memory or to its class.
OURS = ("_backing", "_index", "_is_param", "_vgpu_device")
_CUDA = DLDeviceType.kDLCUDA


class Passed:
    """What a virtual tensor passes on by DLPack: only PyTorch can use it."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor


class Methods:
    """Methods of ``torch.Tensor`` that a wrapper has to answer in Python."""

    def __repr__(self, *, tensor_contents=None):
        if self._backing.is_meta and tensor_contents is None:
            tensor_contents = "..."
        text = torch._tensor_str._str(self, tensor_contents=tensor_contents)
        # Print vgpu even if the program is told cuda: printing shows what it really is.
        text = text.replace(f"device='{self.device}'", f"device='{name_of(self)}'")
        if self._is_parameter():
            # PyTorch writes Parameter(...) around subclasses.
            text = text.removeprefix("Parameter(").removesuffix(")")
        # PyTorch writes the name of the subclass, which is as long as "tensor".
        text = "tensor(" + text.removeprefix("Tensor(")
        return f"Parameter containing:\n{text}" if self._is_parameter() else text

    def __format__(self, spec):
        # PyTorch formats the value of a one-element tensor only for its own class.
        if not self.dim():
            return format(self.item(), spec)
        return object.__format__(self, spec)

    def _is_parameter(self) -> bool:
        # torch.nn.Parameter marks tensors of subclasses instead of wrapping them.
        return getattr(self, "_is_param", False)

    def __coerce_same_metadata_as_tangent__(self, metadata, expected_type=None):
        """Tell AOTAutograd, which traced a plain tensor, that we're what it expects."""
        return self if expected_type is torch.Tensor else None

    # -------------------------------------------------------------- values on the CPU

    def numpy(self, *, force: bool = False):
        if not force:
            raise TypeError(
                f"can't convert {name_of(self)} device type tensor to numpy. Use "
                "Tensor.cpu() to copy the tensor to host memory first."
            )
        return self.detach().cpu().resolve_conj().resolve_neg().numpy()

    def __array__(self, dtype=None, copy=None):
        return self.numpy()

    def tolist(self):
        return self.detach().cpu().tolist()

    def data_ptr(self) -> int:
        return address_of(self._backing)

    def untyped_storage(self) -> VirtualStorage:
        return VirtualStorage(self._backing.untyped_storage(), self.device)

    # -------------------------------------------------------------- devices

    @property
    def is_vgpu(self) -> bool:
        return True

    # PyTorch makes the next two on the current device, after setting it to this one's.

    def new_tensor(self, data, *, dtype=None, device=None, **options):
        dtype = self.dtype if dtype is None else dtype
        device = self.device if device is None else device
        if isinstance(data, torch.Tensor):  # as PyTorch does, but without a warning
            requires_grad = options.pop("requires_grad", False)
            copy = data.detach().to(device=device, dtype=dtype, copy=True)
            return copy.requires_grad_(requires_grad)
        return torch.tensor(data, dtype=dtype, device=device, **options)

    def new(self, *args, device=None):
        device = self.device if device is None else device
        if len(args) == 1 and isinstance(args[0], torch.Tensor):
            (other,) = args  # which it shares its memory with, unlike new_tensor
            if (other.dtype, other.device) != (self.dtype, torch.device(device)):
                raise TypeError(
                    f"expected a tensor of {self.dtype} on {name_of(self)}, but got "
                    f"{other.dtype} on {other.device}"
                )
            return torch.ops.aten.alias(other)
        if len(args) == 1 and not isinstance(args[0], int | torch.Size):
            return self.new_tensor(args[0], device=device)
        return torch.empty(*(args or (0,)), dtype=self.dtype, device=device)

    def cuda(
        self, device=None, non_blocking=False, memory_format=torch.preserve_format
    ):
        return self.to(
            as_device(device), non_blocking=non_blocking, memory_format=memory_format
        )

    def is_pinned(self, device=None) -> bool:
        return False

    def pin_memory(self, device=None):
        raise RuntimeError(
            f"cannot pin a tensor on {name_of(self)}: only dense CPU tensors can be "
            "pinned"
        )

    def is_shared(self) -> bool:
        return False

    def share_memory_(self):
        raise RuntimeError(
            f"cannot share a tensor on {name_of(self)}: each process has its own "
            "virtual GPUs, so a tensor sent to another process is copied"
        )

    def record_stream(self, stream) -> None:
        """Note that another stream works with this memory.

        Values need nothing, as each operator computes them before it returns. But a
        caching allocator keeps the memory until that stream has done its work.
        """
        account = self._backing.untyped_storage()._vgpu_charge
        if stream.device_index == account.index:
            account.record_stream(stream.stream_id)

    # -------------------------------------------------------------- copies and files

    @property
    def data(self):
        return torch.Tensor.data.__get__(self)

    @data.setter
    def data(self, new):
        torch.Tensor.data.__set__(self, new)
        if type(new) is type(self):
            self._backing, self._index = new._backing, new._index

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        if self._is_parameter():  # PyTorch copies its values and nothing else
            new = self._of_its_kind(self.detach().clone())
            memo[id(self)] = new
            return new
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support "
                "the deepcopy protocol at the moment."
            )
        # As for other devices, tensors that share memory go on to share it: a storage
        # keeps its copies in the memo too. In most cases a single operator does.
        storage, copies = self.untyped_storage(), memo.setdefault("torch", {})
        with torch.no_grad():
            if storage._cdata not in copies and self.nbytes == storage.nbytes():
                new = self.detach().clone()
                copies[storage._cdata] = new.untyped_storage()
            else:
                storage = copy.deepcopy(storage, memo)
                new = torch.empty(0, dtype=self.dtype, device=self.device)
                new.set_(storage, self.storage_offset(), self.shape, self.stride())
        memo[id(self)] = self._of_its_kind(new)
        if self.grad is not None:
            new.grad = self.grad.__deepcopy__(memo)
        new.__dict__.update(copy.deepcopy(self._noted(), memo))
        return new

    def __copy__(self):
        with torch.no_grad():
            new = self._of_its_kind(self.detach())
        new.__dict__.update(self._noted())
        return new

    def _of_its_kind(self, tensor):
        """Make a tensor a parameter, or need a gradient, if this one does."""
        if self._is_parameter():
            return torch.nn.Parameter(tensor, self.requires_grad)
        return tensor.requires_grad_(self.requires_grad)

    def _noted(self) -> dict:
        """What a program has noted on this object."""
        return {k: v for k, v in self.__dict__.items() if k not in OURS}

    # -------------------------------------------------------------- other libraries

    def __dlpack_device__(self):
        kind = DLDeviceType.kDLExtDev if self.device.type == "vgpu" else _CUDA
        return kind, self._index

    def __dlpack__(self, **options):
        return Passed(self.detach())

    def __reduce_ex__(self, protocol):
        # PyTorch's own rebuilders, so that the file can be read without virtual GPUs
        # (with map_location='cpu') and with weights_only=True.
        if self._is_parameter():
            plain = self.detach()
            plain._is_param = False
            return torch._utils._rebuild_parameter, (plain, self.requires_grad, {})
        torch.utils.hooks.warn_if_has_hooks(self)
        storage = torch.storage.TypedStorage(
            wrap_storage=self.untyped_storage(), dtype=self.dtype, _internal=True
        )
        place = self.storage_offset(), tuple(self.shape), self.stride()
        bits = torch._utils.get_tensor_metadata(self)  # conjugate and negative ones
        return torch._utils._rebuild_tensor_v2, (
            *(storage, *place, self.requires_grad, OrderedDict()),
            *([bits] if bits else []),
        )
