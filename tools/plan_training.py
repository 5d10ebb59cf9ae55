"""The training that a plan describes, in PyTorch: what ``sim/plans.py`` is about.

``tools/record.py`` records its kernels. Tests and ``benchmarks/plans.py`` run it on
virtual clusters, and compare. The program is torchtitan's in the order of its steps:
tensor parallelism with activations divided by places between the layers, then
activation checkpoints, then ``fully_shard`` for each layer and for the rest, in bf16
with parameters in fp32; AdamW; a pipeline around all. It leaves out clipping gradients.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from benchmarks.networks import (
    FusedAttention,
    GPTBlock,
    LlamaLayer,
    checkpointed,
    parallelize_llama,
)
from d2l_gpu.vgpu.sim.plans import Plan
from d2l_gpu.vgpu.sim.recordings import Shape

SCHEDULES = {"1F1B": Schedule1F1B, "GPipe": ScheduleGPipe}


class LlamaStage(nn.Module):
    """Some layers of a Llama, with the embedding before and the output after them."""

    def __init__(self, shape: Shape, layers: int, first: bool, last: bool):
        super().__init__()
        width = shape.width
        sizes = width, shape.heads, shape.groups, shape.hidden
        self.words = nn.Embedding(shape.words, width) if first else None
        self.layers = nn.ModuleList(
            LlamaLayer(*sizes, nn.RMSNorm) for _ in range(layers)
        )
        self.norm = nn.RMSNorm(width, eps=1e-5) if last else None
        self.output = nn.Linear(width, shape.words, bias=False) if last else None
        places = shape.length, width // shape.heads // 2
        turns = torch.ones(places, dtype=torch.complex64)
        self.register_buffer("turns", turns, persistent=False)

    def forward(self, X):
        """Return the output of the last layer, or scores of all words."""
        H = X if self.words is None else self.words(X)
        for layer in self.layers:
            H = layer(H, self.turns)
        return H if self.output is None else self.output(self.norm(H))


class GPTStage(nn.Module):
    """The same of a GPT-2, with PyTorch's own layers; its output isn't tied."""

    def __init__(self, shape: Shape, layers: int, first: bool, last: bool):
        super().__init__()
        width = shape.width
        self.words = nn.Embedding(shape.words, width) if first else None
        self.places = nn.Embedding(shape.length, width) if first else None
        self.dropout = nn.Dropout(0.1)
        self.layers = nn.ModuleList(
            GPTBlock(
                *(width, FusedAttention(width, shape.heads)),
                *(nn.LayerNorm, nn.GELU(approximate="tanh")),
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width) if last else None
        self.output = nn.Linear(width, shape.words, bias=False) if last else None

    def forward(self, X):
        """Return the output of the last layer, or scores of all words."""
        H = X
        if self.words is not None:
            places = torch.arange(X.shape[1], device=X.device)
            H = self.dropout(self.words(X) + self.places(places))
        for layer in self.layers:
            H = layer(H)
        return H if self.output is None else self.output(self.norm(H))


def loss_of(scores, words):
    """Return the cross-entropy of the words, computed in float32."""
    return F.cross_entropy(scores.flatten(0, 1).float(), words.flatten())


class Layout(NamedTuple):
    """What of a plan concerns the layers themselves."""

    tensor: int
    checkpoint: str


def network(
    shape: Shape, layout: Layout, layers: int, first: bool, last: bool, mesh
) -> nn.Module:
    """Return some layers of a model, without memory, divided over a tensor's GPUs.

    Args:
        first, last: whether the embedding and the output belong to it.
        mesh: its dimension ``tensor`` counts.
    """
    kind = LlamaStage if shape.groups else GPTStage
    with torch.device("meta"):
        net = kind(shape, layers, first, last)
    if layout.tensor > 1:
        parallelize_llama(net, mesh["tensor"])
    for layer in net.layers:
        if layout.checkpoint == "full":
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
        elif layout.checkpoint == "selective":
            layer.forward = checkpointed(layer.forward)
    return net


def stage_of(shape: Shape, plan: Plan, number: int, mesh) -> nn.Module:
    """Return a stage of a plan's pipeline, with its parameters in shards."""
    stages = plan.pipeline * plan.stages
    layout = Layout(plan.tensor, plan.checkpoint)
    first, last = number == 0, number == stages - 1
    net = network(shape, layout, shape.layers // stages, first, last, mesh)
    data = mesh["replicas", "shards"] if plan.replicas > 1 else mesh["shards"]
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    options = {"mesh": data, "mp_policy": policy}
    for layer in net.layers:
        fully_shard(layer, reshard_after_forward=plan.zero == 3, **options)
    fully_shard(net, **options)
    return net.to_empty(device="vgpu")


def program(shape: Shape, plan: Plan, steps: int = 2) -> Callable[[], None]:
    """Return a program for ``vgpu.cluster`` that trains as a plan says."""

    def train() -> None:
        names = ("pipeline", "replicas", "shards", "tensor")
        sizes = tuple(getattr(plan, name) for name in names)
        mesh = dist.init_device_mesh("vgpu", sizes, mesh_dim_names=names)
        divided = loss_parallel() if plan.tensor > 1 else nullcontext()
        with divided:
            (in_pipeline if plan.pipeline > 1 else accumulating)(
                shape, plan, mesh, steps
            )

    return train


def accumulating(shape: Shape, plan: Plan, mesh, steps: int) -> None:
    """Train without a pipeline: microbatches add to the gradients one by one."""
    net = stage_of(shape, plan, 0, mesh)
    optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
    X = torch.zeros(plan.sequences, shape.length, dtype=torch.int64, device="vgpu")
    for _ in range(steps):
        for i in range(plan.microbatches):
            if plan.zero == 1:
                last = i == plan.microbatches - 1
                net.set_requires_gradient_sync(last)
                net.set_reshard_after_backward(last)
            loss_of(net(X), X).backward()
        optimizer.step()
        optimizer.zero_grad()


def in_pipeline(shape: Shape, plan: Plan, mesh, steps: int) -> None:
    """Train as one rank of a pipeline."""
    rank = mesh["pipeline"].get_local_rank()
    ranks, group = plan.pipeline, mesh["pipeline"].get_group()
    device = torch.device("vgpu", torch.vgpu.current_device())
    numbers = range(rank, ranks * plan.stages, ranks)
    nets = [stage_of(shape, plan, number, mesh) for number in numbers]
    stages = [
        PipelineStage(net, number, ranks * plan.stages, device, group=group)
        for net, number in zip(nets, numbers, strict=True)
    ]
    options = {"loss_fn": loss_of, "scale_grads": False}
    if plan.schedule == "interleaved":
        schedule = ScheduleInterleaved1F1B(stages, plan.microbatches, **options)
    else:
        schedule = SCHEDULES[plan.schedule](stages[0], plan.microbatches, **options)
    parameters = [p for net in nets for p in net.parameters()]
    optimizer = torch.optim.AdamW(parameters, foreach=True)
    batch = plan.microbatches * plan.sequences, shape.length
    X = torch.zeros(batch, dtype=torch.int64, device="vgpu")
    inputs = [X] if rank == 0 else []
    target = X if rank == ranks - 1 else None
    for _ in range(steps):
        schedule.step(*inputs, target=target, return_outputs=False)
        optimizer.step()
        optimizer.zero_grad()
