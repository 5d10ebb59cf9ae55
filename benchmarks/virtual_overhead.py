"""Measure the overhead of virtual GPUs over the CPU, on operators and training steps.

    python benchmarks/virtual_overhead.py [--quick]

As in a lesson, virtual GPUs keep track of memory and copies and run the simulated
clock, and all of that is part of what we measure. The targets are at most 8 µs added to
a small operator in a tight loop, and a ResNet-18 training step of at most 1.05 times
the CPU's. Figures are minima, because other work on the machine can only make a step
slower; medians are printed beside them.
"""

import argparse
import copy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from timeit import Timer

import torch
from common import hardware, in_turns, print_result
from torch import nn

from d2l_gpu import torch as d2l
from d2l_gpu import vgpu

# X and Y are 32×32, float32.
OPERATORS = {
    "add": "X + Y",
    "add_": "X.add_(Y)",
    "view": "X.view(1024)",
    "sum": "X.sum()",
    "relu": "X.relu()",
    "mm": "X @ Y",
}
MANY = 16  # devices


@dataclass(frozen=True)
class Effort:
    """How often to measure each thing, and the batch size of the large network."""

    warm: int
    calls: int  # of an operator, per warm measurement
    cold: int
    resnet: int
    batch_size: int
    mlp: int
    many: int


FULL = Effort(200, 500, 200, 20, 64, 300, 20)
QUICK = Effort(3, 50, 2, 1, 4, 3, 1)


@dataclass(frozen=True)
class Pair:
    """Seconds that the same work took on a virtual GPU and on the CPU."""

    virtual: Sequence[float]
    cpu: Sequence[float]

    def added(self, figure: Callable) -> float:
        """Return the microseconds that the virtual GPU adds.

        Args:
            figure: `min` or `median`.
        """
        return 1e6 * (figure(self.virtual) - figure(self.cpu))

    def ratio(self, figure: Callable) -> float:
        return figure(self.virtual) / figure(self.cpu)


def measure_pair(measure: Callable[[str], Callable[[], float]], rounds: int) -> Pair:
    """Measure on a virtual GPU and on the CPU, in turns.

    Args:
        measure: takes a device and returns a function that measures once, in seconds.
        rounds: how many figures to take of each.
    """
    return Pair(*in_turns([measure("vgpu:0"), measure("cpu")], rounds))


# ------------------------------------------------------------------ small operators


def small_operator(statement: str, device: str) -> Timer:
    """Return a timer for one operator on matrices on a device."""
    X, Y = torch.ones(2, 32, 32, device=device).unbind()
    return Timer(statement, globals={"X": X, "Y": Y})


def warm(statement: str, effort: Effort) -> Pair:
    """Measure an operator called in a tight loop."""

    def prepare(device: str) -> Callable[[], float]:
        timer, calls = small_operator(statement, device), effort.calls
        clock = None if device == "cpu" else vgpu.current_simulator().clock

        def measure() -> float:
            start = perf_counter()
            timer.timeit(calls)
            if clock is not None:
                clock.work_off()  # include the work that the clock has deferred
            return (perf_counter() - start) / calls

        return measure

    return measure_pair(prepare, effort.warm)


def cold(statement: str, effort: Effort) -> Pair:
    """Measure an operator called once, after a kernel that fills the caches."""

    def prepare(device: str) -> Callable[[], float]:
        timer = small_operator(statement, device)
        X = torch.ones(64, 64, 28, 28, device=device)
        W = torch.ones(64, 64, 3, 3, device=device)

        def measure() -> float:
            nn.functional.conv2d(X, W, padding=1)
            return timer.timeit(1)

        return measure

    return measure_pair(prepare, effort.cold)


# ------------------------------------------------------------------ training steps


class Training:
    """Trains copies of a network on one batch, on one or several devices.

    Each device has a replica and its own copy of the batch. Gradients are summed on the
    first device and copied back, by hand.

    Args:
        net: the network to copy, on the CPU.
        devices: device names, which may be repeated.
        X, y: the images and labels that every device gets.
    """

    def __init__(
        self, net: nn.Module, devices: Sequence[str], X: torch.Tensor, y: torch.Tensor
    ):
        self.nets = [copy.deepcopy(net).to(device) for device in devices]
        self.batches = [(X.to(device), y.to(device)) for device in devices]
        self.optimizers = [
            torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
            for net in self.nets
        ]

    def step(self) -> float:
        """Take one step; return its seconds per device."""
        start = perf_counter()
        for net, optimizer, (X, y) in zip(
            self.nets, self.optimizers, self.batches, strict=True
        ):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(X), y).backward()
        if len(self.nets) > 1:
            self._sum_gradients()
        for optimizer in self.optimizers:
            optimizer.step()
        return (perf_counter() - start) / len(self.nets)

    def _sum_gradients(self) -> None:
        for replicas in zip(*(net.parameters() for net in self.nets), strict=True):
            first, *others = [replica.grad for replica in replicas]
            for grad in others:
                first += grad.to(first.device)
            for grad in others:
                grad.copy_(first)

    def weights(self) -> list[torch.Tensor]:
        """Return the parameters and buffers of all replicas, on the CPU."""
        return [x.cpu() for net in self.nets for x in net.state_dict().values()]


@dataclass(frozen=True)
class Comparison:
    """Training on virtual GPUs compared with the CPU.

    Attributes:
        steps: the seconds per step and device.
        equal: whether all final weights are bitwise equal.
    """

    steps: Pair
    equal: bool


def train(
    net: nn.Module, size: Sequence[int], rounds: int, devices: Sequence[int] = (1,)
) -> list[Comparison]:
    """Train copies of a network on virtual GPUs and on the CPU, in turns.

    Args:
        net: the network, on the CPU.
        size: the shape of each device's images.
        rounds: how many figures to take of each.
        devices: numbers of devices; each is compared with as many replicas on the CPU.
    """
    X, y = torch.randn(*size), torch.randint(10, (size[0],))
    trainings = [
        Training(net, names, X, y)
        for count in devices
        for names in ([f"vgpu:{i}" for i in range(count)], ["cpu"] * count)
    ]

    def measure(training: Training) -> Callable[[], float]:
        # Each figure is the mean over the same total number of steps of a device.
        steps = max(devices) // len(training.nets)
        return lambda: sum(training.step() for _ in range(steps)) / steps

    seconds = in_turns([measure(training) for training in trainings], rounds)
    return [
        Comparison(Pair(*seconds[i : i + 2]), same_weights(*trainings[i : i + 2]))
        for i in range(0, len(trainings), 2)
    ]


def same_weights(one: Training, other: Training) -> bool:
    """Return whether all weights of two trainings are bitwise equal."""
    pairs = zip(one.weights(), other.weights(), strict=True)
    return all(torch.equal(*pair) for pair in pairs)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


def small_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


# ------------------------------------------------------------------ printing


def report(text: str) -> None:
    """Print on stderr what is being measured, since everything takes minutes."""
    print(f"{text} …", file=sys.stderr, flush=True)


def print_operators(effort: Effort) -> None:
    """Measure the small operators; print the microseconds added to each."""
    print("\nµs added     " + "".join(f"{name:>8}" for name in OPERATORS))
    for name, measure in (("warm", warm), ("cold", cold)):
        report(f"small operators, {name}")
        pairs = [measure(statement, effort) for statement in OPERATORS.values()]
        for figure in (min, median):
            added = "".join(f"{pair.added(figure):8.1f}" for pair in pairs)
            print(f"{name}, {figure.__name__:<6} {added}", flush=True)


def print_step(name: str, comparison: Comparison) -> None:
    steps = comparison.steps
    print(
        f"{name:<28}{1e3 * min(steps.virtual):9.2f}{1e3 * min(steps.cpu):9.2f}"
        f"{steps.ratio(min):9.3f}{steps.ratio(median):9.3f}  "
        f"{'equal' if comparison.equal else 'DIFFERENT'}",
        flush=True,
    )


def print_steps(effort: Effort) -> Pair:
    """Measure and print the training steps; return those of ResNet-18."""
    print(f"\n{'ms per step and device':<28}", end="")
    print(f"{'virtual':>9}{'CPU':>9}{'ratio':>9}{'median':>9}  weights", flush=True)
    report("training ResNet-18")
    size = (effort.batch_size, 1, 28, 28)
    (resnet,) = train(d2l.resnet18(10), size, effort.resnet)
    print_step(f"ResNet-18, batch {effort.batch_size}", resnet)
    report("training an MLP")
    (comparison,) = train(mlp(), (256, 784), effort.mlp)
    print_step("MLP 784-256-10, batch 256", comparison)
    report(f"training a CNN on 1 device and on {MANY}")
    one, many = train(small_cnn(), (32, 1, 28, 28), effort.many, (1, MANY))
    print_step("CNN, batch 32, 1 device", one)
    print_step(f"the same on {MANY} devices", many)
    one, many = one.steps, many.steps
    print(
        f"\nTime per device on {MANY} devices, in times of that on one: "
        f"{min(many.virtual) / min(one.virtual):.3f} virtual, "
        f"{min(many.cpu) / min(one.cpu):.3f} with as many replicas on the CPU."
    )
    return resnet.steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="few rounds and a small batch"
    )
    effort = QUICK if parser.parse_args().quick else FULL
    torch.manual_seed(0)
    vgpu.enable(MANY, memory="1GiB")  # the same on every machine
    threads = torch.get_num_threads()
    print(f"{hardware()}; PyTorch {torch.__version__}, {threads} threads")
    with vgpu.record_copies():
        print_operators(effort)
        resnet = print_steps(effort)
    baseline = (
        f"ResNet-18 training step on the CPU, batch {effort.batch_size}: "
        f"{min(resnet.cpu):.3f} s"
    )
    ratio = round(resnet.ratio(min), 3)
    print_result("virtual_overhead", ratio, "times the baseline", baseline)


if __name__ == "__main__":
    main()
