"""Graders for the exercises on copying (lesson 03) that all frameworks share."""

import itertools
import random
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from d2l_gpu.exercises.crossing import HOST, Crossing, Port
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run, given
from d2l_gpu.exercises.variants.draw import one_of


def _crossings(record: Iterable[tuple]) -> list[Crossing]:
    return [Crossing(*each) for each in record]


# Where each of three tensors is, and where their sum is wanted.
_HOMES = list(itertools.product((0, 1), repeat=4))


def _sums(
    port: Port, answer: Callable, gpus: Gpus, numbers: Sequence[int]
) -> list[dict]:
    """Add three tensors, wherever they are and wherever their sum is wanted."""
    cases = []
    for *homes, there in _HOMES:
        operands = [
            port.array(np.full((2, 3), value, np.float32), gpus[home])
            for value, home in zip(numbers, homes, strict=True)
        ]
        with port.watch() as copies:
            result = answer(*operands, gpus[there])
        cases.append(
            {
                "copies": gpus.crossings(copies),
                "home": gpus.called(port.home(result)),
                "values": port.values(result),
            }
        )
    return cases


def total(port: Port, run: Run):
    numbers = random.sample(range(100, 1000), 3)  # which no answer can know
    cases = list(zip(_HOMES, run(_sums, numbers), strict=True))
    wanted = [[float(sum(numbers))] * 3] * 2
    right = all(case["values"].tolist() == wanted for _, case in cases)
    there = all(case["home"] == f"GPU {homes[3]}" for homes, case in cases)
    superfluous = [
        case["copies"]
        for homes, case in cases
        if len(case["copies"]) > any(home != homes[3] for home in homes)
    ]
    worst = _crossings(max(superfluous, key=len, default=[]))
    yield Claim(
        "the sum of all three is right",
        right,
        f"The tensors contain {numbers[0]}, {numbers[1]} and {numbers[2]} everywhere, "
        f"so the result has to be {sum(numbers)}.",
    )
    yield Claim(
        "it's on `device`",
        there,
        "An operation leaves its result on the device of its operands, which isn't "
        "always the device you need.",
    )
    yield Claim(
        "nothing is copied unnecessarily",
        not worst,
        _too_many_copies(worst),
    )


def _too_many_copies(copies: Sequence[Crossing]) -> str:
    # JAX doesn't report the source of an array that was sent explicitly.
    fetched = any(copy.target == HOST and copy.source for copy in copies)
    if fetched and not any(copy.source == HOST for copy in copies):
        return (
            "You fetched a value to the host and sent nothing back: using a tensor in "
            "`if`, `print` and the like copies it too."
        )
    if any(HOST in (copy.source, copy.target) for copy in copies):
        return (
            "A tensor was copied by way of the CPU. GPUs can copy directly to each "
            "other."
        )
    if len({copy.target for copy in copies}) > 1:
        return (
            "You copied something to one GPU, and then the result to the other. Let "
            "`device` decide where you compute the last sum."
        )
    return (
        f"In one case, {len(copies)} tensors crossed to the same GPU. The sum of two "
        "tensors is no larger than one of them."
    )


def _images(first: int) -> np.ndarray:
    """Return a batch whose pixels count up from a number, modulo 256."""
    numbers = np.arange(first, first + 256 * 28 * 28)
    return numbers.astype(np.uint8).reshape(256, 1, 28, 28)


def _sent(port: Port, answer: Callable, gpus: Gpus, first: int) -> dict:
    with port.watch() as copies:
        result = answer(port.array(_images(first)), gpus[1])
    values = port.values(result)
    return {
        "copies": gpus.crossings(copies),
        "home": gpus.called(port.home(result)),
        "values": values,
    }


def send(port: Port, run: Run, top: int = 1):
    first = random.randrange(256)
    found, images = run(_sent, first), _images(first)
    copies, values = _crossings(found["copies"]), found["values"]
    yield Claim(
        "the batch is on `device`",
        found["home"] == "GPU 1",
        f"The batch is still on {found['home']}.",
    )
    yield Claim(
        "its type is `float32`",
        values.dtype == np.float32,
        f"Its type is {values.dtype}, which a network's layers don't accept.",
    )
    wanted = images / 255 * top
    yield Claim(
        f"its values are those of the images, scaled from 0–255 to 0–{top}",
        values.shape == wanted.shape and np.allclose(values, wanted, atol=1e-6 * top),
        _wrong_values(values, wanted, top),
    )
    nbytes = sum(copy.nbytes for copy in copies)
    hint = (
        f"{nbytes:,} bytes crossed, in {len(copies):,} "
        f"cop{'y' if len(copies) == 1 else 'ies'}. "
    )
    if nbytes > images.nbytes:
        hint += "Which operation made the images larger, and where did it run?"
    else:
        hint += (
            "Every copy has a fixed cost, however small it is: send the whole batch "
            "at once."
        )
    yield Claim(
        "only one copy crosses, with one byte for each number",
        len(copies) == 1 and nbytes == images.nbytes,
        hint,
    )


def _wrong_values(values: np.ndarray, wanted: np.ndarray, top: int) -> str:
    if values.shape != wanted.shape:
        return f"The shape is now {values.shape}."
    if np.allclose(values, wanted * 255 / top):
        return "The values still go up to 255."
    if not values.any():
        return "All values are 0."
    if set(np.unique(values)) <= {0.0, float(top)}:
        return (
            f"Only 0 and {top} are left: you divided integers, and the fractions were "
            "lost."
        )
    return f"The largest value is {values.max():g}."


def _losses(last: float) -> np.ndarray:
    return np.linspace(0.5, last, 100, dtype=np.float32)


def _mean(port: Port, answer: Callable, gpus: Gpus, last: float) -> dict:
    losses = [port.watched(value) for value in _losses(last)]
    with port.watch() as copies:
        result = answer(losses)
    return {
        "copies": gpus.crossings(copies),
        "is a number": isinstance(result, float),
        "value": float(result),
    }


def mean_loss(port: Port, run: Run):
    last = random.uniform(1.5, 3.5)
    found, losses = run(_mean, last), _losses(last)
    copies, value = _crossings(found["copies"]), found["value"]
    yield Claim(
        "it returns a Python number",
        found["is a number"],
        "You return a tensor: you never fetched its value.",
    )
    mean = float(losses.mean())
    wrong = f"You return {value:.6g}, but the mean is {mean:.6g}."
    if abs(value - float(losses.sum())) < 1e-3:
        wrong = "That's the sum of the losses. Divide by their number."
    yield Claim("it's the mean of the losses", abs(value - mean) < 1e-5, wrong)
    nbytes = sum(copy.nbytes for copy in copies)
    yield Claim(
        "only one number is fetched, once",
        len(copies) == 1 and nbytes == 4,
        _fetched_otherwise(copies, nbytes, len(losses)),
    )


def _fetched_otherwise(copies: Sequence[Crossing], nbytes: int, losses: int) -> str:
    if any(copy.target != HOST for copy in copies):
        return (
            "You copied something back to the GPU. The losses never have to leave it."
        )
    if len(copies) >= losses:
        return (
            f"{len(copies)} copies were made: each loss was fetched separately, by "
            "your code or by an operation that ran on the CPU."
        )
    if not copies:
        return (
            "NumPy read the values in a way that we can't count. Let the framework "
            "compute the mean, and fetch it with `float`."
        )
    return (
        f"{nbytes} bytes crossed. The host needs only 4; let the GPU do the arithmetic."
    )


_SHAPES = [(3,), (2, 5), (1,), (4, 1, 2), ()] * 8


def _arrays(numbers: Sequence[int]) -> list[np.ndarray]:
    """Return arrays of all shapes, each full of a number of its own."""
    return [
        np.full(shape, number, np.float32)
        for shape, number in zip(_SHAPES, numbers, strict=True)
    ]


def _all_sent(port: Port, answer: Callable, gpus: Gpus, numbers: Sequence[int]) -> dict:
    arrays = [port.array(each, gpus[0]) for each in _arrays(numbers)]
    with port.watch() as copies:
        result = answer(arrays, gpus[1])
    tensors = all(isinstance(x, port.tensor) for x in result)
    return {
        "copies": gpus.crossings(copies),
        "number": len(result),
        "tensors": tensors,
        "homes": [gpus.called(port.home(x)) for x in result] if tensors else [],
        "values": [port.values(x) for x in result] if tensors else [],
    }


def send_all(port: Port, run: Run):
    numbers = random.sample(range(1000), len(_SHAPES))  # which no answer can know
    found, arrays = run(_all_sent, numbers), _arrays(numbers)
    copies, number, tensors = (
        _crossings(found["copies"]),
        found["number"],
        found["tensors"],
    )
    homes, values = found["homes"], found["values"]
    yield Claim(
        "as many tensors come out as went in",
        tensors and number == len(arrays),
        f"{len(arrays)} went in, but {number} came out."
        if tensors
        else "Some of what you return isn't a tensor.",
    )
    if not tensors or number != len(arrays):
        return
    yield Claim(
        "each tensor is on `device`",
        set(homes) == {"GPU 1"},
        f"The first one is on {homes[0]}.",
    )
    out_of_order = _out_of_order(values, numbers)
    yield Claim(
        "each tensor keeps its shape",
        [each.shape for each in values] == _SHAPES,
        out_of_order or _wrong_shape(values),
    )
    yield Claim(
        "each tensor keeps its values",
        all((x == n).all() for x, n in zip(values, numbers, strict=True)),
        out_of_order or _wrong_number(values, numbers),
    )
    nbytes = sum(copy.nbytes for copy in copies)
    needed = sum(each.nbytes for each in arrays)
    hint = (
        f"{len(copies)} copies were made. What would it cost to copy one tensor that "
        "contains all of them?"
    )
    if len(copies) == 1:
        hint = f"{nbytes:,} bytes crossed, but the tensors have only {needed:,}."
    yield Claim(
        "only one copy crosses, with no more bytes than the tensors have",
        len(copies) == 1 and nbytes == needed,
        hint,
    )


def _out_of_order(values: Sequence[np.ndarray], numbers: Sequence[int]) -> str:
    """Return a hint if the tensors have each other's values, else nothing."""
    found = [int(each.flat[0]) if each.size else -1 for each in values]
    whole = all((x == n).all() for x, n in zip(values, found, strict=True))
    if not whole or found == list(numbers) or sorted(found) != sorted(numbers):
        return ""
    came = [numbers.index(number) for number in found]
    i = next(i for i, place in enumerate(came) if place != i)
    return (
        "The tensors aren't in the order in which they came: number "
        f"{i + 1} of your list has the values of number {came[i] + 1}."
    )


def _wrong_shape(values: Sequence[np.ndarray]) -> str:
    pairs = list(zip(_SHAPES, values, strict=True))
    i = next((i for i, (shape, x) in enumerate(pairs) if x.shape != shape), 0)
    return (
        f"Number {i + 1} of the tensors had the shape {_SHAPES[i]}, and now has "
        f"{values[i].shape}."
    )


def _wrong_number(values: Sequence[np.ndarray], numbers: Sequence[int]) -> str:
    pairs = enumerate(zip(values, numbers, strict=True))
    i = next((i for i, (x, number) in pairs if (x != number).any()), 0)
    return f"Number {i + 1} of the tensors now has other values."


def exercises(port: Port, leave_out: Sequence[str] = ()) -> Registry:
    """Return the shared exercises of lesson 03, for one framework.

    Args:
        port: the framework's interface.
        leave_out: numbers of those in whose place the framework has its own.
    """
    registry, tensor = Registry(), port.tensor
    vary = {"03.2": {"top": one_of(1, 2, 4, 5, 8)}}
    for number, parameters, returns, grader in (
        ("03.1", "a, b, c, device", tensor, total),
        ("03.2", "images, device", tensor, send),
        ("03.3", "losses", (float, tensor), mean_loss),
        ("03.4", "tensors, device", (list, tuple), send_all),
    ):
        if number not in leave_out:
            add = registry.add(number, parameters, returns, vary=vary.get(number))
            add(given(grader, port))
    return registry
