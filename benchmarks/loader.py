"""Compare the throughput of batches indexed from one tensor with one PIL image each.

    python benchmarks/loader.py [--quick]

The data are random bytes in the shape of Fashion-MNIST, shuffled, in batches of 256, on
the CPU. The baseline is the book's method, written here with PIL instead of
torchvision: each example becomes an image, then a float tensor, and a DataLoader
collates them, in the main process or in workers, which start anew for each epoch, as in
a training loop. The fastest baseline counts; the target is at least 10 times its images
per second.
"""

import argparse
import warnings
from collections.abc import Callable
from statistics import median
from time import perf_counter

import numpy as np
import torch
from common import hardware, in_turns, print_result
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from d2l_gpu import torch as d2l

BATCH_SIZE = 256
WORKERS = (0, 2, 4)  # the book uses 4


class Pictures(Dataset):
    """Examples one by one, by way of a PIL image, as torchvision's ToTensor does."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor):
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        picture = Image.fromarray(self.images[i, 0].numpy())
        pixels = torch.from_numpy(np.array(picture)).unsqueeze(0)
        return pixels.to(torch.float32).div(255), int(self.labels[i])


def loader(images: torch.Tensor, labels: torch.Tensor, workers: int) -> DataLoader:
    """Return a DataLoader like the book's, with this many workers."""
    return DataLoader(
        Pictures(images, labels), BATCH_SIZE, shuffle=True, num_workers=workers
    )


def epochs(data, times: int) -> Callable[[], float]:
    """Return a function that measures this many epochs, in images per second."""

    def measure() -> float:
        start, count = perf_counter(), 0
        for _ in range(times):
            for X, y in data:
                assert X.dtype == torch.float32
                count += len(y)
        return count / (perf_counter() - start)

    return measure


def check(data, images: torch.Tensor, labels: torch.Tensor) -> None:
    """Raise AssertionError unless each image is there, bit for bit, with its label."""
    X, y = (torch.cat(parts) for parts in zip(*data, strict=True))
    # The label of each example is its index.
    assert torch.equal(y.sort().values, labels)
    assert torch.equal(X, images[y].float() / 255)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few images, one round")
    quick = parser.parse_args().quick
    # We measure more workers than cores on purpose.
    warnings.filterwarnings("ignore", message=".*worker processes in total")
    n, rounds = (1000, 1) if quick else (60_000, 5)
    torch.manual_seed(0)
    images = torch.randint(256, (n, 1, 28, 28), dtype=torch.uint8)
    labels = torch.arange(n)
    ours = d2l.Batches(images, labels, BATCH_SIZE, shuffle=True)
    baselines = {workers: loader(images, labels, workers) for workers in WORKERS}
    for data in (ours, *baselines.values()):
        check(data, images, labels)

    print(
        f"{hardware()}; PyTorch {torch.__version__}, {torch.get_num_threads()} threads"
    )
    print(f"{n:,} images of 28×28, batches of {BATCH_SIZE}, {rounds} rounds\n")
    # Make all turns about equally long, so that disturbances affect them alike.
    measures = [epochs(ours, 1 if quick else 50)]
    measures += [epochs(data, 1) for data in baselines.values()]
    figures = in_turns(measures, rounds, cold=quick)
    names = [
        "one tensor, indexed",
        *(f"PIL and DataLoader, {workers} workers" for workers in WORKERS),
    ]
    print(f"{'images per second':<32}{'median':>12}{'least':>12}{'most':>12}")
    for name, values in zip(names, figures, strict=True):
        columns = (median(values), min(values), max(values))
        print(f"{name:<32}" + "".join(f"{value:12,.0f}" for value in columns))
    mine, *theirs = [median(values) for values in figures]
    best = max(theirs)
    ratio = round(mine / best, 1)
    book = theirs[WORKERS.index(4)]
    print(f"\n{ratio} times the fastest, {mine / book:.1f} times the book's 4 workers")
    print_result(
        "loader",
        ratio,
        "times the baseline",
        f"PIL and DataLoader, {WORKERS[theirs.index(best)]} workers, the fastest of "
        f"{', '.join(map(str, WORKERS))}: {best:,.0f} images/s",
    )


if __name__ == "__main__":
    main()
