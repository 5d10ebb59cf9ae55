"""Compare simulated collectives with times that others have measured with nccl-tests.

    python benchmarks/collectives.py               all rows
    python benchmarks/collectives.py h100-16       rows whose names begin like this

``data/nccl_tests.csv`` has the measurements, with their sources. The result is the
median of the relative errors with tensors of at least 128 MiB. Nothing was fitted to
these rows: what the clock knows is in ``d2l_gpu/vgpu/sim/nccl.py`` and ``fabric.py``.
"""

import argparse
import csv
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from common import hardware, print_result

from d2l_gpu.vgpu.sim.catalogue import GB, LINKS, MODELS
from d2l_gpu.vgpu.sim.fabric import Fabric, network
from d2l_gpu.vgpu.sim.nccl import Estimate, estimate
from d2l_gpu.vgpu.sim.units import size_text, time_text

DATA = Path(__file__).parent / "data" / "nccl_tests.csv"
LARGE, SMALL = 2**27, 2**16
# How many of its links' bytes each collective moves, for one byte of the whole tensor:
# nccl-tests, doc/PERFORMANCE.md.
BUS = {"all_reduce": lambda n: 2 * (n - 1) / n, "send": lambda n: 1}
NVLINKS = {"V": "NVLink2", "A": "NVLink3", "H": "NVLink4", "B": "NVLink5"}


class Row(NamedTuple):
    """A measurement; see the head of the data."""

    id: str
    kind: str
    gpu: str
    gpus: int
    nodes: int
    network: str
    cards: int
    cpu: str
    bytes: int
    value: float | None
    unit: str
    choice: str

    def fabric(self) -> Fabric:
        inside = self.gpus if self.gpu == "GB200" else 8
        link = LINKS[NVLINKS[self.gpu.removeprefix("G")[0]]]
        wiring = "DGX-1" if self.gpu == "V100" else "NVSwitch"
        cards, amd = self.cards, self.cpu == "AMD"
        return Fabric(inside, link, wiring, network(self.network), cards, amd)

    def simulated(self) -> Estimate:
        fabric, local = self.fabric(), self.gpus // self.nodes
        ranks = [n * fabric.gpus + i for n in range(self.nodes) for i in range(local)]
        model = MODELS[self.gpu]
        return estimate(self.kind, self.bytes, ranks, fabric, model)

    def bandwidth(self, seconds: float) -> float:
        """Return the bus bandwidth in gigabytes per second."""
        n = self.gpus
        share = BUS.get(self.kind, lambda n: (n - 1) / n)(n)
        return share * self.bytes / seconds / GB

    def seconds(self) -> float:
        """Return the time that was measured."""
        if self.unit == "µs":
            return self.value * 1e-6
        return self.bandwidth(1) / self.value


def rows() -> Iterator[Row]:
    with DATA.open(encoding="utf-8") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            for name in ("gpus", "nodes", "cards", "bytes"):
                row[name] = int(row[name])
            row["value"] = float(row["value"]) if row["value"] else None
            yield Row(**row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", default="", help="of rows, or how it begins")
    name = parser.parse_args().name
    print(f"{hardware()}; errors are those of simulated bandwidths", end="\n\n")
    heads = ("published", "simulated", "GB/s", "GB/s", "error")
    print(f"{'':<29}{{:>11}}{{:>11}}{{:>8}}{{:>8}}{{:>9}}".format(*heads))
    errors: dict[str, list[float]] = {"large": [], "small": [], "between": []}
    choices = []
    for row in rows():
        if not row.id.startswith(name):
            continue
        found = row.simulated()
        choice = f"{found.algorithm} {found.protocol}"
        if row.choice:
            choices.append((row, choice))
        if row.value is None:
            continue
        measured, simulated = row.seconds(), found.seconds
        error = measured / simulated - 1  # of the bandwidth
        size = "large" if row.bytes >= LARGE else "between"
        errors["small" if row.bytes <= SMALL else size].append(error)
        print(
            f"{row.id:<17}{size_text(row.bytes):<12}"
            f"{time_text(measured):>11}{time_text(simulated):>11}"
            f"{row.bandwidth(measured):>8.1f}{row.bandwidth(simulated):>8.1f}"
            f"{error:>9.1%}  {choice}"
        )
    print()
    for row, choice in choices:
        same = "the same" if choice == row.choice else choice
        print(f"{row.id:<17}{size_text(row.bytes):<12}NCCL: {row.choice}, ours: {same}")
    print()
    for size, found in errors.items():
        if found:
            sizes = sorted(map(abs, found))
            within = sum(e <= 0.15 for e in sizes)
            print(
                f"{size}: median {statistics.median(sizes):.1%}, largest "
                f"{sizes[-1]:.1%}, {within} of {len(sizes)} within 15 %"
            )
    large = errors["large"] or errors["small"] or errors["between"]
    median = statistics.median(map(abs, large))
    print_result("collectives", median, "relative error", "published nccl-tests")


if __name__ == "__main__":
    main()
