"""NVML for virtual GPUs: in place of the driver's library that ``pynvml`` loads.

The package nvidia-ml-py (the module ``pynvml``) calls functions of that library by
their names in C. Here they are in Python, those that have something to say. Constants,
errors and structures are the package's own. What a virtual GPU doesn't have, such as a
sensor of temperature, is ``NVML_ERROR_NOT_SUPPORTED``, as on real GPUs without it.
"""

import ctypes
import os
from collections.abc import Callable
from types import ModuleType

from .monitor import Gpu, gpus

# Codes of errors in nvml.h.
SUCCESS, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE = 0, 2, 3, 6, 7

DRIVER = "virtual"


def install(pynvml: ModuleType) -> None:
    """Let the module ``pynvml`` ask for virtual GPUs from now on."""
    if hasattr(pynvml, "_nvmlGetFunctionPointer_cache"):
        pynvml._nvmlGetFunctionPointer_cache.clear()
        pynvml.nvmlLib = Library()


class Library:
    """The functions of the library, as attributes named as in C.

    As in C, each returns a code and writes its results where pointers say.
    """

    def __init__(self):
        for name, function in _FUNCTIONS.items():
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def unsupported(*args) -> int:
            return NOT_SUPPORTED

        return unsupported


# ------------------------------------------------------------------ handles


def _index_of(handle) -> int:
    """Return the index that a handle stands for; C sees a pointer to that plus 1."""
    return (ctypes.cast(handle, ctypes.c_void_p).value or 0) - 1


def _write(pointer, value) -> None:
    """Write a number where ``byref`` of one points to."""
    pointer._obj.value = value


def _write_text(buffer, length, text: str) -> int:
    value = text.encode()
    if len(value) >= getattr(length, "value", length):
        return INSUFFICIENT_SIZE
    buffer.value = value
    return SUCCESS


def _write_handle(pointer, index: int) -> int:
    if not 0 <= index < len(gpus()):
        return INVALID_ARGUMENT
    ctypes.c_void_p.from_buffer(pointer._obj).value = index + 1
    return SUCCESS


def _asking(function: Callable[..., int | None]) -> Callable[..., int]:
    """Return a function of the library, for one that gets a `Gpu` for the handle."""

    def asked(handle, *args) -> int:
        index, known = _index_of(handle), gpus()
        if not 0 <= index < len(known):
            return INVALID_ARGUMENT
        return function(known[index], *args) or SUCCESS

    return asked


# ------------------------------------------------------------------ the library


def _nothing(*args) -> int:
    return SUCCESS


def _count(pointer) -> int:
    _write(pointer, len(gpus()))
    return SUCCESS


def _driver_version(buffer, length) -> int:
    return _write_text(buffer, length, DRIVER)


def _handle_by_index(index, pointer) -> int:
    return _write_handle(pointer, getattr(index, "value", index))


def _handle_by_uuid(text, pointer) -> int:
    text = getattr(text, "value", text)
    text = text.decode() if isinstance(text, bytes) else text
    for gpu in gpus():
        if text == f"GPU-{gpu.uuid}":
            return _write_handle(pointer, gpu.index)
    return NOT_FOUND


# ------------------------------------------------------------------ a device


def _name(gpu: Gpu, buffer, length) -> int:
    return _write_text(buffer, length, gpu.name)


def _uuid(gpu: Gpu, buffer, length) -> int:
    return _write_text(buffer, length, f"GPU-{gpu.uuid}")


def _device_index(gpu: Gpu, pointer) -> None:
    _write(pointer, gpu.index)


def _capability(gpu: Gpu, major, minor) -> None:
    _write(major, 0)
    _write(minor, 0)


def _memory(gpu: Gpu, pointer) -> None:
    """Write how much memory there is, and is in use.

    A structure can't say that a number is unknown. Where it is, the process that asks
    has used none of its own virtual GPUs, so it's 0.
    """
    memory, used = pointer._obj, gpu.used or 0
    memory.total, memory.used, memory.free = gpu.total, used, gpu.total - used
    if hasattr(memory, "reserved"):
        memory.reserved = 0


def _utilization(gpu: Gpu, pointer) -> int | None:
    """Write how busy a device is, in percent of the simulated time.

    While it runs a kernel, it also reads or writes its memory.
    """
    if gpu.busy is None:
        return NOT_SUPPORTED
    pointer._obj.gpu = pointer._obj.memory = gpu.busy
    return None


def _processes(gpu: Gpu, count, found) -> int:
    """Write which processes use a device: at most this one."""
    room, number = count._obj.value, int(gpu.initialized)
    _write(count, number)
    if number > room or (number and found is None):
        return INSUFFICIENT_SIZE
    if number:
        found[0].pid, found[0].usedGpuMemory = os.getpid(), gpu.used
    return SUCCESS


def _no_processes(gpu: Gpu, count, found) -> None:
    _write(count, 0)


_FUNCTIONS = {
    "nvmlInit": _nothing,
    "nvmlInit_v2": _nothing,
    "nvmlInitWithFlags": _nothing,
    "nvmlShutdown": _nothing,
    "nvmlSystemGetDriverVersion": _driver_version,
    "nvmlDeviceGetCount": _count,
    "nvmlDeviceGetCount_v2": _count,
    "nvmlDeviceGetHandleByIndex": _handle_by_index,
    "nvmlDeviceGetHandleByIndex_v2": _handle_by_index,
    "nvmlDeviceGetHandleByUUID": _handle_by_uuid,
    "nvmlDeviceGetName": _asking(_name),
    "nvmlDeviceGetUUID": _asking(_uuid),
    "nvmlDeviceGetIndex": _asking(_device_index),
    "nvmlDeviceGetCudaComputeCapability": _asking(_capability),
    "nvmlDeviceGetMemoryInfo": _asking(_memory),
    "nvmlDeviceGetMemoryInfo_v2": _asking(_memory),
    "nvmlDeviceGetUtilizationRates": _asking(_utilization),
    "nvmlDeviceGetComputeRunningProcesses": _asking(_processes),
    "nvmlDeviceGetComputeRunningProcesses_v2": _asking(_processes),
    "nvmlDeviceGetComputeRunningProcesses_v3": _asking(_processes),
    "nvmlDeviceGetGraphicsRunningProcesses": _asking(_no_processes),
    "nvmlDeviceGetGraphicsRunningProcesses_v2": _asking(_no_processes),
    "nvmlDeviceGetGraphicsRunningProcesses_v3": _asking(_no_processes),
}
