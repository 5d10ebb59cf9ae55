"""Finds programs that read a copy from a device before it has arrived.

``X.to('cpu', non_blocking=True)`` returns at once, and the bytes arrive later. A
program that reads them without waiting gets what the memory held before: no error,
wrong numbers, and a time that leaves out the copy.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def check_arrivals(program: Callable, devices: Sequence[torch.device]) -> None:
    """Run a program once; raise RuntimeError if it reads a copy too early."""
    watch = _UnfinishedCopies()
    with _waiting_noticed(devices, watch), watch:
        program(*devices)


class _UnfinishedCopies(TorchDispatchMode):
    """Watches all operators, and tracks which host memory is still being written."""

    def __init__(self):
        super().__init__()
        self.pending: dict[int, torch.Tensor] = {}  # by address; kept alive here

    def arrived(self) -> None:
        self.pending.clear()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.pending and not func.is_view:
            read = args[1] if func is torch.ops.aten.copy_.default else (args, kwargs)
            for x in tree_leaves(read):
                if _on_host(x) and x.untyped_storage().data_ptr() in self.pending:
                    raise RuntimeError(
                        f"The program reads a copy ({func._schema.name}) that may not "
                        "have arrived yet: wait for the device, for example with "
                        "torch.cuda.synchronize, before you read what "
                        "non_blocking=True copies."
                    )
        result = func(*args, **kwargs)
        aten = torch.ops.aten
        if func in (aten._to_copy.default, aten.copy_.default):
            source = args[0] if func is aten._to_copy.default else args[1]
            late = kwargs.get("non_blocking") or (
                func is aten.copy_.default and len(args) > 2 and args[2]
            )
            if _on_host(result) and not _on_host(source):
                if late:
                    self.pending[result.untyped_storage().data_ptr()] = result
                else:  # the host has waited for everything before it
                    self.arrived()
        elif func is aten._local_scalar_dense.default and not _on_host(args[0]):
            self.arrived()
        return result


def _on_host(x) -> bool:
    return isinstance(x, torch.Tensor) and x.device.type == "cpu"


@contextlib.contextmanager
def _waiting_noticed(
    devices: Sequence[torch.device], watch: _UnfinishedCopies
) -> Iterator[None]:
    """Tell the watch about every synchronization while a program runs."""
    modules = {
        torch.get_device_module(device) for device in devices if device.type != "cpu"
    }
    owners = [torch.accelerator, torch.Stream, torch.Event]
    for module in modules:
        owners += [
            module,
            getattr(module, "Stream", None),
            getattr(module, "Event", None),
        ]
    changed = []
    for owner in dict.fromkeys(owners):
        original = getattr(owner, "synchronize", None)
        if original is None:
            continue

        def noticed(*args, _original=original, **kwargs):
            result = _original(*args, **kwargs)
            watch.arrived()
            return result

        with contextlib.suppress(TypeError):  # classes written in C can't be changed
            owner.synchronize = noticed
            changed.append((owner, original))
    try:
        yield
    finally:
        for owner, original in changed:
            owner.synchronize = original
