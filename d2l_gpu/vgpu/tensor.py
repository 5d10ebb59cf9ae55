"""The tensor of a virtual GPU, and the one path that every operator takes.

A ``VirtualTensor`` is a wrapper: to PyTorch's C++ it is a tensor on device ``vgpu:i``
without memory of its own, and it holds a *host tensor*, an ordinary tensor with the
values. An operator on virtual tensors arrives, below autograd, in
``__torch_dispatch__``. There it is run on the host tensors by PyTorch's own kernels,
which is why its results are those of the host to the last bit:

    check that all operands live on one device  →  make sure that the result fits
    →  run the operator on the host tensors  →  wrap what is new  →  tell the machine
"""

import sys
import threading

import torch

from . import errors, generator
from .bounds import WIDEST, size_bound
from .devices import Devices, index_of
from .methods import Methods
from .operators import (
    DETACH,
    FRESH,
    GENERAL,
    IN_PLACE,
    Operator,
    operator,
)
from .storage import VirtualStorage


class VirtualTensor(Methods, torch.Tensor):
    """A tensor on a virtual GPU.

    Attributes:
        _host: the values, a tensor on the host device.
        _index: the index of the virtual GPU.
    """

    _host: torch.Tensor
    _index: int
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __torch_dispatch__(func, types, args=(), kwargs=None):
        try:
            op = func._vgpu
        except AttributeError:
            op = operator(func)
        try:
            if kwargs or op.form == GENERAL:
                return _general(op, args, kwargs or {})
            return _simple(op, args)
        except Exception as error:
            if isinstance(error, NotImplementedError | RuntimeError):
                error = errors.explained(error, op.name, (args, kwargs))
            return contained(error, sys._getframe(1), op)


# PyTorch's errors name the classes of arguments.
VirtualTensor.__name__ = "Tensor"


def is_virtual(value) -> bool:
    """Whether a value is a tensor on a virtual GPU."""
    return type(value) is VirtualTensor


class _Engine(threading.local):
    """What is known of the autograd engine that runs in this thread."""

    code = None  # of the Python function that calls the C++ engine
    error: Exception | None = None


engine = _Engine()


def contained(error: Exception, caller, op: Operator):
    """Raise error, or keep it if the C++ autograd engine is what called the operator.

    Below the engine a pending Python error would end the process: unwinding runs the
    device guard, which is noexcept and calls Python. So the error is kept, C++ gets a
    result that is no tensor and raises an error of its own, and the patched
    ``run_backward`` raises the one that was kept.
    """
    if caller.f_code is engine.code and op.aliases:
        if engine.error is None:
            engine.error = error
        return engine
    try:
        raise error from None
    finally:
        del error  # or its traceback would hold it, and the tensors of all frames


# ------------------------------------------------------------------ the path


def _simple(op: Operator, args):
    """The path of operators with one or two tensors and a single result.

    The same steps as in ``_general``, unrolled: most calls come here, and a call of
    PyTorch's own takes a microsecond or two.
    """
    a = args[0]
    if type(a) is not VirtualTensor:
        return _general(op, args, {})
    host, index = a._host, a._index
    form = op.form
    if form == DETACH:
        return _view(host, index)
    if host.is_complex():
        return _general(op, args, {})
    other = args[1] if op.leading == 2 and len(args) > 1 else None
    nbytes = bound = host.nbytes
    if type(other) is VirtualTensor:
        if other._index != index:
            return _general(op, args, {})
        other = other._host
        nbytes += other.nbytes
        if not op.pointwise or host.shape != other.shape:
            bound *= other.nbytes
        args = (host, other, *args[2:])
    elif isinstance(other, torch.Tensor):
        return _general(op, args, {})
    else:
        args = (host, *args[1:])
    if form == FRESH:
        bound = bound * WIDEST if op.bound is None else op.bound(args, nbytes)
        if bound > Devices.machines[index].free(index):
            Devices.machines[index].reserve(index, op.result_bytes(args, {}))
    result = op.call(*args)
    if form == FRESH:
        tensor = wrap(result, index)
        if op.kernel:
            largest, more = host.nbytes, result.nbytes
            nbytes += more
            if more > largest:
                largest = more
            if op.describe is None:
                key = op, nbytes, largest, host.dtype
            else:
                key = op, nbytes, largest, host.dtype, op.describe(args, result)
            Devices.machines[index].kernel_issued(index, key)
        return tensor
    if op.kernel:
        key = op, nbytes + host.nbytes, host.nbytes, host.dtype
        Devices.machines[index].kernel_issued(index, key)
    return a if form == IN_PLACE else _view(result, index)


def _general(op: Operator, args, kwargs):
    """The path of every other operator."""
    if op.handler is not None:
        return op.handler(op, *args, **kwargs)
    return run(op, args, kwargs)


def run(op: Operator, args, kwargs):
    """Run an operator on the host: all steps, for any arguments and results."""
    if "generator" in kwargs:
        generator.check(kwargs["generator"])
    operands, host_args, host_kwargs = unwrap(op, args, kwargs)
    index, on_host = operands.index, False
    if op.has_device:
        device = host_kwargs.get("device")
        if device is not None and device.type not in Devices.types:
            on_host = True
        else:
            if device is not None:
                index = index_of(device)
            host_kwargs["device"] = Devices.hosts[index]
        host_kwargs.pop("pin_memory", None)
    if op.changes_geometry and type(args[0]) is VirtualTensor:
        # detach() shares the host tensor: let this one change alone.
        args[0]._host = host_args[0] = args[0]._host.detach()
    if op.allocates and not on_host:
        reserve(op, index, host_args, host_kwargs, operands.nbytes)
    if operands.has_complex:
        with _lazy_bits():
            results = op.call(*host_args, **host_kwargs)
    else:
        results = op.call(*host_args, **host_kwargs)
    if on_host:
        return results
    if op.kernel:
        operands.issued(op, index, host_args, results)
        if op.waits is not None and op.waits(host_args):
            Devices.machines[index].host_waits(index)
    if op.out_list is not None:
        for tensor in kwargs[op.out_list]:
            refresh(tensor)
    if isinstance(results, torch.Tensor):
        return _result(results, op.aliases[0], args, kwargs, index)
    if not isinstance(results, list | tuple):
        return results
    if len(op.aliases) == 1:  # one list of tensors
        return [wrap(x, index) for x in results]
    wrapped = tuple(
        _result(x, alias, args, kwargs, index)
        for x, alias in zip(results, op.aliases, strict=True)
    )
    if op.host_results:
        return tuple(
            x._host if i in op.host_results else x for i, x in enumerate(wrapped)
        )
    return wrapped


class Operands:
    """What is found out about the tensors of a call while they are unwrapped.

    Attributes:
        index: of the device that they are on, None if there are none.
        agree: whether all are on that device, or on the host where they may be.
        nbytes: bytes of those on the device.
        largest: bytes of the largest of them, or of a list of them.
        dtype: of the first.
        has_complex: whether there are complex ones.
    """

    __slots__ = ("agree", "dtype", "has_complex", "index", "largest", "nbytes")

    def __init__(self):
        self.index, self.agree, self.nbytes, self.has_complex = None, True, 0, False
        self.largest, self.dtype = 0, None

    def host(self, op: Operator, value):
        """Return the value with host tensors in the places of virtual ones."""
        kind = type(value)
        if kind is VirtualTensor:
            if self.index is None:
                self.index = value._index
            elif self.index != value._index:
                self.agree = False
            value = value._host
            nbytes = value.nbytes
            self.nbytes += nbytes
            if nbytes > self.largest:
                self.largest = nbytes
            if self.dtype is None:
                self.dtype = value.dtype
            if value.is_complex():
                self.has_complex = True
        elif kind is list or kind is tuple:
            before = self.nbytes
            value = [self.host(op, x) for x in value]
            if self.nbytes - before > self.largest:
                self.largest = self.nbytes - before
        elif kind is VirtualStorage:
            value = value._host
        elif isinstance(value, torch.Tensor):
            self.agree = self.agree and op.accepts_host(value)
        return value

    def count(self, values) -> None:
        """Take host tensors, also in lists, into account as operands."""
        for x in values:
            if isinstance(x, torch.Tensor):
                self.largest = max(self.largest, x.nbytes)
                self.nbytes += total_bytes(x)
                self.dtype = self.dtype or x.dtype
            elif isinstance(x, list | tuple):
                before = self.nbytes
                self.count(x)
                self.largest = max(self.largest, self.nbytes - before)

    def issued(self, op: Operator, index: int, args, results) -> None:
        """Tell the machine of the kernel of these operands.

        Args:
            args, results: host tensors.
        """
        if type(results) is torch.Tensor and results.layout is _strided:
            more = results.nbytes
        else:
            if results is None:
                results = [args[i] for i in op.written if i < len(args)]
            more = total_bytes(results)
        largest = self.largest if self.largest > more else more
        nbytes, dtype = self.nbytes + more, self.dtype
        if dtype is None:
            dtype = getattr(results, "dtype", None)
        if op.describe is None:
            key = op, nbytes, largest, dtype
        else:
            key = op, nbytes, largest, dtype, op.describe(args, results)
        Devices.machines[index].kernel_issued(index, key)


def unwrap(op: Operator, args, kwargs) -> tuple[Operands, list, dict]:
    """Return the call's operands, and the call with host tensors in all places.

    Raises RuntimeError when operands live on different devices.
    """
    operands, host_args, host_kwargs = Operands(), list(args), kwargs
    given = len(args)
    for i in op.places:
        if i < given:
            host_args[i] = operands.host(op, args[i])
    if kwargs:
        host_kwargs = {k: operands.host(op, x) for k, x in kwargs.items()}
    if not operands.agree:
        raise errors.device_mismatch(op, args, kwargs)
    return operands, host_args, host_kwargs


def _result(value, alias, args, kwargs, index: int):
    """Wrap one result, or return the argument that it is."""
    if not isinstance(value, torch.Tensor):
        if isinstance(value, list | tuple):
            return [wrap(x, index) for x in value]
        return value
    if alias is None:
        return wrap(value, index)
    tensor = kwargs[alias] if isinstance(alias, str) else args[alias]
    refresh(tensor)
    return tensor


def _lazy_bits():
    """Let the host's operators see conjugate and negative bits of the tensors inside.

    The keys that do are excluded below Python, where they have done their work for the
    virtual tensors; but an operator may conjugate and call others on the way.
    """
    excluded = torch._C._dispatch_tls_local_exclude_set() - _LAZY
    included = torch._C._dispatch_tls_local_include_set()
    return torch._C._ForceDispatchKeyGuard(included, excluded)


_LAZY = (
    torch._C.DispatchKeySet(torch._C.DispatchKey.Conjugate)
    | torch._C.DispatchKeySet(torch._C.DispatchKey.Negative)
    | torch._C.DispatchKeySet(torch._C.DispatchKey.ZeroTensor)
)


# ------------------------------------------------------------------ wrapping

_make = torch.Tensor._make_wrapper_subclass
_strided = torch.strided


def wrap(host: torch.Tensor, index: int) -> VirtualTensor:
    """Return host as a tensor of virtual GPU ``index``, and account for its memory.

    The account hangs on the storage's Python object, which lives exactly as long as
    the memory: views, saved tensors and copies of the object need no bookkeeping.
    """
    if host.layout is not _strided or host.is_nested:
        raise errors.unsupported_layout("nested" if host.is_nested else host.layout)
    charge(host, index)
    return _view(host, index)


def charge(host: torch.Tensor, index: int) -> None:
    """Account for the memory of a host tensor, all of it, on a virtual GPU."""
    storage = host.untyped_storage()
    account = getattr(storage, "_vgpu_charge", None)
    if account is None:
        storage._vgpu_charge = Devices.machines[index].charge(index, storage.nbytes())
    elif account.nbytes < storage.nbytes():  # resize_ and out= make it grow
        account.resize(storage.nbytes())


def _view(host: torch.Tensor, index: int) -> VirtualTensor:
    """Wrap a tensor whose memory is accounted for already."""
    tensor = _make(
        VirtualTensor,
        host.shape,
        host.stride(),
        host.storage_offset(),
        None,
        host.dtype,
        _strided,
        Devices.names[index],
    )
    tensor._host = host
    tensor._index = index
    # Below Python these keys are excluded, so a host tensor's lazy bits are not seen:
    # the wrapper has to carry them.
    if host.is_conj():
        torch._C._set_conj(tensor, True)
    if host.is_neg():
        torch._C._set_neg(tensor, True)
    return tensor


def refresh(tensor: VirtualTensor) -> None:
    """Bring geometry and account of a wrapper up to date with its host tensor."""
    host = tensor._host
    charge(host, tensor._index)
    if (
        tensor.shape != host.shape
        or tensor.stride() != host.stride()
        or tensor.storage_offset() != host.storage_offset()
    ):
        # A shallow copy of the C++ geometry, exact where as_strided_ is not.
        torch.Tensor.data.__set__(tensor, _view(host, tensor._index))
    if host.is_conj() != tensor.is_conj():
        torch._C._set_conj(tensor, host.is_conj())


# ------------------------------------------------------------------ memory


def reserve(op: Operator, index: int, args, kwargs, nbytes: int = 0) -> None:
    """Make sure that the results of a call fit, before they are computed.

    Args:
        args, kwargs: of the call, with host tensors.
        nbytes: bytes of these.
    """
    if op.bound is not None:
        bound = op.bound(args, nbytes)
    else:
        bound = size_bound(args) * size_bound(tuple(kwargs.values())) * 2 * WIDEST
    if bound > Devices.machines[index].free(index):
        Devices.machines[index].reserve(index, op.result_bytes(args, kwargs))


def total_bytes(values) -> int:
    total = 0
    for x in values if isinstance(values, list | tuple) else (values,):
        if isinstance(x, torch.Tensor):
            if x.layout is not _strided:
                raise errors.unsupported_layout(x.layout)
            total += x.nbytes
        elif isinstance(x, list | tuple):
            total += total_bytes(x)
    return total


# ------------------------------------------------------------------ factories


def factory(func, *args, **kwargs):
    """Run an operator whose only link to a virtual GPU is ``device=`` (``ones``)."""
    if not any(Devices.machines):
        raise RuntimeError("No virtual GPUs are in use: call use_virtual_gpus first.")
    op = operator(func)
    if "device" not in kwargs:  # called with the Python dispatch switched off
        return _general(op, args, kwargs)
    index = index_of(kwargs["device"])
    generator.check(kwargs.get("generator"))
    kwargs = {k: v for k, v in kwargs.items() if k != "pin_memory"}
    kwargs["device"] = Devices.hosts[index]
    try:
        reserve(op, index, args, kwargs)
        result = wrap(op.call(*args, **kwargs), index)
    except Exception as error:
        return contained(error, sys._getframe(2), op)
    if op.kernel:
        Operands().issued(op, index, (), result._host)
    return result
