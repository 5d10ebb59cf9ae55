"""``torch.vgpu``: for virtual GPUs, what ``torch.cuda`` is for CUDA devices.

Functions take a device as an index, a string, a ``torch.device``, or None for the
current device. As in CUDA, each thread has its own current device.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import torch

from . import memory, monitor
from .devices import Device, Devices, current
from .devices import index_of as _index
from .generator import default_generators
from .memory import (
    device_memory_used,
    empty_cache,
    get_per_process_memory_fraction,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from .streams import (
    Event,
    Stream,
    current_stream,
    default_stream,
    set_stream,
    stream,
)
from .sync_debug import get_sync_debug_mode, set_sync_debug_mode

__all__ = [
    "Event",
    "Stream",
    "current_stream",
    "default_stream",
    "device_memory_used",
    "empty_cache",
    "get_per_process_memory_fraction",
    "get_sync_debug_mode",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "set_stream",
    "set_sync_debug_mode",
    "stream",
]


# ------------------------------------------------------------------ devices


def is_available() -> bool:
    """Return whether there are virtual GPUs."""
    return device_count() > 0


def is_initialized() -> bool:
    """Return whether the program has chosen or used a device.

    As long as it hasn't, ``init_device_mesh`` chooses one for each rank.
    """
    return Devices.chosen or (Devices.machine is not None and any(Devices.machine.peak))


# Only if this is true does torch.utils.checkpoint save the states of generators.
_initialized = True


def init() -> None:
    """Nothing to do: ``enable`` has made the devices."""


def device_count() -> int:
    """Return how many virtual GPUs ``enable`` has set up."""
    return 0 if Devices.machine is None else Devices.machine.count


def current_device() -> int:
    """Return the index of this thread's current device."""
    return current.index


def set_device(device: Device) -> None:
    """Make a device this thread's current one."""
    current.index = _index(device)
    Devices.chosen = True


class device:
    """A context in which another device is the current one."""

    def __init__(self, device: Device):
        # PyTorch's guards pass -1 to keep the current device.
        self.index = None if device is None or device == -1 else _index(device)

    def __enter__(self):
        self.previous = current.index
        if self.index is not None:
            current.index = self.index

    def __exit__(self, *exception):
        current.index = self.previous


class device_of(device):
    """A context in which a tensor's virtual GPU, if it's on one, is current."""

    def __init__(self, tensor: torch.Tensor):
        super().__init__(tensor._index if hasattr(tensor, "_index") else None)


@dataclass(frozen=True)
class DeviceProperties:
    """The properties of a virtual GPU, named as in ``torch.cuda``.

    What describes a processor is that of the model that the clock assumes, 0 where the
    catalogue doesn't know it.
    """

    name: str
    total_memory: int  # bytes
    multi_processor_count: int
    max_threads_per_multi_processor: int
    L2_cache_size: int  # bytes
    warp_size: int
    uuid: UUID  # of no real GPU, but the same everywhere
    major: int = 0  # not the generation of any real GPU
    minor: int = 0
    is_integrated: int = 0
    is_multi_gpu_board: int = 0


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Return the properties of a device."""
    i = _index(device)
    machine = Devices.machines[i]
    model = machine.clock.models[i]
    return DeviceProperties(
        monitor.name_of(str(Devices.backings[i]), machine.has_values),
        machine.capacities[i],
        model.units,
        model.threads,
        model.cache,
        model.warp,
        monitor.uuid_of(i),
    )


def get_device_name(device: Device = None) -> str:
    """Return a device's name, which says that it's virtual and what computes it."""
    return get_device_properties(device).name


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """Return (0, 0), which no real GPU has, because their kernels can't run here."""
    _index(device)
    return 0, 0


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """Return whether a device can read another's memory directly."""
    return _index(device) != _index(peer_device)


def synchronize(device: Device = None) -> None:
    """Wait for a device on the simulated clock. Its values are already computed."""
    i = _index(device)
    Devices.machines[i].host_waits(i)


def utilization(device: Device = None) -> int:
    """Return the percentage of the *simulated* time in which a device worked.

    Kernels count, copies don't. The time is that since the clock's last reset.
    """
    i = _index(device)
    return monitor.utilization_of(Devices.machines[i].clock, i)


def memory_usage(device: Device = None) -> int:
    """Return the percentage of the *simulated* time in which memory was used.

    Every kernel reads or writes memory while it runs, so this is ``utilization``.
    """
    return utilization(device)


# ------------------------------------------------------------------ random numbers


def manual_seed(seed: int) -> None:
    """Seed the generator of the current device."""
    _seed(int(seed), [current.index])


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices."""
    there = zip(Devices.machines, Devices.backings, strict=True)
    _seed(int(seed), [i for i, pair in enumerate(there) if None not in pair])


def _seed(seed: int, indices: Sequence[int]) -> None:
    for index in indices:
        default_generators.of(index).manual_seed(seed)
        backing = Devices.backings[index]
        if backing.type not in ("cpu", "meta"):  # draws from a generator of its own
            torch.get_device_module(backing).manual_seed(seed)


def seed() -> int:
    """Seed the current device's generator unpredictably, and return the seed."""
    seed = torch.Generator().seed()
    manual_seed(seed)
    return seed


def seed_all() -> int:
    """Seed all devices' generators with one unpredictable number, and return that."""
    seed = torch.Generator().seed()
    manual_seed_all(seed)
    return seed


def initial_seed() -> int:
    """Return the seed of the current device's generator."""
    return default_generators.of(current.index).initial_seed()


def get_rng_state(device: Device = None) -> torch.Tensor:
    """Return the state of a device's generator."""
    return default_generators.of(_index(device)).get_state()


def set_rng_state(state: torch.Tensor, device: Device = None) -> None:
    """Set the state of a device's generator."""
    default_generators.of(_index(device)).set_state(state)


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the states of all devices' generators."""
    return [get_rng_state(i) for i in range(len(default_generators))]


def set_rng_state_all(states: Sequence[torch.Tensor]) -> None:
    """Set the states of all devices' generators."""
    for i, state in enumerate(states):
        set_rng_state(state, i)


# ------------------------------------------------------------------ capabilities


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the types in which ``torch.autocast`` can compute."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return True: bfloat16 works on every virtual GPU."""
    return True


def is_current_stream_capturing() -> bool:
    """Return False: there are no CUDA graphs, so nothing is ever captured."""
    return False


def _is_in_bad_fork() -> bool:
    return False
