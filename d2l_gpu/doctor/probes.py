"""What PyTorch, NumPy and virtual GPUs say, in a process that they may take down."""

from collections.abc import Callable, Iterator

from .findings import one_line


def look_at_torch() -> Iterator[dict]:
    """Import PyTorch and ask it for all that the checks want to know."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        yield {"installed": False}
        return
    yield {"version": str(torch.__version__), "doing": "build"}
    yield _attempt("gpu_trouble", _build)
    yield {"doing": "arrays"}
    yield _attempt("array_trouble", _exchange_arrays)
    yield {"doing": "GPUs"}
    yield _attempt("gpu_trouble", _gpus)
    yield {"doing": "helper"}
    yield _attempt("helper_trouble", _devices)
    yield {"doing": "computing"}
    yield _attempt("helper_trouble", _compute)


def _attempt(trouble: str, step: Callable[[], dict]) -> dict:
    try:
        return step()
    except Exception as error:  # whatever a broken installation raises
        return {trouble: one_line(error)}


def _build() -> dict:
    import torch
    from torch import version

    found = {name: getattr(version, name, None) for name in ("cuda", "hip", "xpu")}
    backends = getattr(torch, "backends", None)
    return found | {"mps": hasattr(backends, "mps") and backends.mps.is_built()}


def _exchange_arrays() -> dict:
    import numpy
    import torch

    assert torch.from_numpy(numpy.ones(3)).sum().item() == 3
    assert torch.ones(3).numpy().sum() == 3
    return {}


def _gpus() -> dict:
    import torch

    if torch.accelerator.is_available():
        kind = torch.accelerator.current_accelerator().type
        return {"kind": kind, "count": torch.accelerator.device_count()}
    if torch.version.cuda or torch.version.hip:
        torch.cuda.init()  # raises, and says why
    return {}


def _devices() -> dict:
    from d2l_gpu.torch.gpus.inventory import devices

    return {"rows": devices().rows}


def _compute() -> dict:
    import torch

    if not torch.accelerator.is_available():
        return {}
    troubles, free = {}, {}
    kind = torch.accelerator.current_accelerator().type
    for i in range(torch.accelerator.device_count()):
        device = torch.device(kind, i)
        try:
            X = torch.ones(4, 4, device=device)
            assert (X @ X).sum().item() == 64
            if kind == "cuda":
                free[str(device)] = torch.cuda.mem_get_info(device)[0]
        except Exception as error:  # no kernels for this GPU, no memory left on it
            troubles[str(device)] = one_line(error)
    return {"device_troubles": troubles, "free": free}


def look_at_numpy() -> Iterator[dict]:
    """Import NumPy."""
    try:
        import numpy
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        yield {"installed": False}
        return
    yield {"version": str(numpy.__version__)}


def try_virtual_gpus() -> Iterator[dict]:
    """Compute on two virtual GPUs, forwards and backwards, and on the CPU."""
    import torch

    from d2l_gpu import vgpu

    vgpu.enable(2)

    def gradient(first: str, second: str) -> torch.Tensor:
        X = torch.arange(6.0, device=first).reshape(2, 3).requires_grad_()
        (X.to(second) ** 2).sum().backward()
        return X.grad.cpu()

    there = gradient("vgpu:0", "vgpu:1")
    yield {
        "equal": torch.equal(there, gradient("cpu", "cpu")),
        "memory": torch.vgpu.mem_get_info("vgpu:1")[1],
    }


def import_modules(*names: str) -> Iterator[dict]:
    """Import modules; yield by name what goes wrong, empty if nothing does."""
    import importlib

    for name in names:
        yield {"doing": name}
        try:
            importlib.import_module(name)
            yield {name: ""}
        except Exception as error:  # whatever a broken installation raises
            yield {name: one_line(error)}
