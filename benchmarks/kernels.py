"""Compare the simulated clock with kernels that others have timed one by one on a V100.

    python benchmarks/kernels.py
    python benchmarks/kernels.py --derive    constants of convolutions, from a T4

The kernels are those of Baidu's DeepBench. They show how far off the clock can be where
a whole network would average out the errors; ``published.py`` has whole networks. What
the catalogue has of convolutions comes from the same kernels on another GPU, a T4.
"""

import argparse
import csv
import itertools
import json
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from common import hardware, print_result

from d2l_gpu.vgpu import convolutions
from d2l_gpu.vgpu.sim import catalogue, clock
from d2l_gpu.vgpu.sim.catalogue import MODELS
from d2l_gpu.vgpu.sim.clock import Part
from d2l_gpu.vgpu.sim.cudnn import WIDTHS

DATA = Path(__file__).parent / "data"
# Seconds. What takes longer is hardly anything but the product, what takes less isn't.
LONG, SHORT = 100e-6, 50e-6


class Kernel(NamedTuple):
    """A kernel of DeepBench: where it ran, what it is, and the seconds it took."""

    gpu: str
    name: str
    kind: str
    parts: list
    seconds: float

    @property
    def ratio(self) -> float:
        """Measured seconds over those that the clock gives it in a loop of C++."""
        return self.seconds / self.simulated

    @property
    def simulated(self) -> float:
        duration = clock.Kernel(
            clock.Work(self.name, self.parts), MODELS[self.gpu]
        ).duration
        return max(duration / clock.PICO, catalogue.START.value)


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (DATA / f"deepbench_{name}.csv").open() as file:
        yield from csv.DictReader(line for line in file if not line.startswith("#"))


def products() -> Iterator[Kernel]:
    """Yield DeepBench's matrix products."""
    for row in _rows("products"):
        m, n, k = (int(row[name]) for name in "mnk")
        nbytes = WIDTHS[row["type"]] * (m * k + k * n + m * n)
        part = Part(2 * m * n * k, row["type"], nbytes, (1, m, n, k))
        yield Kernel(row["gpu"], "product", row["type"], [part], float(row["ms"]) / 1e3)


def convolved() -> Iterator[Kernel]:
    """Yield DeepBench's convolutions and their gradients.

    In fp16 it has the channels last, and in fp32 first.
    """
    names = [
        "w",
        "h",
        "c",
        "n",
        "k",
        "s",
        "r",
        "pad_w",
        "pad_h",
        "stride_w",
        "stride_h",
    ]
    for row in _rows("convolutions"):
        w, h, c, n, k, s, r, pad_w, pad_h, stride_w, stride_h = (
            int(row[name]) for name in names
        )
        places = (
            (h + 2 * pad_h - r) // stride_h + 1,
            (w + 2 * pad_w - s) // stride_w + 1,
        )
        x, weight, out = (n, c, h, w), (k, c, r, s), (n, k, *places)
        last = (row["type"] == "fp16",) * 2
        rest = (stride_h, stride_w), False, 1, last
        if row["kernel"] == "forward":
            parts = convolutions.forward(x, weight, out, *rest, row["type"], 0)
        else:
            mask = ("input" in row["kernel"], "weight" in row["kernel"])
            parts = convolutions.backward(out, x, weight, *rest, mask, row["type"], 0)
        name, kind = f"convolution, {row['kernel']}", row["type"]
        yield Kernel(row["gpu"], name, kind, parts, float(row["ms"]) / 1e3)


def derived() -> dict[str, dict[str, float]]:
    """Return what ``catalogue.py`` has of convolutions, from those measured on a T4.

    Long ones show by how much convolutions fall further behind the clock than plain
    products of the same type on the same GPU do, and short ones the seconds that they
    take beside. Medians count.
    """
    nothing = {"SHARES": {}, "SECONDS_BESIDE": {}}
    kernels = [k for k in (*products(), *convolved()) if k.gpu == "T4"]
    shares, beside = defaultdict(list), defaultdict(list)
    with mock.patch.multiple(catalogue, **nothing):
        plain = {
            kind: statistics.median(
                k.ratio
                for k in kernels
                if k.name == "product" and k.kind == kind and k.simulated > LONG
            )
            for kind in ("fp32", "fp16")
        }
        for kernel in kernels:
            if kernel.name != "product" and kernel.simulated > LONG:
                used = clock.Kernel(clock.Work("", kernel.parts), MODELS["T4"]).parts
                (name,) = {part.algorithm for part in used if part.product}
                shares[name].append(plain[kernel.kind] / kernel.ratio)
        middle = {name: statistics.median(found) for name, found in shares.items()}
        catalogue.SHARES.update(middle)
        for kernel in kernels:
            if kernel.name != "product" and kernel.simulated < SHORT:
                seconds = kernel.seconds / plain[kernel.kind] - kernel.simulated
                beside[kernel.name.split(", ")[1]].append(seconds)
    return {
        "share": {name: round(share, 2) for name, share in middle.items()},
        "seconds": {
            name: round(statistics.median(found), 7) for name, found in beside.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--derive", action="store_true", help="print constants of the catalogue"
    )
    if parser.parse_args().derive:
        print(json.dumps(derived(), indent=2))
        return
    print(f"{hardware()}; no GPU is used, and no clock is read\n")
    errors = defaultdict(list)
    for kernel in itertools.chain(products(), convolved()):
        if kernel.gpu == "V100":
            errors[f"{kernel.name}, {kernel.kind}"].append(1 / kernel.ratio - 1)
    errors["all convolutions"] = [
        error
        for name, found in errors.items()
        if "," in name
        for error in found
        if name.startswith("convolution")
    ]
    print(
        f"{'DeepBench, V100':<40}{'kernels':>8}{'median error':>14}"
        f"{'a quarter over':>16}{'signed':>8}"
    )
    for name, found in errors.items():
        _, size, quarter = statistics.quantiles(map(abs, found), method="inclusive")
        signed = statistics.median(found)
        print(f"{name:<40}{len(found):>8}{size:>14.2f}{quarter:>16.2f}{signed:>+8.2f}")
    print()
    print_result(
        "kernels",
        round(size, 3),
        "relative error",
        f"median of {len(found)} convolutions that DeepBench measured on a V100",
    )


if __name__ == "__main__":
    main()
