"""Code that says ``cuda``, on three virtual GPUs that answer to that name."""

from collections import Counter

import torch
from torch import nn
from torch.nn import functional as F

from d2l_gpu import torch as d2l
from d2l_gpu import vgpu
from d2l_gpu.exercises.registry import Claim, Registry

EXERCISES = Registry(as_cuda=True)


def _index(device) -> int | None:
    """Return a GPU's index, under either name; None for anything else."""
    if not isinstance(device, torch.device) or device.type not in ("cuda", "vgpu"):
        return None
    return device.index


# ------------------------------------------------------------------ A1.1


@EXERCISES.add("A1.1", "X, devices", returns=list, gpus=3)
def shards(answer):
    X = torch.arange(14.0).reshape(7, 2)
    found = answer(X)
    tensors = all(isinstance(shard, torch.Tensor) for shard in found)
    yield Claim(
        "it returns a list of tensors",
        tensors and len(found) > 0,
        "You return a list of "
        f"{', '.join(type(x).__name__ for x in found) or 'nothing'}.",
    )
    if not tensors or not found:
        return
    places = [_index(shard.device) for shard in found]
    yield Claim(
        "without `devices`, each GPU on the machine has a shard",
        sorted(place for place in places if place is not None) == [0, 1, 2]
        and len(places) == 3,
        _wrong_places(found, places),
    )
    if len(places) != 3 or None in places:
        return
    rows = [shard.cpu() for shard in found]
    whole = torch.cat(rows)
    hint = f"Your shards have {len(whole)} rows in total; `X` has {len(X)}."
    if len(whole) == len(X):
        hint = "The number of rows is right, but their order or values aren't."
    yield Claim("together they make up `X`", torch.equal(whole, X), hint)
    sizes = sorted(map(len, rows), reverse=True)
    yield Claim(
        "the shards differ by at most one row",
        sizes == [3, 2, 2],
        f"They have {', '.join(map(str, sizes))} rows.",
    )
    chosen = [d2l.gpu(2), d2l.gpu(0)]
    places = [_index(shard.device) for shard in answer(X, chosen)]
    yield Claim(
        "with `devices`, the shards are on those, in that order",
        places == [2, 0],
        f"You were given GPU 2 and GPU 0, but there are {len(places)} shards, on GPUs "
        f"{', '.join(map(str, places))}.",
    )


def _wrong_places(found, places) -> str:
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
    return (
        f"There are {len(places)} shards on GPUs {', '.join(map(str, places))}, but "
        "there are 3 GPUs."
    )


# ------------------------------------------------------------------ A1.2


@EXERCISES.add("A1.2", "n", returns=list, gpus=3)
def gpus_for(answer):
    devices = answer(2)
    found = [_index(device) for device in devices]
    yield Claim(
        "it returns GPU devices",
        None not in found,
        f"For 2, you return {', '.join(map(repr, devices))}.",
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
    counts = [len(answer(n)) for n in (0, 3)]
    yield Claim(
        "for 0 it returns none, and for 3 all of them",
        counts == [0, 3],
        f"For 0 you return {counts[0]}, and for 3 you return {counts[1]}.",
    )
    returned, error = _refusal(answer, 7)
    hint = (
        f"For 7, you return a list of length {len(returned or ())} and raise no error."
    )
    if error is not None:
        hint = (
            f"For 7, it raises {type(error).__name__}. There's a different exception "
        )
        hint += "for an argument with an impossible value."
    yield Claim("for 7, it raises a ValueError", isinstance(error, ValueError), hint)
    if not isinstance(error, ValueError):
        return
    text = str(error)
    yield Claim(
        "the message says how many GPUs were requested, and how many there are",
        "7" in text and "3" in text,
        f"Your message is {text!r}. Which of the two numbers is missing?",
    )
    returned, error = _refusal(answer, -1)
    yield Claim(
        "for -1, it raises a ValueError too",
        isinstance(error, ValueError),
        f"For -1, you return a list of length {len(returned or ())}: in a slice, -1 "
        "means all but the last."
        if error is None
        else f"For -1, it raises {type(error).__name__}.",
    )


def _refusal(answer, n: int) -> tuple[list | None, Exception | None]:
    """Call the answer with an impossible number; return its result and the exception
    it raises, one of which is None."""
    try:
        return answer(n), None
    except Exception as error:  # the caller checks which one it is
        return None, error


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


@EXERCISES.add("A1.3", "net, X, y", returns=str)
def compare(answer):
    torch.manual_seed(0)
    X, y = torch.randn(64, 20), torch.arange(64) % 5
    alone = torch.zeros_like(X)
    alone[3] = X[3]
    device = d2l.gpu(0)
    cases = {  # expected answer: (network, inputs)
        BITS: (_Noting(nn.Linear(20, 5, bias=False)), alone),
        ROUNDING: (_Noting(nn.Linear(20, 50), nn.Tanh(), nn.Linear(50, 5)), X),
        DIFFERENT: (
            _Noting(nn.Linear(20, 50), nn.BatchNorm1d(50), nn.Linear(50, 5)),
            X,
        ),
    }
    found = {}
    for wanted, (net, inputs) in cases.items():
        net.to(device)
        for parameter in net.parameters():  # left over from an earlier batch
            parameter.grad = torch.ones_like(parameter)
        found[wanted] = answer(net, inputs.to(device), y.to(device))
    said = set(found.values())
    yield Claim(
        "it returns 'bits', 'rounding' or 'different'",
        said <= {BITS, ROUNDING, DIFFERENT},
        f"You return {', '.join(map(repr, sorted(said)))}.",
    )
    net = cases[ROUNDING][0]
    yield Claim(
        "the network computes the whole batch once, and each half once",
        net.sizes == {64: 1, 32: 2},
        "For 64 examples, you called the network with batches of "
        f"{_listed(net.sizes)}.",
    )
    if net.sizes != {64: 1, 32: 2} or not said <= {BITS, ROUNDING, DIFFERENT}:
        return
    yield Claim(
        "the loss is a sum over the examples",
        net.largest > 0.1,
        "The gradients of the scores are as small as if you had divided them by the "
        "number of examples, which is different for the halves.",
    )
    if net.largest <= 0.1:
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


def _listed(sizes: Counter) -> str:
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
