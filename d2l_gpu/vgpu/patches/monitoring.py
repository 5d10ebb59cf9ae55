"""What programs ask about GPUs by the name cuda: memory in detail, and the driver.

Part of ``as_cuda``, and applied with it.
"""

import sys

import torch

from .. import memory, nvml
from ..devices import index_of


def apply() -> None:
    snapshots()
    driver()


def snapshots() -> None:
    """Supply the functions of C++ behind snapshots and histories of memory.

    All: builds without CUDA lack them, so ``torch.cuda.memory._snapshot`` and
    ``_record_memory_history`` end in an AttributeError.
    """

    def record(enabled, context, stacks, most, clear=False, *others) -> None:
        skipped = others[-1] if others and isinstance(others[-1], list) else ()
        memory.record_history(enabled, context, most, clear, skipped)

    def record_legacy(
        enabled,
        context=True,
        most=1,
        frames_of_all=False,
        in_cpp=False,
        clear=False,
        *_,
    ) -> None:
        kept = ("all" if frames_of_all else "state") if context else None
        memory.record_history("all" if enabled else None, kept, most, clear)

    torch._C._cuda_memorySnapshot = lambda pool: memory.snapshot()
    torch._C._cuda_record_memory_history = record
    torch._C._cuda_record_memory_history_legacy = record_legacy


def driver() -> None:
    """Let ``pynvml``, and what PyTorch asks through it, answer for virtual GPUs.

    All: the package nvidia-ml-py finds no driver. PyTorch imports it, if it's
    installed, and looks up a device's number among those that the environment variable
    CUDA_VISIBLE_DEVICES leaves visible, which hides real GPUs only.
    """
    if "pynvml" in sys.modules:
        nvml.install(sys.modules["pynvml"])
    for module in (torch.cuda, torch.cuda.memory):
        if hasattr(module, "_get_nvml_device_index"):
            module._get_nvml_device_index = index_of
