"""The devices and their names: real GPUs if the machine has enough, else virtual ones.

Importing this module doesn't look for devices. ``require_gpus`` and
``use_virtual_gpus`` decide, once per process, what ``gpu(i)`` means from then on.
"""

from collections.abc import Sequence

import torch

from d2l_gpu.common.gpu_choice import Gpus, check_number, enumerated
from d2l_gpu.common.settings import virtual_limit

# The GPU model and link that the simulated clock assumes by default.
DEFAULTS = ("V100", "NVLink2")


class TorchGpus(Gpus[torch.device]):
    """PyTorch's GPUs: any accelerator, or the virtual GPUs of `d2l_gpu.vgpu`."""

    def cpu(self) -> torch.device:
        """Return the CPU device: all cores and all of the host's memory."""
        return torch.device("cpu")

    def real(self) -> list[torch.device]:
        """Return the machine's accelerators, all of one type."""
        kind, count = _real()
        return [torch.device(kind, i) for i in range(count)]

    def named(self, i: int) -> torch.device:
        return torch.device(_real()[0] or "cuda", i)

    def model(self, device: torch.device) -> str:
        from .inventory import device_model

        return device_model(device)

    def introduced(self, devices: Sequence[torch.device]) -> str:
        names = enumerated([f"vgpu:{device.index}" for device in devices])
        if devices[0].type == "vgpu":
            return names
        return f"{names}, available as {self._names(devices)}"

    def make_virtual(
        self,
        n: int,
        memory: int | str | None = None,
        backing: str | torch.device | None = None,
        as_cuda: bool = False,
        model: str | Sequence[str] = DEFAULTS[0],
        link: str = DEFAULTS[1],
    ) -> tuple[list[torch.device], str]:
        if backing is None:
            one_cuda = torch.cuda.is_available() and torch.cuda.device_count() == 1
            backing = "cuda:0" if one_cuda else "cpu"
        from d2l_gpu import vgpu

        vgpu.enable(
            n, memory=memory, backing=backing, as_cuda=as_cuda, model=model, link=link
        )
        kind = torch.device(backing).type
        where = {"cpu": "computed on the CPU", "meta": "shapes without values"}.get(
            kind, f"computed on {backing}"
        )
        how = f"{where}, memory simulated"
        if (model, link) != DEFAULTS:
            models = model if isinstance(model, str) else ", ".join(model)
            how = f"{where}, memory simulated, time simulated ({models}, {link})"
        devices = [torch.device("cuda" if as_cuda else "vgpu", i) for i in range(n)]
        return devices, how

    def use_virtual_gpus(
        self,
        n: int = 2,
        *,
        memory: int | str | None = None,
        backing: str | torch.device | None = None,
        as_cuda: bool = False,
        model: str | Sequence[str] = DEFAULTS[0],
        link: str = DEFAULTS[1],
    ) -> None:
        """Use n virtual GPUs in this process, even if the machine has real ones.

        Args:
            n: number of virtual GPUs, at least 1.
            memory: capacity of each, in bytes or as ``'512MiB'``, ``'2GiB'``; default:
                4 GiB, or less if the host has less to spare; with ``backing='meta'``,
                the model's.
            backing: device that computes their values; default: the machine's CUDA GPU
                if it has exactly one, otherwise the CPU; ``'meta'`` computes no values.
            as_cuda: whether they also answer to the names ``cuda:0``, ``cuda:1`` …, so
                that programs written for CUDA run unmodified; impossible where PyTorch
                sees a real CUDA GPU.
            model: GPU model that the simulated clock assumes, by its name in
                ``d2l_gpu.vgpu.MODELS``, or a list with one name per GPU.
            link: link between GPUs that it assumes, by its name in
                ``d2l_gpu.vgpu.LINKS``.
        Raises:
            TypeError, ValueError: an argument or ``D2L_GPU_VIRTUAL`` is invalid.
            RuntimeError: this process already uses other devices, or virtual GPUs are
                forbidden or can't work here.
        """
        model = model if isinstance(model, str) else tuple(model)
        settings = {
            "memory": memory,
            "backing": backing,
            "as_cuda": as_cuda,
            "model": model,
            "link": link,
        }
        self._use_virtual(n, (n, *settings.values()), **settings)


_gpus = TorchGpus()
cpu, gpu, num_gpus = _gpus.cpu, _gpus.gpu, _gpus.num_gpus
try_gpu, try_all_gpus = _gpus.try_gpu, _gpus.try_all_gpus
require_gpus, use_virtual_gpus = _gpus.require_gpus, _gpus.use_virtual_gpus
virtual_count = _gpus.virtual_count


def real_gpus(n: int = 1) -> list[torch.device]:
    """Return n real GPUs, or an empty list: for measurements that need real GPUs.

    The list is empty if the machine has fewer, if this process uses virtual GPUs, or if
    ``D2L_GPU_VIRTUAL`` forces them.

    Raises:
        TypeError, ValueError: n is not a positive integer, or the environment variable
            is not a number.
    """
    check_number(n)
    devices = _gpus.real()
    if virtual_count() or virtual_limit() or len(devices) < n:
        return []
    return devices[:n]


def machine_gpus() -> list[torch.device]:
    """Return this machine's real GPUs, whether or not this process uses them.

    The list is empty if ``D2L_GPU_VIRTUAL`` forces virtual GPUs.

    Raises:
        ValueError: the environment variable is not a number.
    """
    from d2l_gpu.vgpu import device_types

    devices = [] if virtual_limit() else _gpus.real()
    # Virtual GPUs may go by the name cuda.
    return [device for device in devices if device.type not in device_types()]


def to(x, *args, **kwargs):
    """Return ``x.to(*args, **kwargs)``; a function, like d2l's."""
    return x.to(*args, **kwargs)


def _real() -> tuple[str | None, int]:
    """Return the type and the number of this machine's real accelerators.

    Once virtual GPUs are registered, even if only for a simulator,
    ``torch.accelerator`` reports those instead.
    """
    if torch._C._get_privateuse1_backend_name() != "vgpu":
        if not torch.accelerator.is_available():
            return None, 0
        kind = torch.accelerator.current_accelerator().type
        return kind, torch.accelerator.device_count()
    for kind in ("cuda", "xpu", "mps"):
        module = torch.get_device_module(kind)
        if module.is_available():
            return kind, module.device_count()
    return None, 0
