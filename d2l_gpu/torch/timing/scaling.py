"""One step of data-parallel training on any number of simulated devices."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from d2l_gpu.common.arguments import check_integer
from d2l_gpu.vgpu import mark_pinned

# DistributedDataParallel's default, bucket_cap_mb=25.
BUCKET = 25 * 2**20

ALGORITHMS = ("none", "naive", "ring", "bucketed")


@dataclass(frozen=True)
class StepCost:
    """What one step takes.

    Attributes:
        num_gpus: devices that take part.
        batch_size: examples of each of them.
        seconds: simulated, of the whole step.
        computing: in which a device computes.
        communicating: in which its links are busy.
        simulation: of the step, for its report and its timeline; its devices are gone.
    """

    num_gpus: int
    batch_size: int
    seconds: float
    computing: float
    communicating: float
    simulation: object = field(repr=False)

    @property
    def examples_per_second(self) -> float:
        """Of all devices together."""
        return self.num_gpus * self.batch_size / self.seconds


def simulate_step(
    net: nn.Module,
    X: torch.Tensor,
    y: torch.Tensor,
    num_gpus: int,
    algorithm: str = "bucketed",
    *,
    model: str = "V100",
    link: str = "NVLink2",
    bucket_bytes: int = BUCKET,
) -> StepCost:
    """Simulate one step of data parallelism: each device has a replica and a batch.

    Shapes alone are computed, of one device, since all do the same. What happens: the
    batch is copied from page-locked memory, forward, backward, the gradients of all
    devices are summed, and SGD updates the parameters.

    Args:
        net: network, on any device; it is not changed.
        X, y: images and labels of *one* device; values do not matter.
        num_gpus: number of devices, from 1.
        algorithm: how gradients are summed: ``'naive'``, one parameter after the other
            over one device; ``'ring'``, all at once after backward; ``'bucketed'``, in
            rings, a bucket as soon as backward has filled it, as
            DistributedDataParallel does; ``'none'``, not at all.
        model, link: entries of the catalogue.
        bucket_bytes: size of a bucket; the last one may be smaller.
    Raises:
        TypeError, ValueError: an argument makes no sense.
    """
    from d2l_gpu import vgpu

    if any(map(nn.parameter.is_lazy, net.parameters())):
        raise ValueError(
            "A network with lazy layers has no gradients to count yet: call it with a "
            "batch before its step is simulated."
        )
    check_integer("The number of GPUs", num_gpus, least=1, example=2)
    check_integer("The size of a bucket", bucket_bytes, least=1, example=BUCKET)
    if algorithm not in ALGORITHMS:
        raise ValueError(
            f"The algorithm is one of {', '.join(ALGORITHMS)}, not {algorithm!r}."
        )
    sim = vgpu.simulator(num_gpus, model, link, backing="meta", replicas=True)
    device = sim.gpu(0)
    net = copy.deepcopy(net).to(device)
    parameters = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    loss = nn.CrossEntropyLoss()
    X, y = _pinned(X), _pinned(y)
    buckets = _Buckets(sim, parameters, bucket_bytes)
    if algorithm == "bucketed" and num_gpus > 1:
        buckets.follow_backward()

    def step() -> None:
        optimizer.zero_grad()
        inputs, labels = (x.to(device, non_blocking=True) for x in (X, y))
        loss(net(inputs), labels).backward()
        if num_gpus > 1:
            if algorithm == "naive":
                for parameter in parameters:
                    sim.all_reduce([parameter.grad], "naive")
            elif algorithm == "ring":
                buckets.sum(parameters)
            elif algorithm == "bucketed":
                buckets.finish()
        optimizer.step()

    sim.reset()  # the making of the replica does not count
    step()
    buckets.unfollow()
    report = sim.report()
    (use,) = report.devices
    communicating = max(
        (x.seconds for x in report.links if "other GPUs" in (x.source, x.target)),
        default=0.0,
    )
    sim.close()
    return StepCost(num_gpus, len(X), report.seconds, use.busy, communicating, sim)


class _Buckets:
    """Gradients that are summed together, in the order in which backward makes them."""

    def __init__(self, sim, parameters: Sequence[nn.Parameter], nbytes: int):
        self.sim, self.parameters, self.nbytes = sim, parameters, nbytes
        self.filling: list[nn.Parameter] = []
        self.pending: list[tuple] = []
        self.hooks: list = []

    def follow_backward(self) -> None:
        self.hooks = [
            parameter.register_post_accumulate_grad_hook(self._ready)
            for parameter in self.parameters
        ]

    def unfollow(self) -> None:
        """Take the hooks away: parameters that have some are never freed, as these
        know the parameters, and the garbage collector does not see it."""
        for hook in self.hooks:
            hook.remove()

    def _ready(self, parameter: nn.Parameter) -> None:
        self.filling.append(parameter)
        if sum(p.nbytes for p in self.filling) >= self.nbytes:
            self._start()

    def _start(self) -> None:
        parameters, self.filling = self.filling, []
        flat = torch.cat([p.grad.flatten() for p in parameters])
        handle = self.sim.all_reduce([flat], "ring", beside=True)
        self.pending.append((parameters, flat, handle))

    def finish(self) -> None:
        """Wait for all sums and put them in the places of the gradients."""
        if self.filling:
            self._start()
        for parameters, flat, handle in self.pending:
            handle.wait()
            _unflatten(parameters, flat)
        self.pending.clear()

    def sum(self, parameters: Sequence[nn.Parameter]) -> None:
        """Sum all gradients at once, and wait."""
        flat = torch.cat([p.grad.flatten() for p in parameters])
        self.sim.all_reduce([flat], "ring")
        _unflatten(parameters, flat)


def _unflatten(parameters: Sequence[nn.Parameter], flat: torch.Tensor) -> None:
    parts = flat.split([p.numel() for p in parameters])
    torch._foreach_copy_(
        [p.grad for p in parameters],
        [part.view_as(p) for part, p in zip(parts, parameters, strict=True)],
    )


def _pinned(x: torch.Tensor) -> torch.Tensor:
    """Return a batch as page-locked memory; on the meta device, where PyTorch with CUDA
    refuses to lock anything, one that the clock takes for it."""
    if x.is_meta:
        return mark_pinned(x)
    return x.pin_memory() if x.device.type == "cpu" else x
