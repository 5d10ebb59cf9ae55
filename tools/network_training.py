"""The training of networks for images, in PyTorch: what ``sim/replicas.py`` is about.

``tools/record_networks.py`` records its kernels, and tests run it on virtual clusters
and compare. Several GPUs train with ``DistributedDataParallel``, one without. The
images are on the GPU already. In fp16 there's a ``GradScaler``, so the host waits for
the GPU in each step, to hear whether anything has overflowed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.networks import resnet50
from d2l_gpu import torch as d2l

STEPS = 4  # the last one is like all that follow
# After so many steps the host waits for the GPU. In the first, DDP's setting up lets
# the host get ahead, and work that was issued then would hide how slow the host is.
SETUP = 2
HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def lenet() -> nn.Sequential:
    """Return LeNet with ReLU, as lesson 7 writes it in functions."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()),
        nn.Linear(84, 10),
    )


@dataclass(frozen=True)
class Training:
    """How a network is trained.

    Attributes:
        network: returns it.
        image: the shape of one.
        optimizer: returns one for some parameters.
        smoothing: of the labels.
        channels_last: whether halves have the channels last in memory.
        waits: whether the host waits for the GPU at the end of each step.
    """

    network: Callable[[], nn.Module]
    image: tuple[int, ...]
    optimizer: Callable
    smoothing: float = 0.0
    channels_last: bool = False
    waits: bool = False


SMALL = (1, 28, 28), partial(torch.optim.SGD, lr=0.1)
TRAININGS = {
    "LeNet": Training(lenet, *SMALL),
    "ResNet-18": Training(partial(d2l.resnet18, 10), *SMALL),
    # As benchmarks/published.py trains it.
    "ResNet-50": Training(
        resnet50,
        (3, 224, 224),
        partial(
            *(torch.optim.SGD,),
            lr=1.0,
            momentum=0.875,
            weight_decay=3e-5,
            foreach=False,
        ),
        smoothing=0.1,
        channels_last=True,
        waits=True,
    ),
}


@contextmanager
def tf32(on: bool) -> Iterator[None]:
    """Let products and convolutions in fp32 use TF32, or not."""
    flags = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [each.allow_tf32 for each in flags]
    try:
        for each in flags:
            each.allow_tf32 = on
        yield
    finally:
        for each, was in zip(flags, before, strict=True):
            each.allow_tf32 = was


def program(
    name: str, batch: int, precision: str = "fp32", steps: int = STEPS
) -> Callable[[], None]:
    """Return a program for ``vgpu.cluster`` that trains a network.

    Args:
        name: a key of ``TRAININGS``.
        batch: the images of each GPU in a step.
        precision: ``"fp32"``, ``"tf32"``, or with autocast ``"fp16"`` or ``"bf16"``.
    """
    training = TRAININGS[name]

    def train() -> None:
        with tf32(precision == "tf32"):
            _train(training, batch, HALVES.get(precision), steps)

    return train


def _train(training: Training, batch: int, half: torch.dtype | None, steps: int):
    layout = torch.contiguous_format
    if training.channels_last and half is not None:
        layout = torch.channels_last
    net = training.network().to("vgpu", memory_format=layout)
    if dist.get_world_size() > 1:
        net = DistributedDataParallel(net)
    optimizer = training.optimizer(net.parameters())
    loss = nn.CrossEntropyLoss(label_smoothing=training.smoothing)
    X = torch.zeros(batch, *training.image, device="vgpu")
    X = X.contiguous(memory_format=layout)
    y = torch.zeros(batch, dtype=torch.long, device="vgpu")
    scaler = torch.amp.GradScaler("vgpu", enabled=half is torch.float16)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        with nullcontext() if half is None else torch.autocast("vgpu", half):
            found = loss(net(X), y)
        scaler.scale(found).backward()
        scaler.step(optimizer)
        scaler.update()
        if training.waits or step == SETUP:
            torch.vgpu.synchronize()
