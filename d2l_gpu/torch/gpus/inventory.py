"""A machine's inventory: its CPU, its GPUs, and the virtual GPUs in use."""

import torch

from d2l_gpu.common.processor import cpu_model, host_memory, size_text
from d2l_gpu.vgpu import Table, device_types

# The accelerators that PyTorch's official builds support.
REAL = ("cuda", "xpu", "mps")


def devices() -> Table:
    """Return a table of this machine's devices, real and virtual.

    Returns:
        A table with one row per device: its name in PyTorch, whether it is real, its
        model, and its memory, which is simulated for a virtual GPU.
    """
    rows = [["cpu", "real", cpu_model(), size_text(host_memory())]]
    for kind in REAL:
        for i in range(_count(kind)):
            device = torch.device(kind, i)
            rows.append([str(device), "real", device_model(device), _memory(device)])
    for i in range(_virtual_count()):
        device = torch.device("vgpu", i)
        memory = f"{_memory(device)}, simulated"
        rows.append([str(device), "virtual", device_model(device), memory])
    return Table(["device", "kind", "model", "memory"], rows)


def device_model(device: torch.device) -> str:
    """Return an accelerator's model name, as its driver reports it."""
    module = torch.get_device_module(device)
    if hasattr(module, "get_device_name"):
        return module.get_device_name(device)
    return {"mps": "Apple GPU"}.get(device.type, device.type.upper())


def _count(kind: str) -> int:
    if kind in device_types():  # virtual GPUs use this name
        return 0
    module = getattr(torch, kind, None)
    if module is None or not module.is_available():
        return 0
    return module.device_count()


def _virtual_count() -> int:
    module = getattr(torch, "vgpu", None)  # exists once virtual GPUs are in use
    return module.device_count() if module else 0


def _memory(device: torch.device) -> str:
    module = torch.get_device_module(device)
    if device.type == "mps":
        return size_text(module.recommended_max_memory())
    if device.type == "vgpu":
        return size_text(module.mem_get_info(device)[1])
    return size_text(module.get_device_properties(device).total_memory)
