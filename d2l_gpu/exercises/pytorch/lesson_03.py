"""Copying between devices, checked with the log of copies."""

from collections.abc import Callable

import numpy as np
import torch

from d2l_gpu import torch as d2l
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.pytorch.port import PORT
from d2l_gpu.exercises.registry import Claim, Run
from d2l_gpu.exercises.shared import lesson_03 as common

EXERCISES = common.exercises(PORT)
_NUMBERS = 1024


def _own(answer: Callable, gpus: Gpus) -> dict:
    """Return two copies of a tensor, what they took, and the tensor after a write.

    The first is for its own GPU, the second for another one.
    """
    x = torch.arange(float(_NUMBERS), device=gpus[0])
    copies, peaks = [], []
    with d2l.transfers() as log:
        for device in gpus[:2]:
            before = list(map(torch.vgpu.memory_allocated, gpus))
            for gpu in gpus:
                torch.vgpu.reset_peak_memory_stats(gpu)
            copies.append(answer(x, device))
            after = map(torch.vgpu.max_memory_allocated, gpus)
            peaks.append([b - a for a, b in zip(before, after, strict=True)])
    values = [each.detach().cpu().numpy() for each in copies]
    copies[0].detach().zero_()
    return {
        "where": [gpus.where(each) for each in copies],
        "values": values,
        "peaks": peaks,
        "copies": gpus.copies(log),
        "x": x.cpu().numpy(),
    }


@EXERCISES.add("03.5", "x, device", returns=torch.Tensor)
def own_copy(run: Run):
    found, wanted = run(_own), np.arange(float(_NUMBERS))
    where, nbytes = found["where"], 4 * _NUMBERS
    yield Claim(
        "both copies are on the device you were given",
        where == ["GPU 0", "GPU 1"],
        "You were asked for one copy on GPU 0 and one on GPU 1; they're on "
        f"{where[0]} and {where[1]}.",
    )
    yield Claim(
        "both copies have the values of `x`",
        all(np.array_equal(each, wanted) for each in found["values"]),
        "Some of the values differ from those of `x`.",
    )
    yield Claim(
        "writing into the copy doesn't change `x`",
        np.array_equal(found["x"], wanted),
        "When `device` is the device of `x`, you return `x` itself or a tensor that "
        "shares its memory.",
    )
    copies = found["copies"]
    yield Claim(
        "only the copy to the other GPU crosses between devices",
        copies == [(nbytes, "GPU 0", "GPU 1")],
        f"{len(copies)} copies crossed between devices for the two calls. A copy on "
        "the same device doesn't have to leave it."
        if len(copies) != 1
        else "What crossed between devices wasn't `x`, from GPU 0 to GPU 1.",
    )
    near, far = found["peaks"]
    if far[0]:
        hint = (
            "For a moment there were two copies on the GPU of `x`: you made one of "
            "them only to send it on."
        )
    else:
        hint = (
            "For a moment there were two copies on `device`: you copied what was "
            "already a copy."
        )
    yield Claim(
        "nothing is copied twice on the way",
        sum(near) <= nbytes and sum(far) <= nbytes,
        hint,
    )
