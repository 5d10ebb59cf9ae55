"""How far it scales: times are simulated, so they are the same on every machine."""

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import nn

from d2l_gpu import torch as d2l
from d2l_gpu import vgpu
from d2l_gpu.exercises.cases import in_all
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run
from d2l_gpu.exercises.variants.draw import Vary, one_of, seeds

EXERCISES = Registry()


def _simulate(net: nn.Module, n: int, way: str, images: int, link: str = "PCIe3"):
    X = torch.zeros(images, 1, 28, 28, device="meta")
    y = torch.zeros(images, dtype=torch.long, device="meta")
    return d2l.simulate_step(net, X, y, n, way, link=link)


def _resnet() -> nn.Module:
    with torch.device("meta"):
        return d2l.resnet18(num_classes=10)


def _text(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


# ------------------------------------------------------------------ 09.1


def _pairs(images: int) -> list[tuple]:
    """Return pairs of simulated steps, each with its base.

    Args:
        images: on each GPU; in the second pair they're divided among four.
    """
    with torch.device("meta"):
        net = nn.Sequential(
            nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(10816, 10)
        )
    one, one_large, two, many, fast = (
        _simulate(net, n, way, size, link)
        for n, way, size, link in (
            (1, "none", images, "PCIe3"),
            (1, "none", 4 * images, "PCIe3"),
            (2, "ring", images, "PCIe3"),
            (16, "ring", images, "PCIe3"),
            (4, "ring", images, "NVLink2"),
        )
    )
    return [(one, many), (one_large, fast), (two, many)]


def _efficiencies(answer: Callable, gpus: Gpus, images: int) -> list[float]:
    return [answer(base, step) for base, step in _pairs(images)]


@EXERCISES.add(
    "09.1",
    "base, step",
    returns=(float,),
    vary={"images": Vary(64, lambda draw: draw.integer(24, 120))},
)
def efficiency(run: Run, images: int):
    cases = (
        "16 GPUs with as many images on each as the base",
        f"4 GPUs that share {4 * images} images",
        "16 GPUs with 2 as the base",
    )
    values, pairs = run(_efficiencies, images), _pairs(images)
    for what, (base, step), value in zip(cases, pairs, values, strict=True):
        wanted = base.batch_size / base.seconds
        wanted = step.batch_size / step.seconds / wanted
        yield Claim(
            f"it's right for {what}",
            abs(value - wanted) < 1e-9,
            _which_efficiency(value, wanted, base, step),
        )


def _which_efficiency(value: float, wanted: float, base, step) -> str:
    speedup = step.examples_per_second / base.examples_per_second
    figures = f"You return {value:.3g} here. "
    for other, why in (
        (
            base.seconds / step.seconds,
            "That's the ratio of the times. Did both steps have the same number of "
            "images on each GPU?",
        ),
        (
            speedup,
            "That's the speedup, how many times as many images are processed in a "
            "second.",
        ),
        (
            1 / wanted,
            "That's the inverse: how many times longer it takes than it ideally would.",
        ),
        (
            speedup / step.num_gpus,
            "You compare all the GPUs with the base. How many GPUs does the base have?",
        ),
    ):
        if abs(value - other) < 1e-6 * abs(other):
            return figures + why
    return figures + (
        f"The base processes {base.examples_per_second:,.0f} images a second on "
        f"{base.num_gpus} GPU{'s' * (base.num_gpus > 1)}, the step "
        f"{step.examples_per_second:,.0f} on {step.num_gpus}."
    )


# ------------------------------------------------------------------ 09.2

# What connects the V100s, in the text and in code.
_PCIE = {"name": "PCIe 3", "link": "PCIe3"}
_NVLINK = {"name": "NVLink 2", "link": "NVLink2"}

_SIZES = tuple(2**i for i in range(4, 12))


def _fewest_images(case: dict) -> int:
    enough, net = case["percent"] / 100, _resnet()
    return next(n for n in _SIZES if _efficiency_of_16(net, case, "ring", n) >= enough)


# The answers are 1,024, then 512, 256, 128, 64, 128 and 256.
@EXERCISES.add(
    "09.2",
    returns=int,
    vary={
        "case": one_of(
            _PCIE | {"percent": 95},
            _PCIE | {"percent": 90},
            _PCIE | {"percent": 85},
            _PCIE | {"percent": 75},
            _NVLINK | {"percent": 92},
            _NVLINK | {"percent": 95},
            _NVLINK | {"percent": 97},
        )
    },
    key=_fewest_images,
)
def images_on_each(answer, case: dict):
    enough = case["percent"] / 100
    yield Claim(
        f"it's one of {', '.join(map(str, _SIZES))}",
        answer in _SIZES,
        f"Your answer is {answer}.",
    )
    if answer not in _SIZES:
        return
    net = _resnet()
    reached = _efficiency_of_16(net, case, "ring", answer)
    hint = (
        f"With {answer} images on each of the 16 GPUs, the simulated efficiency is "
        f"{reached:.3f}. "
    )
    if _efficiency_of_16(net, case, "bucketed", answer) >= enough:
        hint += "That's enough images if the exchange is hidden, with buckets."
    else:
        hint += (
            "The exposed part of the exchange takes equally long, however many images "
            "there are."
        )
    yield Claim(
        f"that many images reach an efficiency of {enough}", reached >= enough, hint
    )
    half = _efficiency_of_16(net, case, "ring", answer // 2)
    yield Claim(
        "half as many don't",
        half < enough,
        f"{answer // 2} images already reach {half:.3f} (simulated).",
    )


def _efficiency_of_16(net: nn.Module, case: dict, way: str, images: int) -> float:
    one = _simulate(net, 1, "none", images, case["link"])
    return one.seconds / _simulate(net, 16, way, images, case["link"]).seconds


# ------------------------------------------------------------------ 09.3


def _seconds_by_number(case: dict) -> dict[int, float]:
    """Return the seconds of a step for each number of GPUs that may share the batch."""
    net, batch = _resnet(), case["batch"]
    numbers = [2**i for i in range(batch.bit_length())]
    return {
        n: _simulate(net, n, "ring", batch // n, case["link"]).seconds for n in numbers
    }


def _fastest_number(case: dict) -> int:
    seconds = _seconds_by_number(case)
    return min(seconds, key=seconds.get)


# The answers are 64, then 16, 32, 32 and 128.
@EXERCISES.add(
    "09.3",
    returns=int,
    vary={
        "case": one_of(
            _PCIE | {"batch": 256},
            _PCIE | {"batch": 64},
            _PCIE | {"batch": 128},
            _NVLINK | {"batch": 64},
            _NVLINK | {"batch": 512},
        )
    },
    key=_fastest_number,
)
def best_number(answer, case: dict):
    batch = case["batch"]
    numbers = [2**i for i in range(batch.bit_length())]
    yield Claim(
        f"it's one of {', '.join(map(str, numbers))}",
        answer in numbers,
        f"Your answer is {answer}.",
    )
    if answer not in numbers:
        return
    net = _resnet()
    seconds = _seconds_by_number(case)
    best = min(seconds, key=seconds.get)
    near = answer // 2 if answer > best else answer * 2
    if answer == best:
        hint = ""
    else:
        hint = (
            f"A step takes {_text(seconds[answer])} with {answer} "
            f"GPU{'s' * (answer > 1)}, and {_text(seconds[near])} with {near} "
            "(simulated). "
        )
    if answer > best:
        hint += "What grows with the number of GPUs?"
    elif answer < best:
        around = [n for n in (answer // 2, answer, answer * 2) if n in numbers]
        hidden = {
            n: _simulate(net, n, "bucketed", batch // n, case["link"]).seconds
            for n in around
        }
        if min(hidden, key=hidden.get) == answer:
            hint += "Your number is the best one with buckets."
        else:
            hint += "At what point does each GPU have too few images?"
    yield Claim("no other number takes less time", answer == best, hint)


# ------------------------------------------------------------------ 09.4

_SHORT = 0.016  # seconds of a step
_IMAGES, _GPUS = 64, 8


def _on_pcie(answer: Callable, gpus: Gpus) -> dict:
    """Run a program on eight V100s, and return what its last step did on rank 0."""
    cluster = vgpu.cluster(nodes=1, gpus=_GPUS, model="V100", link="PCIe3")
    run = cluster.run(answer)
    report = run.ranks[0].report()
    return {
        "steps": run.has_steps,
        "seconds": run.seconds,
        "operations": float(sum(use.operations for use in report.devices)),
        "sent": sum(use.nbytes for use in report.links if use.target == "other GPUs"),
        "path": str(run.critical_path()),
    }


def _operations(images: int) -> float:
    """Return the operations of a step of one V100."""
    step = _simulate(_resnet(), 1, "none", images)
    return sum(use.operations for use in step.simulation.report().devices)


@EXERCISES.add("09.4", "")
def train_fast(run: Run):
    found = run(_on_pcie)
    yield Claim(
        "it takes at least two steps",
        found["steps"],
        "The optimizer was called fewer than two times, so there is no step to time.",
    )
    if not found["steps"]:
        return
    done = found["operations"] / _operations(_IMAGES)
    yield Claim(
        f"each GPU trains ResNet-18 with {_IMAGES} images a step",
        abs(done - 1) < 0.01,
        f"A step does {done:.2f} times the operations of ResNet-18 with {_IMAGES} "
        "images. Keep the network and the batch.",
    )
    gradient = sum(p.nbytes for p in _resnet().parameters())
    averaged = found["sent"] / (gradient * 2 * (_GPUS - 1) / _GPUS)
    yield Claim(
        "all gradients are averaged",
        averaged > 0.99,
        f"Only {averaged:.0%} of the gradients' bytes are all-reduced, so the "
        "replicas drift apart.",
    )
    yield Claim(
        "gradients are all-reduced once a step",
        averaged < 1.5,
        f"The GPUs exchange {averaged:.1f} times the gradients' bytes. What has DDP "
        "done by the time `backward` returns?",
    )
    yield Claim(
        f"a step takes at most {_text(_SHORT)} (simulated)",
        found["seconds"] <= _SHORT,
        f"A step takes {_text(found['seconds'])} (simulated). When can the first "
        f"bucket start, and how large is the last one?\n\n{found['path']}",
    )


# ------------------------------------------------------------------ 09.5


def _measured(data: int) -> torch.Tensor:
    torch.manual_seed(data)
    return 0.05 * (1 + 0.15 * torch.randn(200).abs())


# Few times, one of them long, so that it matters whether a time can be drawn twice: by
# 2 to 3%, while the mean of 2,000 drawn steps has a standard error of 0.12%.
_FEW = (0.0515, 0.05, 0.0505, 0.0575, 0.051, 0.0515, 0.052, 0.0505)


def _means(
    answer: Callable, gpus: Gpus, seconds: np.ndarray, counts: Sequence[int]
) -> list[float]:
    means, times = [], torch.tensor(seconds)
    for n in counts:
        torch.manual_seed(n)
        means.append(float(answer(times, n)))
    return means


@EXERCISES.add(
    "09.5", "seconds, n", returns=(float, torch.Tensor), vary={"data": seeds(8)}
)
def mean_step(run: Run, data: int):
    cases = (
        (_measured(data), (2, 16, 1024, 1)),
        (torch.tensor(_FEW), (7, 8, 6, 16)),
    )
    yield from in_all(
        _right_mean(value, seconds, n)
        for seconds, counts in cases
        for value, n in zip(run(_means, seconds.numpy(), counts), counts, strict=True)
    )


def _right_mean(value: float, seconds: torch.Tensor, n: int) -> Iterator[Claim]:
    wanted = _expected_maximum(seconds, n)
    yield Claim(
        "the mean is right to within 1%, for n from 1 to 1,024",
        abs(value - wanted) <= 0.01 * wanted,
        f"For n = {n} and {len(seconds)} measured times, you return "
        f"{value * 1e3:.2f} ms. " + _which_mean(value, wanted, seconds, n),
    )


def _expected_maximum(seconds: torch.Tensor, n: int) -> float:
    """Return the expected maximum of n values drawn with replacement."""
    ordered = seconds.double().sort().values
    below = torch.arange(len(ordered) + 1, dtype=torch.float64) / len(ordered)
    return float(ordered @ (below**n).diff())


def _expected_of_different(seconds: torch.Tensor, n: int) -> float:
    """Return the expected maximum of n values drawn without replacement."""
    m = len(seconds)
    ways = [math.comb(i, n) for i in range(m + 1)]
    chances = [(b - a) / ways[m] for a, b in itertools.pairwise(ways)]
    return sum(map(operator.mul, seconds.double().sort().values.tolist(), chances))


def _which_mean(value: float, wanted: float, seconds: torch.Tensor, n: int) -> str:
    mean, most = float(seconds.mean()), float(seconds.max())
    if n <= len(seconds):
        different = _expected_of_different(seconds, n)
        if abs(value - different) < 0.005 * different:
            return (
                "That's the mean if no measured time is drawn twice in the same step. "
                "Should one device's draw depend on those of the others?"
            )
    for other, why in (
        (mean, "That's the mean of one device, but a step waits for all of them."),
        (
            most,
            f"That's the slowest time ever measured. How often is it among the {n} "
            "times of a step?",
        ),
        (
            n * mean,
            "That's how long a step would take if the devices ran one after the other.",
        ),
        (mean / n, "That would be the time if the devices split up one step."),
    ):
        if abs(value - other) < 0.005 * other:
            return why
    if value > wanted:
        return (
            "That's too long. Take the maximum over the devices in each step first, "
            "and then the mean over the steps."
        )
    if value > mean:
        return f"That's too short. Are there {n} devices in each step?"
    return (
        f"A single device takes {mean * 1e3:.2f} ms on average, and a step can't be "
        "faster than that."
    )
