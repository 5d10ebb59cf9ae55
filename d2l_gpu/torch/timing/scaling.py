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
    """The cost of one step.

    Attributes:
        num_gpus: number of devices that take part.
        batch_size: number of examples per device.
        seconds: simulated time of the whole step.
        computing: seconds in which a device computes.
        communicating: seconds in which its busiest link to the other devices is in use.
        simulation: the step's simulator, for its report and timeline; its devices are
            gone.
    """

    num_gpus: int
    batch_size: int
    seconds: float
    computing: float
    communicating: float
    simulation: object = field(repr=False)

    @property
    def examples_per_second(self) -> float:
        """Examples per second, over all devices together."""
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

    Only the shapes are computed, and only for one device, because all do the same. The
    step copies the batch from page-locked memory, runs forward and backward, sums the
    gradients of all devices, and updates the parameters with SGD.

    Args:
        net: the network, on any device; it isn't changed.
        X, y: images and labels for *one* device; their values don't matter.
        num_gpus: number of devices, at least 1.
        algorithm: how to sum gradients: ``'naive'``, one parameter after the other over
            one device; ``'ring'``, all at once after backward; ``'bucketed'``, in
            rings, each bucket as soon as backward has filled it, as in
            DistributedDataParallel; ``'none'``, not at all.
        model, link: names in ``d2l_gpu.vgpu.MODELS`` and ``d2l_gpu.vgpu.LINKS``.
        bucket_bytes: size at which a bucket is full; the last one may be smaller.
    Raises:
        TypeError, ValueError: an argument is invalid, or the network has lazy layers.
    """
    from d2l_gpu import vgpu

    if any(map(nn.parameter.is_lazy, net.parameters())):
        raise ValueError(
            "A network with lazy layers has no gradients to count yet: call it with "
            "a batch before you simulate its step."
        )
    check_integer("The number of GPUs", num_gpus, least=1, example=2)
    check_integer("The size of a bucket", bucket_bytes, least=1, example=BUCKET)
    if algorithm not in ALGORITHMS:
        raise ValueError(
            f"The algorithm must be one of {', '.join(ALGORITHMS)}, but got "
            f"{algorithm!r}."
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

    sim.reset()  # making the replica doesn't count
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
    """Gradients to sum together, in the order in which backward computes them."""

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
        """Remove the hooks.

        A parameter with hooks is never freed: they refer to the parameters, a cycle
        that the garbage collector doesn't see.
        """
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
        """Wait for all sums, and copy them into the gradients."""
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
    """Return a batch in page-locked memory, or unchanged if it is on a GPU.

    On the meta device, where PyTorch with CUDA refuses to pin memory, return one that
    the simulated clock takes for pinned.
    """
    if x.is_meta:
        return mark_pinned(x)
    return x.pin_memory() if x.device.type == "cpu" else x
