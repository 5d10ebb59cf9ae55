"""A log of copies between devices, as every framework's ``transfers`` returns it."""

import itertools
from typing import Any, NamedTuple

from d2l_gpu.vgpu import Table
from d2l_gpu.vgpu.sim.words import shown


class Transfer(NamedTuple):
    """One copy from one device's memory to another's.

    Attributes:
        nbytes: its size in bytes.
        source, target: the devices, or their names.
    """

    nbytes: int
    source: Any
    target: Any


class Transfers(list):
    """Transfers in the order in which they were made; displayed as a table."""

    @property
    def nbytes(self) -> int:
        """Total number of bytes copied."""
        return sum(transfer.nbytes for transfer in self)

    def table(self) -> Table:
        """Return a table with one row for each run of equal transfers."""
        rows = []
        for transfer, run in itertools.groupby(self):
            copies, (nbytes, source, target) = len(list(run)), transfer
            rows.append([f"{copies:,}", f"{nbytes:,}", str(source), str(target)])
        return Table(
            ["copies", "bytes each", "from", "to"], rows, ["copies", "bytes each"]
        )

    def summary(self) -> str:
        """Return one line: for each direction, how many copies and bytes there were.

        Directions are in the order in which each was first used, as in
        ``2 copies cpu → vgpu:0, 48 bytes; 1 copy vgpu:0 → cpu, 4 bytes``.
        """
        sizes: dict[tuple, list[int]] = {}
        for nbytes, source, target in self:
            sizes.setdefault((source, target), []).append(nbytes)
        return "; ".join(
            f"{len(found):,} {'copy' if len(found) == 1 else 'copies'} "
            f"{source} → {target}, "
            f"{sum(found):,} {'byte' if sum(found) == 1 else 'bytes'}"
            for (source, target), found in sizes.items()
        ) or str(self)

    def __repr__(self) -> str:
        return repr(self.table()) if self else shown("no copies")

    def _repr_html_(self) -> str:
        return self.table()._repr_html_() if self else shown("no copies")
