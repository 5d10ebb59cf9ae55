"""Devices: numbering GPUs, and the device that new arrays get by default."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Number
from typing import Any

from d2l_gpu.common import gpu_choice
from d2l_gpu.exercises.arrays import Arrays
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run, given


@dataclass(frozen=True)
class Devices:
    """What the shared exercises have to know of a framework's devices.

    Attributes:
        arrays: the framework's arrays.
        choice: the framework's GPUs; two are in use.
        create: creates an array without naming a device.
    """

    arrays: Arrays
    choice: gpu_choice.Gpus
    create: Callable[[], Any]


def exercises(devices: Devices, device: type) -> Registry:
    """Return the shared exercises of lesson 01, 01.1 to 01.4, for one framework.

    Args:
        devices: the framework's devices.
        device: their type.
    """
    registry = Registry()
    registry.add("01.1", "i", returns=device)(given(gpu_in_turn, devices))
    registry.add("01.2", "i, visible")(on_machine)
    registry.add("01.3", "f, device")(given(run_on, devices))
    registry.add("01.4", "gpus")(doubling_times)
    return registry


# ------------------------------------------------------------------ 01.1

# Raised by indexing past the last GPU, or by taking an index modulo zero GPUs.
_BEYOND = (ArithmeticError, LookupError, ValueError)


@contextmanager
def _with_gpus(gpus: gpu_choice.Gpus, n: int) -> Iterator[None]:
    """Leave only the first n of the GPUs in use."""
    decision = gpus.decision
    gpus.decision = replace(decision, devices=decision.devices[:n])
    try:
        yield
    finally:
        gpus.decision = decision


def _turns(
    devices: Devices,
    answer: Callable,
    gpus: Gpus,
    n: int,
    indices: Sequence[int],
    caught: bool = True,
) -> list[str]:
    """Return the names of the devices for some indices, with n GPUs.

    They're the names that the devices really have, since this is about numbering.

    Args:
        caught: whether to return what an answer raises instead.
    """
    found = []
    with _with_gpus(devices.choice, n):
        for i in indices:
            try:
                found.append(devices.arrays.name(answer(i)))
            except _BEYOND as error:
                if not caught:
                    raise
                found.append(f"{type(error).__name__}: {error}")
    return found


def gpu_in_turn(devices: Devices, run: Run) -> Iterator[Claim]:
    """Check that the i-th GPU is returned, wrapping around after the last."""
    name, choice = devices.arrays.name, devices.choice
    names = [name(choice.gpu(i)) for i in range(2)]
    host = name(choice.cpu())
    first = run(_turns, 2, [0, 1], False)
    yield Claim(
        "with two GPUs, indices 0 and 1 return the first and the second",
        first == names,
        f"They return {first[0]} and {first[1]}. GPUs are numbered from 0.",
    )
    around = run(_turns, 2, list(range(2, 7)))
    yield Claim(
        "from index 2 on, it starts again with the first GPU",
        around == [names[i % 2] for i in range(2, 7)],
        _not_around(around, names, host),
    )
    if around == [names[i % 2] for i in range(2, 7)]:
        mixed = [3, 3, 0, 6, 5, 2, 2]
        again = run(_turns, 2, mixed)
        yield Claim(
            "the device depends on the index, not on earlier calls",
            again == [names[i % 2] for i in mixed],
            f"Asked for indices {', '.join(map(str, mixed))} in this order, you return "
            f"{', '.join(again)}. In order from 0, each index gave the right device.",
        )
    alone = run(_turns, 1, [0, 1, 2])
    yield Claim(
        "with one GPU, every index returns that GPU",
        alone == names[:1] * 3,
        f"With one GPU, indices 0, 1 and 2 return {', '.join(alone)}. There are two "
        "GPUs here, but other machines have a different number.",
    )
    none = run(_turns, 0, [0, 1])
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


def _on_the_machine(
    answer: Callable,
    gpus: Gpus,
    visible: str | None,
    indices: Sequence[int],
    caught: bool = True,
) -> list[tuple[str, Any]]:
    """Return the type and value of the numbers for some indices.

    Args:
        caught: whether to return what an answer raises instead.
    """
    found = []
    for i in indices:
        try:
            number = answer(i, visible)
        except (AttributeError, LookupError, ValueError) as error:
            if not caught:
                raise
            number = f"{type(error).__name__}: {error}"
        plain = number is None or isinstance(number, Number | str)
        found.append((type(number).__name__, number if plain else repr(number)))
    return found


def on_machine(run: Run) -> Iterator[Claim]:
    """Check that the renumbering by ``CUDA_VISIBLE_DEVICES`` is undone."""

    def asked(visible: str | None, *indices: int) -> list:
        return [number for _, number in run(_on_the_machine, visible, indices)]

    first = run(_on_the_machine, "3,1", (0, 1), False)
    result = [number for _, number in first]
    kinds = {kind for kind, _ in first}
    yield Claim(
        "the number is an integer",
        kinds == {"int"},
        f"You return a {' or '.join(sorted(kinds))}.",
    )
    given = asked("1,2,0", 0, 1, 2)
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
    many = asked("10,11,2", 0, 1, 2)
    yield Claim(
        "GPU numbers may have two digits",
        many == [10, 11, 2],
        f"With `10,11,2`, you return {', '.join(map(str, many))}. Where does one "
        "number end?",
    )
    unset = asked(None, 0, 1, 2)
    yield Claim(
        "without the variable, the numbers don't change",
        unset == [0, 1, 2],
        f"Without the variable, you return {unset[0]} for the program's GPU 0.",
    )
    [beyond], [hidden] = asked("3,1", 2), asked("", 0)
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


def _ran(devices: Devices, answer: Callable, gpus: Gpus) -> list[dict]:
    """Have a function run on each GPU, and look where arrays are created."""
    create, where = devices.create, gpus.where
    made = []

    def f() -> Any:
        made.append(create())
        return made[-1]

    cases = []
    for device in gpus[::-1]:
        made.clear()
        before = where(create())
        came_back = answer(f, device)
        cases.append(
            {
                "device": gpus.name(device),
                "calls": len(made),
                "made": where(made[-1]) if made else "",
                "came back": where(came_back),
                "same object": bool(made) and came_back is made[-1],
                "before": before,
                "after": where(create()),
            }
        )
    return cases


def run_on(devices: Devices, run: Run) -> Iterator[Claim]:
    """Check that a function runs with a default device, which is then restored."""
    cases = run(_ran)
    calls = [case["calls"] for case in cases]
    yield Claim(
        "`f` is called exactly once",
        set(calls) == {1},
        "You never call it: `f` is only the name of the function."
        if set(calls) == {0}
        else f"You call it {calls[0]} times, and each call might take hours.",
    )
    if set(calls) != {1}:
        return
    seen, wanted = ([case[key] for case in cases] for key in ("made", "device"))
    yield Claim(
        "`f` creates its arrays on `device`",
        seen == wanted,
        _elsewhere(seen, [case["came back"] for case in cases], wanted),
    )
    yield Claim(
        "it returns what `f` returns",
        all(case["same object"] for case in cases),
        "You return a different object, even if it's only a copy.",
    )
    first = cases[0]
    yield Claim(
        "afterwards, the default device is the same as before",
        all(case["after"] == case["before"] for case in cases),
        f"Afterwards, a new array is created on {first['after']}; before the call it "
        f"was {first['before']}.",
    )
    yield from _if_it_raises(run)


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


def _failed(devices: Devices, answer: Callable, gpus: Gpus) -> list[dict]:
    """Have a function run on each GPU that raises an error."""

    class Planted(Exception):
        pass

    def fails() -> None:
        raise Planted

    create, where = devices.create, gpus.where
    cases = []
    for device in gpus[::-1]:
        before, passed_on = where(create()), False
        try:
            answer(fails, device)
        except Planted:
            passed_on = True
        after = where(create())
        cases.append({"passed on": passed_on, "before": before, "after": after})
    return cases


def _if_it_raises(run: Run) -> Iterator[Claim]:
    cases = run(_failed)
    yield Claim(
        "an error in `f` reaches the caller",
        all(case["passed on"] for case in cases),
        "You swallow the error, so the caller carries on as if nothing had happened.",
    )
    yield Claim(
        "after an error, the default device is the same as before too",
        all(case["after"] == case["before"] for case in cases),
        f"After `f` had raised an error, new arrays were created on "
        f"{cases[0]['after']}. Python doesn't run the lines after one that raises.",
    )


# ------------------------------------------------------------------ 01.4


def _times(answer: Callable, gpus: Gpus, table: dict) -> list[float] | None:
    """Return the two doubling times; None if the answer doesn't return two numbers."""
    try:
        first, second = map(float, answer(table))
    except (TypeError, ValueError):
        return None
    return [first, second]


def doubling_times(run: Run) -> Iterator[Claim]:
    """Check that growth rates are fitted to a table of GPUs."""
    import numpy as np

    rng = np.random.default_rng(0)
    years = np.array([2010, 2013, 2016, 2017, 2020, 2022])
    steady = np.stack([2 ** ((years - 2010) / 2), 50 * 2 ** ((years - 2010) / 4)])
    real = steady * rng.uniform(0.6, 1.6, steady.shape)
    result = run(_times, _table(years, steady))
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
    given = run(_times, _table(years, real)) or [np.nan] * 2
    yield Claim(
        "for uneven growth, they're those of the best-fitting line",
        np.allclose(given, wanted),
        f"For one table, you return {given[0]:.2f} years instead of {wanted[0]:.2f}. "
        + _why_not_best(given, years, np.log2(real)),
    )


def _why_not_best(given: Sequence[float], years, rows) -> str:
    """Return a hint for doubling times that aren't those of the best-fitting line.

    Args:
        rows: the logarithms of the values to the base 2.
    """
    import numpy as np

    if np.allclose(given, [(years[-1] - years[0]) / (v[-1] - v[0]) for v in rows]):
        return (
            "You use only the first and the last point. Fit the line to all points, "
            "including those in the middle."
        )
    for k, name in (0, "first"), (-1, "last"):
        t = years - years[k]
        if np.allclose(given, [(t @ t) / (t @ (v - v[k])) for v in rows]):
            return (
                f"That's what the best line through the {name} point gives. The "
                "best-fitting line needn't go through any of the points."
            )
    return "The best-fitting line weighs all points equally."


def _table(years, values) -> dict:
    rows = zip(years.tolist(), *values.tolist(), strict=True)
    return {f"GPU {i}": row for i, row in enumerate(rows)}


def _wrong_times(given: Sequence[float], years, values) -> str:
    import numpy as np

    linear = [1 / np.polyfit(years, row, 1)[0] for row in values]
    what = (
        f"For growth that doubles every 2 and every 4 years, you return {given[0]:.3g} "
        f"and {given[1]:.3g}."
    )
    e, ten = np.log(2), np.log2(10)
    because = [
        ([1 / 2, 1 / 4], "Those are doublings per year."),
        ([5, 2.5], "Those are doublings per decade."),
        ([2 / e, 4 / e], "That's the time in which it grows by a factor of e."),
        ([2 * ten, 4 * ten], "That's the time in which it grows tenfold."),
        ([4, 2], "You swapped the two."),
        (linear, "Did you fit the line to the values, or to their logarithms?"),
    ]
    for times, reason in because:
        if np.allclose(given, times):
            return f"{what} {reason}"
    return what
