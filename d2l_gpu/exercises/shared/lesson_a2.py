"""A function ported to another framework: the same values on the same devices."""

from collections.abc import Callable, Generator, Iterator, Sequence

import numpy as np

from d2l_gpu.exercises.arrays import Arrays
from d2l_gpu.exercises.cases import in_all
from d2l_gpu.exercises.registry import Claim, Registry, given

GPUS = 3


def _usable(
    as_many: Claim, result: Sequence, arrays: Arrays
) -> Generator[Claim, None, bool]:
    """Claim what must hold of a result before its values can be looked at.

    Args:
        as_many: the claim that it has as many arrays as it should.
        result: the arrays.
        arrays: those of the framework.
    Returns:
        Whether all of it holds.
    """
    yield as_many
    if not as_many.holds:
        return False
    kinds = {type(each).__name__ for each in result}
    claim = Claim(
        "each is an array of the framework",
        all(isinstance(each, arrays.kind) for each in result),
        f"They have the type {', '.join(sorted(kinds))}.",
    )
    yield claim
    return claim.holds


# ------------------------------------------------------------------ A2.1


def centred(arrays: Arrays, answer: Callable) -> Iterator[Claim]:
    """Check that a vector minus its mean is returned on the requested device."""
    first, second, _ = arrays.gpus()
    cases = (first, first), (first, second), (second, first)
    return in_all(_centred_of(answer, arrays, *case) for case in cases)


def _centred_of(answer: Callable, arrays: Arrays, home, device) -> Iterator[Claim]:
    values = np.array([1, 2, 3, 6], np.float32)
    x = arrays.put(values, home)
    result = answer(x, device)
    found, place = arrays.on_host(result), arrays.where(result)
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
        f"`x` was on {arrays.name(home)}, `device` is {arrays.name(device)}, but the "
        f"result is on {place}"
    )
    if place == arrays.name(arrays.cpu()):
        hint += ", which is where new arrays go by default."
    elif place == arrays.name(home):
        hint += ", as if you had ignored `device`."
    else:
        hint += "."
    yield Claim("the result is on `device`", place == arrays.name(device), hint)
    kept = np.array_equal(arrays.on_host(x), values)
    yield Claim(
        "`x` keeps its values",
        kept,
        "Its values have changed. If `x` is already on `device`, `cupy.asarray` "
        "returns `x` itself, so an in-place operation changes `x`.",
    )


# ------------------------------------------------------------------ A2.2


def shards(arrays: Arrays, answer: Callable) -> Iterator[Claim]:
    """Check that an array's rows are split among devices as NumPy splits them."""
    return in_all(_shards_of(answer, arrays, n) for n in (8, 4))


def _shards_of(answer: Callable, arrays: Arrays, n: int) -> Iterator[Claim]:
    X = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
    devices = arrays.gpus()
    result = answer(X, list(devices))
    k = len(devices)
    as_many = Claim(
        "there's a shard for each device",
        len(result) == k,
        f"You split {n} rows for {k} devices into {len(result)} "
        f"shard{'s' * (len(result) != 1)}.",
    )
    if not (yield from _usable(as_many, result, arrays)):
        return
    wanted = [arrays.name(device) for device in devices]
    places = [arrays.where(shard) for shard in result]
    yield Claim(
        "each shard is on its device",
        places == wanted,
        f"The shards are on {', '.join(places)}, but the devices are "
        f"{', '.join(wanted)}.",
    )
    parts = [arrays.on_host(shard) for shard in result]
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


def _wrong_sizes(sizes: Sequence[int], cut: Sequence[np.ndarray], n: int) -> str:
    if set(sizes) == {n}:
        return "Each device has all the rows: those are copies, not shards."
    if sum(sizes) < n:
        return f"Only {sum(sizes)} of {n} rows are left: you dropped the remainder."
    if sum(sizes) > n:
        return f"There are now {sum(sizes)} rows, but `X` has only {n}."
    return f"You split {n} rows into {sizes} instead of {[len(part) for part in cut]}."


# ------------------------------------------------------------------ A2.3


def all_reduce(arrays: Arrays, answer: Callable) -> Iterator[Claim]:
    """Check that each device gets the sum of all arrays."""
    devices = arrays.gpus()
    k = len(devices)
    values = [np.array([1, 2], np.float32) * 10**i for i in range(k)]
    parts = [arrays.put(v, d) for v, d in zip(values, devices, strict=True)]
    result = answer(list(parts))
    as_many = Claim(
        "as many arrays come out as went in",
        len(result) == k,
        f"{k} went in, but {len(result)} came out.",
    )
    if not (yield from _usable(as_many, result, arrays)):
        return
    found = [arrays.on_host(each) for each in result]
    total = sum(values)
    yield Claim(
        "each is the sum of all arrays",
        all(map(np.array_equal, found, [total] * k)),
        _wrong_sums(found, values),
    )
    wanted = [arrays.name(device) for device in devices]
    places = [arrays.where(each) for each in result]
    yield Claim(
        "each result is on the device of the array in its place",
        places == wanted,
        f"They're on {', '.join(places)}, but the arrays you were given are on "
        f"{', '.join(wanted)}.",
    )
    kept = [arrays.on_host(part) for part in parts]
    yield Claim(
        "the arrays you were given keep their values",
        all(map(np.array_equal, kept, values)),
        "One of the arrays has changed: you added up the sum in it.",
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
