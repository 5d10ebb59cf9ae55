"""A function ported to another framework: the same values on the same devices."""

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence

import numpy as np

from d2l_gpu.exercises.arrays import Arrays
from d2l_gpu.exercises.cases import in_all
from d2l_gpu.exercises.crossing import HOST
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run, given

GPUS = 3
_NAMES = [f"GPU {i}" for i in range(GPUS)]


def _looked_at(arrays: Arrays, gpus: Gpus, result: Sequence) -> dict:
    """Return the types of what should be arrays and, if they are, what's in them."""
    usable = all(isinstance(each, arrays.kind) for each in result)
    return {
        "kinds": [type(each).__name__ for each in result],
        "usable": usable,
        "homes": [gpus.where(each) for each in result],
        "values": [arrays.on_host(each) for each in result] if usable else [],
    }


def _usable(as_many: Claim, found: dict) -> Generator[Claim, None, bool]:
    """Claim what must hold of a result before its values can be looked at.

    Args:
        as_many: the claim that it has as many arrays as it should.
        found: what `_looked_at` returned.
    Returns:
        Whether all of it holds.
    """
    yield as_many
    if not as_many.holds:
        return False
    kinds = sorted(set(found["kinds"]))
    claim = Claim(
        "each is an array of the framework",
        found["usable"],
        f"They have the type {', '.join(kinds)}.",
    )
    yield claim
    return claim.holds


# ------------------------------------------------------------------ A2.1


_X = np.array([1, 2, 3, 6], np.float32)


def _one_centred(
    arrays: Arrays, answer: Callable, gpus: Gpus, home: int, device: int
) -> dict:
    result = answer(arrays.put(_X, gpus[home]), gpus[device])
    return {"values": arrays.on_host(result), "home": gpus.where(result)}


def centred(arrays: Arrays, run: Run) -> Iterator[Claim]:
    """Check that a vector minus its mean is returned on the requested device."""
    return in_all(_centred_of(run, *case) for case in ((0, 0), (0, 1), (1, 0)))


def _centred_of(run: Run, home: int, device: int) -> Iterator[Claim]:
    values, result = _X, run(_one_centred, home, device)
    found, place = result["values"], result["home"]
    hint = f"For {values.tolist()}, you return {found.tolist()}."
    if np.array_equal(found, values):
        hint = "You return the values of `x` and subtract nothing."
    elif found.shape != values.shape:
        hint = f"Its shape is {found.shape}, but `x` has {values.shape}."
    elif np.allclose(found, values - values.sum()):
        hint = "You subtracted the sum, not the mean."
    right = found.shape == values.shape and np.allclose(found, values - values.mean())
    yield Claim("the values are those of `x` minus their mean", right, hint)
    hint = (
        f"`x` was on {_NAMES[home]}, `device` is {_NAMES[device]}, but the result is "
        f"on {place}."
    )
    if place == HOST:
        hint += " That's where new arrays go by default."
    elif place == _NAMES[home]:
        hint += " It's as if you had ignored `device`."
    yield Claim("the result is on `device`", place == _NAMES[device], hint)


# ------------------------------------------------------------------ A2.2


def _rows(n: int, dtype: str) -> np.ndarray:
    return np.arange(2 * n).reshape(n, 2).astype(dtype)


def _split(arrays: Arrays, answer: Callable, gpus: Gpus, n: int, dtype: str) -> dict:
    return _looked_at(arrays, gpus, answer(_rows(n, dtype), gpus[:]))


def shards(arrays: Arrays, run: Run) -> Iterator[Claim]:
    """Check that an array's rows are split among devices as NumPy splits them."""
    cases = zip((8, 4, 7), itertools.cycle(arrays.kept))
    return in_all(_shards_of(run, *case) for case in cases)


def _shards_of(run: Run, n: int, dtype: str) -> Iterator[Claim]:
    X, k = _rows(n, dtype), GPUS
    result = run(_split, n, dtype)
    number = len(result["kinds"])
    as_many = Claim(
        "there's a shard for each device",
        number == k,
        f"You split {n} rows for {k} devices into {number} shard{'s' * (number != 1)}.",
    )
    if not (yield from _usable(as_many, result)):
        return
    wanted, places = _NAMES, result["homes"]
    yield Claim(
        "each shard is on its device",
        places == wanted,
        f"The shards are on {', '.join(places)}, but the devices are "
        f"{', '.join(wanted)}.",
    )
    parts = result["values"]
    sizes = [len(part) if part.ndim else 0 for part in parts]
    cut = np.array_split(X, k)
    yield Claim(
        "the shards have as many rows as NumPy's",
        sizes == [len(part) for part in cut],
        _wrong_sizes(sizes, cut, n),
    )
    if sizes != [len(part) for part in cut]:
        return
    yield Claim(
        "they contain the rows of `X`, in order",
        all(map(np.array_equal, parts, cut)),
        f"The first shard of {n} rows is {parts[0].tolist()}, but should be "
        f"{cut[0].tolist()}.",
    )
    kinds = sorted({part.dtype.name for part in parts})
    yield Claim(
        "their numbers have the type of those in `X`",
        kinds == [dtype],
        f"For an `X` of {dtype}, the shards contain {' and '.join(kinds)}.",
    )


def _wrong_sizes(sizes: Sequence[int], cut: Sequence[np.ndarray], n: int) -> str:
    if set(sizes) == {n}:
        return "Each device has all the rows: those are copies, not shards."
    if sum(sizes) < n:
        return f"Only {sum(sizes)} of {n} rows are left: you dropped the remainder."
    if sum(sizes) > n:
        return f"There are now {sum(sizes)} rows, but `X` has only {n}."
    return f"You split {n} rows into {sizes} instead of {[len(part) for part in cut]}."


# ------------------------------------------------------------------ A2.3


_VALUES = [np.array([1, 2], np.float32) * 10**i for i in range(GPUS)]


def reduced(arrays: Arrays, answer: Callable, gpus: Gpus) -> dict:
    """Have the arrays of all GPUs added up."""
    parts = [arrays.put(v, gpu) for v, gpu in zip(_VALUES, gpus, strict=True)]
    return _looked_at(arrays, gpus, answer(parts))


def all_reduce(arrays: Arrays, run: Run) -> Iterator[Claim]:
    """Check that each device gets the sum of all arrays."""
    values, k = _VALUES, GPUS
    result = run(reduced)
    number = len(result["kinds"])
    as_many = Claim(
        "as many arrays come out as went in",
        number == k,
        f"{k} went in, but {number} came out.",
    )
    if not (yield from _usable(as_many, result)):
        return
    found = result["values"]
    total = sum(values)
    yield Claim(
        "each is the sum of all arrays",
        all(map(np.array_equal, found, [total] * k)),
        _wrong_sums(found, values),
    )
    places = result["homes"]
    yield Claim(
        "each result is on the device of the array in its place",
        places == _NAMES,
        f"They're on {', '.join(places)}, but the arrays you were given are on "
        f"{', '.join(_NAMES)}.",
    )


def _wrong_sums(found: Sequence[np.ndarray], values: Sequence[np.ndarray]) -> str:
    total = sum(values)
    if found[0].shape != total.shape:
        return (
            f"The first has the shape {found[0].shape}, but should have {total.shape}."
        )
    if all(np.allclose(each, total / len(values)) for each in found):
        return "Each is the mean of all arrays, not the sum."
    if np.array_equal(found[0], total) and np.array_equal(found[1], values[1]):
        return "Only the first has the sum; the others haven't changed."
    if np.allclose(found[-1], total) and np.allclose(found[0], values[0]):
        return (
            "Each has the sum of the arrays up to its own, so only the last has the "
            "sum of all."
        )
    if any((each > total).any() for each in found):
        return (
            f"{found[-1].tolist()} is more than the sum, {total.tolist()}: something "
            "was counted twice."
        )
    return f"The first is {found[0].tolist()}, but the sum is {total.tolist()}."


def exercises(
    arrays: Arrays,
    reduction: Callable[[Arrays, Callable], Iterator[Claim]] = all_reduce,
) -> Registry:
    """Return the exercises of appendix A2, for one framework.

    Args:
        arrays: the framework's arrays.
        reduction: the grader of A2.3.
    """
    registry, sequence = Registry(), (list, tuple)
    for number, parameters, returns, grader in (
        ("A2.1", "x, device", arrays.kind, centred),
        ("A2.2", "X, devices", sequence, shards),
        ("A2.3", "parts", sequence, reduction),
    ):
        registry.add(number, parameters, returns, gpus=GPUS)(given(grader, arrays))
    return registry
