"""Copying between devices: what crosses is read from the log of the copies."""

import itertools

import torch

from d2l_gpu import torch as d2l
from d2l_gpu.exercises.registry import Claim, Registry

EXERCISES = Registry()


@EXERCISES.add("03.1", "a, b, c, device", returns=torch.Tensor)
def total(answer):
    first, second = d2l.gpu(0), d2l.gpu(1)
    right = there = unchanged = True
    worst = (0, None)  # of the cases with too many copies, that with the most
    for *homes, device in itertools.product((first, second), repeat=4):
        operands = [
            torch.full((2, 3), float(value), device=home)
            for value, home in zip((1, 10, 100), homes, strict=True)
        ]
        with d2l.transfers() as log:
            result = answer(*operands, device)
        there &= result.device == device
        right &= result.cpu().tolist() == [[111.0] * 3] * 2
        kept = [float(x[0, 0]) for x in operands] == [1, 10, 100]
        unchanged &= kept
        needed = int(any(home != device for home in homes))
        if len(log) > needed:
            worst = max(worst, (len(log), log), key=lambda case: case[0])
    yield Claim(
        "the sum is that of all three",
        right,
        "Three tensors of ones, tens and hundreds have to give 111 everywhere.",
    )
    yield Claim(
        "it lives on `device`",
        there,
        "An operation leaves its result where its operands are, which is not always "
        "where it is wanted.",
    )
    yield Claim(
        "the operands keep their values",
        unchanged,
        "An operation in place, such as `+=`, writes into a tensor that belongs to "
        "the caller.",
    )
    copies, log = worst
    yield Claim(
        "no more is copied than necessary, wherever the three live",
        log is None,
        _too_many_copies(copies, log),
    )


def _too_many_copies(copies: int, log) -> str:
    if log is None:
        return ""
    if any("cpu" in (copy.source.type, copy.target.type) for copy in log):
        return "A tensor went by way of the CPU. GPUs can copy from each other."
    if len({copy.target for copy in log}) > 1:
        return (
            "Something was copied to one GPU, and then the result to the other. Choose "
            "by `device` where the last sum is computed."
        )
    return (
        f"In one case {copies} tensors crossed to the same GPU. A sum of two is as "
        "large as one of them."
    )


@EXERCISES.add("03.2", "images, device", returns=torch.Tensor)
def send(answer):
    images = torch.arange(256 * 28 * 28).remainder(256).to(torch.uint8)
    images = images.reshape(256, 1, 28, 28)
    with d2l.transfers() as log:
        result = answer(images, d2l.gpu(1))
    yield Claim(
        "the batch lives on `device`", result.device == d2l.gpu(1), "It stayed behind."
    )
    yield Claim(
        "its type is `float32`",
        result.dtype == torch.float32,
        f"It is {str(result.dtype).removeprefix('torch.')}, which the layers of a "
        "network do not take.",
    )
    values = result.cpu().double()
    wanted = images.double() / 255
    yield Claim(
        "its values go from 0 to 1, as those of the images from 0 to 255",
        values.shape == wanted.shape and torch.allclose(values, wanted, atol=1e-6),
        _wrong_values(values, wanted),
    )
    hint = f"{log.nbytes:,} bytes crossed, in {len(log):,} copies. "
    if log.nbytes > images.nbytes:
        hint += "Which of the operations made the images larger, and where did it run?"
    else:
        hint += "A copy takes its time however small it is: send the batch as a whole."
    yield Claim(
        "one copy crosses, with one byte for each number",
        len(log) == 1 and log.nbytes == images.nbytes,
        hint,
    )


def _wrong_values(values: torch.Tensor, wanted: torch.Tensor) -> str:
    if values.shape != wanted.shape:
        return f"The shape has become {tuple(values.shape)}."
    if torch.allclose(values, wanted * 255):
        return "They still go to 255."
    if set(values.unique().tolist()) <= {0.0, 1.0}:
        return "Only 0 and 1 are left: integers were divided, and the rest was lost."
    return f"The largest is {values.max():g}."


@EXERCISES.add("03.3", "losses", returns=(float, torch.Tensor))
def mean_loss(answer):
    values = torch.linspace(0.5, 2.5, 100)
    losses = list(values.to(d2l.gpu(0)).unbind())
    with d2l.transfers() as log:
        result = answer(losses)
    yield Claim(
        "a Python number is returned",
        isinstance(result, float),
        "What is returned is still a tensor, whose value nobody has fetched.",
    )
    mean = float(values.mean())
    value = float(result)
    wrong = f"It is {value:.6g}, not {mean:.6g}."
    if abs(value - float(values.sum())) < 1e-3:
        wrong = "This is the sum of the losses. Divide by their number."
    yield Claim("it is the mean of the losses", abs(value - mean) < 1e-5, wrong)
    if any(copy.target.type != "cpu" for copy in log):
        hint = (
            "Something was copied back to the GPU, which the losses never had to leave."
        )
    elif len(log) >= len(losses):
        hint = (
            f"{len(log)} copies were made: each loss was fetched by itself, and Python "
            "waited each time."
        )
    else:
        hint = (
            f"{log.nbytes} bytes crossed. What the host wants to know has 4; let the "
            "GPU do the arithmetic."
        )
    yield Claim("one number is fetched, once", len(log) == 1 and log.nbytes == 4, hint)


@EXERCISES.add("03.4", "tensors, device", returns=(list, tuple))
def send_all(answer):
    shapes = [(3,), (2, 5), (1,), (4, 1, 2), ()] * 8
    tensors = [
        torch.full(shape, float(i), device=d2l.gpu(0)) for i, shape in enumerate(shapes)
    ]
    with d2l.transfers() as log:
        result = answer(tensors, d2l.gpu(1))
    yield Claim(
        "as many tensors come out as went in",
        len(result) == len(tensors),
        f"{len(tensors)} went in, {len(result)} came out.",
    )
    if len(result) != len(tensors):
        return
    yield Claim(
        "each lives on `device`",
        all(x.device == d2l.gpu(1) for x in result),
        f"The first one lives on {result[0].device}.",
    )
    yield Claim(
        "each has the shape that it had",
        [tuple(x.shape) for x in result] == shapes,
        f"The second one had the shape {shapes[1]}, and has {tuple(result[1].shape)}.",
    )
    yield Claim(
        "each has the values that it had",
        all(bool((x == i).all()) for i, x in enumerate(result)),
        "They are not in the order in which they came.",
    )
    nbytes = sum(x.nbytes for x in tensors)
    hint = f"{len(log)} copies were made. What would one tensor with all of them cost?"
    if len(log) == 1:
        hint = f"{log.nbytes:,} bytes crossed, and the tensors have {nbytes:,}."
    yield Claim(
        "one copy crosses, with no more bytes than they have",
        len(log) == 1 and log.nbytes == nbytes,
        hint,
    )


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
