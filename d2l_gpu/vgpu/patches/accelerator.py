"""``torch.accelerator`` and ``torch.Generator``, which ask C++ about their device."""

import torch

from .. import device_api
from ..generator import Generator


def apply() -> None:
    """Apply all changes; ``patches.apply`` calls this once."""
    accelerator()
    generators()


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


def generators() -> None:
    """Let ``torch.Generator(device='vgpu')`` make a generator.

    All: C++ asks a hook for a generator, which would have to be written in C++.
    """
    torch.Generator = Generator
