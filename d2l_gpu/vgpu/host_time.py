"""How long this computer takes to issue work, for the simulated clock.

The clock's own figures are others' measurements. Whoever has a GPU can measure their
machine instead, by an explicit call; nothing here runs by itself.
"""

import platform
from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch
from torch import nn

from .sim.catalogue import Host

ROUNDS, CALLS = 9, 200


def measure(device=None) -> Host:
    """Measure what ``Host`` has, on a real device; see ``vgpu.measure_host``."""
    if device is None:
        if not torch.accelerator.is_available() or _is_virtual():
            raise RuntimeError(
                "This machine has no GPU to issue work to: leave host out, and the "
                "clock takes published figures, or measure_host('cpu') for lower "
                "bounds."
            )
        device = torch.accelerator.current_accelerator()
    try:
        device = torch.device(device)
        if device.type == "meta" or (device.type != "cpu" and _is_virtual()):
            raise ValueError
        x = torch.ones(1, device=device)
    except (AssertionError, RuntimeError, TypeError, ValueError):
        raise ValueError(
            "The device must be a real one of this machine, such as 'cuda:0' or "
            f"'cpu', but got {str(device)!r}."
        ) from None
    with_gradient = x.clone().requires_grad_()
    layer = nn.Linear(1, 1, device=device)
    block = nn.Linear(1, 1), nn.BatchNorm1d(1), nn.ReLU()
    net = nn.Sequential(*(nn.Sequential(*block) for _ in range(10)))
    operators = [_seconds(lambda x=x: x * 2, device) for x in (x, with_gradient)]
    return Host(
        operator=sum(operators) / 2,
        layer=_seconds(lambda: layer(x), device),
        replica=_seconds(lambda: replicate(net), device, 10)
        / sum(1 for _ in net.modules()),
        source=f"Measured on this machine: {platform.processor() or 'its CPU'}, "
        f"{device}, PyTorch {torch.__version__}.",
    )


def replicate(net: nn.Module) -> list[nn.Module]:
    """Copy modules, but not their numbers, as ``nn.DataParallel`` does for a device."""
    modules = list(net.modules())
    places = {module: i for i, module in enumerate(modules)}
    copies = [module._replicate_for_data_parallel() for module in modules]
    for module, replica in zip(modules, copies, strict=True):
        for name, child in module._modules.items():
            if child is not None:
                setattr(replica, name, copies[places[child]])
        for name, parameter in module._parameters.items():
            if parameter is not None:
                setattr(replica, name, parameter.detach())
        for name, buffer in module._buffers.items():
            if buffer is not None:
                setattr(replica, name, buffer.detach())
    return copies


def _is_virtual() -> bool:
    """Whether what PyTorch takes for this machine's GPU is a virtual one."""
    accelerator = torch.accelerator.current_accelerator()
    return accelerator is not None and accelerator.type == "vgpu"


def _seconds(work: Callable[[], object], device, calls: int = CALLS) -> float:
    """Return the median time in which the host issues work, without waiting for it."""
    taken = []
    for _ in range(ROUNDS + 1):
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        start = perf_counter()
        for _ in range(calls):
            work()
        taken.append((perf_counter() - start) / calls)
    return median(taken[1:])  # the first one warms up
