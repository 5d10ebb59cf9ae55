"""Compare the simulated clock with 28 published runs on a V100, and single kernels.

    python benchmarks/clock.py

The runs train ResNet-18 on one GPU, on Fashion-MNIST with batches of 256, fp32 and SGD.
They are from the multi-GPU chapter of the book Dive into Deep Learning, which was built
many times on a Tesla V100-SXM2-16GB; each build printed its seconds per epoch. The
result is the relative error of the simulated seconds, compared with their median. The
clock wasn't fitted to them: its constants are in ``d2l_gpu/vgpu/sim/catalogue.py``,
each with its source.

The kernels are those of Baidu's DeepBench, measured one by one on the same model of
GPU. They show how far off the clock can be where a whole network would average out the
errors.
"""

import csv
import statistics
from collections import defaultdict
from pathlib import Path

import torch
from common import hardware, print_result

from d2l_gpu import torch as d2l
from d2l_gpu.vgpu.sim import catalogue
from d2l_gpu.vgpu.sim.clock import Part, seconds_of

# From https://github.com/d2l-ai/d2l-pytorch-colab, the outputs of
# chapter_computational-performance/multiple-gpus-concise.ipynb: commit, date, and
# seconds per epoch on one GPU, for all builds whose notebooks also print that GPU.
PUBLISHED = """
700411c 2021-01-06 13.8
c896839 2021-01-19 13.9
2a3e233 2021-03-20 14.0
d9539f7 2021-04-23 14.0
5976f69 2021-05-17 13.8
0009bbc 2021-05-17 13.8
fe336e0 2021-06-02 14.0
4c83652 2021-06-17 14.1
1ff02c2 2021-06-25 14.2
7c19c22 2021-07-21 14.1
a188c65 2021-07-25 14.1
c701a71 2021-11-28 13.9
57bb0dd 2021-12-08 14.2
d4b77dd 2021-12-12 13.9
2b88529 2021-12-12 14.2
c934fc0 2022-01-15 14.1
135932d 2022-01-17 13.9
0931e12 2022-03-13 13.8
c7a07a0 2022-03-25 13.6
32f0fdc 2022-07-15 14.0
74ea8fc 2022-07-30 13.8
acb0819 2022-08-19 14.0
9315ba8 2022-08-19 13.7
86202f6 2022-08-29 13.7
d394c7d 2022-09-08 14.0
d5d946f 2022-11-16 13.8
0fbc120 2022-12-15 16.1
1b94b19 2023-02-10 14.0
"""
EXAMPLES, BATCH_SIZE = 60_000, 256
KERNELS = Path(__file__).parent / "data" / "deepbench_v100.csv"


def published_seconds() -> list[float]:
    return [float(line.split()[2]) for line in PUBLISHED.split("\n") if line]


def simulated_epoch() -> float:
    """Return the simulated seconds per epoch, including the last, smaller batch."""
    net = d2l.resnet18(10)
    batches, rest = divmod(EXAMPLES, BATCH_SIZE)
    seconds = 0.0
    for batch_size, times in ((BATCH_SIZE, batches), (rest, 1)):
        X = torch.zeros(batch_size, 1, 28, 28)
        y = torch.zeros(batch_size, dtype=torch.int64)
        step = d2l.simulate_step(net, X, y, 1, "none", model="V100")
        seconds += times * step.seconds
    return seconds


def kernel_errors() -> dict[str, list[float]]:
    """Return the relative errors of simulated kernel times, by kernel and data type."""
    errors = defaultdict(list)
    model, launch = catalogue.MODELS["V100"], catalogue.LAUNCH.value
    with KERNELS.open() as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        for row in rows:
            kind = row["type"]
            m, n, k, operations, elements = (
                int(row[name]) for name in ("m", "n", "k", "operations", "elements")
            )
            nbytes = elements * {"fp32": 4, "fp16": 2}[kind]
            part = Part(operations, kind, nbytes, (1, m, n, k))
            error = (seconds_of(part, model) + launch) / (float(row["ms"]) / 1e3) - 1
            errors[f"{row['kernel']}, {kind}"].append(error)
    return errors


def main() -> None:
    print(f"{hardware()}; no GPU is used, and no clock is read\n")
    published, simulated = published_seconds(), simulated_epoch()
    middle = statistics.median(published)
    error = abs(simulated / middle - 1)
    print("ResNet-18 on Fashion-MNIST, batches of 256, fp32, one V100, per epoch")
    print(f"  published: {len(published)} builds, median {middle:.1f} s", end="")
    print(f" ({min(published):.1f} to {max(published):.1f})")
    print(f"  simulated: {simulated:.2f} s, relative error {error:.3f}\n")
    print(f"{'DeepBench, V100':<36}{'kernels':>8}{'median error':>14}{'signed':>8}")
    for name, errors in kernel_errors().items():
        size = statistics.median(map(abs, errors))
        signed = statistics.median(errors)
        print(f"{name:<36}{len(errors):>8}{size:>14.2f}{signed:>+8.2f}")
    print()
    print_result(
        "clock",
        round(error, 3),
        "relative error",
        f"median of {len(published)} published builds: {middle:.1f} s per epoch",
    )


if __name__ == "__main__":
    main()
