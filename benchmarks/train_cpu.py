"""How fast a network trains on this CPU, rung by rung, against the classical loop.

    python benchmarks/train_cpu.py [--quick]

ResNet-18 on random images of Fashion-MNIST's size, in batches of 128, with SGD; random,
since only speed is measured. The classical loop computes in float32 with channels
first, and a DataLoader with a worker per core makes each image a PIL image and then a
tensor. Each rung changes one thing: batches by indexing one tensor, channels last,
bfloat16. The last is what `d2l.train(…, fast=True)` does, which tries the forms and
takes the fastest; its trial is not part of the images per second, and stands below.
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
# What decides how fast low precision is: matrix units, and vectors.
FEATURES = re.compile(
    r"\b(avx2|avx512f|avx512_bf16|amx_bf16|amx_tile|asimd|bf16|sve)\b"
)


def cpu_features() -> str:
    """Return which of the features that matter this CPU has, as the system says."""
    path = Path("/proc/cpuinfo")
    text = path.read_text() if path.is_file() else ""
    found = sorted(set(FEATURES.findall(text)))
    return f"{torch.backends.cpu.get_cpu_capability()}; {', '.join(found) or 'unknown'}"


def new_net() -> torch.nn.Module:
    torch.manual_seed(0)
    net = d2l.resnet18(10)
    net(torch.zeros(2, 1, 28, 28))  # lazy layers get their shapes
    return net


def epochs(data: Iterable, form: Form) -> Callable[[], float]:
    """Return a function that trains for an epoch, in images per second."""
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
    """Return a function that has `d2l.train` train for an epoch: images per second."""

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
    # Kept from epoch to epoch: to start them would weigh too much in these short ones.
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
