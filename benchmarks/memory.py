"""Compare simulated memory with peaks that others have measured and published.

    python benchmarks/memory.py             all rows
    python benchmarks/memory.py gpt2        rows whose names begin like this

``data/published_memory.csv`` has the peaks, with their sources. Each is simulated with
the network of ``networks.py``, on shapes only, with PyTorch's caching allocator; a
few steps are run as the program that was measured runs them. The result is the median
of the relative errors. Nothing was fitted to these rows.
"""

import argparse
import csv
import gc
import statistics
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from common import hardware, print_result
from networks import GPT, FloatRMSNorm, Llama, ViT
from published import checkpointed
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F

from d2l_gpu import vgpu

DATA = Path(__file__).parent / "data" / "published_memory.csv"
GIB = 2**30
STEPS = 3  # from the second step on, the optimizer has its state
ON_NODE = 8


class Row(NamedTuple):
    """A published peak; see the head of the data."""

    id: str
    model: str
    gpu: str
    gpus: int
    precision: str
    batch: int
    length: int
    checkpointing: str
    optimizer: str
    figure: str
    gib: float
    differs: str
    source: str


class Peaks(NamedTuple):
    """The most bytes that were allocated and reserved at a time."""

    allocated: int
    reserved: int


def rows() -> list[Row]:
    """Return the published peaks."""
    kinds = {"gpus": int, "batch": int, "length": int, "gib": float}
    with DATA.open(encoding="utf-8") as file:
        lines = csv.DictReader(line for line in file if not line.startswith("#"))
        return [
            Row(**{name: kinds.get(name, str)(x) for name, x in line.items()})
            for line in lines
        ]


# ------------------------------------------------------------------ Llama 3.1 8B


def llama_peaks(row: Row) -> Peaks:
    """Return the peaks of rank 0, sharded as torchtitan does it."""
    cluster = vgpu.cluster(
        row.gpus // ON_NODE,
        ON_NODE,
        row.gpu,
        allocator="caching,expandable_segments:True",
    )

    def train() -> None:
        mesh = dist.init_device_mesh("vgpu", (row.gpus,))
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        with torch.device("meta"):
            net = Llama(norm=FloatRMSNorm)
        for layer in net.layers:
            layer.forward = checkpointed(layer.forward)
            again = layer is not net.layers[-1]  # the last one is needed at once
            fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=again)
        fully_shard(net, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
        net.to_empty(device="vgpu")
        optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
        for _ in range(STEPS):
            X, y = (
                torch.zeros(row.batch, row.length, dtype=torch.int64, device="vgpu")
                for _ in range(2)
            )
            optimizer.zero_grad()
            scores = net(X)
            loss = F.cross_entropy(scores.flatten(0, 1).float(), y.flatten())
            del scores
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0, foreach=True)
            optimizer.step()

    (rank,) = cluster.run(train).ranks.values()
    return Peaks(rank.allocated, rank.reserved)


# ------------------------------------------------------------------ a single GPU


def alone(row: Row, net: nn.Module) -> torch.device:
    """Move a network to a simulated GPU in the row's precision, and return that."""
    gc.collect()
    sim = vgpu.simulator(1, row.gpu, backing="meta", allocator="caching")
    if row.precision == "bf16":
        net.to(torch.bfloat16)
    net.to(sim.gpu(0))
    return sim.gpu(0)


def peaks_of(device: torch.device) -> Peaks:
    return Peaks(
        torch.vgpu.max_memory_allocated(device), torch.vgpu.max_memory_reserved(device)
    )


def gpt_peaks(row: Row) -> Peaks:
    """Return the peaks of the loop of the book's chapter 5, which also evaluates."""
    net = GPT(
        keeps_mask=row.id == "gpt2-orig",
        classes=row.id in ("gpt2-classes", "gpt2-flash"),
        fused=row.id == "gpt2-flash",
    )
    device = alone(row, net)
    optimizer = torch.optim.AdamW(net.parameters(), fused="fused" in row.optimizer)

    def loss_of_batch() -> torch.Tensor:
        X, y = (
            torch.zeros(row.batch, row.length, dtype=torch.int64).to(device)
            for _ in range(2)
        )
        scores = net(X)
        return F.cross_entropy(scores.flatten(0, 1), y.flatten())

    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of_batch()
        loss.backward()
        optimizer.step()
        if step == 0:
            net.eval()
            with torch.no_grad():
                for _ in range(2):  # data for training, and for validation
                    loss_of_batch()
            net.train()
    return peaks_of(device)


def vit_peaks(row: Row) -> Peaks:
    """Return the peaks of training with pictures, an epoch that ends by evaluating.

    Lightning's Fabric casts pictures to the network's type, and scores to float32.
    """
    device = alone(row, net := ViT(10))
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-5)
    scaled = "autocast" in row.precision
    cast = partial(torch.autocast, "vgpu", torch.float16) if scaled else nullcontext
    dtype = torch.bfloat16 if row.precision == "bf16" else torch.float32
    parts = 4 if row.id == "vit-bf16-4" else 1  # microbatches of a step

    def forward() -> tuple[torch.Tensor, torch.Tensor]:
        X = torch.zeros(row.batch, 3, row.length, row.length).to(device)
        with cast():
            return X, net(X.to(dtype)).float()

    for i in range(STEPS * parts):
        net.train()
        last = forward()  # it's kept until the next is there
        scores = last[1]
        loss = F.cross_entropy(scores, torch.zeros_like(scores[:, 0], dtype=int))
        if parts == 1:
            optimizer.zero_grad()
        else:
            loss = loss / parts
        (loss * 65536.0 if scaled else loss).backward()
        if i % parts == 0:
            optimizer.step()
            if parts > 1:
                optimizer.zero_grad()
    net.eval()
    with torch.no_grad():
        for _ in range(2):
            last = forward()
    return peaks_of(device)


def tutorial_peaks(row: Row) -> Peaks:
    """Return the peaks of PyTorch's tutorial, whose second part has many optimizers."""
    device = alone(row, net := ViT())
    parameters, optimizer = list(net.parameters()), None
    if row.optimizer == "Adam":
        optimizer = torch.optim.Adam(parameters)
    else:
        optimizers = {p: torch.optim.Adam([p], foreach=False) for p in parameters}

        def step(parameter: nn.Parameter) -> None:
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(step)
    for _ in range(STEPS):
        X = torch.rand(row.batch, 3, row.length, row.length).to(device)
        loss = net(X)
        loss.sum().backward()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
    return peaks_of(device)


PEAKS: dict[str, Callable[[Row], Peaks]] = {
    "titan": llama_peaks,
    "gpt2": gpt_peaks,
    "vit": vit_peaks,
    "vit-tutorial": tutorial_peaks,
}


# ------------------------------------------------------------------ the table


def compared(start: str) -> Iterator[float]:
    """Simulate the rows whose names begin with ``start``, print and yield errors."""
    heads = ("allocated", "reserved", "published", "error")
    print("{:<23}{:<11}{:>10}{:>10}{:>11}{:>9}".format("GiB", "figure", *heads))
    for row in rows():
        if not row.id.startswith(start):
            continue
        found = PEAKS[row.source](row)
        error = round(getattr(found, row.figure) / GIB / row.gib - 1, 3)
        print(
            f"{row.id:<23}{row.figure:<11}{found.allocated / GIB:>10.2f}"
            f"{found.reserved / GIB:>10.2f}{row.gib:>11.2f}{error:>+9.1%}"
            f"  {row.differs}".rstrip(),
            flush=True,
        )
        yield error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("start", nargs="?", default="", help="of rows to simulate")
    start = parser.parse_args().start
    print(f"{hardware()}; no GPU is used", end="\n\n")
    sizes = [abs(error) for error in compared(start)]
    if not sizes:
        parser.error(f"no row begins with {start!r}.")
    middle = statistics.median(sizes)
    print(f"\nmedian {middle:.1%}, largest {max(sizes):.1%}, {len(sizes)} peaks")
    print_result("memory", round(middle, 3), "relative error", "published peaks")


if __name__ == "__main__":
    main()
