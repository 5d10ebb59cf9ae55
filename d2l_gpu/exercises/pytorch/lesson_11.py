"""Precision: what formats keep, loss scaling, and master weights."""

import functools
import math
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from d2l_gpu import torch as d2l
from d2l_gpu import vgpu
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run
from d2l_gpu.exercises.variants.draw import Vary, one_of, seeds

EXERCISES = Registry()

# ------------------------------------------------------------------ what survives

_FORMATS = {"fp16": torch.float16, "bf16": torch.bfloat16}
_CASES = (("fp16", 1.0), ("fp16", 2.0**16), ("fp16", 2.0**30), ("bf16", 1.0))


def _gradients(data: int) -> torch.Tensor:
    """Return gradients from 2⁻⁴⁰ to 1 with both signs, and a tenth of them zeros."""
    generator = torch.Generator().manual_seed(data)
    numbers = torch.randn(2000, generator=generator).sign()
    numbers *= 2 ** (-40 * torch.rand(2000, generator=generator))
    numbers[::10] = 0
    return numbers


def _survived(answer: Callable, gpus: Gpus, data: int) -> list[float]:
    gradients = _gradients(data).to(gpus[0])
    return [float(answer(gradients, _FORMATS[name], scale)) for name, scale in _CASES]


def _share(data: int, name: str, scale: float, what: str = "right") -> float:
    """Return the share that survives, or what a mistake makes of it."""
    gradients, dtype = _gradients(data), _FORMATS[name]
    counted = gradients if what == "zeros" else gradients[gradients != 0]
    if what == "late":
        rounded = counted.to(dtype) * scale
    else:
        rounded = (counted * scale).to(dtype)
    kept = rounded != 0
    if what != "infinite":
        kept &= rounded.isfinite()
    return float(kept.double().mean())


_MISTAKES = {
    "zeros": "Gradients that were zero from the start aren't lost: leave them out of "
    "the total too.",
    "infinite": "With a large scale, some gradients become infinite, and you count "
    "them as survivors.",
    "late": "You scale numbers that have already been rounded, so what underflowed "
    "stays zero.",
}


@EXERCISES.add("11.1", "gradients, dtype, scale", returns=float, vary={"data": seeds()})
def survivors(run: Run, data: int):
    found = run(_survived, data)
    right = [_share(data, *case) for case in _CASES]
    told = ""
    if np.allclose(found, [1 - share for share in right], atol=1e-3):
        told = "That's the share of the gradients that are lost."
    elif np.allclose(found, [100 * share for share in right], atol=1e-1):
        told = "A share is between 0 and 1, not a percentage."
    for what, hint in _MISTAKES.items():
        wrong = [_share(data, *case, what) for case in _CASES]
        if np.allclose(found, wrong, atol=1e-3):
            told = hint
    for (name, scale), mine, true in zip(_CASES, found, right, strict=True):
        yield Claim(
            f"it's right in {name} with the scale 2**{math.log2(scale):.0f}",
            math.isclose(mine, true, abs_tol=1e-3),
            told or f"It should be {true:.3f}, but you return {mine:.3f}.",
        )


# ------------------------------------------------------------------ eight bits


def _matrix(data: int) -> torch.Tensor:
    """Return rows of very different sizes: one of zeros, one with a negative peak."""
    generator = torch.Generator().manual_seed(data)
    X = torch.randn(6, 64, generator=generator)
    X *= torch.tensor([1e-6, 1e-3, 1.0, 1e3, 1e6, 0.0])[:, None]
    X[2, 0] = -7.0
    return X


def _quantized(answer: Callable, gpus: Gpus, data: int) -> dict:
    pair = answer(_matrix(data).to(gpus[0]))
    if len(pair) != 2 or not all(isinstance(x, torch.Tensor) for x in pair):
        return {"pair": False}
    Q, factors = (x.cpu() for x in pair)
    return {
        "pair": True,
        "types": [str(x.dtype).removeprefix("torch.") for x in (Q, factors)],
        "shapes": [list(Q.shape), list(factors.shape)],
        "Q": Q.float().numpy(),
        "factors": factors.float().numpy(),
    }


@EXERCISES.add(
    "11.2",
    "X",
    returns=(tuple, list),
    vary={"data": seeds(1), "most": one_of(448, 224, 240, 320, 384)},
)
def quantize(run: Run, data: int, most: int):
    found, X = run(_quantized, data), _matrix(data).numpy()
    yield Claim(
        "it returns two tensors",
        found["pair"],
        "Return the rounded matrix and the factors.",
    )
    if not found["pair"]:
        return
    yield Claim(
        "the matrix is float8_e4m3fn, the factors are float32",
        found["types"] == ["float8_e4m3fn", "float32"],
        f"They're {found['types'][0]} and {found['types'][1]}.",
    )
    shape = found["shapes"][1]
    yield Claim(
        "there's one factor for each row",
        found["shapes"] == [[6, 64], [6, 1]],
        f"For a matrix of 6 rows, the factors have the shape {tuple(shape)}.",
    )
    if found["shapes"] != [[6, 64], [6, 1]]:
        return
    Q, factors = found["Q"], found["factors"]
    yield Claim(
        "a row of zeros stays a row of zeros",
        bool((Q[5] == 0).all() and np.isfinite(factors[5]).all()),
        "In the row of zeros, you divide zero by zero.",
    )
    restored = Q[:5].astype(np.float64) * factors[:5]
    error = float(np.linalg.norm((restored - X[:5]) / _sizes(X[:5])))
    close = error < 0.05 * np.linalg.norm(X[:5] / _sizes(X[:5]))
    hint = _far(Q, factors, X, most)
    yield Claim("`Q.float() * factors` is close to `X`", close, hint)
    if not close:
        return
    peaks = np.abs(Q[:5]).max(axis=1)
    yield Claim(
        f"the largest number of each row becomes {most}",
        bool((peaks == most).all()),
        f"In one row, the largest number becomes {peaks[peaks != most][:1].sum():g}.",
    )


def _sizes(X: np.ndarray) -> np.ndarray:
    return np.abs(X).max(axis=1, keepdims=True)


def _far(Q: np.ndarray, factors: np.ndarray, X: np.ndarray, most: int) -> str:
    with np.errstate(divide="ignore"):
        upside_down = Q[:5] / factors[:5]
    if np.allclose(upside_down, X[:5], rtol=0.1, atol=1e-2 * _sizes(X[:5])):
        return "They're upside down: `Q.float() / factors` would be close."
    if np.allclose(factors, factors[0]):
        return "All rows have the same factor, so small rows become zero."
    high = most * 400 / 448
    if (Q[2] > high).sum() + (Q[2] < -high).sum() > 1 or not np.isfinite(Q).all():
        return (
            "A row whose largest number is negative overflows: how large is -7 "
            "without its sign?"
        )
    return "The error is more than 5% of the matrix, row by row."


# ------------------------------------------------------------------ clipping

_RATE, _NORM = 0.5, 0.1


def _clipping(
    step: Callable, data: int, scale: float, steps: int, max_norm: float = _NORM
) -> dict:
    """Return the parameters and the scale after a few steps."""
    device = d2l.simulator(1).gpu()
    torch.manual_seed(data)
    net = nn.Linear(8, 4)
    X, y = torch.randn(32, 8), 3 * torch.randn(32, 4)
    net, X, y = net.to(device), X.to(device), y.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=_RATE)
    scaler = torch.amp.GradScaler("vgpu", init_scale=scale, growth_interval=2)
    for _ in range(steps):
        step(net, X, y, optimizer, scaler, max_norm)
    values = torch.cat([p.detach().cpu().flatten() for p in net.parameters()])
    return {"values": values.numpy(), "scale": scaler.get_scale()}


def _clipped(answer: Callable, gpus: Gpus, data: int, *case: float) -> dict:
    return _clipping(answer, data, *case)


def _step(net, X, y, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    with torch.autocast(X.device.type, torch.float16):
        loss = F.mse_loss(net(X), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()


@EXERCISES.add(
    "11.3",
    "net, X, y, optimizer, scaler, max_norm",
    changes="net, optimizer, scaler",
    vary={"data": seeds()},
)
def step(run: Run, data: int):
    begin = _clipping(_step, data, 1024.0, 0)["values"]
    one = run(_clipped, data, 1024.0, 1)["values"]
    right = _clipping(_step, data, 1024.0, 1)
    moved = [float(np.linalg.norm(x - begin)) for x in (one, right["values"])]
    yield Claim(
        "a step moves the parameters as far as it should",
        math.isclose(*moved, rel_tol=0.02),
        _wrong_move(*moved),
    )
    if not math.isclose(*moved, rel_tol=0.02):
        return
    yield Claim(
        "it moves them in the direction of the gradient",
        np.allclose(one, right["values"], atol=1e-3),
        "The step has the right length but the wrong direction.",
    )
    short = (data, 1024.0, 1, 100.0)
    found, right = run(_clipped, *short), _clipping(_step, *short)
    moved = [float(np.linalg.norm(x["values"] - begin)) for x in (found, right)]
    yield Claim(
        "gradients that are short enough keep their length",
        math.isclose(*moved, rel_tol=0.02),
        f"With a gradient much shorter than `max_norm`, the parameters move "
        f"{moved[0] / moved[1]:.3g} times as far as they should.",
    )
    if not math.isclose(*moved, rel_tol=0.02):
        return
    found, right = run(_clipped, data, 1024.0, 4), _clipping(_step, data, 1024.0, 4)
    yield Claim(
        "after good steps, the scale grows",
        found["scale"] == right["scale"],
        f"After four good steps with `growth_interval=2`, the scale is still "
        f"{found['scale']:,.0f}."
        if found["scale"] == 1024
        else f"After four good steps with `growth_interval=2`, the scale is "
        f"{found['scale']:,.0f} and not {right['scale']:,.0f}.",
    )
    yield Claim(
        "four steps lead where they should",
        np.allclose(found["values"], right["values"], atol=1e-3),
        "The first step is right, the later ones aren't. What's left of a step when "
        "the next one begins?",
    )
    found = run(_clipped, data, 2.0**60, 3)
    unmoved = np.array_equal(found["values"], begin)
    yield Claim(
        "a step that overflows is skipped",
        unmoved,
        "With a scale that's far too large, the parameters change, although the "
        "gradients aren't finite.",
    )
    yield Claim(
        "each overflow halves the scale",
        found["scale"] == 2.0**57,
        f"After three overflows, the scale is 2**{math.log2(found['scale']):.0f} "
        "instead of 2**57.",
    )


def _wrong_move(moved: float, right: float) -> str:
    if moved == 0:
        return "The parameters don't move at all."
    if not math.isfinite(moved):
        return "After a single step, the parameters aren't finite."
    if math.isclose(moved * 1024, right, rel_tol=0.05):
        return (
            "They move 1,024 times too little, and 1,024 is the scale. What does the "
            "norm measure when you clip?"
        )
    if moved > 100 * right:
        return (
            f"They move {moved / right:,.0f} times too far: the optimizer gets "
            "gradients that are still scaled."
        )
    if moved > right:
        return f"They move {moved / right:.0f} times too far: nothing was clipped."
    return f"They move {moved / right:.3f} times as far as they should."


# ------------------------------------------------------------------ a slow loop

_STEPS = 4


def _training(net, X, y, steps, rate: float, cast: bool = True, clip: bool = True):
    device = X.device.type
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    scaler = torch.amp.GradScaler(device, init_scale=1024.0)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast(device, torch.float16, enabled=cast):
            loss = F.mse_loss(net(X), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        for p in net.parameters():
            if clip:
                p.grad /= p.grad.norm().clamp(min=1)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def _small(train: Callable) -> dict:
    """Train a small network, with values."""
    sim = d2l.simulator(1, "V100")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
    X, y = torch.randn(64, 16), 40 * torch.randn(64, 8)
    net, X, y = net.to(sim.gpu()), X.to(sim.gpu()), y.to(sim.gpu())
    sim.reset()
    losses = train(net, X, y, _STEPS)
    waits = sum(span.lane == "wait" for span in sim.spans()) / _STEPS
    return {
        "values": [float(x) for x in losses],
        "types": sorted({type(x).__name__ for x in losses}),
        "waits": waits,
        "parameters": torch.cat(
            [p.detach().cpu().flatten() for p in net.parameters()]
        ).numpy(),
    }


def _large(train: Callable) -> dict:
    """Time the training of a large network, without values."""

    def program():
        warnings.simplefilter("ignore")  # there are no values
        net = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(24)))
        X, y = torch.zeros(2, 4096, 1024, device="vgpu")
        train(net.to("vgpu"), X, y, _STEPS)

    run = vgpu.cluster(nodes=1, gpus=1, model="V100").run(program)
    return {"took": run.seconds}


def _slow(answer: Callable, gpus: Gpus) -> dict:
    return _small(answer) | _large(answer)


@EXERCISES.add(
    "11.4",
    "net, X, y, steps",
    returns=list,
    changes="net",
    vary={"rate": one_of(0.1, 0.2, 0.3, 0.4)},
)
def fast_training(run: Run, rate: float):
    training = functools.partial(_training, rate=rate)
    found, right = run(_slow), _small(training) | _large(training)
    number = len(found["values"])
    yield Claim(
        "it returns one loss for each step",
        number == _STEPS,
        f"You return {number} for {_STEPS} steps.",
    )
    if number != _STEPS:
        return
    yield Claim(
        "the losses are Python numbers",
        found["types"] == ["float"],
        f"One is a {found['types'][0]}. Fetch their values at the end.",
    )
    same = np.allclose(found["values"], right["values"], rtol=0.02)
    unclipped = _small(functools.partial(training, clip=False))
    yield Claim(
        "the losses are those of `slow_training`",
        same,
        "They're those of training without the clipping."
        if np.allclose(found["values"], unclipped["values"], rtol=0.02)
        else f"The last one should be {right['values'][-1]:.3f}, but yours is "
        f"{found['values'][-1]:.3f}.",
    )
    if not same:
        return
    yield Claim(
        "the parameters end up as after `slow_training`",
        np.allclose(found["parameters"], right["parameters"], atol=0.02),
        "The losses are right, but the parameters aren't those after the last step.",
    )
    yield Claim(
        "Python doesn't wait for each parameter",
        found["waits"] < 4,
        f"Python waits {found['waits']:.0f} times per step. Which values does it "
        "fetch, and could the GPU use them instead?",
    )
    plain = _large(functools.partial(training, cast=False))["took"]
    took, best = found["took"], right["took"]
    yield Claim(
        "it takes no longer than necessary",
        took < 1.2 * best,
        "It takes as long as in fp32: the products don't run on tensor cores. Which "
        "part of the step does autocast see?"
        if took > 0.9 * plain
        else f"It takes {took / best:.1f} times as long as it has to (simulated). "
        "Which casts or operations could be left out?",
    )


# ------------------------------------------------------------------ master weights

_UPDATES = 40


def _bf16_network(data: int) -> nn.Module:
    torch.manual_seed(data)
    return nn.Linear(16, 8).bfloat16()


def _gradient(p: torch.Tensor, i: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(i)
    numbers = 0.02 * (1 + torch.rand(p.shape, generator=generator))
    return numbers.bfloat16()


def _masters(step: Callable, device, data: int, rate: float) -> dict:
    """Return masters and parameters after many small updates."""
    net = _bf16_network(data).to(device)
    masters = [p.detach().float() for p in net.parameters()]
    tensors = list(masters)
    for i in range(_UPDATES):
        for p in net.parameters():
            p.grad = _gradient(p, data + i).to(device, p.dtype)
        step(net, tensors, rate)
    return {
        "masters": _flat(masters),
        "values": _flat(net.parameters()),
        "types": sorted({str(p.dtype) for p in net.parameters()}),
        "replaced": any(a is not b for a, b in zip(masters, tensors, strict=True)),
    }


def _flat(tensors) -> np.ndarray:
    return torch.cat([x.detach().float().cpu().flatten() for x in tensors]).numpy()


def _mastered(answer: Callable, gpus: Gpus, *case: float) -> dict:
    return _masters(answer, gpus[0], *case)


@torch.no_grad()
def _master_step(net, masters, lr):
    for p, master in zip(net.parameters(), masters, strict=True):
        master -= lr * p.grad.float()
        p.copy_(master)


@EXERCISES.add(
    "11.5",
    "net, masters, lr",
    changes="net, masters",
    vary={
        "data": seeds(),
        "rate": Vary(0.003, lambda draw: draw.number(0.0025, 0.0035)),
    },
)
def master_step(run: Run, data: int, rate: float):
    case = data, rate
    found, right = run(_mastered, *case), _masters(_master_step, "cpu", *case)
    begin = _masters(lambda *_: None, "cpu", *case)["masters"]
    yield Claim(
        "the parameters stay bf16",
        found["types"] == ["torch.bfloat16"],
        f"They're {found['types'][0]} now.",
    )
    yield Claim(
        "the masters are changed in place",
        not found["replaced"],
        "You put new tensors into the list; others may still hold the old ones.",
    )
    if found["replaced"]:
        return
    close = np.allclose(found["masters"], right["masters"], atol=2e-6, rtol=0)
    yield Claim(
        f"after {_UPDATES} steps, the masters are where SGD in fp32 would be",
        close,
        _wrong_masters(found["masters"], right["masters"], begin),
    )
    if not close:
        return
    yield Claim(
        "the parameters are the masters, rounded",
        np.array_equal(found["values"], right["values"]),
        "The parameters are still what they were at first."
        if np.array_equal(found["values"], begin)
        else "The masters are right, but the parameters aren't the same numbers "
        "rounded to bf16. Do they go their own way?",
    )


def _wrong_masters(found: np.ndarray, right: np.ndarray, begin: np.ndarray) -> str:
    moved, wanted = (float(np.mean(x - begin)) for x in (found, right))
    if np.array_equal(found, begin):
        return "The masters don't change."
    if moved * wanted < 0:
        return "The masters move the wrong way: the loss would grow."
    if math.isclose(moved, wanted, rel_tol=0.01):
        return (
            f"They're off by up to {np.abs(found - right).max():.0e}: something is "
            "rounded to bf16 before it reaches the masters."
        )
    if abs(moved) < abs(wanted):
        return (
            f"On average they've moved by {moved:.4f} instead of {wanted:.4f}: many "
            "updates were rounded away."
        )
    return f"On average they've moved by {moved:.4f} instead of {wanted:.4f}."
