"""The log of copies between memories, on real and on virtual devices."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from d2l_gpu.vgpu import Table


class Transfer(NamedTuple):
    """One copy from the memory of one device to that of another."""

    nbytes: int
    source: torch.device
    target: torch.device


class Transfers(list):
    """Transfers in the order in which they were made; draws itself as a table."""

    @property
    def nbytes(self) -> int:
        """Bytes that were copied, in all."""
        return sum(transfer.nbytes for transfer in self)

    def table(self) -> Table:
        """Return a table, one row for each run of equal transfers."""
        rows = []
        for transfer, run in itertools.groupby(self):
            copies, (nbytes, source, target) = len(list(run)), transfer
            rows.append([f"{copies:,}", f"{nbytes:,}", str(source), str(target)])
        return Table(
            ["copies", "bytes each", "from", "to"], rows, ["copies", "bytes each"]
        )

    def __repr__(self) -> str:
        return repr(self.table()) if self else "no copies"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_() if self else "no copies"


@contextmanager
def transfers() -> Iterator[Transfers]:
    """Log the copies between devices that are made inside a ``with`` block.

    On virtual GPUs the simulated machine keeps the log, whichever thread copies; on
    real ones the operators of this thread are watched, which slows them down a little.

    Returns:
        A context whose value is the list of transfers: it is filled when the block
        ends, has ``len`` and ``nbytes``, and shows itself as a table.
    """
    log = Transfers()
    from d2l_gpu import vgpu

    if vgpu.has_devices():
        with vgpu.record_copies() as copies:
            yield log
        names = [torch.device("vgpu", i) for i in range(vgpu.machine_in_use().count)]
        names.append(torch.device("cpu"))  # index -1 stands for the host
        log += [Transfer(c.nbytes, names[c.source], names[c.target]) for c in copies]
    else:
        with _CopiesOfOperators() as watch:
            yield log
        log += watch.seen


class _CopiesOfOperators(TorchDispatchMode):
    """Sees every operator of this thread, and notes those that copy across."""

    def __init__(self):
        super().__init__()
        self.seen: list[Transfer] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        aten = torch.ops.aten
        if func is aten._to_copy.default:
            self._copied(args[0], result)
        elif func is aten.copy_.default:
            self._copied(args[1], args[0])
        elif func is aten._local_scalar_dense.default:
            self._note(args[0].element_size(), args[0].device, torch.device("cpu"))
        return result

    def _copied(self, read: torch.Tensor, written: torch.Tensor) -> None:
        # Types are converted on the CPU, and between GPUs on the one that is read from.
        element = read if written.device.type == "cpu" else written
        nbytes = written.numel() * element.element_size()
        self._note(nbytes, read.device, written.device)

    def _note(self, nbytes: int, source: torch.device, target: torch.device) -> None:
        if source != target and nbytes:
            self.seen.append(Transfer(nbytes, source, target))
