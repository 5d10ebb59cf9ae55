"""How far it scales: times are simulated, so they are the same on every machine."""

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral, Real

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from d2l_gpu import torch as d2l
from d2l_gpu.exercises.cases import in_all
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run

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


def _pairs() -> list[tuple]:
    """Return pairs of simulated steps, each with its base."""
    with torch.device("meta"):
        net = nn.Sequential(
            nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(10816, 10)
        )
    one, one_large, two, many, fast = (
        _simulate(net, n, way, images, link)
        for n, way, images, link in (
            (1, "none", 64, "PCIe3"),
            (1, "none", 256, "PCIe3"),
            (2, "ring", 64, "PCIe3"),
            (16, "ring", 64, "PCIe3"),
            (4, "ring", 64, "NVLink2"),
        )
    )
    return [(one, many), (one_large, fast), (two, many)]


def _efficiencies(answer: Callable, gpus: Gpus) -> list[float]:
    return [answer(base, step) for base, step in _pairs()]


@EXERCISES.add("09.1", "base, step", returns=(float,))
def efficiency(run: Run):
    cases = (
        "16 GPUs with as many images on each as the base",
        "4 GPUs that share 256 images",
        "16 GPUs with 2 as the base",
    )
    values = run(_efficiencies)
    for what, (base, step), value in zip(cases, _pairs(), values, strict=True):
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

_ENOUGH = 0.95
_SIZES = tuple(2**i for i in range(4, 12))


@EXERCISES.add("09.2", returns=int)
def images_on_each(answer):
    yield Claim(
        f"it's one of {', '.join(map(str, _SIZES))}",
        answer in _SIZES,
        f"Your answer is {answer}.",
    )
    if answer not in _SIZES:
        return
    net = _resnet()
    reached = _efficiency_of_16(net, "ring", answer)
    hint = (
        f"With {answer} images on each of the 16 GPUs, the simulated efficiency is "
        f"{reached:.3f}. "
    )
    if _efficiency_of_16(net, "bucketed", answer) >= _ENOUGH:
        hint += "That's enough images if the exchange is hidden, with buckets."
    else:
        hint += (
            "The exposed part of the exchange takes equally long, however many images "
            "there are."
        )
    yield Claim(
        f"that many images reach an efficiency of {_ENOUGH}", reached >= _ENOUGH, hint
    )
    half = _efficiency_of_16(net, "ring", answer // 2)
    yield Claim(
        "half as many don't",
        half < _ENOUGH,
        f"{answer // 2} images already reach {half:.3f} (simulated).",
    )


def _efficiency_of_16(net: nn.Module, way: str, images: int) -> float:
    one = _simulate(net, 1, "none", images)
    return one.seconds / _simulate(net, 16, way, images).seconds


# ------------------------------------------------------------------ 09.3


@EXERCISES.add("09.3", returns=int)
def best_number(answer):
    batch = 256
    numbers = [2**i for i in range(9)]
    yield Claim(
        f"it's one of {', '.join(map(str, numbers))}",
        answer in numbers,
        f"Your answer is {answer}.",
    )
    if answer not in numbers:
        return
    net = _resnet()
    seconds = {n: _simulate(net, n, "ring", batch // n).seconds for n in numbers}
    best = min(seconds, key=seconds.get)
    hint = (
        f"With {answer} GPU{'s' * (answer > 1)}, a step takes "
        f"{_text(seconds[answer])} (simulated); "
    )
    if answer > best:
        hint += f"with {answer // 2}, {_text(seconds[answer // 2])}. "
        hint += "What grows with the number of GPUs?"
    elif answer < best:
        hint += f"with {answer * 2}, {_text(seconds[answer * 2])}. "
        around = [n for n in (answer // 2, answer, answer * 2) if n in numbers]
        hidden = {n: _simulate(net, n, "bucketed", batch // n).seconds for n in around}
        if min(hidden, key=hidden.get) == answer:
            hint += "Your number is the best one with buckets."
        else:
            hint += "At what point does each GPU have too few images?"
    yield Claim("no other number takes less time", answer == best, hint)


# ------------------------------------------------------------------ 09.4


_K, _PARTS, _EACH = 2, 4, 128


def _accumulating() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return a network, and all examples of all devices."""
    torch.manual_seed(8)
    net = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 3)).double()
    X = torch.randn(_K * _PARTS * _EACH, 20, dtype=torch.float64)
    return net, X, torch.arange(len(X)) % 3


def _dealt(devices: Sequence[torch.device]) -> tuple[list[nn.Module], list[list]]:
    """Return replicas on the devices, and small batches for each."""
    net, X, y = _accumulating()
    batches = [
        list(zip(inputs.split(_EACH), labels.split(_EACH), strict=True))
        for inputs, labels in zip(*d2l.split_batch(X, y, devices), strict=True)
    ]
    return d2l.replicate(net, devices), batches


def _accumulated(answer: Callable, gpus: Gpus) -> dict:
    devices = list(gpus[:_K])
    replicas, batches = _dealt(devices)
    before = []
    for device in devices:
        torch.vgpu.reset_peak_memory_stats(device)
        before.append(torch.vgpu.memory_allocated(device))
    with d2l.transfers() as log:
        answer(list(replicas), F.cross_entropy, [list(own) for own in batches])
    peaks = [
        torch.vgpu.max_memory_allocated(device) - start
        for device, start in zip(devices, before, strict=True)
    ]
    without = [
        i for i, own in enumerate(replicas) for p in own.parameters() if p.grad is None
    ]
    return {
        "without": without,
        "gradients": []
        if without
        else [_flat_gradient(own).numpy() for own in replicas],
        "copies": gpus.copies(log),
        "peaks": peaks,
    }


@EXERCISES.add("09.4", "replicas, loss, batches")
def accumulate(run: Run):
    k, parts, n = _K, _PARTS, _EACH
    net, X, y = _accumulating()
    found = run(_accumulated)
    without = found["without"]
    yield Claim(
        "each replica has gradients",
        not without,
        f"Replica {without[0]} has parameters without a gradient." if without else "",
    )
    if without:
        return
    gradients = [torch.tensor(gradient) for gradient in found["gradients"]]
    wanted = _gradient(net, X, y)
    shares = [
        _gradient(net, *part)
        for part in zip(X.chunk(k), y.chunk(k), strict=True)  # of each replica
    ]
    yield Claim(
        "both replicas have the same gradients",
        torch.allclose(*gradients, atol=1e-9),
        "Their gradients differ, so the next step would let the replicas drift apart. "
        + _why_different(gradients, wanted, shares),
    )
    ends = [i * parts * n for i in range(1, k + 1)]
    last = sum(_gradient(net, X[end - n : end], y[end - n : end]) for end in ends)
    yield Claim(
        "they're the gradient of the mean loss over all examples",
        all(torch.allclose(each, wanted, atol=1e-9) for each in gradients),
        _which_gradient(
            next(
                (g for g in gradients if not torch.allclose(g, wanted, atol=1e-9)),
                wanted,
            ),
            wanted,
            last,
            k,
            parts,
        ),
    )
    nbytes = sum(p.nbytes for p in net.parameters())
    crossed = sum(size for size, *_ in found["copies"])
    yield Claim(
        "gradients are exchanged only once",
        crossed <= 2 * (k - 1) * nbytes,
        f"{crossed:,} bytes crossed. The gradient has {nbytes:,} bytes, and has to "
        "cross to one GPU and back. How often did it cross?",
    )
    replicas, batches = _dealt([d2l.gpu(i) for i in range(k)])
    small = _memory_of(replicas[1], *batches[1][0])
    large = _memory_of(replicas[1], *map(torch.cat, zip(*batches[1], strict=True)))
    most = small + (large - small) / 3
    above = [i for i, peak in enumerate(found["peaks"]) if peak > most]
    named = " and ".join(f"GPU {i}" for i in above)
    yield Claim(
        "it needs memory for one small batch, not for all of them",
        not above,
        f"At its peak, the memory in use reaches {max(found['peaks']):,} bytes, on "
        f"{named}; forward and backward take {small:,} with one small batch and "
        f"{large:,} with all "
        f"{parts} at once. What keeps a batch's activations in memory, and until when?",
    )


def _gradient(net: nn.Module, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    F.cross_entropy(net(X), y).backward()
    gradient = _flat_gradient(net)
    net.zero_grad()
    return gradient


def _memory_of(net: nn.Module, X: torch.Tensor, y: torch.Tensor) -> int:
    """Return the peak memory of a forward and backward pass in bytes, including
    gradients, on the device of X."""
    torch.vgpu.reset_peak_memory_stats(X.device)
    before = torch.vgpu.memory_allocated(X.device)
    F.cross_entropy(net(X), y).backward()
    net.zero_grad()
    return torch.vgpu.max_memory_allocated(X.device) - before


def _flat_gradient(net: nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.cpu().flatten() for p in net.parameters()])


def _times(its: torch.Tensor, other: torch.Tensor) -> float | None:
    """Return the factor by which a vector is a multiple of another; None if it isn't
    one."""
    factor = float(its @ other / (other @ other))
    return factor if torch.allclose(its, factor * other, atol=1e-9) else None


def _why_different(
    gradients: Sequence[torch.Tensor], wanted: torch.Tensor, shares
) -> str:
    """Return a hint on gradients that differ.

    Args:
        gradients: what each replica has.
        wanted: the right gradient.
        shares: that of each replica's own examples alone.
    """
    whole = [_times(each, wanted) for each in gradients]
    if None not in whole:
        figures = " and ".join(f"{factor:.3g}" for factor in whole)
        return (
            "Both are multiples of the right gradient, but they have "
            f"{figures} times its length. What did you do to only one of them?"
        )
    own = [
        i
        for i, (each, share) in enumerate(zip(gradients, shares, strict=True))
        if _times(each, share) is not None
    ]
    if len(own) == len(gradients):
        return (
            "Each has the gradient of its own examples. What still has to be added up?"
        )
    reached = [i for i, factor in enumerate(whole) if factor is not None]
    if own and reached:
        return (
            f"The sum over all examples reached replica {reached[0]}, but replica "
            f"{own[0]} has only that of its own examples."
        )
    wrong = [i for i, factor in enumerate(whole) if factor is None]
    return (
        f"In replica{'s' * (len(wrong) > 1)} {' and '.join(map(str, wrong))}, some "
        "examples count more often than others."
    )


def _which_gradient(its, wanted, last, k: int, parts: int) -> str:
    factor = _times(its, wanted)
    if factor is not None and factor > 1:
        return (
            f"The gradient has the right direction but is {factor:.3g} times too long. "
            f"Each of the {k} GPUs has {parts} small batches: how many means did you "
            "add?"
        )
    if factor is not None:
        return (
            f"The gradient has the right direction but only {factor:.3g} of the "
            "length. What do you divide by, and how often?"
        )
    if _times(its, last) is not None:
        return (
            "You used only the last small batches. What happened to the gradients of "
            "the earlier ones?"
        )
    return (
        "The gradient has the wrong direction: some small batches count more often "
        "than others. Do you add to a sum that has already been exchanged?"
    )


# ------------------------------------------------------------------ 09.5


def _handed_out(
    answer: Callable, gpus: Gpus, cases: Sequence[tuple[int, list[float]]]
) -> list[list]:
    """Return the shares in each case; a text for what isn't a number."""
    return [
        [x if isinstance(x, Real) else repr(x) for x in answer(n, list(times))]
        for n, times in cases
    ]


@EXERCISES.add("09.5", "n, seconds", returns=(list, tuple))
def share(run: Run):
    sim = d2l.simulator(3, ["V100", "V100", "T4"], "PCIe3", backing="meta")
    replicas = [d2l.resnet18(10).to(device) for device in sim.gpus()]
    seconds = _computing(sim, replicas, [64] * 3)
    cases = (256, seconds), (101, [3.0, 1.0, 2.0, 1.0]), (10, [1.0] * 8)
    found = run(_handed_out, cases)
    yield from in_all(
        _shared(shares, sim, replicas, n, times)
        for shares, (n, times) in zip(found, cases, strict=True)
    )


def _shared(
    shares: list, sim, replicas: Sequence[nn.Module], n: int, times: list[float]
) -> Iterator[Claim]:
    whole = all(isinstance(x, Integral) and x >= 0 for x in shares)
    whole &= len(shares) == len(times)
    yield Claim(
        "there's a whole number for each device, and none is negative",
        whole,
        f"For {len(times)} devices you return {shares}.",
    )
    if not whole:
        return
    yield Claim(
        "all images are handed out, each once",
        sum(shares) == n,
        f"{' + '.join(map(str, shares))} makes {sum(shares)} images, not {n}.",
    )
    total = sum(1 / t for t in times)
    ideal = [n / t / total for t in times]
    right = all(abs(a - b) <= 1 for a, b in zip(shares, ideal, strict=True))
    yield Claim(
        "all devices finish at the same time, give or take one image",
        right,
        "" if right else _who_waits(sim, replicas, shares, times, ideal),
    )


def _computing(sim, replicas: Sequence[nn.Module], shares: Sequence[int]) -> list:
    """Return the simulated seconds that each device takes for its share of a batch."""
    sim.reset()
    for device, net, n in zip(sim.gpus(), replicas, shares, strict=True):
        if n:
            X = torch.zeros(n, 1, 28, 28, device=device)
            y = torch.zeros(n, dtype=torch.long, device=device)
            F.cross_entropy(net(X), y).backward()
    return [device.busy for device in sim.report().devices]


def _who_waits(sim, replicas, shares, times, ideal) -> str:
    if len(shares) == len(replicas):
        busy = _computing(sim, replicas, shares)
        figures = (
            f"With {' + '.join(map(str, shares))} images, the devices compute for "
            f"{', '.join(map(_text, busy))} (simulated). "
        )
    else:
        busy = [n * t for n, t in zip(shares, times, strict=True)]
        figures = (
            f"With {' + '.join(map(str, shares))} images at {times} s each, the "
            f"devices compute for {', '.join(f'{x:g}' for x in busy)} s. "
        )
    if len(set(shares)) == 1 or max(shares) - min(shares) <= 1:
        return figures + "Every device has equally many, so the fast ones wait."
    ratio = [n / t for n, t in zip(shares, times, strict=True)]
    if max(ratio) - min(ratio) <= 0.1 * max(ratio):
        return figures + (
            "The slowest device has the most images. Does a large time mean a high "
            "speed?"
        )
    off = [i for i, n in enumerate(shares) if abs(n - ideal[i]) > 1]
    if len(off) == 1:
        return figures + (
            f"Only GPU {off[0]} is off: {shares[off[0]]} images, where its share is "
            f"{ideal[off[0]]:.4g}. Who gets what is left after rounding?"
        )
    slowest, done = busy.index(max(busy)), busy.index(min(busy))
    return figures + f"GPU {done} waits for GPU {slowest}."


# ------------------------------------------------------------------ 09.6


def _measured() -> torch.Tensor:
    torch.manual_seed(8)
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


@EXERCISES.add("09.6", "seconds, n", returns=(float, torch.Tensor))
def mean_step(run: Run):
    cases = (
        (_measured(), (2, 16, 1024, 1)),
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
