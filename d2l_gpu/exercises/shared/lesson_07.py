"""Data parallelism by hand: which device computed what, and the combined result."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from d2l_gpu.exercises import small_network
from d2l_gpu.exercises.arrays import Arrays
from d2l_gpu.exercises.cases import in_all
from d2l_gpu.exercises.grading_process import AnswerError
from d2l_gpu.exercises.registry import Claim, Registry, given

GPUS = 4


@dataclass(frozen=True)
class Call:
    """The inputs of one call, on one device.

    Attributes:
        place: the device of the examples.
        examples: their indices in the batch.
        others: the devices of the other inputs, by name; they should equal `place`.
        own: whether the labels belong to these examples.
    """

    place: str
    examples: Sequence[int]
    others: dict[str, str]
    own: bool = True


# ------------------------------------------------------------------ 07.1


def batch_gradient(arrays: Arrays, answer: Callable) -> Iterator[Claim]:
    """Check that shards of the given sizes add up to the batch's gradient."""
    cases = (2, (8, 4)), (3, (6, 3, 1))
    return in_all(_gradient_of(answer, arrays, k, sizes) for k, sizes in cases)


def _gradient_of(
    answer: Callable, arrays: Arrays, k: int, sizes: Sequence[int]
) -> Iterator[Claim]:
    devices = arrays.gpus()[:k]
    rng = np.random.RandomState(k)
    n = sum(sizes)
    X = rng.randn(n, 3).astype(np.float32)
    y = rng.randn(n).astype(np.float32)
    w = rng.randn(3).astype(np.float32)
    calls: list[Call] = []

    def gradient(w, X_shard, y_shard):
        rows, labels = arrays.on_host(X_shard), arrays.on_host(y_shard)
        if len(rows) != len(labels):
            raise AnswerError(
                f"`gradient` was given {len(rows)} examples and {len(labels)} labels."
            )
        examples = _numbers(rows, X)
        others = {"parameters": arrays.where(w), "labels": arrays.where(y_shard)}
        own = np.array_equal(labels, y[examples])
        calls.append(Call(arrays.where(X_shard), examples, others, own))
        result = _least_squares(arrays.on_host(w), rows, labels)
        return arrays.put(result, arrays.home(X_shard))

    host = arrays.cpu()
    result = answer(
        gradient, *(arrays.put(x, host) for x in (w, X, y)), list(devices), list(sizes)
    )
    names = [arrays.name(device) for device in devices]
    if not calls:
        yield Claim("`gradient` is called", False, "It was not called at all.")
        return
    yield _takes_its_share(calls, names, sizes)
    yield _lives_together(calls)
    yield from _each_once(calls, n)
    place = arrays.where(result)
    yield Claim(
        "the result lives on the first device",
        place == names[0],
        f"It lives on {place}, and the first device is {names[0]}.",
    )
    value = arrays.on_host(result)
    right = _least_squares(w, X, y)
    parts = [_least_squares(w, X[c.examples], y[c.examples]) for c in calls]
    if value.shape != right.shape:
        hint = f"It has the shape {value.shape}, and the parameters {right.shape}."
    elif _close(value, sum(parts) / len(parts)):
        hint = (
            "This is the mean of the shards' gradients, in which the examples of a "
            "small shard count for more than those of a large one."
        )
    elif _close(value, sum(parts)):
        hint = (
            "This is the sum of the shards' gradients, each of which is a mean already."
        )
    elif _close(value, right * n):
        hint = f"It is {n} times as large: the losses were added, not averaged."
    else:
        far = np.linalg.norm(value - right) / np.linalg.norm(right)
        hint = (
            f"It differs by {far:.0%} of its length. Ask how much each example counts "
            "in it."
        )
    yield Claim(
        "it is the gradient of the mean loss of the batch", _close(value, right), hint
    )


def _least_squares(w: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the gradient of half the mean squared error, in float32."""
    error = X.astype(np.float64) @ w - y
    return (X.T @ error / len(y)).astype(np.float32)


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    return np.allclose(a, b, rtol=1e-4, atol=1e-5)


def _numbers(rows: np.ndarray, X: np.ndarray) -> list[int]:
    """Return the indices of these rows in X.

    Raises:
        AnswerError: they aren't rows of X.
    """
    if rows.shape[1:] != X.shape[1:]:
        raise AnswerError(
            f"the examples were given with the shape {rows.shape}; a shard is some "
            f"rows of the batch, as ({len(rows)}, {X.shape[1]})."
        )
    known = {row.tobytes(): i for i, row in enumerate(X)}
    try:
        return [known[row.tobytes()] for row in rows.astype(X.dtype)]
    except KeyError:
        raise AnswerError(
            "a shard has an example that is not in the batch, such as one made up to "
            "fill it."
        ) from None


def _takes_its_share(
    calls: Sequence[Call], names: Sequence[str], sizes: Sequence[int]
) -> Claim:
    taken = [(call.place, len(call.examples)) for call in calls]
    counts = [count for _, count in taken]
    if len({place for place, _ in taken}) < len(names) and len(names) > 1:
        places = ", ".join(sorted({place for place, _ in taken}))
        hint = f"{len(names)} devices were given, and all was computed on {places}."
    elif set(counts) == {sum(sizes)}:
        hint = "Every device was given the whole batch."
    elif max(counts) - min(counts) <= 1:
        hint = (
            f"The batch was cut into equal pieces, of {counts[0]} examples and so on."
        )
    elif sorted(counts) == sorted(sizes):
        hint = f"The pieces went to other devices: {dict(taken)}."
    else:
        hint = f"The devices took {dict(taken)} examples, and not {list(sizes)}."
    return Claim(
        "each device takes as many examples as `sizes` says",
        sorted(taken) == sorted(zip(names, sizes, strict=True)),
        hint,
    )


def _lives_together(calls: Sequence[Call]) -> Claim:
    """Return the claim that each device holds everything it computes with."""
    apart = ((call, name) for call in calls for name in call.others)
    call, name = next(
        ((call, name) for call, name in apart if call.others[name] != call.place),
        (None, None),
    )
    hint = ""
    if call is not None:
        hint = (
            f"The examples were on {call.place} and the {name} on {call.others[name]}. "
            "A framework that does not complain copies what is missing, again in "
            "every step."
        )
    return Claim("all that a device computes with lives there", call is None, hint)


def _each_once(calls: Sequence[Call], n: int) -> Iterator[Claim]:
    used = [i for call in calls for i in call.examples]
    missing = sorted(set(range(n)) - set(used))
    twice = sorted(i for i in set(used) if used.count(i) > 1)
    if twice:
        hint = f"Counted from 0, example {twice[0]} was used {used.count(twice[0])} "
        hint += "times."
    else:
        hint = f"Left out were {len(missing)} of {n} examples."
    yield Claim("each example is used once", not missing and not twice, hint)
    yield Claim(
        "each example has its own label",
        all(call.own for call in calls),
        "The labels of a shard are those of other examples. Cut both at the same "
        "places.",
    )


# ------------------------------------------------------------------ 07.2


def accuracy(arrays: Arrays, answer: Callable) -> Iterator[Claim]:
    """Check an accuracy computed on several devices, each example counted once."""
    cases = (12, 2), (14, 4), (3, 4)
    return in_all(_accuracy_of(answer, arrays, n, k) for n, k in cases)


def _accuracy_of(answer: Callable, arrays: Arrays, n: int, k: int) -> Iterator[Claim]:
    devices = arrays.gpus()[:k]
    names = [arrays.name(device) for device in devices]
    rng = np.random.RandomState(n)
    X = rng.randn(n, 3).astype(np.float32)
    y = rng.permutation(n).astype(arrays.labels) % 10
    right = np.arange(n) < n // 2 + 1  # only the first ones, so that the shards differ
    calls: list[tuple[int, Call]] = []

    def network(i):
        def net(X_shard):
            rows = arrays.on_host(X_shard)
            if len(rows) == 0:
                raise AnswerError("a network was given a shard without any examples.")
            examples = _numbers(rows, X)
            others = {"network": names[i]}
            calls.append((i, Call(arrays.where(X_shard), examples, others)))
            found = np.where(right, y, (y + 1) % 10)[examples]
            return arrays.put(np.eye(10, dtype=np.float32)[found], devices[i])

        return net

    nets = [network(i) for i in range(k)]
    host = arrays.cpu()
    result = answer(nets, arrays.put(X, host), arrays.put(y, host), list(devices))
    if not calls:
        yield Claim("the networks are asked", False, "None of them was called.")
        return
    asked = [i for i, _ in calls]
    sizes = [len(call.examples) for _, call in calls]
    busy = min(n, k)
    yield Claim(
        "as many networks are asked as there are devices and examples, each once",
        len(set(asked)) == len(asked) == busy,
        _who_was_asked(asked, busy),
    )
    yield _lives_together([call for _, call in calls])
    yield from list(_each_once([call for _, call in calls], n))[:1]
    yield Claim(
        "no shard has two examples more than another",
        max(sizes) - min(sizes) <= 1,
        f"Of {n} examples the shards had {', '.join(map(str, sizes))}. While one "
        "device works on the rest, the others wait.",
    )
    wanted = right.mean()
    of_shards = [right[list(call.examples)] for _, call in calls]
    if abs(result - np.mean([part.mean() for part in of_shards])) < 1e-6:
        hint = "It is the mean of the shards' accuracies, and the shards are not equal."
    elif abs(result - right.sum()) < 1e-6:
        hint = "It is how many are right, not which part of all."
    elif abs(result - 100 * wanted) < 1e-3:
        hint = "It is in per cent, and was to be from 0 to 1."
    elif abs(result - right.sum() / len(of_shards)) < 1e-6:
        hint = "It is how many are right for each device, not for each example."
    elif any(abs(result - part.mean()) < 1e-6 for part in of_shards):
        hint = "It is the accuracy of one shard."
    else:
        hint = f"It is {result:.4g}, and {right.sum()} of {n} are right."
    yield Claim(
        "the result is the part of all examples that is right",
        abs(result - wanted) < 1e-6,
        hint,
    )


def _who_was_asked(asked: Sequence[int], busy: int) -> str:
    often = max(asked.count(i) for i in asked)
    if often > 1:
        return (
            f"One network was asked {often} times. With one shard for each device, "
            "one call is enough."
        )
    return f"{len(asked)} of them were asked, and {busy} could have worked."


# ------------------------------------------------------------------ 07.3


def learning_rates(answer: Callable) -> Iterator[Claim]:
    """Check that learning rate and warm-up suit any number of devices."""
    return in_all(_rates_of(answer, k) for k in (2, 1, 16))


def _rates_of(answer: Callable, k: int) -> Iterator[Claim]:
    n, per_gpu, epochs, base_lr = 1437, 32, 4, 0.05
    per_epoch = n // (k * per_gpu)
    steps, warmup = epochs * per_epoch, per_epoch * (k > 1)
    result = list(answer(k, n, per_gpu, epochs, base_lr))
    if not all(isinstance(rate, (int, float)) for rate in result):
        kinds = sorted({type(rate).__name__ for rate in result} - {"int", "float"})
        hint = f"Some are of the type {kinds[0]}, and so not Python numbers."
        yield Claim("all of them are numbers", False, hint)
        return
    rates = np.array(result, dtype=np.float64)
    yield Claim(
        "there is a learning rate for each step",
        len(rates) == steps,
        _wrong_steps(len(rates), k, n, per_gpu, epochs),
    )
    if len(rates) != steps:
        return
    yield Claim(
        "all of them are above zero",
        bool((rates > 0).all()),
        f"Counted from 0, step {int(np.argmin(rates))} of {steps} has a learning rate "
        f"of {rates.min():g}, with which nothing is learned.",
    )
    peak, highest = k * base_lr, rates.max()
    hint = f"With k = {k} it is {highest:g}. How large is a batch now?"
    if np.isclose(highest, base_lr):
        hint = f"With k = {k} it is as high as with one device."
    elif np.isclose(highest, base_lr * k**0.5):
        hint = f"With k = {k} it has grown by the square root of k only."
    elif highest > peak:
        hint = f"With k = {k} it is {highest:g}, which is too high."
    yield Claim("the highest is k times `base_lr`", np.isclose(highest, peak), hint)
    rise, fall = rates[:warmup], rates[warmup:]
    begins = [_begins_at_once(k, rates)] if k == 1 else list(_warms_up(k, rates, rise))
    yield from begins
    if not all(claim.holds for claim in begins):
        return
    hint = "It does not end where it should."
    if len(fall) > 1:
        falls = fall[:-1] - fall[1:]
        hint = (
            f"With k = {k} it goes from {fall[0]:.3g} to {fall[-1]:.3g} in {len(fall)} "
            f"steps, by {falls[0]:.3g} in the first of them and by {falls[-1]:.3g} in "
            "the last."
        )
    line = peak * np.arange(len(fall), 0, -1) / len(fall)
    yield Claim(
        "then it falls in a straight line, to zero after the last step",
        np.allclose(fall, line),
        hint,
    )


def _begins_at_once(k: int, rates: np.ndarray) -> Claim:
    return Claim(
        "one device needs no warm-up: the first rate is the highest",
        np.isclose(rates[0], rates.max()),
        f"With k = {k} it begins with {rates[0]:g}.",
    )


def _warms_up(k: int, rates: np.ndarray, rise: np.ndarray) -> Iterator[Claim]:
    top = int(np.argmax(rates)) + 1
    yield Claim(
        "several devices reach it with the last step of the first epoch",
        top in (len(rise), len(rise) + 1),  # the next one may be just as high
        f"With k = {k} an epoch has {len(rise)} steps, and step {top} has the highest "
        "rate.",
    )
    yield Claim(
        "on the way there it grows by the same amount with each step",
        np.allclose(np.diff(rise, prepend=0), rates.max() / len(rise)),
        f"With k = {k} the first rates are "
        f"{', '.join(f'{rate:.3g}' for rate in rise[:3])}.",
    )


def _wrong_steps(found: int, k: int, n: int, per_gpu: int, epochs: int) -> str:
    per_epoch = n // (k * per_gpu)
    if found == epochs * (n // per_gpu):
        return f"With k = {k} there are as many as with one device."
    if found == epochs * -(-n // (k * per_gpu)):
        return "The batch at the end of an epoch that is not full is left out."
    if found == per_epoch:
        return f"With k = {k} those of a single epoch are there."
    if found == epochs:
        return "There is one for each epoch."
    return (
        f"With k = {k} there are {found}. How many full batches are in {n} images, and "
        f"how many epochs are there?"
    )


# ------------------------------------------------------------------ 07.4

BATCH, SMALL_BATCH, SMALL_EPOCHS, SMALL_LR, MOST_EPOCHS = 512, 32, 4, 0.1, 16
SEEDS = range(3)


def settings(answer: Sequence) -> Iterator[Claim]:
    """Check that large batches train a small network as well as small batches do."""
    if len(answer) != 2:
        yield Claim("it is a pair", False, f"It has {len(answer)} elements.")
        return
    epochs, lr = answer
    whole = isinstance(epochs, int) and not isinstance(epochs, bool)
    yield Claim(
        "the first is a number of epochs, from 2 on",
        whole and epochs >= 2,
        f"{epochs!r} is none, since one epoch is for the warm-up alone.",
    )
    number = isinstance(lr, (int, float)) and not isinstance(lr, bool)
    yield Claim(
        "the second is a learning rate above zero",
        number and lr > 0,
        f"{lr!r} is none.",
    )
    if not (whole and epochs >= 2 and number and lr > 0):
        return
    yield Claim(
        f"there are {MOST_EPOCHS} epochs at most",
        epochs <= MOST_EPOCHS,
        f"{epochs} would take longer than one device needs.",
    )
    if epochs > MOST_EPOCHS:
        return
    wanted = _mean(SMALL_BATCH, SMALL_EPOCHS, SMALL_LR)
    found = _mean(BATCH, epochs, lr)
    reached = found >= wanted
    yield Claim(
        f"with batches of {BATCH}, the network finds as much as with {SMALL_BATCH}",
        reached,
        "" if reached else _what_to_change(epochs, lr, found, wanted),
    )


def _mean(batch_size: int, epochs: int, lr: float) -> float:
    runs = [small_network.train_small(batch_size, epochs, lr, seed) for seed in SEEDS]
    return float(np.mean(runs))


def _what_to_change(epochs: int, lr: float, found: float, wanted: float) -> str:
    """Try other learning rates, and return a hint saying which would be better."""
    steps = epochs * (small_network.IMAGES // BATCH)
    less, more = _mean(BATCH, epochs, lr / 2), _mean(BATCH, epochs, lr * 2)
    has = (
        f"The accuracy is {found:.2f}, the mean of {len(SEEDS)} seeds, and was to be "
        f"{wanted:.2f}. "
    )
    if less > max(found, more):
        return has + "With half the learning rate it is higher: the steps are too long."
    if more > found:
        return (
            f"{has}With twice the learning rate it is higher: the {steps} steps are "
            "too short."
        )
    return (
        f"{has}It would be no higher with half the learning rate or with twice as "
        f"much. How many steps are there with batches of {SMALL_BATCH}, and how many "
        f"are these {steps}?"
    )


def exercises(arrays: Arrays) -> Registry:
    """Return the shared exercises of lesson 07, for one framework."""
    registry, sequence = Registry(), (list, tuple)
    for number, parameters, returns, grader in (
        (
            "07.1",
            "gradient, w, X, y, devices, sizes",
            arrays.kind,
            given(batch_gradient, arrays),
        ),
        ("07.2", "nets, X, y, devices", float, given(accuracy, arrays)),
        ("07.3", "k, n, per_gpu, epochs, base_lr", sequence, learning_rates),
        ("07.4", None, sequence, settings),
    ):
        registry.add(number, parameters, returns, gpus=GPUS)(grader)
    return registry
