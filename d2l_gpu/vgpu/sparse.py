"""Sparse tensors on virtual GPUs, in the layouts COO, CSR and CSC.

A ``SparseTensor`` is a wrapper as well. To C++ it has the dispatch key of sparse
tensors on our device type, but no kernel is ever chosen by that key, because the
operator arrives in ``__torch_dispatch__`` first. Its backing tensor is an ordinary
sparse tensor, whose indices and values are in the account of the device's memory.

It is a subclass of ``VirtualTensor``, so that Python asks it first when an operator has
dense operands too. Such operators take the general path of ``tensor.py``.
"""

import copy
import sys

import torch

from . import errors
from .devices import Devices
from .layouts import parts
from .operators import operator
from .tensor import VirtualTensor, charge_parts, contained, leave_to_others, run

_layout = torch.ops.prim.layout.default


class SparseTensor(VirtualTensor):
    """A sparse tensor on a virtual GPU; its backing tensor is sparse too."""

    @staticmethod
    def __torch_dispatch__(func, types, args=(), kwargs=None):
        if not all(issubclass(kind, VirtualTensor) for kind in types):
            return leave_to_others(types)
        if func is _layout:
            return args[0]._backing.layout
        op = operator(func)
        kwargs = kwargs or {}
        try:
            if op.handler is not None:
                return op.handler(op, *args, **kwargs)
            return run(op, args, kwargs)
        except BaseException as error:
            if isinstance(error, NotImplementedError | RuntimeError | IndexError):
                error = errors.explained(error, op, (args, kwargs))
            return contained(error, sys._getframe(1), op)

    # What C++ would answer from a geometry that sparse tensors don't have.

    def stride(self, *dim):
        return self._backing.stride(*dim)

    def storage_offset(self):
        return self._backing.storage_offset()

    def is_contiguous(self, memory_format=torch.contiguous_format) -> bool:
        return self._backing.is_contiguous()

    def data_ptr(self) -> int:
        return self._backing.data_ptr()

    def untyped_storage(self):
        return self._backing.untyped_storage()

    @property
    def nbytes(self) -> int:
        return self._backing.nbytes

    def new(self, *args, device=None):
        device = self.device if device is None else device
        if not args:
            args = ((0,),)
        elif all(isinstance(x, int) for x in args):
            args = (args,)
        return torch.sparse_coo_tensor(*args, dtype=self.dtype, device=device)

    # -------------------------------------------------------------- copies and files

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support "
                "the deepcopy protocol at the moment."
            )
        with torch.no_grad():
            new = memo[id(self)] = self._of_its_kind(self.detach().clone())
        if self.grad is not None:
            new.grad = self.grad.__deepcopy__(memo)
        new.__dict__.update(copy.deepcopy(self._noted(), memo))
        return new

    def __reduce_ex__(self, protocol):
        if self._is_parameter():
            return super().__reduce_ex__(protocol)
        # As PyTorch does: the dense parts name their device in the file.
        plain = self.detach()
        if self.layout is torch.sparse_coo:
            rest = *parts(plain), self.shape, self.is_coalesced()
        else:
            rest = *parts(plain), self.shape
        return torch._utils._rebuild_sparse_tensor, (self.layout, rest)


SparseTensor.__name__ = "Tensor"


def wrap_sparse(backing: torch.Tensor, index: int) -> SparseTensor:
    """Return a sparse tensor on virtual GPU ``index``, and account for its parts.

    Raises:
        NotImplementedError: the tensor has blocks or isn't sparse.
        RuntimeError: the backing tensor has no values, and so its number of elements
            would be wrong.
    """
    if backing.is_meta:
        raise errors.no_values("A sparse tensor")
    charge_parts(backing, index)
    tensor = torch.Tensor._make_wrapper_subclass(
        SparseTensor,
        backing.shape,
        (0,) * backing.dim(),  # autograd must not make gradients with such strides
        dtype=backing.dtype,
        layout=backing.layout,
        device=Devices.names[index],
        # C++ can't tell from the dispatch key whether it's CSR or CSC, so it asks us.
        dispatch_layout=backing.layout is not torch.sparse_coo,
    )
    tensor._backing = backing
    tensor._index = index
    return tensor
