"""``torch.accelerator`` and ``torch.Generator``, which ask C++ about their device.

So do ``torch.Stream`` and ``torch.Event``.
"""

import functools

import torch
from torch._C._autograd import DeviceType

from .. import device_api
from ..devices import Devices
from ..generator import Generator


def apply() -> None:
    """Apply all changes; ``patches.apply`` calls this once."""
    accelerator()
    generators()
    streams()


def accelerator() -> None:
    """Let ``torch.accelerator`` answer for virtual GPUs.

    All: its functions ask C++. With a guard written in Python, C++ sees only one
    device, can't synchronise it, and finds no allocator.
    """
    here, api = torch.accelerator, device_api
    here.is_available = api.is_available
    here.device_count = api.device_count
    here.current_accelerator = lambda check_available=False: torch.device("vgpu")
    here.current_device_index = here.current_device_idx = api.current_device
    here.set_device_index = here.set_device_idx = api.set_device
    here.device_index = api.device
    here.set_stream = api.set_stream
    # Functions of their own: Dynamo has to tell them from those of torch.cuda.
    here.synchronize = functools.wraps(api.synchronize)(
        lambda device=None: api.synchronize(device)
    )
    here.current_stream = functools.wraps(api.current_stream)(
        lambda device=None: api.current_stream(device)
    )
    for module in (here, here.memory):
        module.empty_cache = api.empty_cache
        module.memory_allocated = api.memory_allocated
        module.max_memory_allocated = api.max_memory_allocated
        module.memory_reserved = api.memory_reserved
        module.max_memory_reserved = api.max_memory_reserved
        module.memory_stats = api.memory_stats
        module.reset_peak_memory_stats = api.reset_peak_memory_stats
        module.get_memory_info = api.mem_get_info


def generators() -> None:
    """Let ``torch.Generator(device='vgpu')`` make a generator.

    All: C++ asks a hook for a generator, which would have to be written in C++.
    """
    torch.Generator = Generator


def streams() -> None:
    """Let ``torch.Stream`` and ``torch.Event`` make those of virtual GPUs.

    All: C++ asks the device guard, which can't be told in Python how to make a stream.
    """
    torch.Stream = _in_place_of(torch.Stream, device_api.Stream)
    torch.Event = _in_place_of(torch.Event, device_api.Event)


def _in_place_of(original: type, ours: type) -> type:
    """Return the class that stands in for one of C++'s.

    Args:
        ours: our subclass of the original, for virtual GPUs.
    """
    members = {"__module__": "torch", "__doc__": original.__doc__}
    members |= {"_original": original, "_ours": ours}
    return _Kind(original.__name__, (), members)


class _Kind(type):
    """The type of such a class: objects and subclasses of C++'s count as its own.

    Called, it makes an object of our subclass for a virtual GPU, and of the original
    for any other device. A class derived from it is derived from the original.
    """

    def __new__(cls, name: str, bases: tuple, members: dict):
        if bases:
            bases = tuple(getattr(base, "_original", base) for base in bases)
            return type(name, bases, members)
        return super().__new__(cls, name, bases, members)

    def __call__(cls, *args, **kwargs):
        if len(args) == 3:  # what C++ calls a stream
            names = ("stream_id", "device_index", "device_type")
            args, kwargs = (), kwargs | dict(zip(names, args, strict=True))
        if "stream_id" in kwargs:
            virtual = kwargs["device_type"] == int(DeviceType.PrivateUse1)
            return (cls._ours if virtual else cls._original)(**kwargs)
        device = args[0] if args else kwargs.get("device")
        if device is None or torch.device(device).type in Devices.types:
            return cls._ours(*args[1:], **kwargs | {"device": device})
        return cls._original(*args, **kwargs)

    def __instancecheck__(cls, value) -> bool:
        return isinstance(value, cls._original)

    def __subclasscheck__(cls, other) -> bool:
        return other is cls or issubclass(other, cls._original)
