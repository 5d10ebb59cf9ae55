"""The changes made to PyTorch itself, one function each.

PyTorch asks the backend of a device for nearly everything. What it does not ask for is
here, in ``names.py``, ``loading.py``, ``parallel.py`` and ``distributed.py``, and for
programs that say cuda in ``as_cuda.py``: each function says what fails without it, and
on which versions of PyTorch that was seen; "all" means 2.10 to 2.13.
"""

import functools
import inspect
import warnings

import torch
from torch.nn.parameter import (
    UninitializedBuffer,
    UninitializedParameter,
    UninitializedTensorMixin,
    is_lazy,
)

from . import device_api, loading, names, parallel
from .devices import Devices, as_device, index_of
from .errors import name_of
from .generator import Generator
from .tensor import VirtualTensor, engine, is_virtual


def apply() -> None:
    """Apply all changes; ``backend.register`` calls this once."""
    backward()
    names.apply()
    data()
    modules()
    lazy_parameters()
    optimizers()
    loading.apply()
    pinned_memory()
    accelerator()
    cuda_methods()
    parallel.apply()
    generators()
    compiling()
    batches()
    if torch.distributed.is_available():
        from . import distributed

        distributed.apply()


def backward() -> None:
    """Run backward in the calling thread, and raise the errors of its operators.

    All: the engine has one queue per device of the guard, and a guard written in
    Python has one device, so a thread of its own aborts for index 1 and beyond. An
    error below a C++ node would end the process, so ``tensor.contained`` keeps it.
    And C++ does not compare the devices of roots and gradients for subclasses.
    """
    import torch.autograd.graph as graph

    original = graph._engine_run_backward
    type(engine).code = original.__code__

    @functools.wraps(original)
    def run_backward(outputs, grads=(), *args, **kwargs):
        for i, (output, grad) in enumerate(zip(outputs, grads, strict=False)):
            virtual = is_virtual(output) or is_virtual(grad)
            if virtual and grad is not None and grad.device != output.device:
                raise RuntimeError(
                    f"invalid gradient at index {i} - expected device "
                    f"{name_of(output)} but got {name_of(grad)}"
                )
        outer, engine.error = engine.error, None
        try:
            with torch.autograd.set_multithreading_enabled(False):
                return original(outputs, grads, *args, **kwargs)
        except Exception:
            if engine.error is not None:
                raise engine.error from None
            raise
        finally:
            engine.error = outer

    graph._engine_run_backward = run_backward
    torch.autograd._engine_run_backward = run_backward


def data() -> None:
    """Let ``p.data = p.data.to('vgpu:1')`` move a parameter, as to any device.

    All: C++ takes only data of the same type of tensor, which a plain tensor and a
    wrapper are not. ``fully_shard`` moves parameters this way.
    """
    original = torch.Tensor.data

    def set_data(self, new):
        if is_virtual(new) and not is_virtual(self):
            grad, new = self.grad, new.detach().requires_grad_(self.requires_grad)
            if isinstance(self, torch.nn.Parameter):
                new = torch.nn.Parameter(new, self.requires_grad)
            become(self, new)
            self.grad = None if grad is None else grad.to(self.device)
        else:
            original.__set__(self, new)

    torch.Tensor.data = property(original.__get__, set_data)


def modules() -> None:
    """Let ``Module.to`` keep its Parameter objects when it crosses to a virtual GPU.

    All: PyTorch replaces a parameter's contents where C++ calls the types compatible,
    which a plain tensor and a wrapper are not, and makes a new Parameter otherwise.
    An optimizer would go on with the old one.
    """
    original = torch.nn.Module._apply

    @functools.wraps(original)
    def _apply(self, fn, recurse=True):
        if recurse:
            for child in self.children():
                child._apply(fn)
        moved: dict[int, torch.Tensor] = {}

        def once(tensor):
            # The original calls fn again for the tensors that stayed of their kind.
            return moved[id(tensor)] if id(tensor) in moved else fn(tensor)

        for tensor in (*self._parameters.values(), *self._buffers.values()):
            if tensor is not None and is_lazy(tensor):
                # It has no values to move yet; ask an empty tensor where they will go.
                there = fn(torch.empty(0, dtype=torch.Tensor.dtype.__get__(tensor)))
                tensor.__dict__.pop("_vgpu_device", None)
                if is_virtual(there):
                    tensor._vgpu_device = there.device
                    moved[id(tensor)] = tensor
        for parameter in self._parameters.values():
            if parameter is None or is_lazy(parameter):
                continue
            with torch.no_grad():
                new = fn(parameter)
            if is_virtual(new) != is_virtual(parameter):
                grad = parameter.grad
                become(parameter, torch.nn.Parameter(new, parameter.requires_grad))
                if grad is not None:
                    with torch.no_grad():
                        parameter.grad = fn(grad).requires_grad_(grad.requires_grad)
                    moved[id(parameter.grad)] = parameter.grad
                new = parameter
            moved[id(parameter)] = new
        return original(self, once, recurse=False)

    torch.nn.Module._apply = _apply


def lazy_parameters() -> None:
    """Let parameters without a shape remember their virtual GPU until they have one.

    All: PyTorch keeps the device in an empty tensor inside, which a plain Parameter
    cannot hold for a wrapper.
    """
    materialize = UninitializedTensorMixin.materialize
    deepcopy = UninitializedParameter.__deepcopy__

    @functools.wraps(materialize)
    def _materialize(self, shape, device=None, dtype=None):
        noted = self.__dict__.pop("_vgpu_device", None)
        device = noted if device is None else torch.device(device)
        if device is None or device.type not in Devices.types:
            return materialize(self, shape, device, dtype)
        dtype = torch.Tensor.dtype.__get__(self) if dtype is None else dtype
        tensor = torch.empty(shape, device=device, dtype=dtype)
        if isinstance(self, torch.nn.Parameter):
            tensor = torch.nn.Parameter(tensor, self.requires_grad)
        become(self, tensor)

    def remembering(new):
        signature = inspect.signature(new)

        @functools.wraps(new)
        def _new(*args, **kwargs):
            given = signature.bind(*args, **kwargs)
            device = given.arguments.get("device")
            virtual = device is not None and torch.device(device).type in Devices.types
            if virtual:
                given.arguments["device"] = None
            self = new(*given.args, **given.kwargs)
            if virtual:
                self._vgpu_device = Devices.shown[index_of(device)]
            return self

        return _new

    def _deepcopy(self, memo):
        copy = deepcopy(self, memo)
        if hasattr(self, "_vgpu_device"):
            copy._vgpu_device = self._vgpu_device
        return copy

    def device(self):
        return getattr(self, "_vgpu_device", None) or torch.Tensor.device.__get__(self)

    UninitializedTensorMixin.materialize = _materialize
    UninitializedTensorMixin.device = property(device)
    for kind in (UninitializedParameter, UninitializedBuffer):
        kind.__new__ = remembering(kind.__new__)
    UninitializedParameter.__deepcopy__ = _deepcopy


def optimizers() -> None:
    """Let optimizers take their foreach implementations, as they do on GPUs.

    All: the default asks for the exact type of the parameters.
    """
    from torch.optim import optimizer

    if VirtualTensor not in optimizer._foreach_supported_types:
        optimizer._foreach_supported_types.append(VirtualTensor)


def pinned_memory() -> None:
    """Mark host tensors as pinned; nothing is locked, the log of copies says so.

    All: PyTorch asks a C++ hook for the allocator of pinned memory. Where CUDA is at
    hand, real pinned memory is used and nothing is changed.
    """
    if torch.cuda.is_available():
        return

    def pin_memory(self, device=None):
        if self.is_pinned():
            return self
        pinned = self.clone()
        pinned._vgpu_pinned = True
        return pinned

    def is_pinned(self, device=None):
        return getattr(self, "_vgpu_pinned", False)

    torch.Tensor.pin_memory = pin_memory
    torch.Tensor.is_pinned = is_pinned


def accelerator() -> None:
    """Let ``torch.accelerator`` answer for virtual GPUs.

    All: its functions ask C++, which sees one device of a guard written in Python,
    cannot synchronise it, and finds no allocator.
    """
    here, api = torch.accelerator, device_api
    here.is_available = api.is_available
    here.device_count = api.device_count
    here.current_accelerator = lambda check_available=False: torch.device("vgpu")
    here.current_device_index = here.current_device_idx = api.current_device
    here.set_device_index = here.set_device_idx = api.set_device
    here.device_index = api.device
    here.synchronize = api.synchronize
    here.current_stream, here.set_stream = api.current_stream, api.set_stream
    for module in (here, here.memory):
        module.empty_cache = api.empty_cache
        module.memory_allocated = api.memory_allocated
        module.max_memory_allocated = api.max_memory_allocated
        module.memory_reserved = api.memory_reserved
        module.max_memory_reserved = api.max_memory_reserved
        module.memory_stats = api.memory_stats
        module.reset_peak_memory_stats = api.reset_peak_memory_stats
        module.get_memory_info = api.mem_get_info


def cuda_methods() -> None:
    """Let ``.cuda(i)`` of CPU tensors and modules mean virtual GPU i.

    All: without CUDA they raise. Where CUDA is at hand they keep their meaning.
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

    torch.Tensor.cuda = cuda
    torch.nn.Module.cuda = module_cuda
    # Lazy parameters allow the methods on this list only.
    UninitializedTensorMixin._allowed_methods.append(cuda)


def generators() -> None:
    """Let ``torch.Generator(device='vgpu')`` be one.

    All: C++ asks a hook for a generator written in C++.
    """
    torch.Generator = Generator


def compiling() -> None:
    """Let ``torch.compile`` leave code as it is, with one warning.

    All: the compiler cannot see through a wrapper; it breaks the graph at every
    operator, with a page of warnings each.
    """
    original = torch.compile

    @functools.wraps(original)
    def compile(model=None, *, disable=False, **settings):
        if not disable:
            warnings.warn(
                "torch.compile does nothing while virtual GPUs are in use: the code "
                "runs as it is, with the same results.",
                stacklevel=2,
            )
        return original(model, disable=True, **settings)

    torch.compile = compile


def batches() -> None:
    """Let workers of a DataLoader stack virtual tensors to a batch.

    All: for tensors PyTorch makes shared memory on their device, which ends the worker
    with a segmentation fault, since C++ has no allocator for this one.
    """
    from torch.utils.data._utils.collate import default_collate_fn_map

    default_collate_fn_map[VirtualTensor] = lambda batch, **_: torch.stack(batch)


# ------------------------------------------------------------------ what they share


def become(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """Give one tensor object the identity of another: both C++ and Python halves.

    Like ``torch.utils.swap_tensors``, which refuses while a graph holds the tensor;
    here that graph keeps the old values, and its backward no longer reaches us.
    """
    torch._C._swap_tensor_impl(tensor, other)
    tensor.__class__, other.__class__ = other.__class__, tensor.__class__
    tensor.__dict__, other.__dict__ = other.__dict__, tensor.__dict__
