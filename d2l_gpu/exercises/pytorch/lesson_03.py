"""Copying between devices, checked with the log of copies and of waiting."""

import functools
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
from d2l_gpu.exercises.shared import lesson_03_training as training
from d2l_gpu.exercises.shared.lesson_03_training import BATCH, STEPS, WEIGHTS
from d2l_gpu.exercises.variants.draw import one_of

EXERCISES = common.exercises(PORT, leave_out=["03.3"])


# ------------------------------------------------------------------ a decision


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


def _clipped(answer: Callable, gpus: Gpus, norm: float, seed: int) -> dict:
    """Have gradients of a norm clipped; return what they are then, and what it took."""
    grads = [torch.from_numpy(x).to(gpus[0]) for x in training.gradients(norm, seed)]
    given = list(grads)
    with d2l.transfers() as log, _waiting() as waits:
        result = answer(grads, training.MOST)
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
    yield training.scaled(
        large["grads"],
        norms[0],
        seed,
        "The gradients are as they were. They have to be changed in place.",
    )
    before = training.gradients(norms[1], seed)
    kept = all(map(np.array_equal, small["grads"], before))
    yield training.unchanged(kept, small["grads"], norms[1])
    yield training.still_zero(zero["grads"])
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


def _digits(seed: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return a small network, and images and labels for it, all on the CPU."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 10))
    n = BATCH * max(STEPS)
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


def _reference(
    seed: int, steps: int, weighted: bool = True, weights: Sequence[float] = WEIGHTS
) -> tuple[list, list]:
    """Return the losses of all steps, and the parameters after them."""
    net, images, labels = _digits(seed)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    weight = torch.tensor(weights) if weighted else None
    losses = []
    for X, y in list(zip(images.split(BATCH), labels.split(BATCH), strict=True))[
        :steps
    ]:
        loss = F.cross_entropy(net(X), y, weight=weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().numpy() for p in net.parameters()]


@EXERCISES.add(
    "03.5",
    "net, images, labels, steps",
    returns=(tuple, list),
    changes="net",
    vary={
        "split": one_of((5, 5), (3, 7), (4, 6), (6, 4), (7, 3)),
        "weight": one_of(2, 3, 4),
    },
)
def fit(run: Run, split: tuple[int, int], weight: int):
    low, high = split
    weights = [1.0] * low + [float(weight)] * high
    reference = functools.partial(_reference, weights=weights)
    yield from training.fit(run, _fitted, reference, _in_each_step)


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
    if nbytes == BATCH * torch.int64.itemsize:
        what = f": {BATCH} whole numbers, which say where something is"
    elif nbytes == len(WEIGHTS) * torch.float32.itemsize:
        what = f": {len(WEIGHTS)} numbers, which are the same each time"
    return f"Again and again {nbytes} bytes go to the GPU{what}."


def _often(nbytes: int, target: str, copies: Sequence[tuple[int, str, str]]) -> bool:
    return sum((n, to) == (nbytes, target) for n, _, to in copies) > 1
