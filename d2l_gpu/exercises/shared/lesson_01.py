"""Devices: numbering GPUs, and the device that new arrays get by default."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from d2l_gpu.common.gpu_choice import Gpus
from d2l_gpu.exercises.arrays import Arrays
from d2l_gpu.exercises.registry import Claim, Registry


def exercises(
    arrays: Arrays, gpus: Gpus, device: type, create: Callable[[], Any]
) -> Registry:
    """Return the shared exercises of lesson 01, 01.1 to 01.4, for one framework.

    Args:
        arrays: the framework's arrays.
        gpus: the framework's GPUs; two are in use.
        device: the type of the framework's devices.
        create: creates an array without naming a device.
    """
    registry = Registry()

    @registry.add("01.1", "i", returns=device)
    def gpu_in_turn(answer):
        return _gpu_in_turn(answer, gpus, arrays.name)

    @registry.add("01.2", "i, visible")
    def on_machine(answer):
        return _on_machine(answer)

    @registry.add("01.3", "f, device")
    def run_on(answer):
        return _run_on(answer, arrays, create)

    @registry.add("01.4", "gpus")
    def doubling_times(answer):
        return _doubling_times(answer)

    return registry


# ------------------------------------------------------------------ 01.1

# Raised by indexing past the last GPU, or by taking an index modulo zero GPUs.
_BEYOND = (ArithmeticError, LookupError, ValueError)


@contextmanager
def _with_gpus(gpus: Gpus, n: int) -> Iterator[None]:
    """Leave only the first n of the GPUs in use."""
    decision = gpus.decision
    gpus.decision = replace(decision, devices=decision.devices[:n])
    try:
        yield
    finally:
        gpus.decision = decision


def _gpu_in_turn(
    answer: Callable[[int], Any], gpus: Gpus, name: Callable[[Any], str]
) -> Iterator[Claim]:
    """Check that the i-th GPU is returned, wrapping around after the last."""
    names = [name(gpus.gpu(i)) for i in range(2)]
    host = name(gpus.cpu())

    def called(n: int, i: int) -> str:
        with _with_gpus(gpus, n):
            return name(answer(i))

    def tried(n: int, i: int) -> str:
        try:
            return called(n, i)
        except _BEYOND as error:
            return f"{type(error).__name__}: {error}"

    first = [called(2, i) for i in range(2)]
    yield Claim(
        "with two GPUs, the indices 0 and 1 give the first and the second",
        first == names,
        f"They give {first[0]} and {first[1]}. GPUs are counted from 0.",
    )
    around = [tried(2, i) for i in range(2, 7)]
    yield Claim(
        "from index 2 on, it begins again",
        around == [names[i % 2] for i in range(2, 7)],
        _not_around(around, names, host),
    )
    alone = [tried(1, i) for i in range(3)]
    yield Claim(
        "with one GPU, every index gives that one",
        alone == names[:1] * 3,
        f"Indices 0, 1 and 2 give {', '.join(alone)}. Two is the number of GPUs here; "
        "elsewhere it is another.",
    )
    none = [tried(0, i) for i in range(2)]
    hint = f"It gives {none[0]}."
    if "ZeroDivisionError" in none[0]:
        hint = "There is nothing to count around, and the answer divides by zero."
    yield Claim("without any GPU, it is the CPU", none == [host] * 2, hint)


def _not_around(given: Sequence[str], names: Sequence[str], host: str) -> str:
    if given[0] == host:
        return (
            "Index 2 gives the CPU, as `try_gpu` does. There are GPUs; the counting is "
            "to begin again."
        )
    if set(given) == {names[1]}:
        return f"All indices from 1 on give {names[1]}: the counting ends there."
    return f"Index 2 gives {given[0]}."


# ------------------------------------------------------------------ 01.2


def _on_machine(answer: Callable[[int, str | None], Any]) -> Iterator[Claim]:
    """Check that the renumbering by ``CUDA_VISIBLE_DEVICES`` is undone."""
    result = [answer(i, "3,1") for i in range(2)]
    kinds = {type(number).__name__ for number in result}
    yield Claim(
        "the number is an integer",
        kinds == {"int"},
        f"It is of the type {' or '.join(sorted(kinds))}.",
    )
    given = _numbers(answer, "1,2,0")
    yield Claim(
        "with `3,1`, what the program calls 0 and 1 are the GPUs 3 and 1",
        result == [3, 1],
        _wrong_numbers(result, given),
    )
    yield Claim(
        "with `1,2,0`, they are the GPUs 1, 2 and 0",
        given == [1, 2, 0],
        "They are "
        + ", ".join(map(str, given))
        + ". What is given is the program's number, what is wanted the machine's.",
    )
    many = _numbers(answer, "10,11,2")
    yield Claim(
        "numbers may have two digits",
        many == [10, 11, 2],
        f"With `10,11,2`, it returns {', '.join(map(str, many))}. Where does one "
        "number end?",
    )
    unset = _numbers(answer, None)
    yield Claim(
        "without the variable, nothing is renumbered",
        unset == [0, 1, 2],
        f"What the program calls 0 is said to be {unset[0]}.",
    )
    beyond, hidden = _tried(answer, 2, "3,1"), _tried(answer, 0, "")
    yield Claim(
        "a GPU that the program does not see is None",
        beyond is None,
        f"With `3,1` there is no third one, and it gives {beyond}.",
    )
    yield Claim(
        "an empty variable hides them all",
        hidden is None,
        f"With an empty text, it gives {hidden}. What does `''.split(',')` return?",
    )


def _numbers(answer: Callable, visible: str | None) -> list:
    return [_tried(answer, i, visible) for i in range(3)]


def _tried(answer: Callable, i: int, visible: str | None) -> Any:
    try:
        return answer(i, visible)
    except (AttributeError, LookupError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def _wrong_numbers(two: Sequence[int], three: Sequence[int]) -> str:
    if [*two, *three] == [0, 1, 0, 1, 2]:
        return "The program's own numbers came back."
    if sorted(two) == two:
        return f"They are {two[0]} and {two[1]}: the order of the list counts."
    return f"They are {two[0]} and {two[1]}."


# ------------------------------------------------------------------ 01.3


def _run_on(
    answer: Callable[[Callable[[], Any], Any], Any],
    arrays: Arrays,
    create: Callable[[], Any],
) -> Iterator[Claim]:
    """Check that a function runs with a default device, which is then restored."""
    devices, where = arrays.gpus()[::-1], arrays.where
    wanted = [arrays.name(device) for device in devices]
    made, came_back, before, after = [], [], [], []

    def f() -> Any:
        made.append(create())
        return made[-1]

    calls = []
    for device in devices:
        before.append(where(create()))
        came_back.append(answer(f, device))
        after.append(where(create()))
        calls.append(len(made) - sum(calls))
    yield Claim(
        "`f` is called once",
        set(calls) == {1},
        "It is not called: `f` names the function, and does not run it."
        if set(calls) == {0}
        else f"It is called {calls[0]} times, and may have taken hours.",
    )
    if set(calls) != {1}:
        return
    seen = [where(x) for x in made]
    yield Claim(
        "what `f` creates is created on `device`",
        seen == wanted,
        _elsewhere(seen, [where(x) for x in came_back], wanted),
    )
    yield Claim(
        "what `f` returns is returned",
        all(x is y for x, y in zip(came_back, made, strict=True)),
        "What comes back is something else, if only a copy of it.",
    )
    yield Claim(
        "afterwards, all is as before",
        after == before,
        f"Then an array without a device was created on {after[0]}, before on "
        f"{before[0]}.",
    )
    yield from _if_it_raises(answer, devices, create, where)


def _elsewhere(
    seen: Sequence[str], came_back: Sequence[str], wanted: Sequence[str]
) -> str:
    if came_back == wanted:
        return (
            f"Only what came back lives there. It was created on {seen[0]}, and copied "
            "afterwards."
        )
    if len(set(seen)) == 1 and seen[0] in wanted:
        return f"It is {seen[0]}, whichever `device` is asked for."
    return f"{wanted[0]} was asked for, and it was {seen[0]}."


def _if_it_raises(
    answer: Callable, devices: Sequence[Any], create: Callable, where: Callable
) -> Iterator[Claim]:
    class Planted(Exception):
        pass

    def fails() -> None:
        raise Planted

    passed_on, before, after = True, [], []
    for device in devices:
        before.append(where(create()))
        try:
            answer(fails, device)
        except Planted:
            pass
        else:
            passed_on = False
        after.append(where(create()))
    yield Claim(
        "an error in `f` reaches the caller",
        passed_on,
        "It was swallowed, and the caller goes on as if nothing had happened.",
    )
    yield Claim(
        "after an error, too, all is as before",
        after == before,
        f"`f` raised an error, and from then on arrays were created on {after[0]}. "
        "What comes after a line that raises is not run.",
    )


# ------------------------------------------------------------------ 01.4


def _doubling_times(answer: Callable[[dict], Any]) -> Iterator[Claim]:
    """Check that growth rates are fitted to a table of GPUs."""
    import numpy as np

    rng = np.random.default_rng(0)
    years = np.array([2010, 2013, 2016, 2017, 2020, 2022])
    steady = np.stack([2 ** ((years - 2010) / 2), 50 * 2 ** ((years - 2010) / 4)])
    real = steady * rng.uniform(0.6, 1.6, steady.shape)
    result = _pair(answer(_table(years, steady)))
    yield Claim(
        "two numbers are returned",
        result is not None,
        "One is for arithmetic, the other for the bandwidth of memory.",
    )
    if result is None:
        return
    yield Claim(
        "steady growth has the doubling time that it has",
        np.allclose(result, [2, 4]),
        _wrong_times(result, years, steady),
    )
    wanted = [1 / np.polyfit(years, np.log2(values), 1)[0] for values in real]
    given = _pair(answer(_table(years, real))) or [np.nan] * 2
    yield Claim(
        "where growth is not steady, it is that of the line that fits best",
        np.allclose(given, wanted),
        f"Of one table, {given[0]:.2f} years are returned instead of {wanted[0]:.2f}. "
        "A line through all points is wanted, also those in the middle.",
    )


def _table(years, values) -> dict:
    rows = zip(years.tolist(), *values.tolist(), strict=True)
    return {f"GPU {i}": row for i, row in enumerate(rows)}


def _pair(result: Any) -> list[float] | None:
    try:
        first, second = map(float, result)
    except (TypeError, ValueError):
        return None
    return [first, second]


def _wrong_times(given: Sequence[float], years, values) -> str:
    import numpy as np

    linear = [1 / np.polyfit(years, row, 1)[0] for row in values]
    what = (
        f"Growth that doubles in 2 and in 4 years is said to do so in {given[0]:.3g} "
    )
    what += f"and in {given[1]:.3g}."
    because = {
        "These are doublings per year.": [1 / 2, 1 / 4],
        "These are doublings per decade.": [5, 2.5],
        "This is the time in which it grows by a factor of e.": [
            2 / np.log(2),
            4 / np.log(2),
        ],
        "This is the time in which it grows tenfold.": [
            2 * np.log2(10),
            4 * np.log2(10),
        ],
        "The two have changed places.": [4, 2],
        "Was the line laid through the values, or through their logarithms?": linear,
    }
    for reason, times in because.items():
        if np.allclose(given, times):
            return f"{what} {reason}"
    return what
