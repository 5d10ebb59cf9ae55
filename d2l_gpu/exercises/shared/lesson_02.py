"""Tensors on devices: their sizes in bytes, random numbers and shared memory."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from d2l_gpu.exercises.arrays import Arrays
from d2l_gpu.exercises.crossing import HOST
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run, given

if TYPE_CHECKING:
    import numpy as np

# A function that seeds a random number generator, and one that draws from it.
Generator = tuple[Callable[[int], Any], Callable[[], float]]


@dataclass(frozen=True)
class Tensors:
    """What the shared exercises have to know of a framework's tensors.

    Attributes:
        arrays: the framework's arrays.
        zeros: creates an array of zeros, given its shape and data type.
        types: names of data types that the framework supports.
        refusals: the exceptions it raises if an array is too large.
        surprise: hints for data types whose size may surprise.
        generators: the global random number generators, by name.
    """

    arrays: Arrays
    zeros: Callable[[tuple, str], Any]
    types: Sequence[str]
    refusals: tuple[type[Exception], ...]
    surprise: Mapping[str, str]
    generators: Mapping[str, Generator]

    def nbytes(self, shape: tuple, dtype: str) -> int:
        """Return the size of an array in bytes, which is created for that."""
        return self.arrays.fetch(self.zeros(shape, dtype)).nbytes


def exercises(tensors: Tensors) -> Registry:
    """Return the shared exercises of lesson 02, 02.1 to 02.3, for one framework."""
    registry = Registry()
    registry.add("02.1", "shape, dtype", returns=int)(given(bytes_of, tensors))
    registry.add("02.2", returns=(int, float))(parameters)
    registry.add("02.3", "shape, seed, device", returns=tensors.arrays.kind)(
        given(random_on, tensors)
    )
    return registry


# ------------------------------------------------------------------ 02.1

WHOLE_BYTES = "Memory is addressed in bytes, not in bits."

BEYOND_ALL_COMPUTERS = (2**30, 2**30)


def _sizes(
    tensors: Tensors, answer: Callable, gpus: Gpus, *cases: tuple[tuple, str]
) -> list[int]:
    return [answer(*case) for case in cases]


def _size_beyond_computers(
    tensors: Tensors, answer: Callable, gpus: Gpus
) -> int | None:
    """Return the size of a very large array, None if the answer can't create it."""
    try:
        return answer(BEYOND_ALL_COMPUTERS, "float32")
    except (MemoryError, *tensors.refusals):
        return None


def bytes_of(tensors: Tensors, run: Run) -> Iterator[Claim]:
    """Check that the sizes of arrays in bytes are predicted."""
    measured, types = tensors.nbytes, tensors.types
    shape = (1024, 1024)
    [given], wanted = run(_sizes, (shape, "float32")), measured(shape, "float32")
    hint = f"You return {given:,} bytes for it."
    if given == wanted // 4:
        hint += " That's the number of elements."
    elif given == wanted * 8:
        hint += " That's in bits."
    yield Claim(
        "the size of a 1,024 × 1,024 `float32` matrix is right",
        given == wanted,
        hint,
    )
    sizes = run(_sizes, *(((3, 5), name) for name in types))
    other = {
        name: (given, measured((3, 5), name))
        for name, given in zip(types, sizes, strict=True)
    }
    wrong = [name for name, (given, wanted) in other.items() if given != wanted]
    hint = ""
    if wrong:
        name = wrong[0]
        hint = (
            f"For fifteen elements of type `{name}`, you return {other[name][0]} "
            "bytes. "
        )
        if len(wrong) > 3:
            hint += "What does `dtype` tell you?"
        else:
            hint += tensors.surprise.get(
                name, f"An array of them has {other[name][1]} bytes."
            )
    yield Claim("other data types are right too", not wrong, hint)
    single, empty = run(_sizes, ((), "float32"), ((7, 0), "float32"))
    hint = f"For the shape (7, 0), which has no elements, you return {empty} bytes."
    if single != measured((), "float32"):
        hint = (
            f"For the shape (), you return {single} bytes. It has one element, "
            "although it has no dimensions."
        )
    yield Claim(
        "arrays without dimensions or without elements are right",
        (single, empty) == (measured((), "float32"), 0),
        hint,
    )
    each = measured((1,), "float32")
    large = run(_size_beyond_computers)
    if large is None:
        hint = (
            "You create the array, which doesn't fit in memory. Its shape and its type "
            "are all you need."
        )
    else:
        hint = f"You return {large:,} bytes."
        if large <= 0:
            hint += " An integer of NumPy or of the framework has overflowed."
    yield Claim(
        "arrays too large for any computer are right",
        large == 2**60 * each,
        hint,
    )


# ------------------------------------------------------------------ 02.2

GIB = 2**30


def parameters(answer: float) -> Iterator[Claim]:
    """Check that this many parameters, and not one more, can be trained in 16 GiB."""
    import numpy as np

    number, numbers = np.dtype("float32").itemsize, len(("W", "gradient", "m", "v"))
    capacity = 16 * GIB
    needed = answer * number * numbers
    because = {
        1: "That many fit if you keep nothing but the parameters.",
        2: "That many fit with the gradients, but without Adam's own numbers.",
        3: "That many fit with three numbers per parameter.",
    }
    hints = {capacity // (number * n): text for n, text in because.items()}
    hint = f"They need {needed / GIB:,.6g} GiB."
    yield Claim("that many fit", needed <= capacity, f"{hint} {hints.get(answer, '')}")
    if needed <= capacity / 1024:
        hint = "Did you give the number of parameters, or how many billions there are?"
    elif answer == 10**9:
        hint = "A GiB has 2³⁰ bytes, a little more than a billion."
    elif answer == capacity // (number * (numbers + 1)):
        hint = "That many fit with five numbers per parameter: you counted one twice."
    else:
        hint = f"They need only {needed / GIB:,.6g} of 16 GiB."
    yield Claim("not even one more fits", needed + number * numbers > capacity, hint)


# ------------------------------------------------------------------ 02.3


def _drawn(tensors: Tensors, answer: Callable, gpus: Gpus) -> dict:
    """Draw numbers on every device, again, with another seed, and among others'."""
    on_host = tensors.arrays.on_host
    devices = [*gpus, tensors.arrays.cpu()]
    first = devices[0]
    return {
        "homes": [gpus.where(answer((4, 5), 3, device)) for device in devices],
        "many": on_host(answer((100, 50), 3, devices[1])),
        "drawn": [on_host(answer((4, 5), 3, device)) for device in devices],
        "again": on_host(answer((4, 5), 3, first)),
        "other seed": on_host(answer((4, 5), 4, first)),
        "others": {
            name: (
                _goes_on(seed, draw, lambda: None),
                _goes_on(seed, draw, lambda: answer((4, 5), 3, first)),
            )
            for name, (seed, draw) in tensors.generators.items()
        },
    }


def random_on(tensors: Tensors, run: Run) -> Iterator[Claim]:
    """Check that every device gets the same random numbers."""
    import numpy as np

    found = run(_drawn)
    homes = found["homes"]
    wanted = [*(f"GPU {i}" for i in range(len(homes) - 1)), HOST]
    apart = [pair for pair in zip(homes, wanted, strict=True) if len({*pair}) > 1]
    yield Claim(
        "the arrays are on `device`",
        homes == wanted,
        f"One array is on {apart[0][0]}, but you were given {apart[0][1]}."
        if apart
        else "",
    )
    values = found["many"]
    hint = f"The shape is {values.shape}, the type {values.dtype}."
    if values.size:
        hint += (
            f" The smallest number is {values.min():.3g}, the largest "
            f"{values.max():.3g}."
        )
    few = len(np.unique(values)) < values.size / 2
    yield Claim(
        "they're `float32`, have the given shape, and range from 0 to 1",
        values.shape == (100, 50)
        and values.dtype == np.float32
        and bool(((values >= 0) & (values < 1)).all())
        and not few
        and abs(values.mean() - 0.5) < 0.05,
        f"{hint}." + few * " Most numbers occur more than once.",
    )
    drawn, again = found["drawn"], found["again"]
    hint = "A different device gives different numbers."
    if not np.array_equal(again, drawn[0]):
        hint = (
            "On the same device, the same seed gave different numbers the second time."
        )
    yield Claim(
        "one seed gives the same numbers on every device, every time",
        all(np.array_equal(again, each) for each in drawn),
        hint,
    )
    yield Claim(
        "a different seed gives different numbers",
        not np.array_equal(again, found["other seed"]),
        "Seeds 3 and 4 gave the same numbers.",
    )
    disturbed = [
        name for name, (alone, beside) in found["others"].items() if alone != beside
    ]
    yield Claim(
        "other code's random numbers don't change",
        not disturbed,
        f"You draw from {' and '.join(disturbed)}, or seed it. Any code that draws "
        "from it afterwards gets different numbers.",
    )


def _goes_on(seed: Callable, draw: Callable, meanwhile: Callable) -> list[float]:
    seed(7)
    first = draw()
    meanwhile()
    return [first, draw(), draw()]


# ------------------------------------------------------------------ 02.4


def wrong_step(given: Any, old: "np.ndarray") -> str:
    """Return a hint for wrong parameters.

    Args:
        given: the parameters after a step with gradient 2 and learning rate 0.5.
        old: the parameters before it.
    """
    import numpy as np

    given = np.asarray(given)
    if given.shape != old.shape:
        return f"They have the shape {given.shape}, but should have {old.shape}."
    change = np.unique(given - old)
    if len(change) > 1:
        return (
            "Some numbers changed by more than others, although the gradient is 2 "
            "everywhere."
        )
    because = {
        1: "They moved in the direction of the gradient, where the loss grows.",
        -2: "That's the whole gradient, whatever the learning rate.",
        0: "Nothing has changed.",
    }
    change = float(change[0])
    return (
        f"With a gradient of 2 and a learning rate of 0.5, they changed by {change:g}. "
        + because.get(change, "")
    )


# ------------------------------------------------------------------ 02.5


def sharing(
    answer: Collection[str],
    questions: Mapping[str, str],
    shares: Callable[[str], bool],
) -> Iterator[Claim]:
    """Check which expressions share an array's memory.

    Args:
        answer: the expressions said to share it.
        questions: a hint for each expression, for readers who get it wrong.
        shares: evaluates an expression and returns whether it shares the memory.
    """
    unknown = [each for each in answer if each not in questions]
    yield Claim(
        "they're all among the expressions above",
        not unknown,
        f"{unknown[0]!r} isn't one of them." if unknown else "",
    )
    truth = {expression: shares(expression) for expression in questions}
    claimed = [each for each in questions if each in answer and not truth[each]]
    yield Claim(
        "the expressions you named share the memory of `A`",
        not claimed,
        f"`{claimed[0]}` doesn't. {questions[claimed[0]]}" if claimed else "",
    )
    missing = [each for each in questions if truth[each] and each not in answer]
    yield Claim(
        "the expressions you didn't name don't",
        not missing,
        f"`{missing[0]}` does. {questions[missing[0]]}" if missing else "",
    )
