"""Sharding: what it saves, its first stage by hand, and shards that are cut again."""

import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

from d2l_gpu import vgpu
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run, given
from d2l_gpu.exercises.shared import lesson_13 as common
from d2l_gpu.exercises.variants.draw import Vary, one_of, seeds

EXERCISES = Registry()
EXERCISES.add(
    "13.1",
    "parameters, memory, stage",
    returns=(int, type(None)),
    vary={"plans": Vary(common.PLANS, common.other_plans)},
)(common.gpus_needed)

# ------------------------------------------------------------------ stage 1

_N, _SIZE, _STEPS = 4, 64, 3


def _data(data: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first parameters, and a gradient for each step and rank."""
    torch.manual_seed(data)
    return torch.randn(_SIZE), torch.randn(_STEPS, _N, _SIZE)


def _sent() -> int:
    """Return the bytes that GPU 0 has sent to others."""
    return sum(
        link.nbytes
        for link in vgpu.current_simulator().report().links
        if (link.source, link.target) == ("GPU 0", "other GPUs")
    )


def _stepped(answer: Callable, gpus: Gpus, data: int) -> dict:
    """Return parameters and momentum of each rank, and the bytes that are sent."""
    first, gradients = _data(data)

    def train(rank, n):
        p = first.to("vgpu").requires_grad_()
        velocity = torch.zeros(_SIZE // n, device="vgpu")
        found = []
        for step in range(_STEPS):
            p.grad = gradients[step, rank].to("vgpu")
            answer(p, velocity, rank, n)
            found.append(p.detach().cpu().numpy())
        return found, velocity.cpu().numpy()

    vgpu.current_simulator().reset()
    ranks = vgpu.run_ranks(train, _N)
    return {
        "parameters": [found for found, _ in ranks],
        "velocity": [velocity for _, velocity in ranks],
        "sent": _sent() / _STEPS,
    }


def _momentum(
    data: int, momentum: float, rate: float, mean: bool = True
) -> tuple[list, np.ndarray]:
    """Return the parameters after each step, and the momentum after the last one."""
    p, gradients = _data(data)
    velocity, found = torch.zeros(_SIZE), []
    for gradient in gradients.mean(1) if mean else gradients.sum(1):
        velocity = momentum * velocity + gradient
        p = p - rate * velocity
        found.append(p.numpy())
    return found, velocity.numpy()


@EXERCISES.add(
    "13.2",
    "p, velocity, rank, n",
    changes="p, velocity",
    gpus=_N,
    vary={
        "data": seeds(),
        "momentum": one_of(0.9, 0.5, 0.6, 0.7, 0.8),
        "rate": one_of(0.1, 0.2, 0.3, 0.4),
    },
)
def sharded_step(run: Run, data: int, momentum: float, rate: float):
    case = data, momentum, rate
    found = run(_stepped, data)
    right, velocity = _momentum(*case)
    ranks = found["parameters"]
    same = all(np.array_equal(x, ranks[0]) for x in ranks)
    yield Claim(
        "all ranks have the same parameters afterwards",
        same,
        "They don't. A rank updates one chunk. How do the others learn of it?",
    )
    if not same:
        return
    close = [
        np.allclose(*pair, atol=1e-5) for pair in zip(ranks[0], right, strict=True)
    ]
    yield Claim(
        "they're those of SGD with momentum and the average gradient",
        all(close),
        _wrong_step(ranks[0], close, case),
    )
    if not all(close):
        return
    yield Claim(
        "`velocity` holds this rank's share of the momentum",
        np.allclose(np.concatenate(found["velocity"]), velocity, atol=1e-5),
        "The parameters are right, but `velocity` isn't updated as it should be.",
    )
    allowed = 2 * 4 * _SIZE * (_N - 1) / _N
    yield Claim(
        "it sends no more than an all-reduce of the gradient",
        found["sent"] <= 1.01 * allowed,
        f"Each GPU sends {found['sent']:,.0f} bytes per step. An all-reduce sends "
        f"{allowed:,.0f}. Who needs the whole gradient?",
    )


def _wrong_step(
    mine: Sequence[np.ndarray], close: Sequence[bool], case: tuple[int, float, float]
) -> str:
    first, _ = _data(case[0])
    if np.allclose(mine[0], first):
        return "The parameters haven't changed."
    if np.allclose(mine[0], _momentum(*case, mean=False)[0][0], atol=1e-5):
        return "They're those of the *sum* of the gradients."
    if close[0]:
        return (
            "They're right after the first step, but not after the second. What "
            "remains of the first step's `velocity`?"
        )
    return "They aren't, from the first step on."


# ------------------------------------------------------------------ clipping

# What the gradients are multiplied by: they're clipped, not clipped, and zero.
_SCALES = (1.0, 0.01, 0.09, 0.0)


def _gradients(scale: float, data: int) -> list[list[torch.Tensor]]:
    """Return the shards of each rank; those of the first ones are much smaller."""
    torch.manual_seed(data)
    return [
        [scale * (rank + 0.1) * torch.randn(k) for k in (8, 12)] for rank in range(_N)
    ]


def _clipped(answer: Callable, gpus: Gpus, scale: float, data: int) -> dict:
    """Return each rank's shards and norm, and the bytes that are sent."""

    def clip(rank, n):
        shards = [g.to("vgpu") for g in _gradients(scale, data)[rank]]
        norm = answer(shards, common.LARGEST)
        return torch.cat(shards).cpu().numpy(), float(norm)

    vgpu.current_simulator().reset()
    ranks = vgpu.run_ranks(clip, _N)
    return {
        "shards": [x for x, _ in ranks],
        "norms": [x for _, x in ranks],
        "sent": _sent(),
    }


@EXERCISES.add(
    "13.3",
    "shards, largest",
    returns=(torch.Tensor, float),
    changes="shards",
    gpus=_N,
    vary={"data": seeds()},
)
def clip(run: Run, data: int):
    runs = {scale: run(_clipped, scale, data) for scale in _SCALES}
    for scale, found in runs.items():
        whole = torch.cat([torch.cat(x) for x in _gradients(scale, data)])
        norm = float(whole.norm())
        yield Claim(
            f"with a gradient of norm {norm:.2f}, every rank returns that norm",
            np.allclose(found["norms"], norm, rtol=1e-3, atol=1e-6),
            common.wrong_norm(found["norms"], norm, "rank"),
        )
        if not np.allclose(found["norms"], norm, rtol=1e-3, atol=1e-6):
            return
        wanted = whole * min(1, common.LARGEST / norm if norm else 1)
        mine = np.concatenate(found["shards"])
        close = np.allclose(mine, wanted.numpy(), rtol=1e-3, atol=1e-6)
        yield Claim(
            "and the shards are clipped together",
            close,
            ""
            if close
            else common.wrong_shards(
                mine,
                whole.numpy(),
                norm,
                "They haven't changed. They're to be changed in place.",
            ),
        )
        if not close:
            return
    most = max(found["sent"] for found in runs.values())
    yield Claim(
        "only a few bytes are sent",
        most <= 64,
        f"GPU 0 sends {most} bytes for a gradient of {4 * 20 * _N} bytes. Which number "
        "do the other ranks need?",
    )


# ------------------------------------------------------------------ shard a network

_WIDTH, _DEPTH, _ROWS = 1024, 8, 8192


class _Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(_WIDTH, _WIDTH) for _ in range(6))

    def forward(self, X):
        for layer in self.layers:
            X = layer(X)
        return F.relu(X)


class _Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(_WIDTH, _WIDTH)
        self.blocks = nn.ModuleList(_Block() for _ in range(_DEPTH))
        self.last = nn.Linear(_WIDTH, _WIDTH)

    def forward(self, X):
        X = self.first(X)
        for block in self.blocks:
            X = block(X)
        return self.last(X)


def _blockwise(net: nn.Module) -> None:
    for block in net.blocks:
        fully_shard(block)
    fully_shard(net)


def _simulated(shard: Callable) -> dict:
    """Return a step's time, its most bytes of parameters, and what isn't sharded."""
    left = []

    def program():
        with torch.device("meta"):
            net = _Net().to(torch.bfloat16)
        shard(net)
        left[:] = [
            name for name, p in net.named_parameters() if not hasattr(p, "placements")
        ]
        if left:
            return
        net.to_empty(device="vgpu")
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(2):
            X = torch.zeros(_ROWS, _WIDTH, dtype=torch.bfloat16, device="vgpu")
            net(X).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    run = vgpu.cluster(nodes=1, gpus=8, model="A100", link="PCIe4").run(program)
    _, categories = run.ranks[0].memory.series()
    return {
        "seconds": run.seconds,
        "most": max(categories["parameters"], default=0),
        "left": left,
    }


@functools.cache
def _reference() -> dict:
    return _simulated(_blockwise)


def _sharded(answer: Callable, gpus: Gpus) -> dict:
    return _simulated(answer)


@EXERCISES.add("13.4", "net", changes="net")
def shard(run: Run):
    found, right = run(_sharded), _reference()
    yield Claim(
        "all parameters are sharded",
        not found["left"],
        f"{len(found['left'])} aren't, such as `{(found['left'] or [''])[0]}`.",
    )
    if found["left"]:
        return
    few = found["most"] < 1.3 * right["most"]
    yield Claim(
        "few of them are whole at a time",
        few,
        f"Up to {found['most'] / 2**20:.0f} MiB of parameters are in memory at once, "
        f"and {right['most'] / 2**20:.0f} MiB are enough. "
        + (
            "How many are gathered when the forward pass begins?"
            if found["seconds"] > 1.1 * right["seconds"]
            else "What stays between forward and backward?"
        ),
    )
    if not few:
        return
    time = found["seconds"] / right["seconds"]
    yield Claim(
        "a step takes little more time than it must",
        time < 1.08,
        f"It takes {found['seconds'] * 1e3:.1f} ms, and "
        f"{right['seconds'] * 1e3:.1f} ms are enough (simulated). "
        "How many all-gathers are there for a block?",
    )


# ------------------------------------------------------------------ cut again

EXERCISES.add(
    "13.5",
    "read, size, old, rank, new",
    returns=torch.Tensor,
    vary={"cuts": Vary(common.CUTS, common.other_cuts)},
)(given(common.load_shard, torch.tensor))
