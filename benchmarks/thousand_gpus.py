"""Time how long it takes to simulate a step of a 70B transformer on 1,024 GPUs.

    python benchmarks/thousand_gpus.py [--quick]

The model has Llama 3.1 70B's sizes. It's divided into 4 stages of a pipeline, each
layer over 8 GPUs (tensor parallelism), and parameters over 32 (``fully_shard``), with 8
batches of one sequence in flight (1F1B) and activation checkpoints. The result is the
real seconds, which depend on the machine; there is nothing to compare them with.
``--quick`` takes a small model on 16 GPUs.
"""

import argparse
import resource
from time import perf_counter

import torch
import torch.distributed as dist
from common import hardware, print_result
from networks import LlamaLayer
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from d2l_gpu import vgpu

WORDS, LENGTH, BATCHES = 128_256, 8192, 8
COLUMNS = ("wq", "wk", "wv", "gate", "up")


class Stage(nn.Module):
    """Some layers of a Llama, the first or the last ones with what goes with them."""

    def __init__(self, layers: int, sizes: tuple[int, ...], first: bool, last: bool):
        super().__init__()
        width, heads, *_ = sizes
        self.words = nn.Embedding(WORDS, width) if first else None
        self.layers = nn.ModuleList(
            LlamaLayer(*sizes, nn.RMSNorm) for _ in range(layers)
        )
        self.norm = nn.RMSNorm(width) if last else None
        self.output = nn.Linear(width, WORDS, bias=False) if last else None
        turns = torch.ones(LENGTH, width // heads // 2, dtype=torch.complex64)
        self.register_buffer("turns", turns, persistent=False)

    def forward(self, X):
        """Return the output of the last layer, or scores of all words."""
        H = X if self.words is None else self.words(X)
        for layer in self.layers:
            H = checkpoint(layer, H, self.turns, use_reentrant=False)
        return H if self.output is None else self.output(self.norm(H))


def train(layers: int, sizes: tuple[int, ...], shape: tuple[int, int, int]) -> None:
    """Run two steps as one rank; ``shape`` is stages, shards, and GPUs of a layer."""
    mesh = dist.init_device_mesh("vgpu", shape, mesh_dim_names=("pp", "dp", "tp"))
    stages, rank = shape[0], mesh["pp"].get_local_rank()
    first, last = rank == 0, rank == stages - 1
    with torch.device("meta"):
        net = Stage(layers // stages, sizes, first, last).to(torch.bfloat16)
    plan = dict.fromkeys(COLUMNS, ColwiseParallel())
    plan |= dict.fromkeys(("wo", "down"), RowwiseParallel())
    for layer in net.layers:
        parallelize_module(layer, mesh["tp"], plan)
        fully_shard(layer, mesh=mesh["dp"], reshard_after_forward=False)
    if last:
        whole = ColwiseParallel(output_layouts=Replicate())
        parallelize_module(net, mesh["tp"], {"output": whole})
    fully_shard(net, mesh=mesh["dp"], reshard_after_forward=False)
    net.to_empty(device="vgpu")
    optimizer = torch.optim.AdamW(net.parameters())
    device = torch.device("vgpu", torch.vgpu.current_device())
    stage = PipelineStage(net, rank, stages, device, group=mesh["pp"].get_group())
    schedule = Schedule1F1B(stage, BATCHES, loss_fn=loss)
    X = torch.zeros(BATCHES, LENGTH, dtype=torch.int64, device="vgpu")
    for _ in range(2):
        schedule.step(*([X] if first else []), target=X if last else None)
        optimizer.step()
        optimizer.zero_grad()


def loss(scores, words):
    """Return the cross-entropy of the words, computed in float32."""
    return F.cross_entropy(scores.flatten(0, 1).float(), words.flatten())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small model, 16 GPUs")
    layers, sizes, shape = 80, (8192, 64, 8, 28_672), (4, 32, 8)
    parameters = 70.6e9
    if parser.parse_args().quick:
        layers, sizes, shape, parameters = 4, (512, 8, 8, 1024), (2, 4, 2), None
    stages, shards, gpus = shape
    cluster = vgpu.cluster(stages * shards * gpus // 8, 8, "H100", "NDR")
    start = perf_counter()
    run = cluster.run(
        lambda: train(layers, sizes, shape),
        tokens=shards * BATCHES * LENGTH,
        parameters=parameters,
    )
    seconds = perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{hardware()}; no GPU is used\n\n{run}\n")
    print(f"{seconds:.1f} s in real time, at most {peak:.1f} GiB of this computer")
    print_result("thousand_gpus", round(seconds, 1), "seconds", "nothing")


if __name__ == "__main__":
    main()
