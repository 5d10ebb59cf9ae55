"""The tensor of a virtual GPU, and the one path that every operator takes.

A ``VirtualTensor`` is a wrapper: to PyTorch's C++ it is a tensor on device ``vgpu:i``
without memory of its own. Behind it is a *backing tensor*, an ordinary tensor with the
values. An operator on virtual tensors arrives, below autograd, in
``__torch_dispatch__``. There PyTorch's own kernel runs on the backing tensors, so the
results equal the CPU's to the last bit:

    check that all operands are on one device  →  make sure that the result fits
    →  run the operator on the backing tensors  →  wrap what is new  →  tell the machine
"""

import sys
import threading
from functools import partial

import torch

from . import errors, generator, shapes, sync_debug
from .bounds import WIDEST, size_bound
from .devices import Devices, index_of
from .layouts import bytes_of, parts, total_bytes
from .methods import Methods
from .operators import (
    DETACH,
    FRESH,
    GENERAL,
    IN_PLACE,
    Operator,
    operator,
)
from .sim.machine import HOST
from .storage import VirtualStorage


class VirtualTensor(Methods, torch.Tensor):
    """A tensor on a virtual GPU.

    Attributes:
        _backing: the ordinary tensor behind it, with its values.
        _index: the index of the virtual GPU.
    """

    _backing: torch.Tensor
    _index: int
    __torch_function__ = torch._C._disabled_torch_function_impl

    def __new__(cls, data, requires_grad: bool | None = None, **noted):
        """Make what ``type(x)(data)`` makes, or ``type(x)(data, requires_grad)``.

        With ``requires_grad`` that is a parameter: libraries make one of the type of
        another, and parameters on virtual GPUs are of this class.
        """
        if requires_grad is None:
            return data.detach()
        return torch.nn.Parameter(data, requires_grad)

    def __init__(self, *args, **options):
        pass

    @staticmethod
    def __torch_dispatch__(func, types, args=(), kwargs=None):
        __tracebackhide__ = hidden_in_pytest
        if len(types) != 1:
            return leave_to_others(types)
        try:
            op = func._vgpu
        except AttributeError:
            op = operator(func)
        try:
            if kwargs or op.form == GENERAL:
                return _general(op, args, kwargs or {})
            return _simple(op, args)
        except BaseException as error:
            if isinstance(error, NotImplementedError | RuntimeError | IndexError):
                error = errors.explained(error, op, (args, kwargs))
            return contained(error, sys._getframe(1), op)


def hidden_in_pytest(info) -> bool:
    """Whether pytest leaves out our frames: the program's line is what matters.

    Args:
        info: pytest's ``ExceptionInfo``. Other errors than these could be our own.
    """
    return isinstance(info.value, RuntimeError | IndexError)


def leave_to_others(types):
    """Leave an operator to a class that contains virtual tensors, such as DTensor.

    Raises:
        NotImplementedError: the class stands for tensors without values.
    """
    if any(kind.__name__ == "FakeTensor" for kind in types):
        raise errors.not_traced()
    return NotImplemented


# PyTorch's errors name the classes of arguments.
VirtualTensor.__name__ = "Tensor"


def is_virtual(value) -> bool:
    """Whether a value is a tensor on a virtual GPU."""
    return isinstance(value, VirtualTensor)


class _Engine(threading.local):
    """What we know about the autograd engine that runs in this thread."""

    code = None  # the code object of the Python function that calls the C++ engine
    error: BaseException | None = None
    depth = 0  # how many calls of the engine are running, one inside another


engine = _Engine()


def contained(error: BaseException, caller, op: Operator):
    """Raise error, or keep it if the C++ autograd engine called the operator.

    Below the engine a pending Python error would end the process: unwinding runs the
    device guard, which is noexcept but calls Python. So we keep the error and return
    something that isn't a tensor. C++ then raises an error of its own, and the patched
    ``run_backward`` raises the one that we kept.
    """
    __tracebackhide__ = hidden_in_pytest
    if caller.f_code is engine.code and op.aliases:
        if engine.error is None:
            engine.error = error
        return engine
    try:
        raise error from None
    finally:
        del error  # otherwise its traceback would keep it, and all frames' tensors


# ------------------------------------------------------------------ the path


def _simple(op: Operator, args):
    """Run an operator with one or two tensors and a single result.

    These are the steps of ``run``, unrolled for speed: most calls come here, and
    PyTorch itself takes only a microsecond or two for a call.
    """
    __tracebackhide__ = hidden_in_pytest
    a = args[0]
    if type(a) is not VirtualTensor:
        return _general(op, args, {})
    backing, index = a._backing, a._index
    form = op.form
    if form == DETACH:
        return _view(backing, index)
    if backing.is_complex():
        return _general(op, args, {})
    other = args[1] if op.leading == 2 and len(args) > 1 else None
    nbytes = bound = backing.nbytes
    if type(other) is VirtualTensor:
        if other._index != index:
            return _general(op, args, {})
        other = other._backing
        nbytes += other.nbytes
        if not op.pointwise or backing.shape != other.shape:
            bound *= other.nbytes
        args = (backing, other, *args[2:])
    elif isinstance(other, torch.Tensor):
        return _general(op, args, {})
    else:
        args = (backing, *args[1:])
    if form == FRESH:
        bound = bound * WIDEST if op.bound is None else op.bound(args, nbytes)
        if bound > Devices.machines[index].free(index):
            Devices.machines[index].reserve(index, *op.result_sizes(args, {}))
    if form == FRESH and backing.is_meta:
        result = shapes.call(op, args)
    else:
        result = op.call(*args)
    if form == FRESH:
        tensor = wrap(result, index)
        if op.kernel:
            largest, more = backing.nbytes, result.nbytes
            nbytes += more
            if more > largest:
                largest = more
            if op.describe is None:
                key = op, nbytes, largest, backing.dtype
            else:
                key = op, nbytes, largest, backing.dtype, op.describe(args, result)
            Devices.machines[index].kernel_issued(index, key)
        return tensor
    if op.kernel:
        key = op, nbytes + backing.nbytes, backing.nbytes, backing.dtype
        Devices.machines[index].kernel_issued(index, key)
    return a if form == IN_PLACE else _view(result, index)


def _general(op: Operator, args, kwargs):
    """Run any other operator, by its handler if it has one."""
    __tracebackhide__ = hidden_in_pytest
    if op.handler is not None:
        return op.handler(op, *args, **kwargs)
    return run(op, args, kwargs)


def run(op: Operator, args, kwargs):
    """Run an operator on backing tensors: every step, any arguments and results."""
    __tracebackhide__ = hidden_in_pytest
    operands, backing_args, backing_kwargs = unwrap(op, args, kwargs)
    index, on_host = operands.index, False
    if op.has_device:
        device = backing_kwargs.get("device")
        if device is not None and device.type not in Devices.types:
            on_host = True
        else:
            if device is not None:
                index = index_of(device)
            backing_kwargs["device"] = Devices.backings[index]
        backing_kwargs.pop("pin_memory", None)
    call = op.call
    if op.draws and not on_host:
        generator.check(kwargs.get("generator"))
        call = partial(generator.drawn, op, index)
    if op.changes_geometry and type(args[0]) is VirtualTensor:
        # x.detach() has the same backing tensor as x, but only x changes its geometry.
        args[0]._backing = backing_args[0] = args[0]._backing.detach()
    if op.allocates and not on_host:
        reserve(op, index, backing_args, backing_kwargs, operands.nbytes)
    waits = op.waits is not None and op.waits(args)
    if sync_debug.mode.number and (waits or operands.make_host_wait):
        sync_debug.report(Devices.names[index])
    if operands.has_complex:
        with _lazy_bits():
            results = call(*backing_args, **backing_kwargs)
    elif op.remembered and not on_host and Devices.backings[index].type == "meta":
        results = shapes.call_any(op, backing_args, backing_kwargs)
    else:
        results = call(*backing_args, **backing_kwargs)
    if on_host:
        return results
    if op.kernel:
        if operands.from_host:
            operands.moved(index)
        operands.issued(op, index, backing_args, results)
        if waits:
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
            x._backing if i in op.host_results else x for i, x in enumerate(wrapped)
        )
    return wrapped


def _is_mask(x: torch.Tensor) -> bool:
    """Whether an index is a mask. (Without dimensions it's a value to write.)"""
    return x.dtype in (torch.bool, torch.uint8) and x.dim() > 0


class Operands:
    """What we learn about the tensors of a call while unwrapping them.

    Attributes:
        index: of the device that they are on, None if no tensor is virtual.
        agree: whether all are on that device, or on the CPU where that is allowed.
        nbytes: total bytes of the tensors on the device.
        largest: bytes of the largest operand, which can be a list of tensors.
        dtype: of the first tensor.
        has_complex: whether any tensor is complex.
        from_host: indices, and values to write there, that are on the CPU.
        has_sparse: whether any tensor is sparse.
    """

    __slots__ = (
        "agree",
        "dtype",
        "from_host",
        "has_complex",
        "has_sparse",
        "index",
        "largest",
        "nbytes",
    )

    def __init__(self):
        self.has_sparse = False
        self.index, self.agree, self.nbytes, self.has_complex = None, True, 0, False
        self.largest, self.dtype, self.from_host = 0, None, ()

    def backing(self, op: Operator, value):
        """Return the value with backing tensors in place of virtual ones."""
        kind = type(value)
        if kind is VirtualTensor or issubclass(kind, VirtualTensor):
            if self.index is None:
                self.index = value._index
            elif self.index != value._index:
                self.agree = False
            value = value._backing
            if kind is VirtualTensor:
                nbytes = value.nbytes
            else:
                nbytes, self.has_sparse = bytes_of(value), True
            self.nbytes += nbytes
            if nbytes > self.largest:
                self.largest = nbytes
            if self.dtype is None:
                self.dtype = value.dtype
            if value.is_complex():
                self.has_complex = True
        elif kind is list or kind is tuple:
            before = self.nbytes
            value = [self.backing(op, x) for x in value]
            if self.nbytes - before > self.largest:
                self.largest = self.nbytes - before
        elif kind is VirtualStorage:
            value = value._backing
        elif isinstance(value, torch.Tensor):
            self.agree = self.agree and op.accepts_host(value)
            if op.indexes:
                self.from_host = (*self.from_host, value)
        return value

    def count(self, values) -> None:
        """Count backing tensors, in lists too, as operands."""
        for x in values:
            if isinstance(x, torch.Tensor):
                nbytes = bytes_of(x)
                self.largest = max(self.largest, nbytes)
                self.nbytes += nbytes
                self.has_sparse = self.has_sparse or x.layout is not _strided
                self.dtype = self.dtype or x.dtype
            elif isinstance(x, list | tuple):
                before = self.nbytes
                self.count(x)
                self.largest = max(self.largest, self.nbytes - before)

    @property
    def make_host_wait(self) -> bool:
        """Whether the host waits until what is on the CPU has been copied."""
        return not all(map(_is_mask, self.from_host))

    def moved(self, index: int) -> None:
        """Tell the machine about copies to the device that no line asks for.

        As in ATen/native/IndexingUtils.h: an index crosses the link as it is, and the
        host waits. A mask becomes positions on the host, int64 in page-locked memory,
        and while these cross the host goes on (since PyTorch 2.9, pull request 156384).
        """
        for x in self.from_host:
            mask = _is_mask(x)
            nbytes = int(x.count_nonzero()) * x.dim() * 8 if mask else x.nbytes
            Devices.machines[index].bytes_moved(
                HOST, index, nbytes, pinned=mask, blocking=not mask
            )

    def issued(self, op: Operator, index: int, args, results) -> None:
        """Tell the machine about the kernel that ran on these operands.

        Args:
            args, results: backing tensors.
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
        if op.describe is None or self.has_sparse:
            key = op, nbytes, largest, dtype
        else:
            key = op, nbytes, largest, dtype, op.describe(args, results)
        Devices.machines[index].kernel_issued(index, key)


def unwrap(op: Operator, args, kwargs) -> tuple[Operands, list, dict]:
    """Return the call's operands, and its arguments with backing tensors in them.

    Raises RuntimeError when operands live on different devices.
    """
    __tracebackhide__ = hidden_in_pytest
    operands, backing_args, backing_kwargs = Operands(), list(args), kwargs
    given = len(args)
    for i in op.places:
        if i < given:
            backing_args[i] = operands.backing(op, args[i])
    if kwargs:
        backing_kwargs = {k: operands.backing(op, x) for k, x in kwargs.items()}
    if not operands.agree:
        raise errors.device_mismatch(op, args, kwargs)
    return operands, backing_args, backing_kwargs


def _result(value, alias, args, kwargs, index: int):
    """Wrap one result, or return the argument that it is the same tensor as."""
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
    """Let operators inside respect conjugate and negative bits of backing tensors.

    Below the Python dispatch PyTorch excludes the keys that handle these bits, because
    it has handled them for the virtual tensors. But an operator may conjugate on the
    way, and then call others.
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
_inference_mode = torch.is_inference_mode_enabled
_strided = torch.strided


def wrap(backing: torch.Tensor, index: int) -> VirtualTensor:
    """Return a tensor on virtual GPU ``index``, and account for its memory.

    The account is an attribute of the storage's Python object, which lives exactly as
    long as the memory. So views, saved tensors and copies need no bookkeeping.
    """
    if backing.layout is not _strided or backing.is_nested:
        # Not at the top of the file: that module's class is a subclass of ours.
        from .sparse import wrap_sparse

        return wrap_sparse(backing, index)
    charge(backing, index)
    return _view(backing, index)


def charge_parts(backing: torch.Tensor, index: int) -> None:
    """Account for a backing tensor, or for all that a sparse one consists of.

    Raises:
        NotImplementedError: the tensor has a layout that virtual GPUs don't support.
    """
    for part in parts(backing):
        charge(part, index)


def charge(backing: torch.Tensor, index: int) -> None:
    """Account for the whole storage of a dense backing tensor on a virtual GPU."""
    storage = backing.untyped_storage()
    account = getattr(storage, "_vgpu_charge", None)
    if account is None:
        storage._vgpu_charge = Devices.machines[index].charge(
            index, storage.nbytes(), address_of(storage)
        )
    elif account.nbytes < storage.nbytes():  # grown by resize_ or out=
        account.resize(storage.nbytes(), address_of(storage))


def address_of(storage: torch.UntypedStorage) -> int:
    """Return where a storage is, 0 if it's that of a tensor which contains others."""
    try:
        return storage.data_ptr()
    except RuntimeError:
        return 0


def _view(backing: torch.Tensor, index: int) -> VirtualTensor:
    """Wrap a tensor whose memory is already accounted for."""
    if backing.is_inference() is not _inference_mode():
        # A view is an inference tensor if its base is, whatever the mode is by now.
        with torch.inference_mode(backing.is_inference()):
            return _view(backing, index)
    tensor = _make(
        VirtualTensor,
        backing.shape,
        backing.stride(),
        backing.storage_offset(),
        None,
        backing.dtype,
        _strided,
        Devices.names[index],
    )
    tensor._backing = backing
    tensor._index = index
    # PyTorch excludes the keys of lazy bits below Python, so the bits of a backing
    # tensor go unseen: the wrapper has to carry them.
    if backing.is_conj():
        torch._C._set_conj(tensor, True)
    if backing.is_neg():
        torch._C._set_neg(tensor, True)
    return tensor


def refresh(tensor: VirtualTensor) -> None:
    """Update a wrapper's geometry and account from its backing tensor."""
    backing = tensor._backing
    charge_parts(backing, tensor._index)
    if backing.layout is not _strided:
        if tensor.shape != backing.shape:
            torch.Tensor.data.__set__(tensor, wrap(backing, tensor._index))
        return
    if (
        tensor.shape != backing.shape
        or tensor.stride() != backing.stride()
        or tensor.storage_offset() != backing.storage_offset()
    ):
        # Copy the C++ geometry, which as_strided_ wouldn't reproduce exactly.
        torch.Tensor.data.__set__(tensor, _view(backing, tensor._index))
    if backing.is_conj() != tensor.is_conj():
        torch._C._set_conj(tensor, backing.is_conj())


# ------------------------------------------------------------------ memory


def reserve(op: Operator, index: int, args, kwargs, nbytes: int = 0) -> None:
    """Make sure that the results of a call fit, before computing them.

    Args:
        args, kwargs: of the call, with backing tensors.
        nbytes: total bytes of those tensors.
    Raises:
        torch.OutOfMemoryError: the results don't fit on the device.
    """
    if op.bound is not None:
        bound = op.bound(args, nbytes)
    else:
        bound = size_bound(args) * size_bound(tuple(kwargs.values())) * 2 * WIDEST
    if bound > Devices.machines[index].free(index):
        Devices.machines[index].reserve(index, *op.result_sizes(args, kwargs))


# ------------------------------------------------------------------ factories


def factory(func, *args, **kwargs):
    """Run an operator that only ``device=`` puts on a virtual GPU, such as ``ones``."""
    if not any(Devices.machines):
        raise RuntimeError("No virtual GPUs are in use: call use_virtual_gpus first.")
    op = operator(func)
    if "device" not in kwargs:  # called with the Python dispatch switched off
        return _general(op, args, kwargs)
    index = index_of(kwargs["device"])
    kwargs = {k: v for k, v in kwargs.items() if k != "pin_memory"}
    kwargs["device"] = Devices.backings[index]
    try:
        generator.check(kwargs.get("generator"))
        reserve(op, index, args, kwargs)
        call = partial(generator.drawn, op, index) if op.draws else op.call
        result = wrap(call(*args, **kwargs), index)
        if op.record.number:
            result._is_number = True
    except BaseException as error:
        return contained(error, sys._getframe(2), op)
    if op.kernel:
        Operands().issued(op, index, (), result._backing)
    return result
