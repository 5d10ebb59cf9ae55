"""Compare the test accuracy of ResNet-18 trained on one device and on two.

    python benchmarks/accuracy.py [--seeds 5] [--quick]

The training is that of lesson 08. Real GPUs train on Fashion-MNIST with 256 images per
GPU for ten epochs, virtual GPUs on scikit-learn's digits at 16×16 with 32 images per
GPU for three. The learning rate is proportional to the batch size. Runs with the same
seed start from the same parameters and shuffle the data with that seed. A third run, on
two devices without warm-up, shows what the warm-up does. The result is the difference
between the mean accuracies of the first two.
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
    """Return the first four batches of each data set that a function loads."""
    return [list(islice(batches, 4)) for batches in load(*args, **kwargs)]


if __name__ == "__main__":
    main()
