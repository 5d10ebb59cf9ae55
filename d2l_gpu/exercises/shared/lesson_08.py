"""Data parallelism by hand: which device computed what, and the combined result."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from d2l_gpu.exercises import small_network
from d2l_gpu.exercises.answer_process import AnswerError
from d2l_gpu.exercises.arrays import Arrays
from d2l_gpu.exercises.cases import in_all
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run, given

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


# ------------------------------------------------------------------ 08.1


def batch_gradient(arrays: Arrays, run: Run) -> Iterator[Claim]:
    """Check that shards of the given sizes add up to the batch's gradient."""
    cases = (2, (8, 4)), (3, (6, 3, 1))
    return in_all(_gradient_of(run, k, sizes) for k, sizes in cases)


def _problem(k: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return parameters, and a batch of n examples with their labels."""
    rng = np.random.RandomState(k)
    X = rng.randn(n, 3).astype(np.float32)
    y = rng.randn(n).astype(np.float32)
    return rng.randn(3).astype(np.float32), X, y


def _combined(
    arrays: Arrays, answer: Callable, gpus: Gpus, k: int, sizes: Sequence[int]
) -> dict:
    """Have the answer compute a gradient, and record which part was computed where."""
    w, X, y = _problem(k, sum(sizes))
    calls = []

    def gradient(w, X_shard, y_shard):
        rows, labels = arrays.on_host(X_shard), arrays.on_host(y_shard)
        if len(rows) != len(labels):
            raise AnswerError(
                f"You gave `gradient` {len(rows)} examples but {len(labels)} labels."
            )
        others = {"parameters": gpus.where(w), "labels": gpus.where(y_shard)}
        calls.append((gpus.where(X_shard), _numbers(rows, X), others, labels))
        result = _least_squares(arrays.on_host(w), rows, labels)
        return arrays.put(result, arrays.home(X_shard))

    host = arrays.cpu()
    result = answer(
        gradient, *(arrays.put(x, host) for x in (w, X, y)), gpus[:k], list(sizes)
    )
    return {
        "calls": calls,
        "home": gpus.where(result),
        "value": arrays.on_host(result),
    }


def _gradient_of(run: Run, k: int, sizes: Sequence[int]) -> Iterator[Claim]:
    n = sum(sizes)
    w, X, y = _problem(k, n)
    found = run(_combined, k, sizes)
    calls = [
        Call(place, examples, others, np.array_equal(labels, y[examples]))
        for place, examples, others, labels in found["calls"]
    ]
    names = [f"GPU {i}" for i in range(k)]
    if not calls:
        yield Claim("`gradient` is called", False, "You never call it.")
        return
    yield _takes_its_share(calls, names, sizes)
    yield _lives_together(calls)
    yield from _each_once(calls, n)
    yield Claim(
        "the result is on the first device",
        found["home"] == names[0],
        f"It's on {found['home']}, but the first device is {names[0]}.",
    )
    value = found["value"]
    right = _least_squares(w, X, y)
    parts = [_least_squares(w, X[c.examples], y[c.examples]) for c in calls]
    if value.shape != right.shape:
        hint = f"It has the shape {value.shape}, but the parameters have {right.shape}."
    elif _close(value, sum(parts) / len(parts)):
        hint = (
            "That's the mean of the shards' gradients, in which examples of a small "
            "shard count for more than those of a large one."
        )
    elif _close(value, sum(parts)):
        hint = (
            "That's the sum of the shards' gradients, but each of them is already a "
            "mean."
        )
    elif _close(value, right * n):
        hint = (
            f"It's {n} times too large: you added the losses instead of averaging them."
        )
    else:
        far = np.linalg.norm(value - right) / np.linalg.norm(right)
        hint = (
            f"It differs from the right gradient by {far:.0%} of its length. How much "
            "does each example count in yours?"
        )
    yield Claim(
        "it's the gradient of the batch's mean loss", _close(value, right), hint
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
            f"You passed examples of shape {rows.shape}; a shard is some rows of the "
            f"batch, such as ({len(rows)}, {X.shape[1]})."
        )
    known = {row.tobytes(): i for i, row in enumerate(X)}
    try:
        return [known[row.tobytes()] for row in rows.astype(X.dtype)]
    except KeyError:
        raise AnswerError(
            "A shard has an example that isn't in the batch, such as padding."
        ) from None


def _takes_its_share(
    calls: Sequence[Call], names: Sequence[str], sizes: Sequence[int]
) -> Claim:
    taken = [(call.place, len(call.examples)) for call in calls]
    counts = [count for _, count in taken]
    if len({place for place, _ in taken}) < len(names) and len(names) > 1:
        places = ", ".join(sorted({place for place, _ in taken}))
        hint = (
            f"You were given {len(names)} devices, but computed everything on {places}."
        )
    elif set(counts) == {sum(sizes)}:
        hint = "Every device got the whole batch."
    elif max(counts) - min(counts) <= 1:
        hint = f"You cut the batch into equal parts, of {counts[0]} examples and so on."
    elif sorted(counts) == sorted(sizes):
        hint = f"The parts went to the wrong devices: {dict(taken)}."
    else:
        hint = f"The devices got {dict(taken)} examples instead of {list(sizes)}."
    return Claim(
        "each device gets as many examples as `sizes` says",
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
            f"The examples were on {call.place}, but the {name} on "
            f"{call.others[name]}. If a framework doesn't complain about that, it "
            "copies what's missing, again at every step."
        )
    return Claim("each device has everything it computes with", call is None, hint)


def _each_once(calls: Sequence[Call], n: int) -> Iterator[Claim]:
    used = [i for call in calls for i in call.examples]
    missing = sorted(set(range(n)) - set(used))
    twice = sorted(i for i in set(used) if used.count(i) > 1)
    if twice:
        times = used.count(twice[0])
        hint = f"Counting from 0, example {twice[0]} was used {times} times."
    else:
        hint = f"{len(missing)} of {n} examples were left out."
    yield Claim("each example is used exactly once", not missing and not twice, hint)
    yield Claim(
        "each example comes with its own label",
        all(call.own for call in calls),
        "The labels in a shard belong to other examples. Cut both at the same places.",
    )


# ------------------------------------------------------------------ 08.2


def accuracy(arrays: Arrays, run: Run) -> Iterator[Claim]:
    """Check an accuracy computed on several devices, each example counted once."""
    cases = (12, 2), (14, 4), (3, 4)
    return in_all(_accuracy_of(run, n, k) for n, k in cases)


def _test_set(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return n examples, their labels, and which of them the networks get right."""
    rng = np.random.RandomState(n)
    X = rng.randn(n, 3).astype(np.float32)
    right = np.arange(n) < n // 2 + 1  # only the first ones, so that the shards differ
    return X, rng.permutation(n) % 10, right


def _tested(arrays: Arrays, answer: Callable, gpus: Gpus, n: int, k: int) -> dict:
    """Have the answer compute an accuracy; record which network saw which examples."""
    X, y, right = _test_set(n)
    calls = []

    def network(i):
        def net(X_shard):
            rows = arrays.on_host(X_shard)
            if len(rows) == 0:
                raise AnswerError("You gave a network a shard without examples.")
            examples = _numbers(rows, X)
            calls.append((i, gpus.where(X_shard), examples))
            found = np.where(right, y, (y + 1) % 10)[examples]
            return arrays.put(np.eye(10, dtype=np.float32)[found], gpus[i])

        return net

    nets = [network(i) for i in range(k)]
    host, labels = arrays.cpu(), y.astype(arrays.labels)
    result = answer(nets, arrays.put(X, host), arrays.put(labels, host), gpus[:k])
    return {"calls": calls, "accuracy": result}


def _accuracy_of(run: Run, n: int, k: int) -> Iterator[Claim]:
    _, _, right = _test_set(n)
    found = run(_tested, n, k)
    result = found["accuracy"]
    calls = [
        (i, Call(place, examples, {"network": f"GPU {i}"}))
        for i, place, examples in found["calls"]
    ]
    if not calls:
        yield Claim("the networks are called", False, "You never call any of them.")
        return
    asked = [i for i, _ in calls]
    sizes = [len(call.examples) for _, call in calls]
    busy = min(n, k)
    yield Claim(
        "as many networks are called as there are devices and examples for them, each "
        "once",
        len(set(asked)) == len(asked) == busy,
        _who_was_asked(asked, busy),
    )
    yield _lives_together([call for _, call in calls])
    yield from list(_each_once([call for _, call in calls], n))[:1]
    yield Claim(
        "the sizes of the shards differ by at most one",
        max(sizes) - min(sizes) <= 1,
        f"You split {n} examples into shards of {', '.join(map(str, sizes))}. While "
        "one device finishes the largest, the others wait.",
    )
    wanted = right.mean()
    of_shards = [right[list(call.examples)] for _, call in calls]
    if abs(result - np.mean([part.mean() for part in of_shards])) < 1e-6:
        hint = (
            "That's the mean of the shards' accuracies, but the shards aren't of "
            "equal size."
        )
    elif abs(result - right.sum()) < 1e-6:
        hint = "That's how many predictions are right, not the fraction."
    elif abs(result - 100 * wanted) < 1e-3:
        hint = "That's a percentage; return a fraction between 0 and 1."
    elif abs(result - right.sum() / len(of_shards)) < 1e-6:
        hint = "That's the number of correct predictions per device, not per example."
    elif any(abs(result - part.mean()) < 1e-6 for part in of_shards):
        hint = "That's the accuracy of a single shard."
    else:
        hint = (
            f"You return {result:.4g}, but {right.sum()} of {n} predictions are right."
        )
    yield Claim(
        "the result is the fraction of correct predictions over all examples",
        abs(result - wanted) < 1e-6,
        hint,
    )


def _who_was_asked(asked: Sequence[int], busy: int) -> str:
    often = max(asked.count(i) for i in asked)
    if often > 1:
        return (
            f"You called one network {often} times. With one shard per device, one "
            "call is enough."
        )
    return f"You called {len(asked)} of them, but {busy} could have worked."


# ------------------------------------------------------------------ 08.3


def learning_rates(run: Run) -> Iterator[Claim]:
    """Check that learning rate and warm-up suit any number of devices."""
    return in_all(_rates_of(run, k) for k in (2, 1, 16))


def _rates(answer: Callable, gpus: Gpus, *arguments: float) -> dict:
    rates = list(answer(*arguments))
    kinds = {type(rate).__name__ for rate in rates if not isinstance(rate, int | float)}
    return {"kinds": sorted(kinds), "rates": [] if kinds else rates}


def _rates_of(run: Run, k: int) -> Iterator[Claim]:
    n, per_gpu, epochs, base_lr = 1437, 32, 4, 0.05
    per_epoch = n // (k * per_gpu)
    steps, warmup = epochs * per_epoch, per_epoch * (k > 1)
    found = run(_rates, k, n, per_gpu, epochs, base_lr)
    kinds = found["kinds"]
    if kinds:
        hint = f"Some are of the type {kinds[0]}, which isn't a Python number."
        yield Claim("all rates are numbers", False, hint)
        return
    rates = np.array(found["rates"], dtype=np.float64)
    yield Claim(
        "there's a learning rate for each step",
        len(rates) == steps,
        _wrong_steps(len(rates), k, n, per_gpu, epochs),
    )
    if len(rates) != steps:
        return
    yield Claim(
        "all rates are above zero",
        bool((rates > 0).all()),
        f"Counting from 0, step {int(np.argmin(rates))} of {steps} has a learning "
        f"rate of {rates.min():g}, so it learns nothing.",
    )
    peak, highest = k * base_lr, rates.max()
    hint = f"With k = {k}, your highest rate is {highest:g}. How large is a batch now?"
    if np.isclose(highest, base_lr):
        hint = f"With k = {k}, your highest rate is the same as with one device."
    elif np.isclose(highest, base_lr * k**0.5):
        hint = (
            f"With k = {k}, your highest rate has grown only by the square root of k."
        )
    elif highest > peak:
        hint = f"With k = {k}, your highest rate is {highest:g}, which is too high."
    yield Claim(
        "the highest rate is k times `base_lr`", np.isclose(highest, peak), hint
    )
    rise, fall = rates[:warmup], rates[warmup:]
    begins = [_begins_at_once(k, rates)] if k == 1 else list(_warms_up(k, rates, rise))
    yield from begins
    if not all(claim.holds for claim in begins):
        return
    hint = f"With k = {k}, it doesn't end at the right rate."
    if len(fall) > 1:
        falls = fall[:-1] - fall[1:]
        hint = (
            f"With k = {k}, the rate goes from {fall[0]:.3g} to {fall[-1]:.3g} in "
            f"{len(fall)} steps, falling by {falls[0]:.3g} in the first and by "
            f"{falls[-1]:.3g} in the last."
        )
    line = peak * np.arange(len(fall), 0, -1) / len(fall)
    yield Claim(
        "then the rate falls linearly, and reaches zero after the last step",
        np.allclose(fall, line),
        hint,
    )


def _begins_at_once(k: int, rates: np.ndarray) -> Claim:
    return Claim(
        "with one device there's no warm-up: the first rate is the highest",
        np.isclose(rates[0], rates.max()),
        f"With k = {k}, the first rate is {rates[0]:g}.",
    )


def _warms_up(k: int, rates: np.ndarray, rise: np.ndarray) -> Iterator[Claim]:
    top = int(np.argmax(rates)) + 1
    yield Claim(
        "with several devices, the last step of the first epoch reaches the highest "
        "rate",
        top in (len(rise), len(rise) + 1),  # the next one may be just as high
        f"With k = {k}, an epoch has {len(rise)} steps, but your rate is highest in "
        f"step {top}.",
    )
    yield Claim(
        "during warm-up, the rate grows by the same amount at each step",
        np.allclose(np.diff(rise, prepend=0), rates.max() / len(rise)),
        f"With k = {k}, your first rates are "
        f"{', '.join(f'{rate:.3g}' for rate in rise[:3])}.",
    )


def _wrong_steps(found: int, k: int, n: int, per_gpu: int, epochs: int) -> str:
    per_epoch = n // (k * per_gpu)
    if found == epochs * (n // per_gpu):
        return f"With k = {k}, you return as many rates as with one device."
    if found == epochs * -(-n // (k * per_gpu)):
        return (
            "You count the incomplete batch at the end of each epoch, but it's dropped."
        )
    if found == per_epoch:
        return f"With k = {k}, you return the rates of a single epoch."
    if found == epochs:
        return "You return one rate per epoch."
    return (
        f"With k = {k}, you return {found} rates. How many full batches are there in "
        f"{n} images, and how many epochs?"
    )


# ------------------------------------------------------------------ 08.4

BATCH, SMALL_BATCH, SMALL_EPOCHS, SMALL_LR, MOST_EPOCHS = 512, 32, 4, 0.1, 16
SEEDS = range(3)


def settings(
    answer: Sequence, case: Mapping[str, int] | None = None
) -> Iterator[Claim]:
    """Check that large batches train a small network as well as small batches do.

    Args:
        answer: epochs and learning rate.
        case: the batch, and the most epochs; None for those of the ordinary exercise.
    """
    batch, most_epochs = BATCH, MOST_EPOCHS
    if case is not None:
        batch, most_epochs = case["batch"], case["epochs"]
    if len(answer) != 2:
        yield Claim("it's a pair", False, f"Your answer has length {len(answer)}.")
        return
    epochs, lr = answer
    whole = isinstance(epochs, int) and not isinstance(epochs, bool)
    yield Claim(
        "the first is a number of epochs, at least 2",
        whole and epochs >= 2,
        f"{epochs!r} isn't: the first epoch is the warm-up, so there must be at least "
        "one more.",
    )
    number = isinstance(lr, (int, float)) and not isinstance(lr, bool)
    yield Claim(
        "the second is a learning rate above zero",
        number and lr > 0,
        f"{lr!r} isn't a learning rate above zero.",
    )
    if not (whole and epochs >= 2 and number and lr > 0):
        return
    yield Claim(
        f"there are at most {most_epochs} epochs",
        epochs <= most_epochs,
        f"{epochs} epochs would take longer than one device does.",
    )
    if epochs > most_epochs:
        return
    wanted = _mean(SMALL_BATCH, SMALL_EPOCHS, SMALL_LR)
    found = _mean(batch, epochs, lr)
    reached = found >= wanted
    yield Claim(
        f"with batches of {batch}, the network is as accurate as with {SMALL_BATCH}",
        reached,
        "" if reached else _what_to_change(batch, epochs, lr, found, wanted),
    )


def _mean(batch_size: int, epochs: int, lr: float) -> float:
    runs = [small_network.train_small(batch_size, epochs, lr, seed) for seed in SEEDS]
    return float(np.mean(runs))


def _what_to_change(
    batch: int, epochs: int, lr: float, found: float, wanted: float
) -> str:
    """Try other learning rates, and return a hint saying which would be better."""
    steps = epochs * (small_network.IMAGES // batch)
    less, more = _mean(batch, epochs, lr / 2), _mean(batch, epochs, lr * 2)
    has = (
        f"Your accuracy is {found:.2f}, averaged over {len(SEEDS)} seeds; the goal is "
        f"{wanted:.2f}. "
    )
    if less > max(found, more):
        return has + "It's higher with half the learning rate: your steps are too long."
    if more > found:
        return (
            f"{has}It's higher with twice the learning rate: your {steps} steps are "
            "too short."
        )
    return (
        f"{has}Neither half nor twice the learning rate helps. Batches of "
        f"{SMALL_BATCH} make how many steps, compared with your {steps}?"
    )


def exercises(arrays: Arrays) -> Registry:
    """Return the shared exercises of lesson 08, for one framework."""
    registry, sequence = Registry(), (list, tuple)
    for number, parameters, returns, grader in (
        (
            "08.1",
            "gradient, w, X, y, devices, sizes",
            arrays.kind,
            given(batch_gradient, arrays),
        ),
        ("08.2", "nets, X, y, devices", float, given(accuracy, arrays)),
        ("08.3", "k, n, per_gpu, epochs, base_lr", sequence, learning_rates),
        ("08.4", None, sequence, settings),
    ):
        registry.add(number, parameters, returns, gpus=GPUS)(grader)
    return registry
