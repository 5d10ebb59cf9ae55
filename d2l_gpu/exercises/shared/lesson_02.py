"""Tensors on devices: their sizes in bytes, random numbers and shared memory."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from d2l_gpu.exercises.arrays import Arrays
from d2l_gpu.exercises.registry import Claim, Registry

if TYPE_CHECKING:
    import numpy as np

# A function that seeds a random number generator, and one that draws from it.
Generator = tuple[Callable[[int], Any], Callable[[], float]]


def exercises(
    arrays: Arrays,
    zeros: Callable[[tuple, str], Any],
    types: Sequence[str],
    refusals: tuple[type[Exception], ...],
    surprise: Mapping[str, str],
    generators: Mapping[str, Generator],
) -> Registry:
    """Return the shared exercises of lesson 02, 02.1 to 02.3, for one framework.

    Args:
        arrays: the framework's arrays.
        zeros: creates an array of zeros, given its shape and data type.
        types: names of data types that the framework supports.
        refusals: the exceptions it raises if an array is too large.
        surprise: hints for data types whose size may surprise.
        generators: the global random number generators, by name.
    """
    registry = Registry()

    @registry.add("02.1", "shape, dtype", returns=int)
    def bytes_of(answer):
        def measured(shape, dtype):
            return arrays.fetch(zeros(shape, dtype)).nbytes

        return _bytes_of(answer, measured, types, refusals, surprise)

    @registry.add("02.2", returns=(int, float))
    def parameters(answer):
        return _parameters(answer)

    @registry.add("02.3", "shape, seed, device", returns=arrays.kind)
    def random_on(answer):
        return _random_on(answer, arrays, generators)

    return registry


# ------------------------------------------------------------------ 02.1

WHOLE_BYTES = "Memory is addressed by bytes, not by bits."

BEYOND_ALL_COMPUTERS = (2**30, 2**30)


def _bytes_of(
    answer: Callable[[tuple, str], int],
    measured: Callable[[tuple, str], int],
    types: Sequence[str],
    refusals: tuple[type[Exception], ...],
    surprise: Mapping[str, str],
) -> Iterator[Claim]:
    """Check that the sizes of arrays in bytes are predicted."""
    shape = (1024, 1024)
    given, wanted = answer(shape, "float32"), measured(shape, "float32")
    hint = f"They are said to be {given:,}."
    if given == wanted // 4:
        hint += " This is the number of elements."
    elif given == wanted * 8:
        hint += " These are bits."
    yield Claim(
        "a matrix of 1,024 × 1,024 numbers in `float32` has its bytes",
        given == wanted,
        hint,
    )
    other = {name: (answer((3, 5), name), measured((3, 5), name)) for name in types}
    wrong = [name for name, (given, wanted) in other.items() if given != wanted]
    hint = ""
    if wrong:
        name = wrong[0]
        hint = (
            f"Fifteen elements of the type `{name}` are said to have {other[name][0]}. "
        )
        if len(wrong) > 3:
            hint += "What says `dtype`?"
        else:
            hint += surprise.get(name, f"An array of them has {other[name][1]}.")
    yield Claim("those of other types as well", not wrong, hint)
    single, empty = answer((), "float32"), answer((7, 0), "float32")
    hint = f"Without elements, as in the shape (7, 0), it is said to have {empty}."
    if single != measured((), "float32"):
        hint = (
            f"An array of the shape () is said to have {single}. It has one element, "
            "though it has no dimension."
        )
    yield Claim(
        "arrays without dimensions and without elements have theirs",
        (single, empty) == (measured((), "float32"), 0),
        hint,
    )
    each = measured((1,), "float32")
    try:
        large = answer(BEYOND_ALL_COMPUTERS, "float32")
        hint = f"They are said to be {large:,}."
        if large <= 0:
            hint += " An integer of NumPy's or of the framework's has overflowed."
    except (MemoryError, *refusals):
        large = None
        hint = (
            "The answer creates the array, and there is no room for it. What has to be "
            "known of an array stands in its shape and its type."
        )
    yield Claim(
        "arrays too large for any computer have theirs",
        large == 2**60 * each,
        hint,
    )


# ------------------------------------------------------------------ 02.2

GIB = 2**30


def _parameters(answer: float) -> Iterator[Claim]:
    """Check that this many parameters, and not one more, can be trained in 16 GiB."""
    import numpy as np

    number, numbers = np.dtype("float32").itemsize, len(("W", "gradient", "m", "v"))
    capacity = 16 * GIB
    needed = answer * number * numbers
    because = {
        1: "So many fit if nothing but the parameters is kept.",
        2: "So many fit with the gradients, and without Adam's own numbers.",
        3: "So many fit with three numbers for each.",
    }
    hints = {capacity // (number * n): text for n, text in because.items()}
    hint = f"They need {needed / GIB:,.6g} GiB."
    yield Claim("that many fit", needed <= capacity, f"{hint} {hints.get(answer, '')}")
    if needed <= capacity / 1024:
        hint = "Is it a number of parameters, or of billions of them?"
    elif answer == 10**9:
        hint = "A GiB has 2³⁰ bytes, a bit more than a billion."
    elif answer == capacity // (number * (numbers + 1)):
        hint = "So many fit with five numbers for each: one was counted twice."
    else:
        hint = f"They need {needed / GIB:,.6g} of 16 GiB."
    yield Claim("and not one more", needed + number * numbers > capacity, hint)


# ------------------------------------------------------------------ 02.3


def _random_on(
    answer: Callable[[tuple, int, Any], Any],
    arrays: Arrays,
    generators: Mapping[str, Generator],
) -> Iterator[Claim]:
    """Check that every device gets the same random numbers."""
    import numpy as np

    devices = [*arrays.gpus(), arrays.cpu()]
    homes = [arrays.where(answer((4, 5), 3, device)) for device in devices]
    wanted = [arrays.name(device) for device in devices]
    apart = [pair for pair in zip(homes, wanted, strict=True) if len({*pair}) > 1]
    yield Claim(
        "they live on `device`",
        homes == wanted,
        "They live on {}, and {} was asked for.".format(*apart[0]) if apart else "",
    )
    x = answer((100, 50), 3, devices[1])
    values = arrays.on_host(x)
    hint = f"The shape is {values.shape}, the type {values.dtype}"
    if values.size:
        hint += f", the least number {values.min():.3g}, the largest {values.max():.3g}"
    few = len(np.unique(values)) < values.size / 2
    yield Claim(
        "they are in `float32`, in the shape that was asked for, spread from 0 to 1",
        values.shape == (100, 50)
        and values.dtype == np.float32
        and bool(((values >= 0) & (values < 1)).all())
        and not few
        and abs(values.mean() - 0.5) < 0.05,
        f"{hint}." + few * " Most numbers occur several times.",
    )
    drawn = [arrays.on_host(answer((4, 5), 3, device)) for device in devices]
    again = arrays.on_host(answer((4, 5), 3, devices[0]))
    hint = "On another device they are others."
    if not np.array_equal(again, drawn[0]):
        hint = "On the same device, the same seed gave others the second time."
    yield Claim(
        "one seed gives the same numbers on every device, each time",
        all(np.array_equal(again, each) for each in drawn),
        hint,
    )
    yield Claim(
        "another seed gives others",
        not np.array_equal(again, arrays.on_host(answer((4, 5), 4, devices[0]))),
        "3 and 4 gave the same numbers.",
    )
    disturbed = [
        name
        for name, (seed, draw) in generators.items()
        if _goes_on(seed, draw, lambda: None)
        != _goes_on(seed, draw, lambda: answer((4, 5), 3, devices[0]))
    ]
    yield Claim(
        "the random numbers of others are what they would have been",
        not disturbed,
        f"The answer draws from {' and '.join(disturbed)}, or seeds it. Who draws from "
        "it after that gets other numbers.",
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
        return f"They have the shape {given.shape}, and had {old.shape}."
    change = np.unique(given - old)
    if len(change) > 1:
        return (
            "Some numbers changed by more than others, though the gradient is 2 "
            "everywhere."
        )
    because = {
        1: "The gradient points to where the loss grows, and they went there.",
        -2: "This is the whole gradient, whatever the learning rate.",
        0: "They are the old ones.",
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
        "they are some of the expressions above",
        not unknown,
        f"{unknown[0]!r} is none of them." if unknown else "",
    )
    truth = {expression: shares(expression) for expression in questions}
    claimed = [each for each in questions if each in answer and not truth[each]]
    yield Claim(
        "those that are named share the memory of `A`",
        not claimed,
        f"One does not. {questions[claimed[0]]}" if claimed else "",
    )
    missing = [each for each in questions if truth[each] and each not in answer]
    yield Claim(
        "those that are not named do not",
        not missing,
        f"One does. {questions[missing[0]]}" if missing else "",
    )
