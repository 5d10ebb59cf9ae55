"""Graders for the exercises on copying (lesson 03) that all frameworks share."""

import itertools
from collections.abc import Sequence

import numpy as np

from d2l_gpu.exercises.crossing import HOST, Crossing, Port
from d2l_gpu.exercises.registry import Claim, Registry, given


def total(port: Port, answer):
    first, second = port.gpu(0), port.gpu(1)
    right = there = unchanged = True
    worst: list[Crossing] = []  # the case with the most superfluous copies
    for *homes, device in itertools.product((first, second), repeat=4):
        operands = [
            port.array(np.full((2, 3), value, np.float32), home)
            for value, home in zip((1, 10, 100), homes, strict=True)
        ]
        with port.watch() as copies:
            result = answer(*operands, device)
        there &= port.home(result) == port.name(device)
        right &= port.values(result).tolist() == [[111.0] * 3] * 2
        kept = [float(port.values(x)[0, 0]) for x in operands] == [1, 10, 100]
        unchanged &= kept
        needed = int(any(home != device for home in homes))
        if len(copies) > needed:
            worst = max(worst, copies, key=len)
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
    if port.mutable:
        yield Claim(
            "the operands keep their values",
            unchanged,
            "An operation in place, such as `+=`, writes into a tensor that belongs to "
            "the caller.",
        )
    yield Claim(
        "no more is copied than necessary, wherever the three live",
        not worst,
        _too_many_copies(worst),
    )


def _too_many_copies(copies: Sequence[Crossing]) -> str:
    # JAX doesn't report the source of an array that was sent explicitly.
    fetched = any(copy.target == HOST and copy.source for copy in copies)
    if fetched and not any(copy.source == HOST for copy in copies):
        return (
            "A value was fetched to the host, and nothing came back: `if`, `print` and "
            "the like on a tensor are copies, too."
        )
    if any(HOST in (copy.source, copy.target) for copy in copies):
        return "A tensor went by way of the CPU. GPUs can copy from each other."
    if len({copy.target for copy in copies}) > 1:
        return (
            "Something was copied to one GPU, and then the result to the other. Choose "
            "by `device` where the last sum is computed."
        )
    return (
        f"In one case {len(copies)} tensors crossed to the same GPU. A sum of two is "
        "as large as one of them."
    )


def send(port: Port, answer):
    images = np.arange(256 * 28 * 28).astype(np.uint8).reshape(256, 1, 28, 28)
    device = port.gpu(1)
    with port.watch() as copies:
        result = answer(port.array(images), device)
    yield Claim(
        "the batch lives on `device`",
        port.home(result) == port.name(device),
        "It stayed behind.",
    )
    values = port.values(result)
    yield Claim(
        "its type is `float32`",
        values.dtype == np.float32,
        f"It is {values.dtype}, which the layers of a network do not take.",
    )
    wanted = images / 255
    yield Claim(
        "its values go from 0 to 1, as those of the images from 0 to 255",
        values.shape == wanted.shape and np.allclose(values, wanted, atol=1e-6),
        _wrong_values(values, wanted),
    )
    nbytes = sum(copy.nbytes for copy in copies)
    hint = f"{nbytes:,} bytes crossed, in {len(copies):,} copies. "
    if nbytes > images.nbytes:
        hint += "Which of the operations made the images larger, and where did it run?"
    else:
        hint += "A copy takes its time however small it is: send the batch as a whole."
    yield Claim(
        "one copy crosses, with one byte for each number",
        len(copies) == 1 and nbytes == images.nbytes,
        hint,
    )


def _wrong_values(values: np.ndarray, wanted: np.ndarray) -> str:
    if values.shape != wanted.shape:
        return f"The shape has become {values.shape}."
    if np.allclose(values, wanted * 255):
        return "They still go to 255."
    if set(np.unique(values)) <= {0.0, 1.0}:
        return "Only 0 and 1 are left: integers were divided, and the rest was lost."
    return f"The largest is {values.max():g}."


def mean_loss(port: Port, answer):
    values = np.linspace(0.5, 2.5, 100, dtype=np.float32)
    losses = [port.watched(value) for value in values]
    with port.watch() as copies:
        result = answer(losses)
    yield Claim(
        "a Python number is returned",
        isinstance(result, float),
        "What is returned is still a tensor, whose value nobody has fetched.",
    )
    mean, value = float(values.mean()), float(result)
    wrong = f"It is {value:.6g}, not {mean:.6g}."
    if abs(value - float(values.sum())) < 1e-3:
        wrong = "This is the sum of the losses. Divide by their number."
    yield Claim("it is the mean of the losses", abs(value - mean) < 1e-5, wrong)
    nbytes = sum(copy.nbytes for copy in copies)
    yield Claim(
        "one number is fetched, once",
        len(copies) == 1 and nbytes == 4,
        _fetched_otherwise(copies, nbytes, len(losses)),
    )


def _fetched_otherwise(copies: Sequence[Crossing], nbytes: int, losses: int) -> str:
    if any(copy.target != HOST for copy in copies):
        return (
            "Something was copied back to the GPU, which the losses never had to leave."
        )
    if len(copies) >= losses:
        return (
            f"{len(copies)} copies were made: each loss was fetched by itself, by a "
            "line of yours or by an operation that ran on the CPU."
        )
    if not copies:
        return (
            "NumPy took values in a way that cannot be counted. Have the mean "
            "computed by the framework, and ask for it with `float`."
        )
    return (
        f"{nbytes} bytes crossed. What the host wants to know has 4; let the GPU do "
        "the arithmetic."
    )


def send_all(port: Port, answer):
    shapes = [(3,), (2, 5), (1,), (4, 1, 2), ()] * 8
    arrays = [np.full(shape, i, np.float32) for i, shape in enumerate(shapes)]
    sent, there = [port.array(each, port.gpu(0)) for each in arrays], port.gpu(1)
    with port.watch() as copies:
        result = answer(sent, there)
    tensors = all(isinstance(x, port.tensor) for x in result)
    yield Claim(
        "as many tensors come out as went in",
        tensors and len(result) == len(arrays),
        f"{len(arrays)} went in, {len(result)} came out."
        if tensors
        else "Not all that came out are tensors.",
    )
    if not tensors or len(result) != len(arrays):
        return
    homes = [port.home(x) for x in result]
    yield Claim(
        "each lives on `device`",
        set(homes) == {port.name(there)},
        f"The first one lives on {homes[0]}.",
    )
    values = [port.values(x) for x in result]
    yield Claim(
        "each has the shape that it had",
        [each.shape for each in values] == shapes,
        f"The second one had the shape {shapes[1]}, and has {values[1].shape}.",
    )
    yield Claim(
        "each has the values that it had",
        all((each == i).all() for i, each in enumerate(values)),
        "They are not in the order in which they came.",
    )
    nbytes = sum(copy.nbytes for copy in copies)
    needed = sum(each.nbytes for each in arrays)
    hint = f"{len(copies)} copies were made. What would one tensor with all of them "
    hint += "cost?"
    if len(copies) == 1:
        hint = f"{nbytes:,} bytes crossed, and the tensors have {needed:,}."
    yield Claim(
        "one copy crosses, with no more bytes than they have",
        len(copies) == 1 and nbytes == needed,
        hint,
    )


def exercises(port: Port) -> Registry:
    """Return the shared exercises of lesson 03, for one framework."""
    registry, tensor = Registry(), port.tensor
    for number, parameters, returns, grader in (
        ("03.1", "a, b, c, device", tensor, total),
        ("03.2", "images, device", tensor, send),
        ("03.3", "losses", (float, tensor), mean_loss),
        ("03.4", "tensors, device", (list, tuple), send_all),
    ):
        registry.add(number, parameters, returns)(given(grader, port))
    return registry
