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
        "a list of tensors is returned",
        tensors and len(found) > 0,
        f"It is a list of {', '.join(type(x).__name__ for x in found) or 'nothing'}.",
    )
    if not tensors or not found:
        return
    places = [_index(shard.device) for shard in found]
    yield Claim(
        "without `devices`, each GPU that there is has a shard",
        sorted(place for place in places if place is not None) == [0, 1, 2]
        and len(places) == 3,
        _wrong_places(found, places),
    )
    if len(places) != 3 or None in places:
        return
    rows = [shard.cpu() for shard in found]
    whole = torch.cat(rows)
    hint = f"{len(whole)} rows came out of {len(X)}."
    if len(whole) == len(X):
        hint = "All rows are there, in another order or with other values."
    yield Claim("together they are `X`", torch.equal(whole, X), hint)
    sizes = sorted(map(len, rows), reverse=True)
    yield Claim(
        "they differ by one row at most",
        sizes == [3, 2, 2],
        f"They have {', '.join(map(str, sizes))} rows.",
    )
    chosen = [d2l.gpu(2), d2l.gpu(0)]
    places = [_index(shard.device) for shard in answer(X, chosen)]
    yield Claim(
        "with `devices`, it is those, in their order",
        places == [2, 0],
        f"The third and the first GPU were given, and shards are on {len(places)} "
        f"GPUs with the numbers {', '.join(map(str, places))}.",
    )


def _wrong_places(found, places) -> str:
    if all(place is None for place in places):
        return (
            "Everything is on the CPU. Were GPUs looked for at a time when there were "
            "none?"
        )
    if len(places) == 2:
        return (
            "There are 3 GPUs here, and 2 in the notebook. A default is made once, "
            "when Python reads the line with `def`; so is a list outside."
        )
    if len(places) == 1:
        return "There is one shard only, and there are 3 GPUs."
    return f"There are {len(places)} shards, and there are 3 GPUs."


# ------------------------------------------------------------------ A1.2


@EXERCISES.add("A1.2", "n", returns=list, gpus=3)
def gpus_for(answer):
    devices = answer(2)
    found = [_index(device) for device in devices]
    yield Claim(
        "they are devices of GPUs",
        None not in found,
        f"For 2 there are {', '.join(map(repr, devices))}.",
    )
    if None in found:
        return
    yield Claim(
        "of three GPUs, the first two are returned for 2",
        found == [0, 1],
        f"There are {len(found)}, with the numbers {', '.join(map(str, found))}.",
    )
    if found != [0, 1]:
        return
    counts = [len(answer(n)) for n in (0, 3)]
    yield Claim(
        "none for 0, and all for 3",
        counts == [0, 3],
        f"For 0 there are {counts[0]}, and for 3 there are {counts[1]}.",
    )
    returned, error = _refusal(answer, 7)
    hint = f"For 7, {len(returned or ())} devices were returned, and nothing was said."
    if error is not None:
        hint = f"It raised {type(error).__name__}. A value that cannot be is told by "
        hint += "another exception."
    yield Claim("7 is refused with a ValueError", isinstance(error, ValueError), hint)
    if not isinstance(error, ValueError):
        return
    text = str(error)
    yield Claim(
        "the sentence says what was asked for, and what there is",
        "7" in text and "3" in text,
        f"It says {text!r}. Which of the two numbers is missing?",
    )
    returned, error = _refusal(answer, -1)
    yield Claim(
        "-1 is refused, too",
        isinstance(error, ValueError),
        f"For -1, {len(returned or ())} devices were returned: to a slice, -1 means "
        "all but the last."
        if error is None
        else f"For -1 it raised {type(error).__name__}.",
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
        "it says 'bits', 'rounding' or 'different'",
        said <= {BITS, ROUNDING, DIFFERENT},
        f"It says {', '.join(map(repr, sorted(said)))}.",
    )
    net = cases[ROUNDING][0]
    yield Claim(
        "the batch is computed as a whole, and in two halves",
        net.sizes == {64: 1, 32: 2},
        f"Of 64 examples the network was given {_listed(net.sizes)}.",
    )
    if net.sizes != {64: 1, 32: 2} or not said <= {BITS, ROUNDING, DIFFERENT}:
        return
    yield Claim(
        "the loss is a sum over the examples",
        net.largest > 0.1,
        "What `backward` tells the scores is so small as if it had been divided by the "
        "number of examples, which is another in the halves.",
    )
    if net.largest <= 0.1:
        return
    hint = f"It says {found[DIFFERENT]!r}. In a half, the batch has other statistics."
    if said == {BITS}:
        hint = (
            "It says 'bits' of every network. Is `p.grad` kept as a copy, or is it the "
            "tensor to which the halves are added?"
        )
    yield Claim(
        "with batch normalization they are different",
        found[DIFFERENT] == DIFFERENT,
        hint,
    )
    if found[DIFFERENT] != DIFFERENT:
        return
    hint = f"It says {found[ROUNDING]!r}. "
    if found[BITS] == DIFFERENT:
        hint = (
            "Everything is different to it. `backward` adds to what is in `p.grad` "
            "already: of the batch before, and of the whole."
        )
    elif found[ROUNDING] == DIFFERENT:
        hint += "A sum in another order is rounded otherwise: by how much?"
    yield Claim("without it they agree to rounding", found[ROUNDING] == ROUNDING, hint)
    yield Claim(
        "where nothing is rounded otherwise, all bits are equal",
        found[BITS] == BITS,
        f"It says {found[BITS]!r} of gradients of which each bit is the same.",
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
        "it is a pair of positive integers",
        fits,
        f"It is {answer!r}. The first is the width, the second the batch.",
    )
    if not fits:
        return
    width, batch = answer
    enough = batch >= 2
    yield Claim(
        "there are two examples at least",
        enough,
        "One example cannot be divided between two GPUs.",
    )
    if not enough:
        return
    try:
        one, two = (_step(width, batch, k) for k in (1, 2))
    except torch.OutOfMemoryError:
        one = two = None
    yield Claim(
        "a step fits into the memory of a V100",
        one is not None,
        f"A V100 has {MOST_MEMORY}, and these layers or their outputs need more.",
    )
    if one is None:
        return
    faster = one.seconds / two.seconds
    yield Claim(
        "two GPUs are at least one and a half times as fast as one",
        faster >= 1.5,
        f"They are {faster:.2f} times as fast as one. {_what_takes_time(two)}",
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
    shares = f"The second one computes in {busy:.0%} of the time"
    if links > 0.15:
        return (
            f"{shares}, and copies take {links:.0%}: the parameters cross in each "
            "step, and their gradients come back, however few examples there are."
        )
    return (
        f"{shares}. For the rest it waits for the host, which issues one operator "
        "after the other, however small they are."
    )
