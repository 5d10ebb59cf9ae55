"""Compare the simulated clock with a real GPU, on the same programs.

    python benchmarks/clock_vs_gpu.py [--quick] [--device cuda:0] [--model V100]

The programs are matrix products, convolutions, chains of small operators, copies in
both directions and training steps of ResNet-18, in several sizes and data types. The
result is the median relative error of the simulated times; the worst case is printed,
too. The model to simulate is chosen by the GPU's name. Without a GPU, nothing is
measured.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from statistics import median

import torch
from common import hardware, print_result
from torch import nn

from d2l_gpu import torch as d2l
from d2l_gpu.torch.timing.timer import place_name
from d2l_gpu.vgpu.sim.catalogue import MODELS

REPEATED = 10  # calls per measurement, to make the synchronization negligible

Program = Callable[[torch.device], None]


def products(sizes, types) -> Iterator[tuple[str, Program]]:
    for dtype in types:
        for n in sizes:
            yield (
                f"product {n}, {_name(dtype)}",
                Repeated(
                    lambda device, n=n, dtype=dtype: [
                        torch.zeros(n, n, dtype=dtype, device=device)
                    ],
                    lambda X: X @ X,
                ),
            )


def convolutions(batch: int, shapes, types) -> Iterator[tuple[str, Program]]:
    """Yield forward and backward passes of single layers of ResNet-18."""

    def make(device, channels, size, dtype):
        conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        X = torch.zeros(batch, channels, size, size, dtype=dtype, device=device)
        return [conv.to(device, dtype), X.requires_grad_()]

    def run(conv, X):
        conv(X).backward(X.detach())

    for dtype in types:
        for channels, size in shapes:
            yield (
                f"convolution {channels}×{size}×{size}, {_name(dtype)}",
                Repeated(
                    lambda device, c=channels, s=size, d=dtype: make(device, c, s, d),
                    run,
                ),
            )


def chains(sizes) -> Iterator[tuple[str, Program]]:
    def run(X):
        for _ in range(10):
            X = torch.relu(X * 1.5 + 1)

    for n in sizes:
        yield (
            f"chain of {n:,}",
            Repeated(lambda device, n=n: [torch.zeros(n, device=device)], run),
        )


def copies(sizes) -> Iterator[tuple[str, Program]]:
    for pinned in (True, False):
        kind = "page-locked" if pinned else "pageable"
        for n in sizes:

            def host(n=n, pinned=pinned):
                X = torch.zeros(n // 4)
                return X.pin_memory() if pinned else X

            yield (
                f"to the device, {n:,} B, {kind}",
                Repeated(
                    lambda device, host=host: [
                        host(),
                        torch.zeros(host().shape, device=device),
                    ],
                    lambda X, Y: Y.copy_(X, non_blocking=True),
                ),
            )
            yield (
                f"to the host, {n:,} B, {kind}",
                Repeated(
                    lambda device, host=host: [
                        torch.zeros(host().shape, device=device),
                        host(),
                    ],
                    lambda X, Y: Y.copy_(X, non_blocking=True),
                ),
            )


def steps(batches, types) -> Iterator[tuple[str, Program]]:
    def make(device, batch, dtype):
        net = d2l.resnet18(10).to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        X = torch.zeros(batch, 1, 28, 28, device=device)
        y = torch.zeros(batch, dtype=torch.int64, device=device)
        return [net, optimizer, X, y, dtype]

    def run(net, optimizer, X, y, dtype):
        optimizer.zero_grad()
        with torch.autocast(X.device.type, dtype, enabled=dtype != torch.float32):
            loss = nn.functional.cross_entropy(net(X), y)
        loss.backward()
        optimizer.step()

    for dtype in types:
        for batch in batches:
            yield (
                f"ResNet-18 step of {batch}, {_name(dtype)}",
                Repeated(lambda device, b=batch, d=dtype: make(device, b, d), run),
            )


class Repeated:
    """A program that creates its tensors on its first run on a device, and reuses them.

    Call it with a device to run it `REPEATED` times.
    """

    def __init__(self, make: Callable, run: Callable):
        self.make, self.run, self.made = make, run, {}

    def __call__(self, device: torch.device) -> None:
        if device not in self.made:
            self.made[device] = self.make(device)
        for _ in range(REPEATED):
            self.run(*self.made[device])


def cases(quick: bool) -> Iterator[tuple[str, Program, str]]:
    """Yield each case's name, program, and the simulator's `host` argument."""
    full = [torch.float32, torch.bfloat16, torch.float16]
    types = full[:1] if quick else full
    sizes = (32, 64) if quick else (32, 128, 512, 1024, 2048, 4096, 8192)
    shapes = ((4, 8),) if quick else ((64, 28), (128, 14), (256, 7), (512, 4))
    for name, program in (
        *products(sizes, types),
        *convolutions(2 if quick else 256, shapes, types),
        *chains((1000,) if quick else (10**3, 10**5, 10**6, 10**7, 10**8)),
        *steps((2,) if quick else (32, 128, 256, 512), types[:2]),
    ):
        yield name, program, "meta"
    for name, program in copies((4096,) if quick else (4096, 2**18, 2**22, 2**26)):
        yield name, program, "cpu"


def model_of(name: str) -> str | None:
    """Return the longest key of the catalogue contained in a GPU's name, or None."""
    found = [key for key in MODELS if key.lower() in name.lower()]
    return max(found, key=len, default=None)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few and small cases")
    parser.add_argument("--device", help="default: the first real GPU")
    parser.add_argument("--model", choices=MODELS, help="default: by the GPU's name")
    options = parser.parse_args()
    devices = [options.device] if options.device else d2l.real_gpus(1)
    if not devices:
        print("This machine has no GPU that PyTorch can use: nothing was measured.")
        return
    device = torch.device(devices[0])
    gpu = place_name(device)
    model = options.model or model_of(gpu)
    if model is None:
        sys.exit(f"{gpu} is not in the catalogue: name a model with --model.")
    print(f"{hardware()}; {gpu}; PyTorch {torch.__version__}; simulated as {model}\n")
    print(f"{'':<44}{'measured':>12}{'simulated':>12}{'error':>8}")
    errors = {}
    for name, program, backing in cases(options.quick):
        sim = d2l.simulator(1, model, backing=backing, memory="1TB")
        rounds = 1 if options.quick else 9
        times = d2l.bench({name: program}, device, sim.gpu(0), rounds=rounds)
        measured, simulated = (times.seconds(name, i) / REPEATED for i in (0, 1))
        errors[name] = abs(simulated / measured - 1)
        print(
            f"{name:<44}{measured * 1e6:>9,.1f} µs{simulated * 1e6:>9,.1f} µs"
            f"{simulated / measured - 1:>+8.2f}"
        )
        program.made.clear()
    worst = max(errors, key=errors.get)
    print(f"\nworst: {worst}, {errors[worst]:.2f}")
    print_result(
        "clock_vs_gpu",
        round(median(errors.values()), 3),
        "relative error",
        f"{len(errors)} cases measured on {gpu}; worst {errors[worst]:.2f}: {worst}",
    )


if __name__ == "__main__":
    main()
