"""Data parallelism by hand.

Gradients are compared with that of the whole batch; copies are counted with the log of
copies and timed with the simulated clock.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch.nn import functional as F

from d2l_gpu import torch as d2l
from d2l_gpu.exercises.cases import in_all
from d2l_gpu.exercises.registry import Claim, Registry

EXERCISES = Registry()


def _loss(params: Sequence[torch.Tensor], X: torch.Tensor, y: torch.Tensor):
    """Return the mean loss of a network with one hidden layer."""
    W1, b1, W2, b2 = params
    return F.cross_entropy(torch.tanh(X @ W1 + b1) @ W2 + b2, y)


def _params() -> list[torch.Tensor]:
    torch.manual_seed(6)
    shapes = (5, 7), (7,), (7, 3), (3,)
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def _batch(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(n)
    return torch.randn(n, 5, dtype=torch.float64), torch.arange(n) % 3


def _replicas(params: Sequence[torch.Tensor], k: int) -> list[list[torch.Tensor]]:
    return [
        [p.to(d2l.gpu(i), copy=True).requires_grad_() for p in params] for i in range(k)
    ]


def _gradient(params: Sequence[torch.Tensor], X, y) -> torch.Tensor:
    """Return the gradient of the mean loss as one vector, computed on the CPU."""
    params = [p.detach().clone().requires_grad_() for p in params]
    return _flat(torch.autograd.grad(_loss(params, X, y), params))


def _flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([x.detach().cpu().reshape(-1) for x in tensors])


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-6, atol=1e-9)


def _times(a: torch.Tensor, b: torch.Tensor) -> float | None:
    """Return the factor by which a is a multiple of b; None if it isn't one."""
    factor = float(a @ b / (b @ b))
    return factor if _close(a, factor * b) else None


# ------------------------------------------------------------------ 06.1


@EXERCISES.add("06.1", "loss, batches, replicas, lr", gpus=4)
def train_step(answer):
    k, lr = 4, 0.5
    batches = list(zip(*(part.split(6) for part in _batch(6 * k)), strict=True))
    params = _params()
    replicas = _replicas(params, k)
    with d2l.transfers() as log:
        answer(_loss, batches, [list(own) for own in replicas], lr)
    moved = [_flat(params) - _flat(replica) for replica in replicas]
    wanted = lr * _gradient(params, *_batch(6 * k))
    yield Claim(
        "the parameters that were given have changed",
        all(bool(step.any()) for step in moved),
        "Some are what they were. A step writes into the tensors of `replicas`; new "
        "tensors of the same names do not reach whoever called.",
    )
    alone = [lr * _gradient(params, X, y) for X, y in batches]
    yield Claim(
        "all replicas are equal, to the last bit",
        all(torch.equal(step, moved[0]) for step in moved),
        _why_replicas_differ(moved, alone),
    )
    yield Claim(
        f"they took the step of one batch of {6 * k} examples",
        _close(moved[0], wanted),
        _what_step(moved[0], wanted, alone, k),
    )
    sent = [
        sum(t.nbytes for t in log if t.source.type == "cpu" and t.target == d2l.gpu(i))
        for i in range(k)
    ]
    nbytes = sum(x.nbytes for x in batches[0])
    yield Claim(
        "each GPU gets its own batch from the host, and nothing else",
        sent == [nbytes] * k,
        f"A batch has {nbytes:,} bytes, and the host sent {sent} to the {k} GPUs.",
    )
    if not _close(moved[0], wanted):
        return
    before = [p.detach().cpu() for p in replicas[0]]
    answer(_loss, batches, [list(own) for own in replicas], lr)
    second = _flat(before) - _flat(replicas[0])
    wanted_now = lr * _gradient(before, *_batch(6 * k))
    hint = "It is not the step of the gradient at the place where the first one ended."
    if any(_close(second, times * wanted + wanted_now) for times in (1, k)):
        hint = (
            "The gradient of the first step is still in it. What does `backward` do "
            "with a gradient that is there already?"
        )
    yield Claim("a second step is right as well", _close(second, wanted_now), hint)


def _why_replicas_differ(moved: Sequence[torch.Tensor], alone) -> str:
    if all(
        _times(step, own) is not None for step, own in zip(moved, alone, strict=True)
    ):
        return "Each took the step of its own batch: the gradients were not added up."
    if _times(moved[1], alone[1]) is not None:
        return (
            "The sum has reached the first GPU, and the others stepped with the "
            "gradients of their own batches."
        )
    return "They have taken different steps, so what they stepped with differs."


def _what_step(moved: torch.Tensor, wanted: torch.Tensor, alone, k: int) -> str:
    if _times(moved, alone[0]) is not None:
        return (
            "It is the step of the first of the batches alone, as if each GPU had been "
            "given that one."
        )
    times = _times(moved, wanted)
    if times is None:
        return "It has another direction, so not every batch has the same weight."
    if abs(times - k) < 1e-6:
        return (
            f"It has the right direction, and is {k} times too long: the mean losses "
            f"of {k} batches were added, and their sum taken for a mean."
        )
    return (
        f"It has the right direction, and {times:.3g} times the length that it should "
        "have. By what is the sum divided, and how often?"
    )


# ------------------------------------------------------------------ 06.2

_BATCH, _RATE, _EPOCHS, _TOLERANCE = 64, 0.02, 5, 0.1


@EXERCISES.add("06.2", "k", returns=(float, int), gpus=4)
def learning_rate(answer):
    counts = 1, 2, 4
    rates = {k: float(answer(k)) for k in counts}
    positive = all(0 < rate < float("inf") for rate in rates.values())
    yield Claim(
        "the rates are numbers above zero",
        positive,
        f"For {', '.join(map(str, rates))} GPUs they are "
        f"{', '.join(f'{rate:g}' for rate in rates.values())}.",
    )
    yield Claim(
        f"with one GPU the rate is {_RATE}",
        abs(rates[1] - _RATE) < 1e-9,
        f"It is {rates[1]:g}. What is asked for is how the rate changes from the one "
        "that is given.",
    )
    if not positive:
        return
    start, one = _trained(1, 0.0, epochs=1), _trained(1, _RATE)
    for k in counts[1:]:
        loss = _trained(k, rates[k])
        yield Claim(
            f"{k} GPUs come as far in {_EPOCHS} epochs, to a tenth of the loss",
            abs(loss - one) <= _TOLERANCE * one,
            _why_not_as_far(k, rates, loss, one, start),
        )


def _trained(k: int, lr: float, epochs: int = _EPOCHS) -> float:
    """Train one linear layer on k GPUs, k batches per step; return its loss.

    The result doesn't depend on luck: the parameters start at zero, and the loss has
    only one minimum.
    """
    batches, _ = d2l.load_data_digits(_BATCH * k)
    replicas = [
        (torch.zeros(784, 10, device=d2l.gpu(i)), torch.zeros(10, device=d2l.gpu(i)))
        for i in range(k)
    ]
    for epoch in range(epochs):
        batches.set_epoch(epoch)
        for X, y in batches:
            shards = d2l.split_batch(X.flatten(1), y, [W.device for W, _ in replicas])
            sums = [
                _linear_gradient(W, b, *shard)
                for (W, b), *shard in zip(replicas, *shards, strict=False)
            ]
            for part in zip(*sums, strict=True):
                d2l.allreduce(part)
            for parameters, gradients in zip(replicas, sums, strict=False):
                for p, g in zip(parameters, gradients, strict=True):
                    p -= lr / len(y) * g
    (X, y), *_ = d2l.load_data_digits(2000)[0]
    W, b = (p.cpu() for p in replicas[0])
    return F.cross_entropy(X.flatten(1) @ W + b, y).item()


def _linear_gradient(W, b, X, y) -> list[torch.Tensor]:
    """Return the gradients of the summed cross-entropy for weight and bias."""
    error = torch.softmax(X @ W + b, dim=1) - F.one_hot(y, 10)
    return [X.T @ error, error.sum(0)]


def _why_not_as_far(k: int, rates: dict, loss: float, one: float, start: float) -> str:
    figures = f"The loss with {k} GPUs is {loss:.2f}, with one {one:.2f}. "
    if not loss <= start:
        return figures + "It is larger than at the start: the steps are far too long."
    if loss < one:
        return figures + (
            "That is further than one GPU comes, at a rate that would suit a larger "
            "batch still. How far do all steps of an epoch lead together?"
        )
    if rates[k] == rates[1]:
        return figures + (
            "The rate stayed the same. With more examples in a batch, how many steps "
            "does an epoch have?"
        )
    if rates[k] < rates[1]:
        return figures + (
            "The rate fell. There are fewer steps in an epoch already, and each became "
            "shorter."
        )
    if rates[k] > k * rates[1]:
        return figures + (
            f"The rate is {rates[k] / rates[1]:.3g} times as large: the steps are far "
            "too long, and go past the minimum."
        )
    return figures + (
        f"The rate is {rates[k] / rates[1]:.3g} times as large, and that is not "
        "enough to make up for the steps that are no longer made."
    )


# ------------------------------------------------------------------ 06.3


@EXERCISES.add("06.3", "gradients", gpus=4)
def sum_gradients(answer):
    k, shapes = 4, [(3, 2), (4,), (1, 2, 3), (1,), (5, 5)] * 4

    def fresh() -> list[list[torch.Tensor]]:
        return [
            [
                torch.full(shape, 10.0**i * (1 + n), device=d2l.gpu(i))
                for n, shape in enumerate(shapes)
            ]
            for i in range(k)
        ]

    gradients, before = fresh(), fresh()
    given = [list(own) for own in gradients]
    with d2l.transfers() as log:
        answer(gradients)
    sums = [1111.0 * (1 + n) for n in range(len(shapes))]
    right = [
        [bool((x == value).all()) for x, value in zip(own, sums, strict=True)]
        for own in given
    ]
    yield Claim(
        "on each GPU, each of the tensors that were given is the sum of all four",
        all(map(all, right)),
        _why_not_summed(given, before, sums, right),
    )
    vector = sum(x.nbytes for x in before[0])
    messages = 2 * (k - 1)
    via_host = any("cpu" in (t.source.type, t.target.type) for t in log)
    if via_host:
        hint = "Something went by way of the host. GPUs can copy from each other."
    elif len(log) > messages:
        hint = (
            f"{len(log)} copies were made, and each GPU has {len(shapes)} tensors. "
            "Gradients cross one by one if they are not in one tensor."
        )
    else:
        hint = (
            f"{log.nbytes:,} bytes crossed in {len(log)} copies; one GPU has "
            f"{vector:,} bytes of gradient."
        )
    yield Claim(
        f"{messages} copies cross, and no more bytes than the gradients have",
        len(log) <= messages and log.nbytes <= messages * vector and not via_host,
        hint,
    )


def _why_not_summed(given, before, sums, right) -> str:
    if all(map(all, right)):
        return ""
    unchanged = [
        all(map(torch.equal, own, old)) for own, old in zip(given, before, strict=True)
    ]
    if all(unchanged):
        return (
            "All of them are what they were. What `torch.cat` returns is a copy: a sum "
            "in there is not yet in the gradients."
        )
    if any(unchanged):
        numbers = ", ".join(str(i) for i, same in enumerate(unchanged) if same)
        return f"On GPU {numbers} all of them are what they were."
    i, n = next((i, own.index(False)) for i, own in enumerate(right) if not all(own))
    value = given[i][n].flatten()[0].item()
    if abs(value * len(given) - sums[n]) < 1e-3:
        return "Each is the mean, and the sum is wanted."
    return (
        f"On GPU {i}, tensor {n} begins with {value:g} and should be {sums[n]:g} "
        "everywhere."
    )


# ------------------------------------------------------------------ 06.4


def _lesson_allreduce(data: Sequence[torch.Tensor]) -> None:
    for other in data[1:]:
        data[0] += other.to(data[0].device)
    for other in data[1:]:
        other.copy_(data[0])


@EXERCISES.add("06.4", "data", gpus=8)
def better_allreduce(answer):
    devices = [d2l.gpu(i) for i in range(8)]
    k, numbers = len(devices), 10**6
    problem = _miscounted(answer, (1, 2, 4, 8), devices)
    yield Claim("each vector becomes the sum of all", not problem, problem)
    problem = _miscounted(answer, (3, 5, 6, 7), devices)
    yield Claim("so it does with 3, 5, 6 or 7 GPUs", not problem, problem)
    vectors = [torch.ones(numbers, device=device) for device in devices]
    with d2l.transfers() as log:
        answer(vectors)
    ends = [[t.source for t in log], [t.target for t in log]]
    busiest = max(
        sum(t.nbytes for t, end in zip(log, side, strict=True) if end == device)
        for device in devices
        for side in ends
    )
    busiest /= vectors[0].nbytes
    yield Claim(
        f"with {k} GPUs, none sends or takes in more than half of what GPU 0 does in "
        "`allreduce`",
        busiest <= (k - 1) / 2,
        f"One GPU sends or takes in {busiest:.2f} vectors; GPU 0 does {k - 1} in "
        "`allreduce`. Can sums of several vectors travel in place of the vectors?",
    )
    its, wanted = _seconds(answer, k, numbers), _seconds(_allreduce, k, numbers)
    shared = sum(
        not {a.source, a.target}.isdisjoint((b.source, b.target))
        for a, b in itertools.pairwise(log)
    )
    yield Claim(
        "it takes at most three quarters of the simulated time of `allreduce`",
        its <= 0.75 * wanted,
        f"It takes {its / wanted:.0%} of it. {shared} of {len(log)} copies begin or "
        "end at a GPU that the copy before is still busy with, and wait for it. Which "
        "ones could be made at the same time?",
    )


def _allreduce(data: Sequence[torch.Tensor]) -> None:
    """Sum vectors in place, as in the lesson."""
    for other in data[1:]:
        data[0] += other.to(data[0].device)
    for other in data[1:]:
        other.copy_(data[0])


def _seconds(all_reduce: Callable, k: int, numbers: int) -> float:
    sim = d2l.simulator(k, "V100", "PCIe3")
    vectors = [torch.ones(numbers, device=device) for device in sim.gpus()]
    sim.reset()
    all_reduce(vectors)
    return sim.elapsed()


def _miscounted(
    all_reduce: Callable, counts: Sequence[int], devices: Sequence[torch.device]
) -> str:
    """Return a hint on the first wrong sum; empty if all are right.

    Vector i contains 8^i, so digit i of a sum, in base 8, is how often it was counted.
    """
    for k in counts:
        vectors = [
            torch.full((10,), 8.0**i, dtype=torch.float64, device=devices[i])
            for i in range(k)
        ]
        all_reduce(list(vectors))
        for i, vector in enumerate(vectors):
            wrong = set(vector.tolist()) - {sum(8.0**j for j in range(k))}
            if wrong:
                return _what_was_counted(k, i, wrong.pop())
    return ""


def _what_was_counted(k: int, i: int, value: float) -> str:
    if value == 8.0**i:
        return (
            f"With {k} GPUs, some of the vector on GPU {i} is what it was. The sum has "
            "to be put into each of the tensors that were given, with all its numbers."
        )
    if value * k == sum(8.0**j for j in range(k)):
        return f"With {k} GPUs, GPU {i} has the mean of the vectors, not their sum."
    if value != int(value) or not 0 <= value < 8**k:
        return f"With {k} GPUs, a number on GPU {i} is no sum of those that were given."
    times = [int(value) // 8**j % 8 for j in range(k)]
    j, count = next((j, count) for j, count in enumerate(times) if count != 1)
    if count:
        return (
            f"With {k} GPUs, the sum on GPU {i} counts the vector of GPU {j} {count} "
            "times. Was a vector sent on that had been added to already?"
        )
    return f"With {k} GPUs, the sum on GPU {i} lacks the vector of GPU {j}."


# ------------------------------------------------------------------ 06.5


@EXERCISES.add("06.5", "loss, X, y, replicas, shares", returns=(list, tuple), gpus=4)
def shared_gradient(answer):
    cases = (64, (2, 1)), (50, (3, 2, 2))
    yield from in_all(_shared(answer, n, shares) for n, shares in cases)


def _shared(answer: Callable, n: int, shares: tuple[int, ...]) -> Iterator[Claim]:
    params, (X, y), first = _params(), _batch(n), d2l.gpu(0)
    replicas = _replicas(params, len(shares))
    with d2l.transfers() as log:
        result = answer(_loss, X, y, replicas, shares)
    shapes = [tuple(p.shape) for p in params]
    its = [tuple(x.shape) if isinstance(x, torch.Tensor) else x for x in result]
    yield Claim(
        "a gradient for each parameter is returned",
        its == shapes,
        f"The shapes are {its}, and those of the parameters {shapes}.",
    )
    if its != shapes:
        return
    yield Claim(
        "they are on the GPU of the first replica",
        all(x.device == first for x in result),
        f"The first one lives on {result[0].device}.",
    )
    example = (X.nbytes + y.nbytes) / n
    sent = [
        sum(t.nbytes for t in log if (t.source.type, t.target) == ("cpu", d2l.gpu(i)))
        / example
        for i in range(len(shares))
    ]
    yield Claim(
        "each example is sent to one GPU",
        sum(sent) == n,
        f"What the host sent makes {sum(sent):g} examples, of {n}. Look at where one "
        "part ends and the next begins.",
    )
    ideal = [n * share / sum(shares) for share in shares]
    yield Claim(
        "each GPU gets its share, to one example",
        all(abs(a - b) <= 1 for a, b in zip(sent, ideal, strict=True)),
        f"The GPUs were sent {_listed(sent)} examples, and {_listed(ideal)} would be "
        "their shares.",
    )
    wanted, gradient = _gradient(params, X, y), _flat(result)
    yield Claim(
        "the gradient is that of the mean loss of the batch",
        _close(gradient, wanted),
        _which_gradient(gradient, wanted, params, X, y, sent, shares),
    )


def _listed(counts: Sequence[float]) -> str:
    return " and ".join(f"{count:.4g}" for count in counts)


def _which_gradient(its, wanted, params, X, y, sent, shares) -> str:
    times = _times(its, wanted)
    if times is not None:
        return (
            f"It has the right direction, and is {times:.3g} times as long as that. "
            "Are sums or means added, and what are they divided by?"
        )
    sizes = [round(count) for count in sent]
    if sum(sizes) == len(X) and all(sizes):
        parts = zip(X.split(sizes), y.split(sizes), strict=True)
        means = [_gradient(params, *part) for part in parts]
        if _times(its, sum(means)) is not None:
            return (
                "It is made of the means of the parts, all with the same weight: an "
                "example in a small part counts for more than one in a large part."
            )
        if _times(its, means[0]) is not None:
            return "It is the gradient of the first part. Where are the others?"

        def weighted(weights):
            return sum(w * g for w, g in zip(weights, means, strict=True))

        if _close(its, weighted([share / sum(shares) for share in shares])):
            return (
                f"The means of the parts are weighted by {shares}. But the parts have "
                f"{_listed(sizes)} examples, which is not quite in that proportion."
            )
        orders = itertools.permutations(size / len(X) for size in sizes)
        if any(_close(its, weighted(order)) for order in orders):
            return "The means are weighted, but one of them has the weight of another."
    return "It has another direction: not every example has the same weight."
