"""Measure how fast, and how well, ResNet-18 trains on one real GPU, step by step.

    python benchmarks/train_gpu.py [--quick] [--device cuda:0] [--seeds 5]

The data set is Fashion-MNIST if its files have been downloaded before. Otherwise it is
random images of the same size, and no accuracy is printed. All images stay on the
device, and a batch is one indexing operation. Each rung of the ladder adds one thing:
TF32, bfloat16, channels last, a fused optimizer, and CUDA graphs by torch.compile. With
all of them, we train for ten epochs with each of several seeds. The first training is
cold and includes compilation; the others are warm. The result is the median seconds of
a warm epoch, without the test. Without a GPU, nothing is measured.
"""

import argparse
from dataclasses import dataclass, replace
from statistics import mean, median, stdev
from time import perf_counter

import torch
from common import hardware, print_result
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from d2l_gpu import torch as d2l
from d2l_gpu.common.settings import data_folder
from d2l_gpu.data.sources import FASHION_MNIST, cached
from d2l_gpu.torch.timing.timer import place_name, synchronize
from d2l_gpu.vgpu.sim.catalogue import MODELS

BATCH_SIZE = 480  # divides 60,000; a multiple of 32
QUICK_BATCH_SIZE = 8
LR, MOMENTUM, WEIGHT_DECAY, WARMUP = 0.1, 0.9, 5e-4, 0.2


@dataclass(frozen=True)
class Rung:
    """A rung of the ladder: the changes from plain float32 training."""

    name: str
    tf32: bool = False
    bfloat16: bool = False
    channels_last: bool = False
    fused: bool = False
    compiled: bool = False


def ladder(graphs: bool) -> list[Rung]:
    """Return the rungs, each with one more change; CUDA graphs are optional."""
    rungs = [Rung("float32, channels first")]
    changes = {
        "… and TF32": {"tf32": True},
        "… and bfloat16": {"bfloat16": True},
        "… and channels last": {"channels_last": True},
        "… and a fused optimizer": {"fused": True},
    }
    if graphs:
        changes["… and CUDA graphs"] = {"compiled": True}
    for name, change in changes.items():
        rungs.append(replace(rungs[-1], name=name, **change))
    return rungs


@dataclass(frozen=True)
class Data:
    """Images (uint8, shape (n, 1, 28, 28)) and labels, for training and testing."""

    train: tuple[torch.Tensor, torch.Tensor]
    test: tuple[torch.Tensor, torch.Tensor] | None
    what: str

    def to(self, device: torch.device) -> "Data":
        train = tuple(part.to(device) for part in self.train)
        test = self.test and tuple(part.to(device) for part in self.test)
        return Data(train, test, self.what)


def load(quick: bool) -> Data:
    """Return Fashion-MNIST if it has been downloaded, else random data.

    Args:
        quick: return a few random images.
    """
    folder = data_folder() / FASHION_MNIST.folder
    if not quick and all(
        cached(name, md5, folder) for name, md5 in FASHION_MNIST.files.items()
    ):
        parts = [
            tuple(torch.cat(pieces) for pieces in zip(*data, strict=True))
            for data in d2l.load_data_fashion_mnist(10_000)
        ]
        train, test = [((X * 255).round().to(torch.uint8), y) for X, y in parts]
        return Data(train, test, "Fashion-MNIST")
    n = 2 * QUICK_BATCH_SIZE if quick else 60_000
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (n, 1, 28, 28), dtype=torch.uint8, generator=generator)
    labels = torch.randint(10, (n,), generator=generator)
    return Data((images, labels), None, "random images, for speed alone")


def new_net(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    net = d2l.resnet18(10)
    net(torch.zeros(2, 1, 28, 28))  # initializes the lazy layers
    return net


class Training:
    """Trains a network on a device, in the way of one rung."""

    def __init__(self, rung: Rung, data: Data, batch_size: int, device: torch.device):
        self.rung, self.data, self.device = rung, data, device
        self.batch_size = batch_size
        self.memory = (
            torch.channels_last if rung.channels_last else torch.contiguous_format
        )
        self.net = new_net(0).to(device).to(memory_format=self.memory)
        self.gradients = self._gradients
        if rung.compiled:
            self.gradients = torch.compile(self._gradients, mode="reduce-overhead")

    def begin(self, seed: int, epochs: int) -> None:
        """Reset the training, in place: new initial parameters in the same tensors."""
        self.net.load_state_dict(new_net(seed).state_dict())
        self.random = torch.Generator(self.device).manual_seed(seed)
        steps = epochs * (len(self.data.train[1]) // self.batch_size)
        self.optimizer = torch.optim.SGD(
            self.net.parameters(),
            lr=LR,
            momentum=MOMENTUM,
            nesterov=True,
            weight_decay=WEIGHT_DECAY,
            fused=self.rung.fused,
        )
        self.schedule = d2l.linear_schedule_with_warmup(
            self.optimizer, int(WARMUP * steps), steps
        )

    def _gradients(self, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(self._scores(X), y)
        loss.backward()
        return loss.detach()

    def _scores(self, X: torch.Tensor) -> torch.Tensor:
        X = (X.float() / 255).contiguous(memory_format=self.memory)
        with torch.autocast(
            self.device.type, dtype=torch.bfloat16, enabled=self.rung.bfloat16
        ):
            return self.net(X).float()

    def epoch(self) -> float:
        """Train for an epoch; return its seconds."""
        precision = "high" if self.rung.tf32 else "highest"
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = self.rung.tf32
        images, labels = self.data.train
        self.net.train()
        synchronize([self.device])
        start = perf_counter()
        order = torch.randperm(len(labels), device=self.device, generator=self.random)
        for chosen in order.split(self.batch_size):
            self.optimizer.zero_grad()
            self.gradients(images[chosen], labels[chosen])
            self.optimizer.step()
            self.schedule.step()
        synchronize([self.device])
        return perf_counter() - start

    @torch.no_grad()
    def accuracy(self) -> float | None:
        """Return the test accuracy; None if there are no test data."""
        if self.data.test is None:
            return None
        self.net.eval()
        parts = zip(*(part.split(1000) for part in self.data.test), strict=True)
        right = [(self._scores(X).argmax(1) == y).sum() for X, y in parts]
        return float(torch.stack(right).sum()) / len(self.data.test[1])


def operations(images: int) -> float:
    """Return the floating-point operations of one training pass over some images."""
    net = new_net(0).to("meta")
    with FlopCounterMode(display=False) as counter:
        net(torch.zeros(10, 1, 28, 28, device="meta")).sum().backward()
    return counter.get_total_flops() / 10 * images


def peak(name: str) -> float | None:
    """Return a GPU's bf16 peak in operations per second; None if it isn't known."""
    for model in MODELS.values():
        if model.name in name and "bf16" in model.tensor_rates:
            return model.tensor_rates["bf16"]
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few images and epochs")
    parser.add_argument("--device", help="default: the first GPU, if there is one")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=5, help="how many, at least 2")
    options = parser.parse_args()
    if options.epochs < 1 or options.seeds < 2:
        parser.error("at least 1 epoch and 2 seeds are needed")
    if options.device is None and not torch.accelerator.is_available():
        print("This machine has no GPU that PyTorch can use: nothing was measured.")
        return
    device = torch.device(options.device or torch.accelerator.current_accelerator())
    if device.type != "cpu" and device.index is None:
        device = torch.device(device.type, 0)
    epochs, seeds, batch_size = options.epochs, options.seeds, BATCH_SIZE
    if options.quick:
        epochs, seeds, batch_size = 1, 2, QUICK_BATCH_SIZE
    data = load(options.quick).to(device)
    images = len(data.train[1])
    gpu = place_name(device)
    print(f"{gpu}; {hardware()}; PyTorch {torch.__version__}")
    print(f"ResNet-18, {images:,} images ({data.what}), batches of {batch_size}\n")

    print(f"{'seconds per epoch':<28}{'median':>9}{'ratio':>8}")
    rungs = ladder(graphs=device.type == "cuda")
    plain = None
    for rung in rungs:
        training = Training(rung, data, batch_size, device)
        training.begin(0, 4)
        taken = median([training.epoch() for _ in range(4)][1:])
        plain = plain or taken
        print(f"{rung.name:<28}{taken:9.3f}{plain / taken:8.2f}", flush=True)

    training = Training(rungs[-1], data, batch_size, device)
    totals, each, accuracies = [], [], []
    for seed in range(seeds):
        start = perf_counter()
        training.begin(seed, epochs)
        taken = [training.epoch() for _ in range(epochs)]
        totals.append(perf_counter() - start)
        if seed > 0:
            each += taken
        accuracies.append(training.accuracy())
    print(
        f"\n{epochs} epochs, cold: {totals[0]:.2f} s; warm: {median(totals[1:]):.2f} s"
    )
    seconds = median(each)
    work = operations(images)
    most = peak(gpu)
    share = f"{work / seconds / most:.1%} of the bf16 peak" if most else "peak unknown"
    print(f"{work / 1e15:.3f} PFLOP per epoch: {share}")
    if accuracies[0] is not None:
        spread = f"{mean(accuracies):.4f} ± {stdev(accuracies):.4f}"
        print(f"test accuracy, {seeds} seeds: {spread}")
    print_result(
        "train_gpu",
        round(seconds, 3),
        "s/epoch",
        f"{plain:.3f} s/epoch in {rungs[0].name}, on {gpu}",
    )


if __name__ == "__main__":
    main()
