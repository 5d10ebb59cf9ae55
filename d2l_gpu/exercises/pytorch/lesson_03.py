"""Copying between devices, checked with the log of copies."""

import torch

from d2l_gpu import torch as d2l
from d2l_gpu.exercises.pytorch.port import PORT
from d2l_gpu.exercises.registry import Claim
from d2l_gpu.exercises.shared import lesson_03 as common

EXERCISES = common.exercises(PORT)


@EXERCISES.add("03.5", "x, device", returns=torch.Tensor)
def own_copy(answer):
    first, second = d2l.gpu(0), d2l.gpu(1)
    x = torch.arange(1024.0, device=first)
    wanted = x.tolist()
    before = torch.vgpu.memory_allocated(first)
    torch.vgpu.reset_peak_memory_stats(first)
    with d2l.transfers() as log:
        near, far = answer(x, first), answer(x, second)
    peak = torch.vgpu.max_memory_allocated(first) - before
    yield Claim(
        "both copies are on the device you were given",
        (near.device, far.device) == (first, second),
        f"You were asked for one copy on {first} and one on {second}; they're on "
        f"{near.device} and {far.device}.",
    )
    yield Claim(
        "both copies have the values of `x`",
        near.tolist() == wanted and far.tolist() == wanted,
        "Some of the values differ from those of `x`.",
    )
    near.zero_()
    yield Claim(
        "writing into the copy doesn't change `x`",
        x.tolist() == wanted,
        "When `device` is the device of `x`, you return `x` itself or a tensor that "
        "shares its memory.",
    )
    yield Claim(
        "only the copy to the other GPU crosses between devices",
        len(log) == 1,
        f"{len(log)} copies crossed between devices for the two calls. A copy on the "
        "same device doesn't have to leave it.",
    )
    yield Claim(
        "nothing is copied twice on the way",
        peak <= x.nbytes,
        "For a moment there were two copies on the GPU of `x`: you made one of them "
        "only to send it on.",
    )
