"""Test accuracy of ResNet-18 after training on one device and on two, by paired seeds.

    python benchmarks/accuracy.py [--seeds 5] [--quick]

The training of lesson 07: real GPUs train on Fashion-MNIST, 256 images per GPU, ten
epochs; virtual ones on scikit-learn's digits at 16×16, 32 images per GPU, three epochs.
The learning rate grows with the batch. Both runs of a seed begin with the same
parameters and see the data in the order of the same seed. A third run has two devices
and no warm-up, to see what that does. The result is the difference of the means of the
first two.
"""

import argparse
from collections.abc import Callable
from functools import partial
from itertools import islice
from statistics import mean

import torch
from common import hardware, print_result

from d2l_gpu import torch as d2l


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--quick", action="store_true", help="a try, not a result")
    options = parser.parse_args()
    seeds = 1 if options.quick else options.seeds
    d2l.require_gpus(2)
    if d2l.gpu().type == "vgpu":
        name = "digits"
        load, per_gpu, lr, epochs = d2l.load_data_digits, 32, 0.025, 3
        load = partial(load, resize=4 if options.quick else 16)
    else:
        name = "Fashion-MNIST"
        load, per_gpu, lr, epochs = d2l.load_data_fashion_mnist, 256, 0.1, 10
    if options.quick:
        load, epochs = partial(few, load), 1
    print(f"{hardware()}; PyTorch {torch.__version__}")
    print(
        f"{name}, {per_gpu} images per GPU, learning rate {lr} per GPU, {epochs} epochs"
    )

    def test_accuracy(seed: int, num_gpus: int, warmup_epochs: float) -> float:
        torch.manual_seed(seed)
        history = d2l.train(
            d2l.resnet18(num_classes=10),
            num_gpus,
            num_gpus * per_gpu,
            num_gpus * lr,
            epochs,
            load_data=partial(load, seed=seed),
            warmup_epochs=warmup_epochs,
            display=False,
        )
        return history.accuracy[-1]

    warmup = 0.5 if options.quick else 1
    runs = {
        "one device": (1, 0),
        "two devices": (2, warmup),
        "two, no warm-up": (2, 0),
    }
    print("\n" + f"{'test accuracy':<15}" + "".join(f"{name:>18}" for name in runs))
    figures = []
    for seed in range(seeds):
        figures.append([test_accuracy(seed, *run) for run in runs.values()])
        row = "".join(f"{accuracy:18.4f}" for accuracy in figures[-1])
        print(f"{f'seed {seed}':<15}{row}", flush=True)
    means = [mean(column) for column in zip(*figures, strict=True)]
    print(f"{'mean':<15}" + "".join(f"{value:18.4f}" for value in means) + "\n")
    print_result(
        "accuracy",
        round(abs(means[0] - means[1]), 4),
        "difference of mean test accuracies, one device and two",
        f"one device: {means[0]:.4f} over {seeds} seeds; two: {means[1]:.4f}",
    )


def few(load: Callable, *args: int, **kwargs: int) -> list[list]:
    """Return the first batches of what a function loads."""
    return [list(islice(batches, 4)) for batches in load(*args, **kwargs)]


if __name__ == "__main__":
    main()
