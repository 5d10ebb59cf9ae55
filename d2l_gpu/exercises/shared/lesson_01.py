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
        "with two GPUs, indices 0 and 1 return the first and the second",
        first == names,
        f"They return {first[0]} and {first[1]}. GPUs are numbered from 0.",
    )
    around = [tried(2, i) for i in range(2, 7)]
    yield Claim(
        "from index 2 on, it starts again with the first GPU",
        around == [names[i % 2] for i in range(2, 7)],
        _not_around(around, names, host),
    )
    alone = [tried(1, i) for i in range(3)]
    yield Claim(
        "with one GPU, every index returns that GPU",
        alone == names[:1] * 3,
        f"With one GPU, indices 0, 1 and 2 return {', '.join(alone)}. There are two "
        "GPUs here, but other machines have a different number.",
    )
    none = [tried(0, i) for i in range(2)]
    hint = f"Without a GPU, it returns {none[0]}."
    if "ZeroDivisionError" in none[0]:
        hint = (
            "Without a GPU there's nothing to go around, and your function divides by "
            "zero."
        )
    yield Claim("without a GPU, it returns the CPU", none == [host] * 2, hint)


def _not_around(given: Sequence[str], names: Sequence[str], host: str) -> str:
    if given[0] == host:
        return (
            "Index 2 returns the CPU, as `try_gpu` does. There are two GPUs, so the "
            "numbering should start again."
        )
    if set(given) == {names[1]}:
        return f"Every index from 1 on returns {names[1]}: your numbering stops there."
    return f"Index 2 returns {given[0]}."


# ------------------------------------------------------------------ 01.2


def _on_machine(answer: Callable[[int, str | None], Any]) -> Iterator[Claim]:
    """Check that the renumbering by ``CUDA_VISIBLE_DEVICES`` is undone."""
    result = [answer(i, "3,1") for i in range(2)]
    kinds = {type(number).__name__ for number in result}
    yield Claim(
        "the number is an integer",
        kinds == {"int"},
        f"You return a {' or '.join(sorted(kinds))}.",
    )
    given = _numbers(answer, "1,2,0")
    yield Claim(
        "with `3,1`, the program's GPUs 0 and 1 are the machine's GPUs 3 and 1",
        result == [3, 1],
        _wrong_numbers(result, given),
    )
    yield Claim(
        "with `1,2,0`, they're GPUs 1, 2 and 0",
        given == [1, 2, 0],
        "With `1,2,0`, you return "
        + ", ".join(map(str, given))
        + ". You're given the program's number and should return the machine's.",
    )
    many = _numbers(answer, "10,11,2")
    yield Claim(
        "GPU numbers may have two digits",
        many == [10, 11, 2],
        f"With `10,11,2`, you return {', '.join(map(str, many))}. Where does one "
        "number end?",
    )
    unset = _numbers(answer, None)
    yield Claim(
        "without the variable, the numbers don't change",
        unset == [0, 1, 2],
        f"Without the variable, you return {unset[0]} for the program's GPU 0.",
    )
    beyond, hidden = _tried(answer, 2, "3,1"), _tried(answer, 0, "")
    yield Claim(
        "it returns None for a GPU that the program can't see",
        beyond is None,
        f"With `3,1`, the program has no third GPU, but you return {beyond}.",
    )
    yield Claim(
        "an empty variable hides all GPUs",
        hidden is None,
        f"With an empty string, you return {hidden}. What does `''.split(',')` return?",
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
        return "You return the program's own numbers."
    if sorted(two) == two:
        return (
            f"With `3,1`, you return {two[0]} and {two[1]}: the order of the list "
            "matters."
        )
    return f"With `3,1`, you return {two[0]} and {two[1]}."


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
        "`f` is called exactly once",
        set(calls) == {1},
        "You never call it: `f` is only the name of the function."
        if set(calls) == {0}
        else f"You call it {calls[0]} times, and each call might take hours.",
    )
    if set(calls) != {1}:
        return
    seen = [where(x) for x in made]
    yield Claim(
        "`f` creates its arrays on `device`",
        seen == wanted,
        _elsewhere(seen, [where(x) for x in came_back], wanted),
    )
    yield Claim(
        "it returns what `f` returns",
        all(x is y for x, y in zip(came_back, made, strict=True)),
        "You return a different object, even if it's only a copy.",
    )
    yield Claim(
        "afterwards, the default device is the same as before",
        after == before,
        f"Afterwards, a new array is created on {after[0]}; before the call it was "
        f"{before[0]}.",
    )
    yield from _if_it_raises(answer, devices, create, where)


def _elsewhere(
    seen: Sequence[str], came_back: Sequence[str], wanted: Sequence[str]
) -> str:
    if came_back == wanted:
        return (
            f"Only the result is there: `f` created it on {seen[0]}, and you copied it "
            "afterwards."
        )
    if len(set(seen)) == 1 and seen[0] in wanted:
        return f"`f` creates it on {seen[0]}, whichever `device` you're given."
    return f"You were given {wanted[0]}, but `f` created its array on {seen[0]}."


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
        "You swallow the error, so the caller carries on as if nothing had happened.",
    )
    yield Claim(
        "after an error, the default device is the same as before too",
        after == before,
        f"After `f` had raised an error, new arrays were created on {after[0]}. "
        "Python doesn't run the lines after one that raises.",
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
        "it returns two numbers",
        result is not None,
        "Return one doubling time for arithmetic and one for memory bandwidth.",
    )
    if result is None:
        return
    yield Claim(
        "for steady growth, both doubling times are right",
        np.allclose(result, [2, 4]),
        _wrong_times(result, years, steady),
    )
    wanted = [1 / np.polyfit(years, np.log2(values), 1)[0] for values in real]
    given = _pair(answer(_table(years, real))) or [np.nan] * 2
    yield Claim(
        "for uneven growth, they're those of the best-fitting line",
        np.allclose(given, wanted),
        f"For one table, you return {given[0]:.2f} years instead of {wanted[0]:.2f}. "
        "Fit the line to all points, including those in the middle.",
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
        f"For growth that doubles every 2 and every 4 years, you return {given[0]:.3g} "
    )
    what += f"and {given[1]:.3g}."
    because = {
        "Those are doublings per year.": [1 / 2, 1 / 4],
        "Those are doublings per decade.": [5, 2.5],
        "That's the time in which it grows by a factor of e.": [
            2 / np.log(2),
            4 / np.log(2),
        ],
        "That's the time in which it grows tenfold.": [
            2 * np.log2(10),
            4 * np.log2(10),
        ],
        "You swapped the two.": [4, 2],
        "Did you fit the line to the values, or to their logarithms?": linear,
    }
    for reason, times in because.items():
        if np.allclose(given, times):
            return f"{what} {reason}"
    return what
