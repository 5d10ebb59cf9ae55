"""The program ``nvidia-smi``, as far as there is something to say of virtual GPUs.

nvidia-smi
nvidia-smi -L
nvidia-smi --query-gpu=index,name,memory.total --format=csv,noheader,nounits

``python -m d2l_gpu.vgpu`` puts it on PATH. It's a process of its own, which can't know
how much memory its caller's virtual GPUs have in use, nor how busy they are. It says
N/A to that, as to everything that only a sensor knows.
"""

import argparse
import sys
from collections.abc import Callable, Sequence

from .monitor import Gpu, gpus
from .nvml import DRIVER

UNKNOWN = "[N/A]"

# What is known, by the name of the property: the value, and its unit.
_KNOWN: dict[str, tuple[Callable[[Gpu], str], str]] = {
    "count": (lambda gpu: str(len(gpus())), ""),
    "compute_cap": (lambda gpu: "0.0", ""),
    "driver_version": (lambda gpu: DRIVER, ""),
    "gpu_name": (lambda gpu: gpu.name, ""),
    "gpu_uuid": (lambda gpu: f"GPU-{gpu.uuid}", ""),
    "index": (lambda gpu: str(gpu.index), ""),
    "memory.total": (lambda gpu: str(_mib(gpu.total)), "MiB"),
    "name": (lambda gpu: gpu.name, ""),
    "uuid": (lambda gpu: f"GPU-{gpu.uuid}", ""),
}
# What real GPUs know, or those with a sensor for it, and virtual ones don't.
_UNKNOWN = {
    "clocks.current.graphics": "MHz",
    "clocks.current.memory": "MHz",
    "clocks.current.sm": "MHz",
    "clocks.gr": "MHz",
    "clocks.max.graphics": "MHz",
    "clocks.max.memory": "MHz",
    "clocks.max.sm": "MHz",
    "clocks.mem": "MHz",
    "clocks.sm": "MHz",
    "compute_mode": "",
    "display_active": "",
    "display_mode": "",
    "ecc.mode.current": "",
    "enforced.power.limit": "W",
    "fan.speed": "%",
    "gpu_bus_id": "",
    "gpu_serial": "",
    "memory.free": "MiB",
    "memory.reserved": "MiB",
    "memory.used": "MiB",
    "mig.mode.current": "",
    "pci.bus_id": "",
    "pcie.link.gen.current": "",
    "pcie.link.width.current": "",
    "persistence_mode": "",
    "power.draw": "W",
    "power.limit": "W",
    "pstate": "",
    "serial": "",
    "temperature.gpu": "",
    "temperature.memory": "",
    "timestamp": "",
    "utilization.decoder": "%",
    "utilization.encoder": "%",
    "utilization.gpu": "%",
    "utilization.memory": "%",
    "vbios_version": "",
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        self.exit(2, f"nvidia-smi for virtual GPUs: {message}\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what the arguments ask for; None means those of the process.

    Raises:
        SystemExit: with 2, after a sentence, if they ask for something unknown.
    """
    parser = _Parser(
        prog="nvidia-smi",
        description="nvidia-smi for virtual GPUs, which are simulated on the CPU.",
        allow_abbrev=False,
    )
    parser.add_argument("-L", "--list-gpus", action="store_true")
    parser.add_argument("-i", "--id", metavar="INDEX,...", help="only these GPUs")
    parser.add_argument("--query-gpu", metavar="PROPERTY,...", help="what to print")
    parser.add_argument("--format", metavar="csv[,noheader][,nounits]")
    options = parser.parse_args(arguments)
    chosen = _chosen(parser, options.id)
    if options.list_gpus:
        lines = [f"GPU {g.index}: {g.name} (UUID: GPU-{g.uuid})" for g in chosen]
    elif options.query_gpu is not None:
        lines = _values(parser, options.query_gpu, options.format, chosen)
    else:
        lines = _table(chosen)
    print(*lines, sep="\n")


def _chosen(parser: _Parser, names: str | None) -> list[Gpu]:
    found = gpus()
    if not found:
        parser.error(
            "there are none, as python -m d2l_gpu.vgpu hasn't started this process."
        )
    if names is None:
        return found
    by_name = {str(gpu.index): gpu for gpu in found}
    by_name |= {f"GPU-{gpu.uuid}": gpu for gpu in found}
    for name in names.split(","):
        if name not in by_name:
            parser.error(f"there is no GPU {name!r}.")
    return [by_name[name] for name in names.split(",")]


def _values(
    parser: _Parser, query: str, form: str | None, chosen: Sequence[Gpu]
) -> list[str]:
    """Return the lines of a query: a header unless it's left out, and one per GPU."""
    kind, *details = [detail.strip() for detail in (form or "").split(",")]
    if kind != "csv" or not {*details} <= {"noheader", "nounits"}:
        parser.error("--query-gpu needs --format=csv, with noheader or nounits or not.")
    names = [name.strip() for name in query.split(",")]
    for name in names:
        if name not in _KNOWN and name not in _UNKNOWN:
            parser.error(f"there is no property {name!r} of a GPU to print.")
    units = [_KNOWN[name][1] if name in _KNOWN else _UNKNOWN[name] for name in names]
    lines = []
    if "noheader" not in details:  # it names the units even if values have none
        lines.append(
            ", ".join(
                f"{n} [{u}]" if u else n for n, u in zip(names, units, strict=True)
            )
        )
    if "nounits" in details:
        units = [""] * len(names)
    for gpu in chosen:
        values = [
            f"{_KNOWN[name][0](gpu)} {unit}".strip() if name in _KNOWN else UNKNOWN
            for name, unit in zip(names, units, strict=True)
        ]
        lines.append(", ".join(values))
    return lines


def _table(chosen: Sequence[Gpu]) -> list[str]:
    """Return what is printed without arguments."""
    rows = [
        (str(gpu.index), gpu.name, f"N/A / {_mib(gpu.total)} MiB", "N/A", "N/A")
        for gpu in chosen
    ]
    head = ("GPU", "Name", "Memory used / total", "Utilization", "Temperature")
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    inside = sum(widths) + 3 * len(widths) - 1

    def line(cells: Sequence[str]) -> str:
        pairs = zip(cells, widths, strict=True)
        return "| " + " | ".join(cell.ljust(width) for cell, width in pairs) + " |"

    rule = f"+{'-' * inside}+"
    title = "Virtual GPUs, simulated on the CPU: no driver, no sensors."
    return [
        rule,
        f"| {title.ljust(inside - 1)}|",
        rule,
        line(head),
        rule,
        *map(line, rows),
        rule,
    ]


def _mib(nbytes: int) -> int:
    return nbytes // 2**20


if __name__ == "__main__":
    main(sys.argv[1:])
