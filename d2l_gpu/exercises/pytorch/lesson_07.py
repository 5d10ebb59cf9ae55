"""Data parallelism by hand.

Gradients are compared with that of the whole batch; copies are counted with the log of
copies and timed with the simulated clock.
"""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch.nn import functional as F

from d2l_gpu import torch as d2l
from d2l_gpu.exercises.cases import in_all
from d2l_gpu.exercises.gpus import HOST, Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run

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


def _replicas(
    params: Sequence[torch.Tensor], devices: Sequence[torch.device]
) -> list[list[torch.Tensor]]:
    return [
        [p.to(device, copy=True).requires_grad_() for p in params] for device in devices
    ]


def _gradient(params: Sequence[torch.Tensor], X, y) -> torch.Tensor:
    """Return the gradient of the mean loss as one vector, computed on the CPU."""
    params = [p.detach().clone().requires_grad_() for p in params]
    return _flat(torch.autograd.grad(_loss(params, X, y), params))


def _flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([x.detach().cpu().reshape(-1) for x in tensors])


def _unflat(vector: torch.Tensor, like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return a vector's parts in the shapes of tensors: the inverse of `_flat`."""
    parts = vector.split([x.numel() for x in like])
    return [part.view_as(x) for part, x in zip(parts, like, strict=True)]


def _from_host(copies: Sequence[tuple[int, str, str]], k: int) -> list[int]:
    """Return how many bytes each of k GPUs received from the host."""
    received = Counter()
    for nbytes, source, target in copies:
        if source == HOST:
            received[target] += nbytes
    return [received[f"GPU {i}"] for i in range(k)]


def _vector(tensors: Sequence[torch.Tensor]) -> np.ndarray:
    """Return tensors as one vector, for a record."""
    return _flat(tensors).numpy()


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-6, atol=1e-9)


def _times(a: torch.Tensor, b: torch.Tensor) -> float | None:
    """Return the factor by which a is a multiple of b; None if it isn't one."""
    factor = float(a @ b / (b @ b))
    return factor if _close(a, factor * b) else None


# ------------------------------------------------------------------ 07.1


_K, _RATE_OF_STEP = 4, 0.5


def _batches(k: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(zip(*(part.split(6) for part in _batch(6 * k)), strict=True))


def _stepped(answer: Callable, gpus: Gpus) -> dict:
    """Take two steps; return the replicas after each, and the copies of the first."""
    batches, replicas = _batches(_K), _replicas(_params(), gpus[:_K])
    with d2l.transfers() as log:
        answer(_loss, batches, [list(own) for own in replicas], _RATE_OF_STEP)
    first = [_vector(replica) for replica in replicas]
    answer(_loss, batches, [list(own) for own in replicas], _RATE_OF_STEP)
    return {
        "first": first,
        "second": [_vector(replica) for replica in replicas],
        "copies": gpus.copies(log),
    }


@EXERCISES.add("07.1", "loss, batches, replicas, lr", gpus=_K, changes="replicas")
def train_step(run: Run):
    k, lr, batches, params = _K, _RATE_OF_STEP, _batches(_K), _params()
    found = run(_stepped)
    ends = [torch.tensor(vector) for vector in found["first"]]
    moved = [_flat(params) - end for end in ends]
    wanted = lr * _gradient(params, *_batch(6 * k))
    yield Claim(
        "the parameters in `replicas` have changed",
        all(bool(step.any()) for step in moved),
        "Some of them haven't changed. Write into the tensors in `replicas`: if you "
        "create new tensors, the caller never sees them.",
    )
    alone = [lr * _gradient(params, X, y) for X, y in batches]
    yield Claim(
        "all replicas are equal, bit for bit",
        all(torch.equal(step, moved[0]) for step in moved),
        _why_replicas_differ(moved, alone),
    )
    yield Claim(
        f"they took the same step as for one batch of {6 * k} examples",
        _close(moved[0], wanted),
        _what_step(moved[0], wanted, alone, k),
    )
    sent = _from_host(found["copies"], k)
    nbytes = sum(x.nbytes for x in batches[0])
    yield Claim(
        "each GPU receives its own batch from the host, and nothing else",
        sent == [nbytes] * k,
        f"A batch has {nbytes:,} bytes, but the host sent {sent} bytes to the {k} "
        "GPUs.",
    )
    if not _close(moved[0], wanted):
        return
    before = _unflat(ends[0], params)
    second = [ends[0] - torch.tensor(vector) for vector in found["second"]]
    wanted_now = lr * _gradient(before, *_batch(6 * k))
    off = [i for i, step in enumerate(second) if not _close(step, wanted_now)]
    yield Claim(
        "each replica's second step is right too",
        not off,
        _what_is_left(second, off, wanted_now, alone) if off else "",
    )


def _what_is_left(
    second: Sequence[torch.Tensor], off: Sequence[int], wanted_now, alone
) -> str:
    """Return a hint on what, besides the right step, is in the second one.

    Args:
        second: the second step of each replica.
        off: which of them are wrong.
        wanted_now: the right one.
        alone: the first step for each batch alone.
    """
    k, left = len(alone), second[off[0]] - wanted_now
    steps = torch.stack(list(alone), dim=1)
    weights = torch.linalg.lstsq(steps, left[:, None]).solution
    if not _close((steps @ weights)[:, 0], left):
        numbers = ", ".join(map(str, off))
        return (
            f"On GPU{'s' * (len(off) > 1)} {numbers}, the second step doesn't follow "
            "the gradient at the point where the first one ended."
        )
    times = _times(left, sum(alone) / k)
    if len(off) < k:
        numbers = ", ".join(map(str, off))
        where = f"in that of GPU{'s' * (len(off) > 1)} {numbers}"
    elif any(times is not None and abs(times - n) < 1e-6 for n in range(2, k)):
        return (
            f"The second step is the right one plus {times:.0f} × the first. If all "
            f"{k} GPUs had kept their gradients, that would be {k} ×: which of them "
            "still have one for `backward` to add to?"
        )
    else:
        where = "in it"
    return (
        f"The gradient of the first step is still {where}. What does `backward` do "
        "with a gradient that already exists?"
    )


def _why_replicas_differ(moved: Sequence[torch.Tensor], alone) -> str:
    if all(
        _times(step, own) is not None for step, own in zip(moved, alone, strict=True)
    ):
        return (
            "Each replica took the step of its own batch: the gradients weren't added "
            "up."
        )
    if _times(moved[1], alone[1]) is not None:
        return (
            "The sum reached the first GPU, but the others stepped with the gradients "
            "of their own batches."
        )
    return "The replicas took different steps, so their gradients weren't the same."


def _what_step(moved: torch.Tensor, wanted: torch.Tensor, alone, k: int) -> str:
    if _times(moved, alone[0]) is not None:
        return (
            "They took the step for the first batch alone, as if every GPU had "
            "received that one."
        )
    times = _times(moved, wanted)
    if times is None:
        return (
            "The step has the wrong direction, so the batches don't all have the same "
            "weight."
        )
    if abs(times - k) < 1e-6:
        return (
            f"The step has the right direction but is {k} times too long: you added "
            f"the mean losses of {k} batches and treated the sum as a mean."
        )
    return (
        f"The step has the right direction but {times:.3g} times the right length. "
        "What do you divide the sum by, and how often?"
    )


# ------------------------------------------------------------------ 07.2


_SHORTER = 0.6
_STEPS = "first", "second"
_HINTS = {
    "first": "Each replica needs the mean of the gradients of all shards.",
    "second": "Has something of the first step been left in `grad`?",
}


def _wide(
    devices: Sequence[torch.device],
) -> tuple[torch.Tensor, torch.Tensor, list[list[torch.Tensor]]]:
    """Return a batch, and replicas whose kernels run longer than Python queues them."""
    torch.manual_seed(7)
    params = [torch.randn(shape) / 40 for shape in ((5, 512), (512,), (512, 512))]
    params += [torch.randn(512) / 40]
    return torch.randn(16384, 5), torch.arange(16384) % 3, _replicas(params, devices)


def _one_step(answer: Callable, gpus: Gpus) -> dict:
    """Take two steps; return what the first one sent, and the replicas after each."""
    (X, y), replicas = _batch(24), _replicas(_params(), gpus[:3])
    with d2l.transfers() as log:
        first = answer(_loss, X, y, replicas, _RATE_OF_STEP)
    ends = [_vector(replica) for replica in replicas]
    second = answer(_loss, X, y, replicas, _RATE_OF_STEP)
    return {
        "losses": [float(first), float(second)],
        "first": ends,
        "second": [_vector(replica) for replica in replicas],
        "copies": gpus.copies(log),
    }


def _time_of_step(answer: Callable, gpus: Gpus) -> float:
    """Return the simulated seconds of a step on two V100s."""
    sim = d2l.simulator(2)
    X, y, replicas = _wide(sim.gpus())
    sim.reset()
    answer(_loss, X, y, replicas, _RATE_OF_STEP)
    return sim.elapsed()


def _slow(loss: Callable, X, y, replicas, lr: float) -> float:
    """Take a step in the way that the exercise calls slow."""
    k, total = len(replicas), 0.0
    for i, params in enumerate(replicas):
        device = params[0].device
        value = loss(params, X.to(device).chunk(k)[i], y.to(device).chunk(k)[i])
        value.backward()
        total += value.item()
    with torch.no_grad():
        for same in zip(*replicas, strict=True):
            mean = sum(p.grad.cpu() for p in same) / k
            for p in same:
                p -= lr * mean.to(p.device)
                p.grad = None
    return total / k


@EXERCISES.add(
    "07.2",
    "loss, X, y, replicas, lr",
    returns=float,
    gpus=3,
    changes="replicas",
)
def quick_step(run: Run):
    k, lr, (X, y), start = 3, _RATE_OF_STEP, _batch(24), _params()
    found = run(_one_step)
    points = [_flat(start)] + [torch.tensor(found[name][0]) for name in _STEPS]
    for i, name in enumerate(_STEPS):
        params = _unflat(points[i], start)
        wanted = points[i] - lr * _gradient(params, X, y)
        ends = [torch.tensor(vector) for vector in found[name]]
        wrong = [str(j) for j, end in enumerate(ends) if not _close(end, wanted)]
        yield Claim(
            f"the {name} step of each replica is the one for the whole batch",
            not wrong,
            f"The {name} step is wrong on GPU{'s' * (len(wrong) > 1)} "
            f"{', '.join(wrong)}. {_HINTS[name]}",
        )
        if wrong:
            return
        mean = _loss(params, X, y).item()
        yield Claim(
            f"at the {name} step, it returns the mean loss over the batch",
            abs(found["losses"][i] - mean) < 1e-6 * mean,
            f"At the {name} step you return {found['losses'][i]:.4f}, but the mean "
            f"loss is {mean:.4f}. How many examples does each GPU's loss stand for?",
        )
    fetched = sum(nbytes for nbytes, _, target in found["copies"] if target == HOST)
    yield Claim(
        "only the losses are sent to the host",
        fetched <= k * X.element_size(),
        f"The GPUs sent {fetched:,} bytes to the host; {k} losses have "
        f"{k * X.element_size()}. What else did you send, and could it go straight to "
        "the GPUs that need it?",
    )
    sent = _from_host(found["copies"], k)
    shard = (X.nbytes + y.nbytes) // k
    yield Claim(
        "each GPU receives its own shard from the host, and nothing else",
        sent == [shard] * k,
        f"A shard has {shard:,} bytes, but the host sent {sent} bytes to the {k} GPUs.",
    )
    its, slow = run(_time_of_step), _time_of_step(_slow, ())
    yield Claim(
        f"it takes at most {_SHORTER:.0%} of the simulated time of the slow version",
        its <= _SHORTER * slow,
        f"It takes {its / slow:.0%} of that time. When does the last GPU get its work, "
        "and what has Python waited for by then?",
    )


# ------------------------------------------------------------------ 07.3


_SHAPES = [(3, 2), (4,), (1, 2, 3), (1,), (5, 5)] * 4


def _gradients(devices: Sequence[torch.device], scale: int) -> list[list[torch.Tensor]]:
    """Return gradients on each device; number n on device i is 10ⁱ (n + 1) scale."""
    return [
        [
            torch.full(shape, 10.0**i * (1 + n) * scale, device=device)
            for n, shape in enumerate(_SHAPES)
        ]
        for i, device in enumerate(devices)
    ]


def _summed(answer: Callable, gpus: Gpus, scale: int) -> tuple:
    """Return the gradients after the call, and the copies."""
    gradients = _gradients(gpus[:4], scale)
    given = [list(own) for own in gradients]
    with d2l.transfers() as log:
        answer(gradients)
    return [[x.cpu().numpy() for x in own] for own in given], gpus.copies(log)


@EXERCISES.add("07.3", "gradients", gpus=4, changes="gradients")
def sum_gradients(run: Run):
    # No answer can know the scale; 16 million is the last number that float32 counts.
    k, scale = 4, random.randint(2, 500)
    before = _gradients([d2l.cpu()] * 4, 1)
    found, log = run(_summed, scale)
    given = [[torch.tensor(x) / scale for x in own] for own in found]
    sums = [1111.0 * (1 + n) for n in range(len(_SHAPES))]
    right = [
        [
            x.shape == shape and bool((x == value).all())
            for x, shape, value in zip(own, _SHAPES, sums, strict=True)
        ]
        for own in given
    ]
    yield Claim(
        "on each GPU, each of the given tensors becomes the sum over all four GPUs",
        all(map(all, right)),
        _why_not_summed(given, before, sums, right),
    )
    vector = sum(x.nbytes for x in before[0])
    messages = 2 * (k - 1)
    via_host = any(HOST in (source, target) for _, source, target in log)
    crossed = sum(nbytes for nbytes, *_ in log)
    if via_host:
        hint = (
            "You copied something by way of the host. GPUs can copy directly to each "
            "other."
        )
    elif len(log) > messages:
        hint = (
            f"You made {len(log)} copies; each GPU has {len(_SHAPES)} tensors. As long "
            "as the gradients aren't in one tensor, they cross one by one."
        )
    else:
        hint = (
            f"{crossed:,} bytes crossed in {len(log)} copies. The gradients of one "
            f"GPU have {vector:,} bytes, and no copy needs more than that."
        )
    yield Claim(
        f"at most {messages} copies cross, with no unnecessary bytes",
        len(log) <= messages and crossed <= messages * vector and not via_host,
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
            "None of the tensors has changed. `torch.cat` returns a copy, so a sum "
            "that you compute there isn't in the gradients yet."
        )
    if any(unchanged):
        numbers = [str(i) for i, same in enumerate(unchanged) if same]
        gpus = "GPU" if len(numbers) == 1 else "GPUs"
        return f"On {gpus} {', '.join(numbers)}, none of the tensors has changed."
    k = len(given)
    i, n = next((i, own.index(False)) for i, own in enumerate(right) if not all(own))
    if given[i][n].shape != _SHAPES[n]:
        return (
            f"On GPU {i}, tensor {n} now has the shape {tuple(given[i][n].shape)} "
            f"instead of {_SHAPES[n]}."
        )
    value = given[i][n][given[i][n] != sums[n]][0].item()
    found = f"On GPU {i}, tensor {n} contains {value:g} instead of {sums[n]:g}"
    if abs(value * k - sums[n]) < 1e-3:
        return f"{found}: that's the mean, but you need the sum."
    if value in sums:
        return f"{found}, which is the sum of the tensors {sums.index(value)}."
    counts = [int(value / (1 + n)) // 10**j % 10 for j in range(k)]
    wrong = [j for j, count in enumerate(counts) if count != 1]
    if wrong and sum(c * 10**j for j, c in enumerate(counts)) * (1 + n) == value:
        times = "isn't in it" if counts[wrong[0]] == 0 else "is in it more than once"
        return f"{found}: the gradient of GPU {wrong[0]} {times}."
    return f"{found}, which isn't a sum of the gradients."


# ------------------------------------------------------------------ 07.4


_NUMBERS = 10**6


def _sums(answer: Callable, gpus: Gpus, k: int, scale: int) -> list[list[float]]:
    """Return what k vectors contain after the call; vector i began with 8^i scale."""
    vectors = [
        torch.full((10,), 8.0**i * scale, dtype=torch.float64, device=gpus[i])
        for i in range(k)
    ]
    answer(list(vectors))
    return [vector.tolist() for vector in vectors]


def _large(
    devices: Sequence[torch.device], scale: int
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return large vectors, once in a list for the answer and once for us."""
    vectors = [torch.full((_NUMBERS,), float(scale), device=each) for each in devices]
    return list(vectors), vectors


def _contents(vectors: Sequence[torch.Tensor]) -> list[tuple[int, float, float]]:
    """Return the length of each vector, and its least and largest number."""
    return [
        (x.numel(), float(x.min()), float(x.max())) if x.numel() else (0, 0.0, 0.0)
        for x in vectors
    ]


def _traffic(answer: Callable, gpus: Gpus, k: int, scale: int) -> tuple:
    """Return the copies of large vectors, and what these contain afterwards."""
    data, vectors = _large(gpus[:k], scale)
    with d2l.transfers() as log:
        answer(data)
    return gpus.copies(log), _contents(vectors)


def _timed(answer: Callable, gpus: Gpus, k: int, scale: int) -> tuple:
    """Return the simulated seconds for large vectors on k V100s, and their contents."""
    sim = d2l.simulator(k, "V100", "PCIe3")
    data, vectors = _large(sim.gpus(), scale)
    sim.reset()
    answer(data)
    return sim.elapsed(), _contents(vectors)


@EXERCISES.add("07.4", "data", gpus=8, changes="data")
def better_allreduce(run: Run):
    k, scale = 8, random.randint(2, 1000)  # which no answer can know
    problem = _miscounted(run, (1, 2, 4, 8))
    if not problem:
        log, large = run(_traffic, k, scale)
        seconds, timed = run(_timed, k, scale)
        wanted = [(_NUMBERS, float(k * scale), float(k * scale))] * k
        if not large == timed == wanted or len(log) < k - 1:
            problem = (
                "With ten numbers in each vector the sums are right, but not with a "
                "million."
            )
    yield Claim("each vector becomes the sum of all of them", not problem, problem)
    odd = _miscounted(run, (3, 5, 6, 7))
    yield Claim("that also works with 3, 5, 6 or 7 GPUs", not odd, odd)
    if problem:
        return
    busiest = max(
        sum(nbytes for nbytes, *ends in log if ends[side] == f"GPU {i}")
        for i in range(k)
        for side in (0, 1)
    )
    busiest /= 4 * _NUMBERS
    yield Claim(
        f"with {k} GPUs, none sends or receives more than half of what GPU 0 does in "
        "`allreduce`",
        busiest <= (k - 1) / 2,
        f"One GPU sends or receives {busiest:.2f} vectors; GPU 0 in `allreduce` has "
        f"{k - 1}. Could sums of several vectors travel instead of the vectors "
        "themselves?",
    )
    its, (reference, _) = seconds, _timed(_allreduce, (), k, scale)
    shared = sum(not {*a[1:]}.isdisjoint(b[1:]) for a, b in itertools.pairwise(log))
    yield Claim(
        "it takes at most three quarters of the simulated time of `allreduce`",
        its <= 0.75 * reference,
        f"It takes {its / reference:.0%} of that time. {shared} of {len(log)} copies "
        "start or end at a GPU that's still busy with the previous copy, so they have "
        "to wait. Which copies could run at the same time?",
    )


def _allreduce(data: Sequence[torch.Tensor]) -> None:
    """Sum vectors in place, as in the lesson."""
    for other in data[1:]:
        data[0] += other.to(data[0].device)
    for other in data[1:]:
        other.copy_(data[0])


def _miscounted(run: Run, counts: Sequence[int]) -> str:
    """Return a hint on the first wrong sum; empty if all are right.

    Digit i of a sum, in base 8, is how often vector i was counted.
    """
    for k in counts:
        scale = random.randint(2, 1000)
        for i, vector in enumerate(run(_sums, k, scale)):
            if len(vector) != 10:
                return (
                    f"With {k} GPUs, the vector on GPU {i} has {len(vector)} numbers "
                    "afterwards; it had 10."
                )
            wrong = {x / scale for x in vector} - {sum(8.0**j for j in range(k))}
            if wrong:
                return _what_was_counted(k, i, wrong.pop())
    return ""


def _what_was_counted(k: int, i: int, value: float) -> str:
    if value == 8.0**i:
        return (
            f"With {k} GPUs, part of the vector on GPU {i} hasn't changed. The sum has "
            "to be written into every element of each tensor you were given."
        )
    if value * k == sum(8.0**j for j in range(k)):
        return f"With {k} GPUs, GPU {i} has the mean of the vectors, not their sum."
    if value != int(value) or not 0 <= value < 8**k:
        return (
            f"With {k} GPUs, GPU {i} has the number {value:g}, which isn't a sum of "
            "the vectors you were given."
        )
    times = [int(value) // 8**j % 8 for j in range(k)]
    j, count = next((j, count) for j, count in enumerate(times) if count != 1)
    if count:
        return (
            f"With {k} GPUs, the sum on GPU {i} counts the vector of GPU {j} {count} "
            "times. Did you send on a vector that had already been added to?"
        )
    return f"With {k} GPUs, the sum on GPU {i} is missing the vector of GPU {j}."


# ------------------------------------------------------------------ 07.5


def _divided(
    answer: Callable, gpus: Gpus, n: int, shares: tuple[int, ...]
) -> list[dict]:
    """Return what each of two calls with the same replicas found."""
    (X, y), replicas = _batch(n), _replicas(_params(), gpus[: len(shares)])
    calls = []
    for _ in range(2):
        with d2l.transfers() as log:
            result = answer(_loss, X, y, replicas, shares)
        tensors = all(isinstance(x, torch.Tensor) for x in result)
        calls.append(
            {
                "shapes": [tuple(getattr(x, "shape", ())) for x in result],
                "where": [gpus.where(x) for x in result],
                "gradient": _vector(result) if tensors and result else None,
                "copies": gpus.copies(log),
            }
        )
    return calls


@EXERCISES.add("07.5", "loss, X, y, replicas, shares", returns=(list, tuple), gpus=4)
def shared_gradient(run: Run):
    cases = (64, (2, 1)), (50, (3, 2, 2)), (63, (1, 1, 1, 1))
    yield from in_all(_shared(run, n, shares) for n, shares in cases)


def _shared(run: Run, n: int, shares: tuple[int, ...]) -> Iterator[Claim]:
    params, (X, y) = _params(), _batch(n)
    found, again = run(_divided, n, shares)
    shapes, its = [tuple(p.shape) for p in params], found["shapes"]
    yield Claim(
        "it returns a gradient for each parameter",
        its == shapes,
        f"You return the shapes {its}; the parameters have {shapes}.",
    )
    if its != shapes or found["gradient"] is None:
        return
    yield Claim(
        "the gradients are on the GPU of the first replica",
        set(found["where"]) == {"GPU 0"},
        _on_another(found["where"]),
    )
    example = (X.nbytes + y.nbytes) / n
    sent = [each / example for each in _from_host(found["copies"], len(shares))]
    yield Claim(
        "each example is sent to exactly one GPU",
        sum(sent) == n,
        _not_each_once(sent, n),
    )
    ideal = [n * share / sum(shares) for share in shares]
    yield Claim(
        "each GPU gets its share, give or take one example",
        all(abs(a - b) <= 1 for a, b in zip(sent, ideal, strict=True)),
        f"The host sent the GPUs {_listed(sent)} examples; their shares are "
        f"{_listed(ideal)}.",
    )
    wanted, gradient = _gradient(params, X, y), torch.tensor(found["gradient"])
    yield Claim(
        "it's the gradient of the batch's mean loss",
        _close(gradient, wanted),
        _which_gradient(gradient, wanted, params, X, y, sent, shares),
    )
    if _close(gradient, wanted):
        yield Claim(
            "a second call with the same replicas returns the same",
            again["gradient"] is not None
            and np.array_equal(again["gradient"], found["gradient"]),
            "The second call returned another gradient. Does the first one leave "
            "something behind in the replicas, such as `grad`?",
        )


def _on_another(places: Sequence[str]) -> str:
    others = [(i, place) for i, place in enumerate(places) if place != "GPU 0"]
    if not others:
        return ""
    i, place = others[0]
    return (
        f"The gradient of parameter {i} is on {place}, but the first replica is on "
        "GPU 0."
    )


def _not_each_once(sent: Sequence[float], n: int) -> str:
    numbers = f"The host sent {_listed(sent)} examples, {sum(sent):g} in total, of {n}."
    if all(count == n for count in sent):
        return f"{numbers} Every GPU got the whole batch."
    some = "Some were left out." if sum(sent) < n else "Some were sent more than once."
    return f"{numbers} {some} Look at where one part ends and the next one begins."


def _listed(counts: Sequence[float]) -> str:
    return " and ".join(f"{count:.4g}" for count in counts)


def _which_gradient(its, wanted, params, X, y, sent, shares) -> str:
    times = _times(its, wanted)
    if times is not None:
        return (
            f"With {len(X)} examples, your gradient has the right direction but is "
            f"{times:.3g} times as long as it should be. Do you add sums or means, and "
            "what do you divide by?"
        )
    sizes = [round(count) for count in sent]
    if sum(sizes) == len(X) and all(sizes):
        parts = zip(X.split(sizes), y.split(sizes), strict=True)
        means = [_gradient(params, *part) for part in parts]
        if _times(its, sum(means)) is not None:
            return (
                "You gave the gradients of all parts the same weight, so an example in "
                "a small part counts for more than one in a large part."
            )
        if _times(its, means[0]) is not None:
            return (
                "You return the gradient of the first part alone. Where are the others?"
            )

        def weighted(weights):
            return sum(w * g for w, g in zip(weights, means, strict=True))

        if _close(its, weighted([share / sum(shares) for share in shares])):
            return (
                f"You weighted the gradients of the parts by {shares}, but the parts "
                f"have {_listed(sizes)} examples, which isn't quite that ratio."
            )
        orders = itertools.permutations(size / len(X) for size in sizes)
        if any(_close(its, weighted(order)) for order in orders):
            return (
                "You weighted the gradients of the parts, but gave one part the "
                "weight of another."
            )
    far = float((its - wanted).norm() / wanted.norm())
    return (
        f"With {len(X)} examples and shares of {shares}, your gradient differs from "
        f"the right one by {far:.0%} of its length, and has a different direction. The "
        "examples don't all have the same weight."
    )
