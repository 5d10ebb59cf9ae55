"""The log of copies between devices, real or virtual."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from d2l_gpu.common.transfers import Transfer, Transfers


@contextmanager
def transfers() -> Iterator[Transfers]:
    """Log the copies between devices inside a ``with`` block.

    On virtual GPUs, the simulated machine logs the copies of all threads. On real ones,
    this thread's operators are watched, which slows them down a little; indices that
    are lists, as in ``X[[0, 2]]``, are missing there, because no operator copies them.

    Returns:
        A context manager whose value is the list of transfers. The list is filled when
        the block ends; it has ``len``, ``nbytes`` and ``summary()``, and displays as a
        table.
    """
    log = Transfers()
    from d2l_gpu import vgpu

    if vgpu.has_devices():
        with vgpu.record_copies() as copies:
            yield log
        names = [torch.device("vgpu", i) for i in range(vgpu.machine_in_use().count)]
        names.append(torch.device("cpu"))  # index -1 is the host
        log += [Transfer(c.nbytes, names[c.source], names[c.target]) for c in copies]
    else:
        with _CopiesOfOperators() as watch:
            yield log
        log += watch.seen


def _bytes_of_index(index: torch.Tensor) -> int:
    """Return how many bytes of an index are copied: of a mask, int64 positions."""
    if index.dtype in (torch.bool, torch.uint8):
        return int(index.count_nonzero()) * index.dim() * torch.int64.itemsize
    return index.nbytes


class _CopiesOfOperators(TorchDispatchMode):
    """Watches all operators of this thread, and records copies between devices."""

    # These copy indices from the host, but not by an operator of their own.
    INDEXED = (
        torch.ops.aten.index,
        torch.ops.aten._unsafe_index,
        torch.ops.aten.index_put,
        torch.ops.aten.index_put_,
    )

    def __init__(self):
        super().__init__()
        self.seen: list[Transfer] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        aten = torch.ops.aten
        if func.overloadpacket in self.INDEXED:
            for index in args[1]:
                if index is not None and index.dim():
                    self._note(_bytes_of_index(index), index.device, args[0].device)
        if func is aten._to_copy.default:
            self._copied(args[0], result)
        elif func is aten.copy_.default:
            self._copied(args[1], args[0])
        elif func is aten._local_scalar_dense.default:
            self._note(args[0].element_size(), args[0].device, torch.device("cpu"))
        return result

    def _copied(self, read: torch.Tensor, written: torch.Tensor) -> None:
        # Dtypes are converted on the CPU or, between GPUs, on the source.
        element = read if written.device.type == "cpu" else written
        nbytes = written.numel() * element.element_size()
        self._note(nbytes, read.device, written.device)

    def _note(self, nbytes: int, source: torch.device, target: torch.device) -> None:
        if source != target and nbytes:
            self.seen.append(Transfer(nbytes, source, target))
