"""Code that says ``cuda``, on three virtual GPUs that answer to that name."""

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional as F

from d2l_gpu import torch as d2l
from d2l_gpu import vgpu
from d2l_gpu.exercises.gpus import HOST, Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run

EXERCISES = Registry(as_cuda=True)


def _index(device) -> int | None:
    """Return a GPU's index, under either name; None for anything else."""
    if not isinstance(device, torch.device) or device.type not in ("cuda", "vgpu"):
        return None
    return device.index


# ------------------------------------------------------------------ A1.1


_ROWS = 7, 8  # chunks, and parts that are rounded down, are wrong for one of them


def _rows(n: int) -> torch.Tensor:
    return torch.arange(2.0 * n).reshape(n, 2)


def _cut(
    answer: Callable, gpus: Gpus, rows: int, chosen: Sequence[int] | None = None
) -> dict:
    if chosen is None:
        try:
            found = answer(_rows(rows))
        except Exception as error:
            return {"raised": type(error).__name__}
    else:
        found = answer(_rows(rows), [gpus[i] for i in chosen])
    tensors = all(isinstance(shard, torch.Tensor) for shard in found)
    return {
        "types": [type(shard).__name__ for shard in found],
        "tensors": tensors,
        "places": [_place(shard, gpus) for shard in found] if tensors else [],
        "values": [shard.cpu().numpy() for shard in found] if tensors else [],
    }


def _place(shard: torch.Tensor, gpus: Gpus) -> int | None:
    """Return the index of a tensor's GPU among those of the experiment; None for
    anything else."""
    index = _index(shard.device)
    return index if index is None else [_index(gpu) for gpu in gpus].index(index)


@EXERCISES.add("A1.1", "X, devices", returns=list, gpus=3)
def shards(run: Run):
    found = run(_cut, _ROWS[0])
    if "raised" in found:
        run(_cut, _ROWS[0], [2, 0])  # if that raises, too, it's another mistake
        yield Claim(
            "without `devices`, each GPU on the machine has a shard",
            False,
            f"Without `devices`, it raises {found['raised']}. A default is computed "
            "once, when Python reads `def`. Which GPUs were there at that time?",
        )
        return
    tensors, places = found["tensors"], found["places"]
    yield Claim(
        "it returns a list of tensors",
        tensors and len(places) > 0,
        f"You return a list of {', '.join(found['types']) or 'nothing'}.",
    )
    if not tensors or not places:
        return
    yield Claim(
        "without `devices`, each GPU on the machine has a shard",
        sorted(place for place in places if place is not None) == [0, 1, 2]
        and len(places) == 3,
        _wrong_places(places),
    )
    if len(places) != 3 or None in places:
        return
    parts = [found["values"], run(_cut, _ROWS[1])["values"]]
    yield Claim("together they make up `X`", *_whole(parts, _ROWS))
    sizes = [sorted(map(len, shards), reverse=True) for shards in parts]
    uneven = [each for each in sizes if each and each[0] - each[-1] > 1]
    yield Claim(
        "the shards differ by at most one row",
        not uneven,
        f"They have {', '.join(map(str, uneven[0]))} rows." if uneven else "",
    )
    found = run(_cut, _ROWS[0], [2, 0])
    places = found["places"]
    yield Claim(
        "with `devices`, the shards are on those, in that order",
        places == [2, 0],
        f"You were given GPU 2 and GPU 0, but there are {len(places)} shards, on "
        f"{_gpus(places)}.",
    )
    yield Claim("then, too, they make up `X`", *_whole([found["values"]], _ROWS[:1]))


def _whole(parts: Sequence[list], rows: Sequence[int]) -> tuple[bool, str]:
    """Return whether shards make up the whole, in each case, and a hint if not."""
    for shards, n in zip(parts, rows, strict=True):
        there = sum(map(len, shards))
        if there != n:
            return False, f"Your shards have {there} rows in total; `X` has {n}."
        if not torch.equal(torch.cat([torch.tensor(x) for x in shards]), _rows(n)):
            return False, (
                "The number of rows is right, but their order or values aren't."
            )
    return True, ""


def _gpus(places: Sequence[int | None]) -> str:
    return ", ".join(HOST if each is None else f"GPU {each}" for each in places)


def _wrong_places(places: Sequence[int | None]) -> str:
    if all(place is None for place in places):
        return "Everything is on the CPU. Did you look for GPUs before there were any?"
    if len(places) == 2:
        return (
            "There are 3 GPUs here, but 2 in the notebook. Python evaluates a default "
            "argument once, when it runs the `def`. The same goes for a list outside "
            "the function."
        )
    if len(places) == 1:
        return "There's only one shard, but there are 3 GPUs."
    return f"There are {len(places)} shards, on {_gpus(places)}, but there are 3 GPUs."


# ------------------------------------------------------------------ A1.2


def _returned(answer: Callable, gpus: Gpus, n: int) -> list[tuple[int | None, str]]:
    """Return what's in the list: numbers of GPUs, and texts.

    The GPUs have the numbers that the machine gives them, since that's the question.
    """
    return [(_index(device), repr(device)) for device in answer(n)]


def _refused(answer: Callable, gpus: Gpus, n: int) -> dict:
    """Return what comes of an impossible number."""
    found = {"length": 0, "error": "", "of value": False, "text": ""}
    try:
        found["length"] = len(answer(n))
    except Exception as error:  # the grader looks which one it is
        found["error"], found["text"] = type(error).__name__, str(error)
        found["of value"] = isinstance(error, ValueError)
    return found


@EXERCISES.add("A1.2", "n", returns=list, gpus=3)
def gpus_for(run: Run):
    two = run(_returned, 2)
    found = [index for index, _ in two]
    yield Claim(
        "it returns GPU devices",
        None not in found,
        f"For 2, you return {', '.join(text for _, text in two)}.",
    )
    if None in found:
        return
    yield Claim(
        "for 2, it returns the first two of three GPUs",
        found == [0, 1],
        f"You return {len(found)}, with the numbers {', '.join(map(str, found))}.",
    )
    if found != [0, 1]:
        return
    counts = [len(run(_returned, n)) for n in (0, 3)]
    yield Claim(
        "for 0 it returns none, and for 3 all of them",
        counts == [0, 3],
        f"For 0 you return {counts[0]}, and for 3 you return {counts[1]}.",
    )
    refusal = run(_refused, 7)
    if refusal["error"]:
        hint = (
            f"For 7, it raises {refusal['error']}. There's a different exception "
            "for an argument with an impossible value."
        )
    else:
        hint = (
            f"For 7, you return a list of length {refusal['length']} and raise "
            "no error."
        )
    yield Claim("for 7, it raises a ValueError", refusal["of value"], hint)
    if not refusal["of value"]:
        return
    text = refusal["text"]
    yield Claim(
        "the message says how many GPUs were requested, and how many there are",
        "7" in text and "3" in text,
        f"Your message is {text!r}. Which of the two numbers is missing?",
    )
    refusal = run(_refused, -1)
    yield Claim(
        "for -1, it raises a ValueError too",
        refusal["of value"],
        f"For -1, it raises {refusal['error']}."
        if refusal["error"]
        else f"For -1, you return a list of length {refusal['length']}: in a "
        "slice, -1 means all but the last.",
    )


# ------------------------------------------------------------------ A1.3


class _Noting(nn.Module):
    """A network that counts its batches by size, and records the largest gradient of
    its scores in the backward pass."""

    def __init__(self, *layers: nn.Module):
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.sizes: Counter[int] = Counter()
        self.largest = 0.0

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        self.sizes[len(X)] += 1
        scores = self.layers(X)
        if scores.requires_grad:
            scores.register_hook(self._note)
        return scores

    def _note(self, gradient: torch.Tensor) -> None:
        self.largest = max(self.largest, float(gradient.detach().abs().max()))


BITS, ROUNDING, DIFFERENT = "bits", "rounding", "different"


def _compared(answer: Callable, gpus: Gpus) -> dict:
    """Return what is said of each network, by the name of the right answer."""
    torch.manual_seed(0)
    X, y = torch.randn(64, 20), torch.arange(64) % 5
    alone = torch.zeros_like(X)
    alone[3] = X[3]
    device = d2l.gpu(0)  # "the first GPU": the exercise speaks of the numbering
    cases = {  # expected answer: (network, inputs)
        BITS: (_Noting(nn.Linear(20, 5, bias=False)), alone),
        ROUNDING: (_Noting(nn.Linear(20, 50), nn.Tanh(), nn.Linear(50, 5)), X),
        DIFFERENT: (
            _Noting(nn.Linear(20, 50), nn.BatchNorm1d(50), nn.Linear(50, 5)),
            X,
        ),
    }
    found = {}
    for name, (net, inputs) in cases.items():
        net.to(device)
        for parameter in net.parameters():  # left over from an earlier batch
            parameter.grad = torch.ones_like(parameter)
        found[name] = {
            "said": answer(net, inputs.to(device), y.to(device)),
            "sizes": net.sizes,
            "largest": net.largest,
        }
    return found


# Calling the network in training mode changes its batch statistics.
@EXERCISES.add("A1.3", "net, X, y", returns=str, changes="net")
def compare(run: Run):
    cases = run(_compared)
    found = {name: each["said"] for name, each in cases.items()}
    said = set(found.values())
    yield Claim(
        "it returns 'bits', 'rounding' or 'different'",
        said <= {BITS, ROUNDING, DIFFERENT},
        f"You return {', '.join(map(repr, sorted(said)))}.",
    )
    sizes, largest = cases[ROUNDING]["sizes"], cases[ROUNDING]["largest"]
    yield Claim(
        "the network computes the whole batch once, and each half once",
        sizes == {64: 1, 32: 2},
        f"For 64 examples, you called the network with batches of {_listed(sizes)}.",
    )
    if sizes != {64: 1, 32: 2} or not said <= {BITS, ROUNDING, DIFFERENT}:
        return
    yield Claim(
        "the loss is a sum over the examples",
        largest > 0.1,
        "The gradients of the scores are as small as if you had divided them by the "
        "number of examples, which is different for the halves.",
    )
    if largest <= 0.1:
        return
    hint = (
        f"You return {found[DIFFERENT]!r}. In half a batch, the batch statistics "
        "differ."
    )
    if said == {BITS}:
        hint = (
            "You return 'bits' for every network. Did you copy `p.grad`, or keep the "
            "tensor to which the halves are added?"
        )
    yield Claim(
        "with batch normalization, the gradients are different",
        found[DIFFERENT] == DIFFERENT,
        hint,
    )
    if found[DIFFERENT] != DIFFERENT:
        return
    hint = f"You return {found[ROUNDING]!r}. "
    if found[BITS] == DIFFERENT:
        hint = (
            "You return 'different' for every network. `backward` adds to what is "
            "already in `p.grad`: to the gradients of the batch before, and of the "
            "whole batch."
        )
    elif found[ROUNDING] == DIFFERENT:
        hint += "A sum in a different order is rounded differently: by how much?"
    yield Claim(
        "without it, they agree up to rounding", found[ROUNDING] == ROUNDING, hint
    )
    yield Claim(
        "if nothing is rounded differently, all bits are equal",
        found[BITS] == BITS,
        f"You return {found[BITS]!r} for gradients whose bits are all the same.",
    )


def _listed(sizes: dict[int, int]) -> str:
    return ", ".join(f"{times} × {size}" for size, times in sizes.items()) or "none"


# ------------------------------------------------------------------ A1.4

MOST_MEMORY = "16 GB"


@EXERCISES.add("A1.4", returns=tuple)
def width_and_batch(answer):
    fits = len(answer) == 2 and all(
        isinstance(x, int) and not isinstance(x, bool) and x >= 1 for x in answer
    )
    yield Claim(
        "it's a pair of positive integers",
        fits,
        f"Your answer is {answer!r}. The first number is the width, the second the "
        "batch size.",
    )
    if not fits:
        return
    width, batch = answer
    enough = batch >= 2
    yield Claim(
        "there are at least two examples",
        enough,
        "One example can't be divided between two GPUs.",
    )
    if not enough:
        return
    try:
        one, two = (_step(width, batch, k) for k in (1, 2))
    except torch.OutOfMemoryError:
        one = two = None
    yield Claim(
        "a step fits in the memory of a V100",
        one is not None,
        f"A V100 has {MOST_MEMORY}; these layers or their outputs need more.",
    )
    if one is None:
        return
    faster = one.seconds / two.seconds
    yield Claim(
        "two GPUs are at least one and a half times as fast as one",
        faster >= 1.5,
        f"They're {faster:.2f} times as fast as one. {_what_takes_time(two)}",
    )


def _step(width: int, batch: int, k: int):
    """Return the report of one training step on k simulated V100s."""
    sim = vgpu.simulator(k, backing="meta")
    devices = sim.gpus()
    net = nn.Sequential(
        nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
    )
    net = nn.Sequential(net, nn.Linear(width, 10)).to(devices[0])
    parallel = nn.DataParallel(net, devices)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    X = torch.zeros(batch, 784, device=devices[0])
    y = torch.zeros(batch, dtype=torch.int64, device=devices[0])
    sim.reset()
    F.cross_entropy(parallel(X), y).backward()
    optimizer.step()
    return sim.report()


def _what_takes_time(report) -> str:
    busy = report.devices[1].busy / report.seconds
    links = max(link.seconds for link in report.links) / report.seconds
    shares = f"The second GPU computes for {busy:.0%} of the time"
    if links > 0.15:
        return (
            f"{shares}, and copies take {links:.0%}: in each step, the parameters "
            "cross and their gradients come back, however few examples there are."
        )
    return (
        f"{shares}. Otherwise it waits for the host, which launches one operator after "
        "another, however small they are."
    )
