"""Measure how fast a network trains on this CPU, optimization by optimization.

    python benchmarks/train_cpu.py [--quick]

The network is ResNet-18, trained with SGD in batches of 128, on random images of
Fashion-MNIST's size, since only speed matters. The baseline is the classical loop:
float32, channels first, and a DataLoader with a worker per core that turns each example
into a PIL image and then a tensor. Each rung of the ladder changes one thing: batches
indexed from one tensor, channels last, bfloat16. The last is `d2l.train(…, fast=True)`,
which tries these forms and takes the fastest. Its trial is timed separately.
"""

import argparse
import os
import re
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from common import hardware, in_turns, print_result
from loader import Pictures
from torch.nn import functional as F
from torch.utils.data import DataLoader

from d2l_gpu import torch as d2l
from d2l_gpu.torch.training.forms import PLAIN, Form, try_forms

LR = 0.01
# CPU features that decide how fast low precision is: matrix and vector units.
FEATURES = re.compile(
    r"\b(avx2|avx512f|avx512_bf16|amx_bf16|amx_tile|asimd|bf16|sve)\b"
)


def cpu_features() -> str:
    """Return which of the relevant features this CPU has, according to the system."""
    path = Path("/proc/cpuinfo")
    text = path.read_text() if path.is_file() else ""
    found = sorted(set(FEATURES.findall(text)))
    return f"{torch.backends.cpu.get_cpu_capability()}; {', '.join(found) or 'unknown'}"


def new_net() -> torch.nn.Module:
    torch.manual_seed(0)
    net = d2l.resnet18(10)
    net(torch.zeros(2, 1, 28, 28))  # initializes the lazy layers
    return net


def epochs(data: Iterable, form: Form) -> Callable[[], float]:
    """Return a function that trains for an epoch and returns images per second."""
    net = new_net()
    step = form.apply(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=LR)

    def measure() -> float:
        start, count = perf_counter(), 0
        for X, y in data:
            optimizer.zero_grad()
            F.cross_entropy(step(X), y).backward()
            optimizer.step()
            count += len(y)
        return count / (perf_counter() - start)

    return measure


def ours(data: d2l.Batches, test: d2l.Batches) -> Callable[[], float]:
    """Return a function like that of `epochs`, which trains with `d2l.train`."""

    def load_data(batch_size: int) -> tuple[d2l.Batches, d2l.Batches]:
        return data, test

    def measure() -> float:
        history = d2l.train(
            *(new_net(), 0, data.batch_size, LR, 1),
            load_data=load_data,
            fast=True,
            display=False,
        )
        return data.num_examples / history.seconds[0]

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few images, one round")
    quick = parser.parse_args().quick
    warnings.filterwarnings("ignore", message=".*worker processes in total")
    n, batch_size, rounds = (32, 16, 1) if quick else (512, 128, 3)
    workers = min(2, os.cpu_count() or 1) if quick else (os.cpu_count() or 1)
    torch.manual_seed(0)
    images = torch.randint(256, (n, 1, 28, 28), dtype=torch.uint8)
    labels = torch.randint(10, (n,))
    # Workers persist: starting them would dominate such short epochs.
    classical = DataLoader(
        Pictures(images, labels),
        batch_size,
        shuffle=True,
        num_workers=workers,
        persistent_workers=True,
    )
    indexed = d2l.Batches(images, labels, batch_size, shuffle=True)
    test = d2l.Batches(images[:32], labels[:32], batch_size)
    rungs = {
        f"classical: {PLAIN}, {workers} workers": epochs(classical, PLAIN),
        "batches by indexing one tensor": epochs(indexed, PLAIN),
        "… and channels last": epochs(indexed, Form(channels_last=True)),
        "… and bfloat16": epochs(indexed, Form(True, torch.bfloat16)),
        "d2l.train(…, fast=True)": ours(indexed, test),
    }
    print(
        f"{hardware()}; PyTorch {torch.__version__}, {torch.get_num_threads()} threads"
    )
    print(f"features: {cpu_features()}")
    print(
        f"ResNet-18, {n:,} images of 28×28, batches of {batch_size}, {rounds} rounds\n"
    )
    figures = in_turns(list(rungs.values()), rounds, cold=quick)
    medians = [median(values) for values in figures]
    print(f"{'images per second':<52}{'median':>9}{'least':>9}{'most':>9}{'ratio':>7}")
    for name, values, middle in zip(rungs, figures, medians, strict=True):
        columns = (middle, min(values), max(values))
        numbers = "".join(f"{value:9,.1f}" for value in columns)
        print(f"{name:<52}{numbers}{middle / medians[0]:7.2f}")
    start = perf_counter()
    trial = try_forms(new_net(), *next(iter(indexed)))
    print(f"\na trial took {perf_counter() - start:.1f} s: {trial}")
    ratio = round(medians[-1] / medians[0], 2)
    print_result(
        "train_cpu",
        ratio,
        "times the baseline",
        f"the classical loop, {workers} workers: {medians[0]:,.1f} images/s",
    )


if __name__ == "__main__":
    main()
