"""Measure what virtual GPUs add to a training step of a tiny GPT, on one thread.

    python benchmarks/gpt_overhead.py [--rounds 10] [--quick]

The GPT has 4 layers of width 128 and 4 heads; a batch has 12 texts of 64 characters. A
step computes the loss and its gradients, clips these, and lets AdamW update 0.8 million
parameters: some 450 operators, most of them too small to hide what each one adds. A
small network is the worst case; ``virtual_overhead.py`` has larger ones. The result is
the median of the ratios of a step on a virtual GPU to one on the CPU, taken in turns.
"""

import argparse
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter

import torch
from common import hardware, in_turns, print_result
from torch import nn
from torch.nn import functional as F

from d2l_gpu import vgpu

LAYERS, WIDTH, HEADS, BATCH, LENGTH, CHARACTERS = 4, 128, 4, 12, 64, 65
STEPS = 10  # of one figure, which is their mean


class Block(nn.Module):
    """Attention to earlier characters and two layers, each added to its input."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.attend = nn.Linear(WIDTH, 3 * WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, X):
        """Return an output of the input's shape, (batch, length, width)."""
        batch, length, width = X.shape
        heads = [
            part.view(batch, length, HEADS, width // HEADS).transpose(1, 2)
            for part in self.attend(self.norms[0](X)).split(width, dim=2)
        ]
        found = F.scaled_dot_product_attention(*heads, is_causal=True)
        X = X + self.project(found.transpose(1, 2).reshape(batch, length, width))
        return X + self.layers(self.norms[1](X))


class TinyGPT(nn.Module):
    """Predicts the next of each character; the output layer shares the embedding."""

    def __init__(self):
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, X):
        """Return scores (batch, length, characters) for characters (batch, length)."""
        places = torch.arange(X.shape[1], device=X.device)
        hidden = self.blocks(self.characters(X) + self.places(places))
        return F.linear(self.norm(hidden), self.characters.weight)


def training(device: str, steps: int) -> Callable[[], float]:
    """Return a function that trains for some steps and returns the seconds of one."""
    torch.manual_seed(0)
    net = TinyGPT().to(device)
    X, y = (torch.randint(CHARACTERS, (BATCH, LENGTH)).to(device) for _ in range(2))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    clock = None if device == "cpu" else vgpu.current_simulator().clock

    def measure() -> float:
        start = perf_counter()
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(net(X).flatten(0, 1), y.flatten()).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        if clock is not None:
            clock.work_off()  # include the work that the clock has deferred
        return (perf_counter() - start) / steps

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="a try, not a result")
    options = parser.parse_args()
    rounds, steps = (1, 1) if options.quick else (options.rounds, STEPS)
    torch.set_num_threads(1)
    vgpu.enable(1, memory="1GiB")
    print(f"{hardware()}; PyTorch {torch.__version__}, 1 thread")
    measures = map(partial(training, steps=steps), ("vgpu:0", "cpu"))
    virtual, cpu = in_turns(list(measures), rounds, cold=options.quick)
    ratios = [v / c for v, c in zip(virtual, cpu, strict=True)]
    print(
        f"tiny GPT, ms per step: {1e3 * median(virtual):.1f} virtual, "
        f"{1e3 * median(cpu):.1f} CPU; {median(ratios):.3f} times "
        f"({min(ratios):.3f} to {max(ratios):.3f})"
    )
    baseline = f"training step on the CPU, 1 thread: {1e3 * median(cpu):.1f} ms"
    print_result(
        "gpt_overhead", round(median(ratios), 3), "times the baseline", baseline
    )


if __name__ == "__main__":
    main()
