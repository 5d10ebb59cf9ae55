"""When it hangs, crawls or lies: scripts with planted faults, and traces to read."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from d2l_gpu import vgpu
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run

EXERCISES = Registry()

_N = 3
_FEATURES, _CLASSES, _RATE = 6, 3, 0.5


def _ranks(function: Callable[[int, int], object], n: int = _N) -> tuple[list, str]:
    """Return what ranks return, and an empty text or why they can't finish."""
    try:
        return vgpu.run_ranks(function, n), ""
    except RuntimeError as error:
        text = str(error)
        if text.startswith("The ranks would wait") or "call the same coll" in text:
            return [], text
        raise


def _finish(stuck: str) -> Claim:
    return Claim("all ranks finish", not stuck, stuck)


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(_FEATURES, _CLASSES)


def _examples(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X = 2 * torch.randn(n, _FEATURES, generator=generator)
    return X, X[:, :_CLASSES].argmax(1)


def _vector(net: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in net.parameters()])


# ------------------------------------------------------------------ the evaluation

_STEPS, _EACH, _TESTS = 7, 4, (5, 20, 35)  # of each rank


def _part(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    return _examples(_EACH, 100 + _N * step + rank)


def _test(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    return _examples(_TESTS[rank], rank)


def _evaluated(answer: Callable, gpus: Gpus) -> dict:
    """Return each rank's history and parameters, and why they can't finish."""

    def run(rank, n):
        net = _network().to("vgpu")
        batches = [
            tuple(x.to("vgpu") for x in _part(step, rank)) for step in range(_STEPS)
        ]
        test = tuple(x.to("vgpu") for x in _test(rank))
        history = answer(net, batches, test, rank)
        return [float(x) for x in history], _vector(net).cpu().numpy()

    ranks, stuck = _ranks(run)
    return {
        "stuck": stuck,
        "histories": [history for history, _ in ranks],
        "parameters": [vector for _, vector in ranks],
    }


def _accuracies() -> tuple[list[list[float]], np.ndarray]:
    """Return accuracies after each step, of the ranks and of all; the parameters."""
    net, found = _network(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=_RATE)
    tests = [_test(rank) for rank in range(_N)]
    for step in range(_STEPS):
        X, y = (
            torch.cat(parts)
            for parts in zip(*(_part(step, rank) for rank in range(_N)), strict=True)
        )
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
        right = [float((net(X).argmax(1) == y).sum()) for X, y in tests]
        own = [a / b for a, b in zip(right, _TESTS, strict=True)]
        found.append([*own, sum(right) / sum(_TESTS)])
    return found, _vector(net).numpy()


@EXERCISES.add("16.1", "net, batches, test, rank", changes="net", gpus=_N)
def training(run: Run):
    found = run(_evaluated)
    yield _finish(found["stuck"])
    if found["stuck"]:
        return
    accuracies, parameters = _accuracies()
    wanted = [each[-1] for each in accuracies[1::2]]
    first, *others = found["histories"]
    yield Claim(
        "rank 0 returns an accuracy for every second step",
        len(first) == len(wanted),
        f"With {_STEPS} batches it should be {len(wanted)}, but you return "
        f"{len(first)}.",
    )
    if len(first) != len(wanted):
        return
    own = [each[0] for each in accuracies[1::2]]
    mean = [sum(each[:-1]) / _N for each in accuracies[1::2]]
    close = np.allclose(first, wanted, atol=1e-4)
    if np.allclose(first, own, atol=1e-4):
        hint = "You return the accuracy on rank 0's own examples."
    elif np.allclose(first, mean, atol=1e-4):
        hint = (
            "You average the ranks' accuracies. The ranks have different numbers of "
            "test examples."
        )
    else:
        hint = (
            f"The first one should be {wanted[0]:.3f}, but yours is {first[0]:.3f}, "
            f"and the last one {wanted[-1]:.3f}, but yours is {first[-1]:.3f}."
        )
    yield Claim("they're the accuracies on all ranks' examples", close, hint)
    if not close:
        return
    yield Claim(
        "the other ranks return an empty list",
        not any(others),
        f"Rank 1 returns {len(others[0])} numbers, rank 2 {len(others[1])}.",
    )
    yield Claim(
        "the parameters are trained as before",
        all(np.allclose(x, parameters, atol=1e-4) for x in found["parameters"]),
        "The accuracies are right, but the parameters at the end aren't. Does every "
        "step use the average gradient?",
    )


# ------------------------------------------------------------------ uneven batches

# The sizes of each rank's batches, in several worlds.
_WORLDS = (
    ((4, 4, 4), (4, 4), (4, 4, 4, 4)),
    ((2, 9), (5,), (7, 3, 1)),
    ((), (3, 6), (8, 1)),
)


def _batches(sizes: Sequence[int], rank: int) -> list[tuple]:
    return [_examples(k, 10 * rank + i) for i, k in enumerate(sizes)]


def _unevenly(answer: Callable, gpus: Gpus, world: int) -> dict:
    def run(rank, n):
        net = _network().to("vgpu")
        batches = [
            tuple(x.to("vgpu") for x in batch)
            for batch in _batches(_WORLDS[world][rank], rank)
        ]
        answer(net, batches)
        return _vector(net).cpu().numpy()

    ranks, stuck = _ranks(run)
    return {"stuck": stuck, "parameters": ranks}


def _trained(world: Sequence[Sequence[int]], rule: str = "examples") -> np.ndarray:
    """Return the parameters after training with a rule, all on one device.

    Args:
        rule: ``"examples"``, ``"ranks"`` (the mean of the means of ranks that have a
            batch), ``"all ranks"`` (their sum divided by the number of all ranks), or
            ``"shortest"`` (as ``"examples"``, as long as all ranks have a batch).
    """
    net = _network()
    optimizer = torch.optim.SGD(net.parameters(), lr=_RATE)
    batches = [_batches(sizes, rank) for rank, sizes in enumerate(world)]
    lengths = [len(each) for each in batches]
    for i in range(min(lengths) if rule == "shortest" else max(lengths)):
        now = [each[i] for each in batches if i < len(each)]
        optimizer.zero_grad()
        if rule in ("ranks", "all ranks"):
            loss = sum(F.cross_entropy(net(X), y) for X, y in now)
            loss = loss / (len(now) if rule == "ranks" else _N)
        else:
            X, y = (torch.cat(parts) for parts in zip(*now, strict=True))
            loss = F.cross_entropy(net(X), y)
        loss.backward()
        optimizer.step()
    return _vector(net).numpy()


@EXERCISES.add("16.2", "net, batches", changes="net", gpus=_N)
def uneven_training(run: Run):
    for number, world in enumerate(_WORLDS):
        said = "; ".join(", ".join(map(str, sizes)) or "none" for sizes in world)
        found = run(_unevenly, number)
        yield Claim(
            f"with batches of {said} examples, all ranks finish",
            not found["stuck"],
            found["stuck"],
        )
        if found["stuck"]:
            return
        first, *others = found["parameters"]
        same = all(np.array_equal(x, first) for x in others)
        yield Claim(
            "they have the same parameters",
            same,
            "They don't. What does a rank that has run out of batches do with its "
            "parameters in the remaining steps?",
        )
        if not same:
            return
        close = np.allclose(first, _trained(world), atol=1e-4)
        yield Claim(
            "every step uses the mean over all its examples",
            close,
            "" if close else _wrong_mean(world, first),
        )
        if not close:
            return


def _wrong_mean(world: Sequence[Sequence[int]], mine: np.ndarray) -> str:
    told = {
        "shortest": "You stop when the first rank runs out of batches, so the others' "
        "last batches aren't used.",
        "ranks": "You average over ranks, but their batches don't have equally many "
        "examples.",
        "all ranks": "You divide by the number of all ranks. What does a rank without "
        "a batch, or with a small one, contribute?",
    }
    for rule, hint in told.items():
        if np.allclose(mine, _trained(world, rule), atol=1e-4):
            return hint
    if np.allclose(mine, _vector(_network()).numpy()):
        return "The parameters haven't changed."
    return "The parameters at the end are others than those of one device."


# ------------------------------------------------------------------ culprits

_MANY = 5
_SENT = 64  # bytes


def _tensors(rank: int, case: str) -> list[torch.Tensor]:
    """Return a rank's tensors: those of culprits have one small change."""
    torch.manual_seed(1)
    first, second = 1000 * torch.randn(8, 50), torch.randn(30)
    second[3], second[4] = math.nan, 0.0
    if (case, rank) in (("bit", 2), ("two", 4)):
        first.view(torch.int32)[5, 7] ^= 1
    if (case, rank) in (("zero", 0), ("two", 0)):
        first[2, 2] += 1
    if (case, rank) == ("swap", 3):
        second[[7, 21]] = second[[21, 7]]
    if (case, rank) == ("sign", 1):
        second[4] = -0.0
    return [first, second]


_CASES = {
    "nobody": ("all tensors are equal", []),
    "zero": ("rank 0 has another number", [0]),
    "bit": ("the last bit of a number has flipped on rank 2", [2]),
    "sign": ("the sign of a zero has flipped on rank 1", [1]),
    "swap": ("two numbers have changed places on rank 3", [3]),
    "two": ("ranks 0 and 4 differ, each in its own way", [0, 4]),
}


def _accused(answer: Callable, gpus: Gpus, case: str) -> dict:
    """Return whom each rank accuses, and the bytes that are sent."""

    def run(rank, n):
        tensors = [x.to("vgpu") for x in _tensors(rank, case)]
        vgpu.current_simulator().reset()
        return [int(x) for x in answer(tensors)]

    ranks, stuck = _ranks(run, _MANY)
    links = vgpu.current_simulator().report().links
    sent = [
        link.nbytes
        for link in links
        if (link.source, link.target) == ("GPU 0", "other GPUs")
    ]
    return {"stuck": stuck, "ranks": ranks, "sent": sum(sent)}


@EXERCISES.add("16.3", "tensors", returns=list, gpus=_MANY)
def culprits(run: Run):
    most = 0
    for case, (text, wanted) in _CASES.items():
        found = run(_accused, case)
        yield _finish(found["stuck"])
        if found["stuck"]:
            return
        said = found["ranks"]
        right = all(each == wanted for each in said)
        yield Claim(
            f"if {text}, every rank returns {wanted}",
            right,
            "" if right else _wrong_culprits(case, wanted, said),
        )
        if not right:
            return
        most = max(most, found["sent"])
    yield Claim(
        "each rank sends a few dozen bytes",
        most <= _SENT,
        f"GPU 0 sends {most:,} bytes. What's the least that others need to know about "
        "a tensor?",
    )


def _wrong_culprits(case: str, wanted: list, said: list) -> str:
    first = said[0]
    if any(each != first for each in said):
        rank = next(i for i, each in enumerate(said) if each != first)
        return f"Rank 0 returns {first}, but rank {rank} returns {said[rank]}."
    told = f"You return {first}. "
    if case == "nobody":
        return told + "There's a NaN in the tensors, and NaN == NaN is false."
    if case == "zero" and first == [1, 2, 3, 4]:
        return told + "You take rank 0's tensors for the right ones."
    if case == "bit" and not first:
        return told + "In a sum of floating-point numbers, so small a change is lost."
    if case == "sign" and not first:
        return told + "As numbers, 0.0 and -0.0 are equal, but not as bits."
    if case == "swap" and not first:
        return told + "A sum doesn't depend on the order."
    return told


# ------------------------------------------------------------------ the trace


def _trace(seed: int) -> list[list[tuple[float, float]]]:
    """Return a trace in which several simple rules are wrong.

    Rank 2 is a little late in most steps, rank 1 is very late in a few, and costs more.
    Rank 3 has the largest clock, rank 0 waits longest.
    """
    generator = np.random.default_rng(seed)
    zeros = [5.0, 90.0, 0.0, 400.0]
    steps, now = [], 0.0
    for step in range(12):
        work = 1 + 0.01 * generator.random(4)
        work[0] -= 0.05
        work[2] += 0.06
        if step % 4 == 3:
            work[1] += 0.5
        end = now + work.max() + 0.2
        steps.append(
            [(zero + now + w, zero + end) for zero, w in zip(zeros, work, strict=True)]
        )
        now = end
    return [[(float(a), float(b)) for a, b in x] for x in zip(*steps, strict=True)]


def _waits(trace) -> np.ndarray:
    return np.array([[b - a for a, b in steps] for steps in trace])


def _lost(trace) -> np.ndarray:
    """Return the seconds that each rank costs."""
    waits = _waits(trace)
    lost = np.zeros(len(trace))
    for step in waits.T:
        shortest, following = np.sort(step)[:2]
        lost[step.argmin()] += following - shortest
    return lost


def _traced(answer: Callable, gpus: Gpus) -> list:
    found = []
    for seed in range(2):
        trace = _trace(seed)
        for mirrored in (trace, trace[::-1]):
            rank, seconds = answer(mirrored)
            found.append([int(rank), float(seconds)])
    return found


@EXERCISES.add("16.4", "trace", returns=tuple)
def straggler(run: Run):
    found = run(_traced)
    traces = [x for seed in range(2) for x in (_trace(seed), _trace(seed)[::-1])]
    losts = [_lost(trace) for trace in traces]
    ranks = [rank for rank, _ in found]
    wanted = [int(lost.argmax()) for lost in losts]
    yield Claim(
        "it names the rank that costs most time",
        ranks == wanted,
        _wrong_rank(ranks, wanted, traces),
    )
    if ranks != wanted:
        return
    seconds = [mine for _, mine in found]
    right = [float(lost.max()) for lost in losts]
    yield Claim(
        "and how many seconds",
        np.allclose(seconds, right, atol=1e-6),
        _wrong_seconds(seconds, right, traces),
    )


def _wrong_rank(ranks: list[int], wanted: list[int], traces: list) -> str:
    rules = {
        "That rank waits longest, for others.": lambda x: _waits(x).sum(1).argmax(),
        "That's the rank whose clock shows the latest time. The clocks don't have the "
        "same zero.": lambda x: np.argmax([steps[-1][0] for steps in x]),
        "That rank is the last to arrive most often, but another one costs more "
        "time.": lambda x: np.bincount(_waits(x).argmin(0)).argmax(),
    }
    for hint, rule in rules.items():
        if ranks == [int(rule(trace)) for trace in traces]:
            return hint
    return f"In the first trace it's rank {wanted[0]}, but you return {ranks[0]}."


def _wrong_seconds(seconds: list, right: list, traces: list) -> str:
    waits = _waits(traces[0])
    culprit = _lost(traces[0]).argmax()
    last = waits.argmin(0) == culprit
    ahead = waits.max(0) - waits.min(0)
    if math.isclose(seconds[0], ahead[last].sum(), rel_tol=1e-6):
        return (
            "You compare with the first to arrive. If the culprit had been on time, "
            "the others would still have waited for the last but one."
        )
    if math.isclose(seconds[0], _lost(traces[0]).sum(), rel_tol=1e-6):
        return "That's what all ranks together cost."
    return f"In the first trace it's {right[0]:.3f} s, but you return {seconds[0]:.3f}."


# ------------------------------------------------------------------ all ranks agree

_RANKS, _ITEMS, _EPOCHS, _BATCH = 2, 32, 3, 4


class _Data(Dataset):
    """Numbered examples; notes which rank takes which."""

    def __init__(self):
        torch.manual_seed(3)
        self.X = torch.randn(_ITEMS, _FEATURES)
        self.X[:, -1] = torch.arange(_ITEMS)

    def __len__(self) -> int:
        return _ITEMS

    def __getitem__(self, i):
        return self.X[i], int(self.X[i, 0] > 0)


class _Net(nn.Module):
    """A network with dropout, which notes examples, masks and losses."""

    def __init__(self, notes: list):
        super().__init__()
        self.notes = notes
        self.first, self.last = nn.Linear(_FEATURES - 1, 16), nn.Linear(16, 2)

    def forward(self, X):
        mask = F.dropout(torch.ones(len(X), 16, device=X.device), 0.5, self.training)
        out = self.last(F.relu(self.first(X[:, :-1])) * mask)
        loss = F.cross_entropy(out, (X[:, 0] > 0).long())
        self.notes.append(
            {
                "items": [int(i) for i in X[:, -1].tolist()],
                "mask": (mask > 0).cpu().numpy().tobytes(),
                "loss": float(loss.detach()),
            }
        )
        return out


def _agreed(answer: Callable, gpus: Gpus) -> dict:
    """Return each rank's notes and losses, and its parameters."""

    def run(rank, n):
        notes, nets = [], []

        def new():
            torch.manual_seed(5)
            nets.append(_Net(notes))
            return nets[-1]

        losses = answer(_Data(), new, _EPOCHS, rank)
        vectors = [_vector(net).cpu().numpy() for net in nets]
        return notes, [float(x) for x in losses], vectors[-1]

    ranks, stuck = _ranks(run, _RANKS)
    return {
        "stuck": stuck,
        "notes": [x for x, _, _ in ranks],
        "losses": [x for _, x, _ in ranks],
        "parameters": [x for _, _, x in ranks],
    }


@EXERCISES.add(
    "16.5", "data, new, epochs, rank", returns=list, changes="data", gpus=_RANKS
)
def careful_training(run: Run):
    found = run(_agreed)
    yield _finish(found["stuck"])
    if found["stuck"]:
        return
    notes = found["notes"]
    steps = _ITEMS // _RANKS // _BATCH
    enough = all(len(each) == steps * _EPOCHS for each in notes)
    yield Claim(
        f"each rank makes {steps} steps in each of {_EPOCHS} epochs",
        enough,
        f"They make {' and '.join(str(len(each)) for each in notes)} steps.",
    )
    if not enough:
        return
    orders = [
        [
            [i for note in each[steps * e : steps * (e + 1)] for i in note["items"]]
            for e in range(_EPOCHS)
        ]
        for each in notes
    ]
    whole = [sorted(orders[0][e] + orders[1][e]) for e in range(_EPOCHS)]
    bad = next((e for e in range(_EPOCHS) if whole[e] != list(range(_ITEMS))), None)
    yield Claim(
        "in every epoch, each example is used by one rank",
        bad is None,
        ""
        if bad is None
        else f"In epoch {bad}, {len(set(whole[bad]))} of {_ITEMS} examples are used, "
        "some of them twice. The ranks must cut shards from the same order.",
    )
    if bad is not None:
        return
    yield Claim(
        "the order differs from epoch to epoch",
        all(orders[0][e] != orders[0][0] for e in range(1, _EPOCHS)),
        "It's the same in each epoch."
        if orders[0][0] != sorted(orders[0][0])
        else "The examples aren't shuffled at all.",
    )
    if any(orders[0][e] == orders[0][0] for e in range(1, _EPOCHS)):
        return
    masks = [[note["mask"] for note in each] for each in notes]
    equal = sum(a == b for a, b in zip(*masks, strict=True))
    yield Claim(
        "the ranks drop different units",
        not equal,
        f"In {equal} of {len(masks[0])} steps, both ranks drop the same units.",
    )
    yield Claim(
        "each step drops other units",
        len(set(masks[0])) == len(masks[0]),
        f"In {len(masks[0])} steps, rank 0 has only {len(set(masks[0]))} different "
        "masks. How often do you set the seed?",
    )
    same = np.array_equal(*found["parameters"])
    yield Claim(
        "the ranks have the same parameters",
        same,
        "They don't. Are the gradients averaged?",
    )
    own = [
        [
            float(np.mean([x["loss"] for x in each[steps * e : steps * (e + 1)]]))
            for e in range(_EPOCHS)
        ]
        for each in notes
    ]
    wanted = np.mean(own, axis=0)
    right = all(
        len(each) == _EPOCHS and np.allclose(each, wanted, rtol=1e-3)
        for each in found["losses"]
    )
    yield Claim(
        "every rank returns the mean losses over all ranks",
        right,
        "" if right else _wrong_losses(found["losses"], own, wanted),
    )


def _wrong_losses(losses: list, own: list, wanted: np.ndarray) -> str:
    if any(len(each) != _EPOCHS for each in losses):
        return f"Rank 0 returns {len(losses[0])} numbers for {_EPOCHS} epochs."
    if np.allclose(losses, own, rtol=1e-3):
        return "Each rank returns the losses of its own batches."
    if np.allclose(losses, _RANKS * wanted, rtol=1e-3):
        return "They're the sums over the ranks."
    if np.allclose(losses[0], wanted, rtol=1e-3):
        return "Rank 0's are right, but not those that the other rank returns."
    return (
        f"The first one should be {wanted[0]:.4f}, but rank 0 returns "
        f"{losses[0][0]:.4f}."
    )
