"""``enable(as_cuda=True)``: programs that say ``cuda`` run unmodified without CUDA.

Virtual GPUs keep their device type; only the meaning of names changes. We register the
kernels that make tensors from ``device=`` for CUDA's dispatch key too, which is of no
other use on a machine without CUDA. So ``device='cuda:1'`` makes a tensor on
``vgpu:1``. To the program the tensor says ``device(type='cuda', index=1)``, and the
functions of ``torch.cuda`` are those of ``torch.vgpu``. In the few places where C++
would need a real device to understand ``cuda``, we say ``vgpu`` instead. None of this
can be undone in a process.

Printing shows what is really there: the ``repr`` of a tensor, error messages and the
names of devices say ``vgpu`` and virtual.

README.md lists what isn't covered.
"""

import functools
from collections.abc import Sequence

import torch

from .. import backend, device_api
from ..devices import Devices, as_device
from ..tensor import VirtualTensor
from . import compiler, monitoring
from .names import full_name

# Registrations end when their Python objects die.
_kept: list = []


def check() -> None:
    """Raise RuntimeError if the name cuda belongs to real devices."""
    if not _kept and torch.cuda.is_available():
        raise RuntimeError(
            "Virtual GPUs cannot take the name cuda here, because this machine has "
            "CUDA devices: hide them (CUDA_VISIBLE_DEVICES='') or use the name vgpu."
        )


def apply() -> None:
    """Apply all changes at the first call, after ``backend.register``."""
    if _kept:
        return
    _kept.append(backend.register_factories("CUDA"))
    _kept.append(backend.refuse_layouts("CUDA"))
    Devices.types = ("vgpu", "cuda")
    devices_by_number()
    tensors()
    wrappers()
    autocast()
    cuda_module()
    refusals()
    tensor_types()
    accelerator()
    cudnn()
    fake_tensors()
    monitoring.apply()
    if torch.distributed.is_available() and torch.distributed.is_gloo_available():
        from . import nccl

        nccl.apply()
    compiler.names_again()


# ------------------------------------------------------------------ tensors and names


class _DeviceType(type):
    """The type of ``torch.device`` in place of C++'s, whose objects are its objects."""

    original = torch.device

    def __call__(cls, *args, **kwargs) -> torch.device:
        device = _DeviceType.original(*args, **kwargs)
        if isinstance(next(iter((*args, *kwargs.values())), None), int):
            return _DeviceType.original("cuda", device.index)
        return device

    def __eq__(cls, other) -> bool:
        return other is cls or other is _DeviceType.original

    def __hash__(cls) -> int:
        return hash(_DeviceType.original)

    def __instancecheck__(cls, value) -> bool:
        return isinstance(value, _DeviceType.original)

    def __subclasscheck__(cls, other) -> bool:
        return other is cls or issubclass(other, _DeviceType.original)


def devices_by_number() -> None:
    """Let ``torch.device(1)`` be ``cuda:1``.

    All: C++ says vgpu:1. FSDP compares such devices with those of tensors. The type of
    C++ can't have subclasses.
    """
    torch.device = _DeviceType(
        "device", (), {"__module__": "torch", "__doc__": torch.device.__doc__}
    )


def tensors() -> None:
    """Let ``x.device``, ``x.is_cuda`` and ``x.type()`` of a virtual tensor say cuda.

    All: C++ says vgpu, but programs check ``if x.device.type == 'cuda'``.
    """
    VirtualTensor.device = property(lambda self: Devices.shown[self._index])
    VirtualTensor.is_cuda = property(lambda self: True)


def wrappers() -> None:
    """Let DTensor, and other tensors that contain virtual ones, say cuda as well.

    All: they tell C++ the device of what they contain. Each such class is changed when
    it's made, because PyTorch imports some of them late. Those made in Python pass on
    the name cuda, for which autograd finds no guard: it ends the process.
    """
    in_cpp, make = torch.Tensor.device, torch.Tensor._make_wrapper_subclass

    @functools.wraps(make)
    def _make_wrapper_subclass(*args, **kwargs):
        if len(args) > 7:
            args = (*args[:7], full_name(args[7]), *args[8:])
        elif "device" in kwargs:
            kwargs["device"] = full_name(kwargs["device"])
        return make(*args, **kwargs)

    torch.Tensor._make_wrapper_subclass = staticmethod(_make_wrapper_subclass)

    def device(self):
        found = in_cpp.__get__(self)
        return Devices.shown[found.index] if found.type == "vgpu" else found

    def change(kind) -> None:
        if "__torch_dispatch__" in kind.__dict__ and kind.device is in_cpp:
            kind.device = property(device)

    def __init_subclass__(kind, **options):
        super(torch.Tensor, kind).__init_subclass__(**options)
        change(kind)

    for kind in torch.Tensor.__subclasses__():
        change(kind)
    torch.Tensor.__init_subclass__ = classmethod(__init_subclass__)


def autocast() -> None:
    """Let ``torch.autocast('cuda')`` apply to virtual tensors.

    All: C++ keeps the state of autocast by device type, and theirs is vgpu. Without a
    device type these functions mean CUDA.
    """
    for name in ("is_autocast_enabled", "get_autocast_dtype"):
        setattr(torch, name, _translating(getattr(torch, name), least=0))
    for name in ("set_autocast_enabled", "set_autocast_dtype"):
        setattr(torch, name, _translating(getattr(torch, name), least=1))
    torch.get_autocast_gpu_dtype = lambda: torch.get_autocast_dtype("vgpu")
    torch.set_autocast_gpu_dtype = lambda dtype: torch.set_autocast_dtype("vgpu", dtype)


def _translating(function, least: int):
    """Return a function that passes vgpu for cuda, or for a missing device type.

    Args:
        least: the number of arguments of a call without a device type.
    """

    @functools.wraps(function)
    def translated(*args):
        if len(args) == least:
            return function("vgpu", *args)
        return function("vgpu" if args[0] == "cuda" else args[0], *args[1:])

    return translated


def fake_tensors() -> None:
    """Let fake tensors, which stand for others while code is traced, say cuda too.

    All: C++ would look for CUDA's guard, which isn't there.
    """
    from torch._subclasses.fake_tensor import FakeTensor

    normalized, device = FakeTensor._normalize_fake_device, FakeTensor.device

    @functools.wraps(normalized)
    def _normalize_fake_device(device):
        return normalized(full_name(device))

    def shown(self):
        found = device.__get__(self)
        return Devices.shown[found.index] if found.type == "vgpu" else found

    FakeTensor._normalize_fake_device = staticmethod(_normalize_fake_device)
    FakeTensor.device = property(shown, device.__set__)


# ------------------------------------------------------------------ torch.cuda

# The names that torch.cuda takes from torch.vgpu.
_SHARED = (
    "Event",
    "Stream",
    "_is_in_bad_fork",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_memory_used",
    "device_of",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "get_sync_debug_mode",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "memory_usage",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "set_sync_debug_mode",
    "stream",
    "synchronize",
    "utilization",
)


def cuda_module() -> None:
    """Let ``torch.cuda`` answer for virtual GPUs.

    All: its functions call parts of C++ that this build doesn't have.
    """
    cuda = torch.cuda
    shared = {name: getattr(device_api, name) for name in _SHARED}
    own = {
        "StreamContext": device_api.stream,
        "_initialized": device_api._initialized,
        "_lazy_call": lambda function, **kwargs: function(),
        "_lazy_init": device_api.init,
        "get_arch_list": list,
        "ipc_collect": device_api.empty_cache,
        "is_tf32_supported": lambda: False,
        "max_memory_cached": device_api.max_memory_reserved,
        "memory_cached": device_api.memory_reserved,
        "reset_max_memory_allocated": device_api.reset_peak_memory_stats,
        "reset_max_memory_cached": device_api.reset_peak_memory_stats,
    }
    for module in (cuda, cuda.memory, cuda.random, cuda.streams):
        for name, function in (shared | own).items():
            if hasattr(module, name):
                setattr(module, name, function)
    for name in ("mark", "range_end", "range_pop", "range_push", "range_start"):
        setattr(cuda.nvtx, name, lambda *args, **kwargs: 0)


# What makes no sense without CUDA's driver or libraries.
_REFUSED = {
    "cuda": (
        "CUDAGraph",
        "CUDAPluggableAllocator",
        "ExternalStream",
        "MemPool",
        "caching_allocator_alloc",
        "caching_allocator_delete",
        "change_current_allocator",
        "cudart",
        "current_blas_handle",
        "get_stream_from_external",
        "graph",
        "graph_pool_handle",
        "make_graphed_callables",
    ),
    "cuda.jiterator": ("_create_jit_fn", "_create_multi_output_jit_fn"),
    "cuda.nccl": ("all_gather", "all_reduce", "broadcast", "reduce", "reduce_scatter"),
}


def refusals() -> None:
    """Refuse in one sentence what only a real GPU can do.

    All: it would end in an AttributeError, or a message about how PyTorch was compiled.
    """
    for path, names in _REFUSED.items():
        module = functools.reduce(getattr, path.split("."), torch)
        for name in names:
            original = getattr(module, name, None)
            if isinstance(original, type):
                original.__new__ = _refusing(f"torch.{path}.{name}")
            elif original is not None:
                setattr(module, name, _refusing(f"torch.{path}.{name}"))


def _refusing(name: str):
    def refuse(*args, **kwargs):
        raise NotImplementedError(
            f"Virtual GPUs have no {name}: it needs a real GPU and its driver."
        )

    return refuse


def accelerator() -> None:
    """Let ``torch.accelerator`` name its devices as tensors do.

    All: ``DataParallel``, FSDP and programs compare its device type with
    ``x.device.type``. Parts of PyTorch ask C++ directly.
    """
    cuda = torch.device("cuda")
    torch.accelerator.current_accelerator = lambda check_available=False: cuda
    torch._C._get_accelerator = lambda check_available=False: cuda


def cudnn() -> None:
    """Let recurrent layers run without cuDNN.

    All: for CUDA tensors they ask for it, and PyTorch warns that it has none.
    """
    torch.backends.cudnn.is_acceptable = lambda tensor: False


# ------------------------------------------------------------------ types of tensors

_TYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "ShortTensor": torch.int16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "BoolTensor": torch.bool,
}


class TensorType:
    """A type such as ``torch.cuda.FloatTensor``, which makes and recognises tensors."""

    def __init__(self, name: str, dtype: torch.dtype):
        self.name, self.dtype = f"torch.cuda.{name}", dtype
        self._on_cpu = getattr(torch, name)

    def __call__(self, *args) -> torch.Tensor:
        return self._on_cpu(*args).to(as_device())

    def __instancecheck__(self, tensor) -> bool:
        return type(tensor) is VirtualTensor and tensor.dtype is self.dtype

    def __repr__(self) -> str:
        return f"<class '{self.name}'>"


class SparseTensorType(TensorType):
    """A type such as ``torch.cuda.sparse.FloatTensor``, of tensors in COO layout."""

    def __init__(self, name: str, dtype: torch.dtype):
        super().__init__(name, dtype)
        self.name = f"torch.cuda.sparse.{name}"

    def __call__(self, *args) -> torch.Tensor:
        if not (args and isinstance(args[0], torch.Tensor)):  # sizes alone
            size = args[0] if args and isinstance(args[0], Sequence) else args or (0,)
            places = torch.empty(len(size), 0, dtype=torch.int64, device="cuda")
            args = places, torch.empty(0, device="cuda"), size
        # These types never check; without the option PyTorch warns of that.
        return torch.sparse_coo_tensor(*args, dtype=self.dtype, check_invariants=False)

    def __instancecheck__(self, tensor) -> bool:
        return (
            isinstance(tensor, VirtualTensor)
            and tensor.layout is torch.sparse_coo
            and tensor.dtype is self.dtype
        )


def tensor_types() -> None:
    """Supply types such as ``torch.cuda.FloatTensor``, which also work by name.

    All: C++ has them only in builds with CUDA, and otherwise raises.
    """
    types = {name: TensorType(name, dtype) for name, dtype in _TYPES.items()}
    for name, kind in types.items():
        setattr(torch.cuda, name, kind)
        if hasattr(torch.sparse, name):
            sparse = SparseTensorType(name, _TYPES[name])
            setattr(torch.cuda.sparse, name, sparse)
    by_name = {kind.name: kind for kind in types.values()}
    cast, set_default = torch.Tensor.type, torch.set_default_tensor_type

    @functools.wraps(cast)
    def _type(self, dtype=None, non_blocking=False, **kwargs):
        kind = by_name.get(dtype) if isinstance(dtype, str) else dtype
        if isinstance(kind, TensorType):
            index = getattr(self, "_index", None)
            return self.to(as_device(index), kind.dtype, non_blocking=non_blocking)
        if dtype is None:
            return cast(self).replace("torch.vgpu.", "torch.cuda.")
        return cast(self, dtype, non_blocking, **kwargs)

    @functools.wraps(set_default)
    def set_default_tensor_type(t, /):
        kind = by_name.get(t) if isinstance(t, str) else t
        if isinstance(kind, TensorType):
            torch.set_default_dtype(kind.dtype)
            torch.set_default_device("cuda")
        else:
            set_default(t)

    torch.Tensor.type = _type
    torch.set_default_tensor_type = set_default_tensor_type
