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
        "both copies live where they were asked for",
        (near.device, far.device) == (first, second),
        f"On {first} a copy was wanted, and one on {second}; they live on "
        f"{near.device} and {far.device}.",
    )
    yield Claim(
        "they have the values of `x`",
        near.tolist() == wanted and far.tolist() == wanted,
        "Some of the values differ.",
    )
    near.zero_()
    yield Claim(
        "writing into the copy leaves `x` as it was",
        x.tolist() == wanted,
        "On the device where `x` lives already, what is returned is `x` itself, or "
        "shares its memory.",
    )
    yield Claim(
        "one copy crosses, that to the other GPU",
        len(log) == 1,
        f"{len(log)} crossed. A copy on the same device does not have to leave it.",
    )
    yield Claim(
        "nothing is copied twice",
        peak <= x.nbytes,
        "For a moment there were two copies on the GPU where `x` lives: one was made "
        "only to be sent on.",
    )
