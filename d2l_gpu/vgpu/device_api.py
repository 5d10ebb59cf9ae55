"""``torch.vgpu``: what ``torch.cuda`` is to CUDA devices.

Devices are given as an index, a string, a ``torch.device``, or None for the current
device, which is a property of the thread, as in CUDA.
"""

import torch

from . import errors
from .tensor import Devices, current

Device = int | str | torch.device | None


def _index(device: Device = None) -> int:
    """Return the index of a device; raises if there is no such device."""
    if device is None:
        return current.index
    index = device
    if not isinstance(device, int):
        device = torch.device(device)
        if device.type not in ("vgpu", "cuda"):
            raise ValueError(f"Expected a virtual GPU such as vgpu:0, not {device}.")
        index = current.index if device.index is None else device.index
    if not 0 <= index < device_count():
        raise errors.invalid_ordinal(index, device_count())
    return index


def as_device(device: Device = None) -> torch.device:
    """Return the ``torch.device`` of a virtual GPU, also where it is called cuda."""
    return Devices.names[_index(device)]


# ------------------------------------------------------------------ devices


def is_available() -> bool:
    return device_count() > 0


def is_initialized() -> bool:
    return True


def init() -> None:
    """Nothing to do: the devices exist since ``enable``."""


def device_count() -> int:
    return len(Devices.names)


def current_device() -> int:
    return current.index


def set_device(device: Device) -> None:
    current.index = _index(device)


class device:
    """A context in which another device is the current one."""

    def __init__(self, device: Device):
        # torch's guards pass -1 for "leave it as it is".
        self.index = None if device is None or device == -1 else _index(device)

    def __enter__(self):
        self.previous = current.index
        if self.index is not None:
            current.index = self.index

    def __exit__(self, *exception):
        current.index = self.previous


def get_device_name(device: Device = None) -> str:
    _index(device)
    host = Devices.host
    return f"virtual GPU, computed on the {'CPU' if host.type == 'cpu' else host}"


def synchronize(device: Device = None) -> None:
    """Wait for a device: the host has computed everything before Python goes on."""
    _index(device)


# ------------------------------------------------------------------ memory, in bytes


def memory_allocated(device: Device = None) -> int:
    return Devices.machine.used[_index(device)]


def max_memory_allocated(device: Device = None) -> int:
    return Devices.machine.peak[_index(device)]


def reset_peak_memory_stats(device: Device = None) -> None:
    machine, i = Devices.machine, _index(device)
    machine.peak[i] = machine.used[i]


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Return the bytes that are free, and the bytes that there are."""
    machine = Devices.machine
    return machine.free(_index(device)), machine.capacity


def memory_stats(device: Device = None) -> dict[str, int]:
    i, machine = _index(device), Devices.machine
    return {
        f"{kind}_bytes.all.{when}": values[i]
        for kind in ("allocated", "reserved")
        for when, values in (("current", machine.used), ("peak", machine.peak))
    }


def empty_cache() -> None:
    """Nothing to do: memory is given back at once."""


# No caching allocator stands between a tensor and its memory.
memory_reserved = memory_allocated
max_memory_reserved = max_memory_allocated


# ------------------------------------------------------------------ random numbers


def manual_seed(seed: int) -> None:
    """Seed the host's generator, from which the values of every device come."""
    host = Devices.host
    if host.type == "cpu":
        torch.default_generator.manual_seed(int(seed))
    else:
        torch.get_device_module(host).manual_seed(seed)


manual_seed_all = manual_seed


def initial_seed() -> int:
    return torch.initial_seed()


def get_rng_state(device: Device = None) -> torch.Tensor:
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, device: Device = None) -> None:
    torch.set_rng_state(state)


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float16, torch.bfloat16]


def _is_in_bad_fork() -> bool:
    return False
