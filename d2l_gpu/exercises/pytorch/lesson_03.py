"""Copying between devices, checked with the log of copies and of waiting."""

import math
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from d2l_gpu import torch as d2l
from d2l_gpu.exercises.gpus import HOST, Gpus
from d2l_gpu.exercises.pytorch.port import PORT
from d2l_gpu.exercises.registry import Claim, Run
from d2l_gpu.exercises.shared import lesson_03 as common

EXERCISES = common.exercises(PORT, leave_out=["03.3"])


# ------------------------------------------------------------------ a decision

_MOST = 2.0
_SHAPES = (3,), (2, 5), (4, 1, 2)


@contextmanager
def _waiting() -> Iterator[list[str]]:
    """Collect a sentence for each time that Python waits for a GPU."""
    sentences: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.vgpu.set_sync_debug_mode("warn")
        try:
            yield sentences
        finally:
            torch.vgpu.set_sync_debug_mode("default")
            sentences += [str(each.message) for each in caught]


def _gradients(norm: float, seed: int) -> list[np.ndarray]:
    """Return gradients of all shapes, which have a norm together."""
    values = np.random.default_rng(seed).normal(size=sum(map(math.prod, _SHAPES)))
    values = (values * (norm / np.linalg.norm(values))).astype(np.float32)
    ends = np.cumsum([math.prod(shape) for shape in _SHAPES])[:-1]
    parts = np.split(values, ends)
    return [x.reshape(shape) for x, shape in zip(parts, _SHAPES, strict=True)]


def _norm(arrays: Sequence[np.ndarray]) -> float:
    return float(np.linalg.norm(np.concatenate([x.ravel() for x in arrays])))


def _clipped(answer: Callable, gpus: Gpus, norm: float, seed: int) -> dict:
    """Have gradients of a norm clipped; return what they are then, and what it took."""
    grads = [torch.from_numpy(x).to(gpus[0]) for x in _gradients(norm, seed)]
    given = list(grads)
    with d2l.transfers() as log, _waiting() as waits:
        result = answer(grads, _MOST)
    return {
        "grads": [x.detach().cpu().numpy() for x in given],
        "norm": result.detach().cpu().numpy(),
        "where": gpus.where(result),
        "copies": gpus.copies(log),
        "waits": len(waits),
    }


@EXERCISES.add("03.3", "grads, max_norm", returns=torch.Tensor, changes="grads")
def clip(run: Run):
    seed = random.randrange(1000)
    norms = random.uniform(4, 9), random.uniform(0.5, 1.5), 0.0
    large, small, zero = found = [run(_clipped, norm, seed) for norm in norms]
    before = _gradients(norms[0], seed)
    wanted = [x * (_MOST / norms[0]) for x in before]
    now = _norm(large["grads"])
    if _all_close(large["grads"], before):
        hint = "The gradients are as they were. They have to be changed in place."
    elif max(map(_norm, ([x] for x in large["grads"]))) > 0.99 * _MOST:
        hint = (
            "You clipped each gradient separately. `max_norm` is for the norm of all "
            f"of them together, which is {now:.3g} now."
        )
    else:
        hint = f"Together they have a norm of {now:.3g} now."
    yield Claim(
        "gradients whose norm is too large are scaled to `max_norm`",
        _all_close(large["grads"], wanted),
        hint,
    )
    kept = all(map(np.array_equal, small["grads"], _gradients(norms[1], seed)))
    yield Claim(
        "gradients whose norm is small enough keep their values",
        kept,
        f"With a norm of {norms[1]:.3g} and a `max_norm` of {_MOST}, they have a norm "
        f"of {_norm(small['grads']):.3g} afterwards.",
    )
    yield Claim(
        "gradients that are all zero stay zero",
        not any(np.any(x) for x in zero["grads"]),
        "They became `nan`. What's 0 divided by 0?"
        if any(np.isnan(x).any() for x in zero["grads"])
        else "They aren't zero afterwards.",
    )
    returned = [float(np.ravel(each["norm"])[0]) for each in found]
    yield Claim(
        "it returns the norm that the gradients had, on their device",
        np.allclose(returned, norms, rtol=1e-4, atol=1e-6)
        and {each["where"] for each in found} == {"GPU 0"},
        f"For gradients with a norm of {norms[0]:.4g} you returned {returned[0]:.4g}, "
        f"on {large['where']}.",
    )
    copies = large["copies"] or small["copies"]
    yield Claim("nothing is copied", not copies, _of_what(copies))
    yield Claim(
        "Python never waits for the GPU",
        not large["waits"] and not small["waits"],
        "Nothing was copied, but Python waited for the GPU to find out how many "
        "elements a mask selects.",
    )


def _all_close(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> bool:
    return all(
        np.allclose(*pair, rtol=1e-4) for pair in zip(found, wanted, strict=True)
    )


def _of_what(copies: Sequence[tuple[int, str, str]]) -> str:
    if not copies:
        return ""
    nbytes, _, target = copies[0]
    if target != HOST:
        return f"{nbytes} bytes were copied to {target}. Who needs them there?"
    if nbytes == 1:
        return (
            "One byte was copied to the host: a truth value, which Python needed in "
            "order to choose what to do."
        )
    return f"{nbytes} bytes were copied to the host. Who needs them there?"


# ------------------------------------------------------------------ a slow script

_BATCH, _WEIGHTS = 64, [1.0] * 5 + [2.0] * 5
_STEPS = 3, 9
_MOST_COPIES = 3


def _digits(seed: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return a small network, and images and labels for it, all on the CPU."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 10))
    n = _BATCH * max(_STEPS)
    return net, torch.rand(n, 1, 4, 4), torch.randint(10, (n,))


def _fitted(answer: Callable, gpus: Gpus, seed: int, steps: int) -> dict:
    """Train with the answer; return what it returned, the parameters, the copies."""
    net, images, labels = _digits(seed)
    net, images, labels = net.to(gpus[0]), images.to(gpus[0]), labels.to(gpus[0])
    with d2l.transfers() as log:
        history, best = answer(net, images, labels, steps)
    return {
        "numbers": all(isinstance(x, float) for x in history),
        "history": [float(x) for x in history],
        "best": float(best),
        "best is a number": isinstance(best, float),
        "parameters": [p.detach().cpu().numpy() for p in net.parameters()],
        "copies": gpus.copies(log),
    }


def _reference(seed: int, steps: int, weighted: bool = True) -> tuple[list, list]:
    """Return the losses of all steps, and the parameters after them."""
    net, images, labels = _digits(seed)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    weight = torch.tensor(_WEIGHTS) if weighted else None
    losses = []
    for X, y in list(zip(images.split(_BATCH), labels.split(_BATCH), strict=True))[
        :steps
    ]:
        loss = F.cross_entropy(net(X), y, weight=weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().numpy() for p in net.parameters()]


@EXERCISES.add(
    "03.5", "net, images, labels, steps", returns=(tuple, list), changes="net"
)
def fit(run: Run):
    seed = random.randrange(1000)
    few, many = (run(_fitted, seed, steps) for steps in _STEPS)
    steps, (losses, parameters) = _STEPS[1], _reference(seed, _STEPS[1])
    history = many["history"]
    yield Claim(
        "`history` has one Python number for each step",
        many["numbers"] and len(history) == steps,
        f"It has {len(history)} elements after {steps} steps."
        if len(history) != steps
        else "Its elements are tensors: their values never reached the host.",
    )
    if len(history) != steps:
        return
    i = int(np.argmax(~np.isclose(history, losses, rtol=1e-4)))
    hint = (
        f"In step {i + 1}, the loss should be {losses[i]:.4f}, but you have "
        f"{history[i]:.4f}."
    )
    if np.allclose(history, _reference(seed, steps, weighted=False)[0], rtol=1e-4):
        hint = "They are the losses without the weights of the classes."
    yield Claim(
        "they are the losses of `fit_slowly`",
        np.allclose(history, losses, rtol=1e-4),
        hint,
    )
    best = min(losses)
    yield Claim(
        "`best` is the smallest of them, as a Python number",
        math.isclose(many["best"], best, rel_tol=1e-4) and many["best is a number"],
        f"The smallest loss is {best:.4f}, but you return {many['best']:.4f}."
        if many["best is a number"]
        else "`best` is a tensor: its value never reached the host.",
    )
    yield Claim(
        "the network is trained as before",
        all(
            np.allclose(*pair, rtol=1e-3, atol=1e-5)
            for pair in zip(many["parameters"], parameters, strict=True)
        ),
        "Afterwards its parameters aren't those that `fit_slowly` would leave.",
    )
    copies = many["copies"]
    yield Claim(
        f"it makes at most {_MOST_COPIES} copies, however many the steps",
        len(copies) <= _MOST_COPIES and len(few["copies"]) <= _MOST_COPIES,
        f"It makes {len(copies)} copies in {steps} steps. {_in_each_step(copies)}",
    )


def _in_each_step(copies: Sequence[tuple[int, str, str]]) -> str:
    """Return one of the things that are copied again and again."""
    again = {(nbytes, to) for nbytes, _, to in copies if _often(nbytes, to, copies)}
    fetched = {nbytes for nbytes, to in again if to == HOST}
    if 1 in fetched:
        return "Again and again one byte comes to the host: a truth value."
    if fetched:
        return f"Again and again {min(fetched)} bytes come to the host: a loss."
    nbytes = max((nbytes for nbytes, _ in again), default=0)
    what = ""
    if nbytes == _BATCH * torch.int64.itemsize:
        what = f": {_BATCH} whole numbers, which say where something is"
    elif nbytes == len(_WEIGHTS) * torch.float32.itemsize:
        what = f": {len(_WEIGHTS)} numbers, which are the same each time"
    return f"Again and again {nbytes} bytes go to the GPU{what}."


def _often(nbytes: int, target: str, copies: Sequence[tuple[int, str, str]]) -> bool:
    return sum((n, to) == (nbytes, target) for n, _, to in copies) > 1
