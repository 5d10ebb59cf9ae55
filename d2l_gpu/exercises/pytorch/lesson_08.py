"""Training on several GPUs: the devices' results must add up to the whole batch's."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from d2l_gpu import torch as d2l
from d2l_gpu import vgpu
from d2l_gpu.exercises.gpus import HOST, Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run
from d2l_gpu.exercises.shared import lesson_08 as common
from d2l_gpu.exercises.variants.draw import one_of

EXERCISES = Registry()


class _Watched(nn.Module):
    """Passes its input through; records its device, the first number of each example,
    and the mode.

    The replicas of a network, made by ``d2l.replicate``, share one list.
    """

    seen: list = []  # noqa: RUF012  shared by replicas on purpose

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        firsts = vgpu.peek(X).reshape(len(X), -1)[:, 0].tolist()
        _Watched.seen.append((X.device, firsts, self.training))
        return X


def _watch() -> list:
    """Start a new record, and return it."""
    _Watched.seen = []
    return _Watched.seen


def _noted(seen: list, gpus: Gpus) -> list[tuple[str, list[float], bool]]:
    """Return what was seen, with the names that records have for devices."""
    return [(gpus.name(device), firsts, mode) for device, firsts, mode in seen]


def _examples(seen: list) -> Counter[str]:
    """Return how many examples each device computed."""
    took = Counter()
    for device, firsts, _ in seen:
        took[device] += len(firsts)
    return took


def _state(net: nn.Module) -> np.ndarray:
    """Return all parameters and buffers as one vector."""
    parts = [vgpu.peek(x).reshape(-1).double() for x in net.state_dict().values()]
    return torch.cat(parts).numpy()


def _gradient(net: nn.Module) -> np.ndarray | None:
    """Return all gradients as one vector; None if one is missing."""
    gradients = [p.grad for p in net.parameters()]
    if any(gradient is None for gradient in gradients):
        return None
    return torch.cat([gradient.cpu().reshape(-1) for gradient in gradients]).numpy()


def _loss_gradient(net: nn.Module, X, y) -> torch.Tensor:
    """Return the gradient of the mean loss as one vector; leave the network's own
    gradients unchanged."""
    loss = F.cross_entropy(net(X), y)
    gradients = torch.autograd.grad(loss, list(net.parameters()))
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


def _close(a: torch.Tensor | None, b: torch.Tensor) -> bool:
    return a is not None and bool((a - b).norm() <= 1e-4 * b.norm())


def _tensor(x: np.ndarray | None) -> torch.Tensor | None:
    return None if x is None else torch.tensor(x)


# ------------------------------------------------------------------ 08.1

# With the scaled rate and all the epochs, each is as accurate as batches of 32. The
# ordinary answer takes too many epochs for the others.
_LARGE_BATCHES = [
    {"gpus": gpus, "batch": 32 * gpus, "epochs": epochs}
    for gpus, epochs in (
        *((16, 16), (16, 12), (16, 14)),
        *((8, 8), (8, 10), (10, 10), (12, 10), (12, 12), (14, 12), (14, 14)),
    )
]


def _scaled(case: dict) -> tuple[int, float]:
    return case["epochs"], case["gpus"] / 10


EXERCISES.add(
    "08.1",
    None,
    returns=(list, tuple),
    vary={"case": one_of(*_LARGE_BATCHES)},
    key=_scaled,
)(common.settings)


# ------------------------------------------------------------------ 08.2


def _dropping_net() -> nn.Module:
    """Return a network in use, in evaluation mode."""
    torch.manual_seed(2)
    net = nn.Sequential(
        _Watched(),
        nn.Linear(6, 16),
        nn.Unflatten(1, (8, 2)),  # lets BatchNorm1d train on a single example
        _used(nn.BatchNorm1d(8)),
        nn.Dropout(),
        nn.Flatten(),
        nn.Linear(16, 4),
    )
    return net.eval()


def _used(layer: nn.BatchNorm1d) -> nn.BatchNorm1d:
    """Give a layer statistics as of earlier batches."""
    layer.running_mean.normal_()
    layer.running_var.uniform_(0.5, 2)
    layer.num_batches_tracked.fill_(7)
    return layer


def _labelled(net: nn.Module) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return batches whose accuracy differs from batch to batch, and from one third of
    a batch to the next; the last batch has fewer examples than there are devices."""
    torch.manual_seed(22)
    batches = []
    for size, right in ((32, 23), (4, 3), (32, 9), (32, 32), (2, 0)):
        X = torch.randn(size, 6)
        best = _scores(net, X).argmax(1)
        y = torch.where(torch.arange(size) < right, best, best ^ 1)
        batches.append((X.numpy(), y.numpy()))
    return batches


def _accuracy(answer: Callable, gpus: Gpus, batches: Sequence[tuple]) -> dict:
    replicas = d2l.replicate(_dropping_net(), list(gpus[:3]))
    for net, mode in zip(replicas, _MODES, strict=True):
        net.train(mode)
    pairs = [(torch.tensor(X), torch.tensor(y)) for X, y in batches]
    seen = _watch()
    with d2l.transfers() as log:
        result = answer(replicas, pairs)
    return {
        "result": result,
        "seen": _noted(seen, gpus),
        "copies": gpus.copies(log),
        "modes": [net.training for net in replicas],
        "states": [_state(net) for net in replicas],
    }


_MODES = [True, True, False]


@EXERCISES.add("08.2", "replicas, batches", returns=float, gpus=3, changes="replicas")
def accuracy_of_all(run: Run):
    net = _dropping_net()
    arrays = _labelled(net)
    batches = [(torch.tensor(X), torch.tensor(y)) for X, y in arrays]
    n = sum(len(y) for _, y in batches)
    found = run(_accuracy, arrays)
    result, seen = found["result"], found["seen"]
    counted = sum(len(firsts) for _, firsts, _ in seen)
    computed = Counter(itertools.chain(*(firsts for _, firsts, _ in seen)))
    once = computed == Counter(itertools.chain(*(X[:, 0].tolist() for X, _ in batches)))
    hint = f"The replicas computed {counted} examples, but there are {n}. "
    if counted > n:
        hint += (
            "Some are counted twice. Did you pad a batch, or send it to every replica?"
        )
    elif counted < n:
        hint += "Which ones are left over when you cut a batch into three?"
    else:
        hint = f"The replicas computed {n} examples, but some twice and others never."
    yield Claim("every example is computed exactly once", once, hint)
    yield Claim(
        "the networks run in evaluation mode",
        not any(training for _, _, training in seen),
        "A network was in training mode, in which dropout is active and batch "
        "normalization uses the batch's statistics.",
    )
    if not once or any(training for _, _, training in seen):
        return
    right = [int((_scores(net, X).argmax(1) == y).sum()) for X, y in batches]
    wanted = sum(right) / n
    yield Claim(
        "the accuracy is that over all examples",
        abs(result - wanted) < 1e-6,
        _wrong_accuracy(result, wanted, right, net, batches),
    )
    parts = [_parts(X, seen) for X, _ in batches]
    uneven = [sizes for sizes in parts if max(sizes) - min(sizes) > 1]
    yield Claim(
        "each batch is divided among all devices",
        not uneven,
        f"Of a batch of {sum(uneven[0])}, the three replicas got {uneven[0][0]}, "
        f"{uneven[0][1]} and {uneven[0][2]} examples."
        if uneven
        else "",
    )
    fetched = [nbytes for nbytes, _, target in found["copies"] if target == HOST]
    nbytes = sum(fetched)
    yield Claim(
        "at most one number is fetched from each device",
        len(fetched) <= 3 and nbytes <= 3 * 8,
        f"{len(fetched)} cop{'y' if len(fetched) == 1 else 'ies'} to the host fetched "
        f"{nbytes:,} bytes. "
        + (
            "The scores don't have to leave the GPU."
            if nbytes > 8 * len(fetched)
            else (
                "Python waits for each copy, but doesn't need the counts before the "
                "end."
            )
        ),
    )
    before, modes = _state(net), found["modes"]
    same = all(np.allclose(state, before) for state in found["states"])
    yield Claim(
        "afterwards, the replicas are in the state they started in",
        modes == _MODES and same,
        "Two replicas were in training mode and one in evaluation mode. Now their "
        f"`training` is {', '.join(map(str, modes))}, and their parameters and batch "
        f"statistics {'are the same' if same else 'have changed'}.",
    )


def _parts(X: torch.Tensor, seen: list) -> list[int]:
    """Return how many examples of a batch each device computed."""
    own, parts = set(X[:, 0].tolist()), Counter()
    for device, firsts, _ in seen:
        parts[device] += sum(first in own for first in firsts)
    return [parts[f"GPU {i}"] for i in range(3)]


def _scores(net: nn.Module, X: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return net(X)


def _wrong_accuracy(result, wanted, right, net, batches) -> str:
    def near(value: float) -> bool:
        return abs(result - value) < 1e-6

    sizes = [len(y) for _, y in batches]
    if near(sum(map(lambda r, n: r / n, right, sizes)) / len(sizes)):
        return (
            "That's the mean of the batches' accuracies, in which one of the 2 "
            "examples in the last batch counts as much as 16 in a batch of 32."
        )
    hits = [torch.zeros(2) for _ in range(3)]
    shares = []
    for X, y in batches:
        correct = (_scores(net, X).argmax(1) == y).float()
        parts = correct.tensor_split(min(3, len(y)))
        shares.append([float(part.mean()) for part in parts])
        for hit, part in zip(hits, parts, strict=False):
            hit += torch.tensor([part.sum(), len(part)])
    mean_of_shards = [value for batch in shares for value in batch]
    if near(sum(float(hit[0] / hit[1]) for hit in hits) / 3) or near(
        sum(mean_of_shards) / len(mean_of_shards)
    ):
        return (
            "That's a mean of the devices' accuracies, but the devices didn't have the "
            "same number of examples."
        )
    if near(sum(right)):
        return "That's the number of correct predictions, not the fraction."
    return f"You return {result:.4f}, but it should be {wanted:.4f}."


# ------------------------------------------------------------------ 08.3


def _accumulating_net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Linear(6, 4).double()


def _micro_batches(call: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(30 + call)
    return [
        (torch.randn(n, 6).double(), torch.arange(n) * (call + 1) % 4)
        for n in _MICRO[call]
    ]


_MICRO = ((8, 8, 4), (6, 3), (5,))


def _accumulated(answer: Callable, gpus: Gpus) -> list[dict]:
    """Return the gradients of each call's steps, and what was sent before them."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        net = nn.parallel.DistributedDataParallel(_accumulating_net())
        sent: list[np.ndarray] = []

        def send(_, bucket):  # DDP takes no other annotation than its own
            sent.append(bucket.buffer().detach().numpy().copy())
            done = torch.futures.Future()
            done.set_result(bucket.buffer())
            return done

        net.register_comm_hook(None, send)
        # A class of optimizers wouldn't do: PyTorch replaces the `step` of each class
        # when it's first used, as answers mustn't.
        optimizer = torch.optim.SGD(net.module.parameters(), lr=0.1)
        gradients: list[np.ndarray | None] = []
        optimizer.register_step_pre_hook(
            lambda *_: gradients.append(_gradient(net.module))
        )
        # The first backward pass has other buckets than all later ones.
        scores = net(torch.zeros(1, 6).double())
        F.cross_entropy(scores, torch.zeros(1).long()).backward()
        optimizer.zero_grad()
        found = []
        for call in range(len(_MICRO)):
            sent.clear()
            gradients.clear()
            state = _state(net.module)
            answer(net, optimizer, _micro_batches(call))
            found.append(
                {
                    "state": state,
                    "gradients": list(gradients),
                    "sent": [float(np.linalg.norm(buffer)) for buffer in sent],
                }
            )
        return found
    finally:
        dist.destroy_process_group()


@EXERCISES.add("08.3", "net, optimizer, batches", changes="net, optimizer")
def train_step(run: Run):
    calls = run(_accumulated)
    steps = [len(found["gradients"]) for found in calls]
    yield Claim(
        "each call takes one step",
        steps == [1] * len(calls),
        f"For {len(_MICRO[0])} batches, `optimizer.step` was called {steps[0]} times.",
    )
    if steps != [1] * len(calls):
        return
    for i, found in enumerate(calls):
        net = _at(found["state"])
        batches = _micro_batches(i)
        wanted = _loss_gradient(net, *_together(batches))
        [gradient] = map(_tensor, found["gradients"])
        yield Claim(
            "the step's gradient is that of the mean loss over all examples",
            _close(gradient, wanted),
            _wrong_accumulation(gradient, wanted, net, batches, first=i == 0),
        )
        if not _close(gradient, wanted):
            return
    sent = [len(found["sent"]) for found in calls]
    length = float(np.linalg.norm(calls[0]["gradients"][0]))
    if not all(sent):
        hint = (
            "At least one step was taken without an all-reduce, so each rank would "
            "take a step of its own and the replicas would drift apart."
        )
    elif sent[0] > 1:
        hint = (
            f"For {len(_MICRO[0])} batches, the gradients were all-reduced {sent[0]} "
            "times. DDP decides in the forward pass whether the next backward pass "
            "will communicate."
        )
    else:
        hint = "One call has more all-reduces than steps."
    yield Claim("each step has one all-reduce", set(sent) == {1}, hint)
    if set(sent) != {1}:
        return
    yield Claim(
        "the all-reduce sends the gradients of all batches",
        bool(np.isclose(calls[0]["sent"][0], length)),
        "The all-reduce came before the last backward pass, so the other ranks never "
        "get the gradients of the batches after it.",
    )


def _at(state: np.ndarray) -> nn.Module:
    """Return the network with these parameters."""
    net = _accumulating_net()
    torch.nn.utils.vector_to_parameters(torch.tensor(state), net.parameters())
    return net


def _together(batches: Sequence[tuple]) -> tuple[torch.Tensor, torch.Tensor]:
    X, y = zip(*batches, strict=True)
    return torch.cat(X), torch.cat(y)


def _wrong_accumulation(found, wanted, net, batches, first: bool) -> str:
    if found is None:
        return "Some parameters had no gradient when the step was taken."
    if not first:
        return (
            "The first call was right, but a later one wasn't. What's left in the "
            "gradients from the call before?"
        )
    n = sum(len(y) for _, y in batches)
    parts = [_loss_gradient(net, X, y) for X, y in batches]
    if _close(found, sum(parts)):
        return (
            "You added the gradients of the batches' mean losses. That makes the step "
            f"about {len(parts)} times too long."
        )
    if _close(found, sum(parts) / len(parts)):
        return (
            "That's the mean of the batches' gradients, in which an example of the "
            "last, smaller batch counts twice as much as one of the others."
        )
    if _close(found, wanted * n):
        return f"It's {n} times too large: you never divide by the number of examples."
    for part, (_, y) in zip(parts, batches, strict=True):
        if any(_close(found, part * c) for c in (1, len(y) / n, 1 / len(parts))):
            return (
                "Only one of the batches is included. What happens to the gradients "
                "of the others?"
            )
    far = float((found - wanted).norm() / wanted.norm())
    return f"It differs from the right gradient by {far:.0%} of its length."


# ------------------------------------------------------------------ 08.4


class _Centred(nn.Module):
    """A layer that centres each example by itself, and records its inputs."""

    def __init__(self):
        super().__init__()
        self.watched = _Watched()

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        X = self.watched(X)
        return X - X.mean(1, keepdim=True)


def _centring_net() -> nn.Module:
    """Return a network in use, in evaluation mode."""
    torch.manual_seed(4)
    layers = nn.Linear(256, 64), _used(nn.BatchNorm1d(64)), nn.ReLU(), nn.Linear(64, 5)
    return nn.Sequential(_Centred(), *layers).eval()


def _unmoved_net() -> nn.Module:
    """Return a network in training mode, except for one layer, that computes the same
    in either mode."""
    torch.manual_seed(5)
    first, second = nn.Linear(256, 8), nn.Sequential(nn.Tanh(), nn.Linear(8, 5))
    second.requires_grad_(False)
    net = nn.Sequential(_Centred(), first, second)
    second.eval()
    return net


def _settings(net: nn.Module) -> dict[str, dict]:
    """Return what a network's values don't show: the mode of each module, and each
    parameter's type, whether it requires a gradient, and whether it has one."""
    return {
        "modes": {name: module.training for name, module in net.named_modules()},
        "parameters": {
            name: (str(p.dtype), p.requires_grad, p.grad is not None)
            for name, p in net.named_parameters()
        },
    }


def _scored(answer: Callable, gpus: Gpus, X: np.ndarray, in_use: bool = True) -> dict:
    net = _centring_net() if in_use else _unmoved_net()
    net, examples = net.to(gpus[0]), torch.tensor(X)
    seen = _watch()
    with d2l.transfers() as log:
        result = answer(net, examples, list(gpus[:16]))
    return {
        "seen": _noted(seen, gpus),
        "copies": gpus.copies(log),
        "scores": result.detach().cpu().numpy(),
        "where": gpus.where(result),
        "home": sorted({gpus.where(x) for x in net.state_dict().values()}),
        "state": _state(net),
        **_settings(net),
    }


@EXERCISES.add("08.4", "net, X, devices", returns=torch.Tensor, gpus=16, changes="net")
def scores_of(run: Run):
    net = _centring_net()
    size = sum(p.nbytes for p in net.state_dict().values())
    torch.manual_seed(44)
    X, few = torch.randn(100, 256), torch.randn(5, 256)
    wanted = _scores(net, X)
    found = run(_scored, X.numpy())
    scores = torch.tensor(found["scores"])
    yield Claim(
        "there's a row for each example",
        scores.shape == wanted.shape,
        f"The result has the shape {tuple(scores.shape)}, but you were given {len(X)} "
        "examples. 100 isn't a multiple of 16.",
    )
    if scores.shape != wanted.shape:
        return
    same = torch.allclose(scores, wanted, atol=1e-5)
    mixed = torch.allclose(scores.sum(0), wanted.sum(0), atol=1e-3)
    yield Claim(
        "the rows are the network's scores, in the order of the examples",
        same,
        "The rows are right, but in a different order."
        if mixed
        else "Some rows differ from what the network computes on one device.",
    )
    took = _examples(found["seen"])
    counts = sorted((took[f"GPU {i}"] for i in range(16)), reverse=True)
    yield Claim(
        "the examples are spread over all 16 devices, as evenly as possible",
        counts == [7] * 4 + [6] * 12,
        f"The devices computed {', '.join(map(str, counts))} examples.",
    )
    yield Claim(
        "the network stays where it was, and the result is on the same device",
        found["home"] == ["GPU 0"] and found["where"] == "GPU 0",
        f"The network is now on {', '.join(found['home'])} and the result on "
        f"{found['where']}; both belong on GPU 0.",
    )
    yield Claim(
        "the network keeps its values",
        np.allclose(found["state"], _state(net)),
        "Its parameters or batch statistics have changed, although it isn't trained.",
    )
    yield from _as_it_was(found, run(_scored, X.numpy(), False))
    moved = sum(nbytes for nbytes, *_ in found["copies"])
    needed = X.nbytes + 15 * size + wanted.nbytes
    hint = f"{moved:,} bytes crossed, and {needed:,} are enough. "
    whole = sum(
        source == HOST and nbytes >= X.nbytes for nbytes, source, _ in found["copies"]
    )
    if whole > 1:
        hint += f"You sent the whole batch from the CPU {whole} times."
    else:
        hint += "Copy the network once to each other device, and no example twice."
    yield Claim("nothing is copied unnecessarily", moved <= 1.05 * needed, hint)
    wanted = _scores(net, few)
    scores = torch.tensor(run(_scored, few.numpy())["scores"])
    yield Claim(
        "it works with fewer examples than devices",
        scores.shape == wanted.shape and torch.allclose(scores, wanted, atol=1e-5),
        "For 5 examples, the scores have the right shape but wrong values."
        if scores.shape == wanted.shape
        else f"For 5 examples, you return scores of the shape {tuple(scores.shape)}; "
        f"it should be {tuple(wanted.shape)}.",
    )


def _as_it_was(*found: dict) -> Iterator[Claim]:
    """Claim that two networks were left as they were."""
    before = [_settings(net) for net in (_centring_net(), _unmoved_net())]
    flipped = [
        (name or "the network itself", mode)
        for was, now in zip(before, found, strict=True)
        for name, mode in was["modes"].items()
        if now["modes"].get(name) != mode
    ]
    hint = ""
    if flipped:
        (name, mode), *_ = flipped
        names = "evaluation", "training"
        hint = (
            f"One of the networks in the check had {_named(name)} in {names[mode]} "
            f"mode. After the call, it's in {names[not mode]} mode."
        )
    yield Claim("each of its layers stays in its mode", not flipped, hint)
    changed = [
        (name, old, now["parameters"].get(name))
        for was, now in zip(before, found, strict=True)
        for name, old in was["parameters"].items()
        if now["parameters"].get(name) != old
    ]
    yield Claim(
        "its parameters are as ready for training as before",
        not changed,
        _what_parameter(*changed[0]) if changed else "",
    )


def _named(module: str) -> str:
    return f"layer {module}" if module[0].isdigit() else module


def _what_parameter(name: str, old: tuple, new: tuple | None) -> str:
    if new is None:
        return f"It no longer has the parameter {name}."
    if new[0] != old[0]:
        return f"Parameter {name} was {old[0]}, and is now {new[0]}."
    if new[1] != old[1]:
        return f"`requires_grad` of parameter {name} was {old[1]}, and is now {new[1]}."
    return f"Parameter {name} now has a gradient, although nothing is trained."


# ------------------------------------------------------------------ 08.5


def _ranked() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return a network, and a batch."""
    torch.manual_seed(5)
    net = nn.Linear(6, 4).double()
    return net, torch.randn(10, 6).double(), torch.arange(10) % 4


def _rank_losses(answer: Callable, gpus: Gpus, k: int, n: int) -> list[dict]:
    """Return the loss of each of k ranks for a batch of n, and its gradient."""
    net, X, y = _ranked()
    found = []
    for part, labels in zip(X[:n].tensor_split(k), y[:n].tensor_split(k), strict=True):
        loss = answer(net(part), labels, k, n)
        gradient = torch.zeros_like(net.weight)
        if loss.requires_grad and loss.shape == ():
            gradient, *_ = torch.autograd.grad(loss, net.weight)
        found.append(
            {
                "shape": tuple(loss.shape),
                "loss": loss.detach().numpy(),
                "gradient": gradient.numpy(),
            }
        )
    return found


@EXERCISES.add("08.5", "scores, y, k, n", returns=torch.Tensor)
def rank_loss(run: Run):
    net, X, y = _ranked()

    def batch_loss(n: int) -> torch.Tensor:
        return F.cross_entropy(net(X[:n]), y[:n])

    def averaged(ranks: list[dict]) -> torch.Tensor:
        """Return the gradient that DDP averages over the ranks."""
        return torch.tensor(np.mean([rank["gradient"] for rank in ranks], axis=0))

    def gradient(n: int) -> torch.Tensor:
        return torch.autograd.grad(batch_loss(n), net.weight)[0]

    ranks = run(_rank_losses, 2, 8)
    shape = ranks[0]["shape"]
    yield Claim(
        "it returns a single number for a shard",
        shape == (),
        f"You return the shape {shape}: one loss for each example, and `backward` "
        "needs a single number.",
    )
    if shape != ():
        return
    found, wanted = averaged(ranks), gradient(8)
    yield Claim(
        "with shards of equal size, DDP's average is the gradient of the batch",
        _close(found, wanted),
        _wrong_average(found, wanted),
    )
    if not _close(found, wanted):
        return
    yield Claim(
        "so it is with shards of 4, 3 and 3",
        _close(averaged(run(_rank_losses, 3, 10)), gradient(10)),
        "An example in a shard of 4 counts for less than one in a shard of 3. DDP "
        "averages over ranks, but you want a mean over examples.",
    )
    ranks = run(_rank_losses, 3, 2)
    yield Claim(
        "so it is if a rank has no examples",
        _close(averaged(ranks), gradient(2)),
        "DDP divides by the number of ranks, including those without examples.",
    )
    losses, batch = np.array([float(rank["loss"]) for rank in ranks]), batch_loss(2)
    yield Claim(
        "the mean of the ranks' losses is the loss of the batch, even then",
        np.isclose(losses.mean(), batch.item()),
        "The loss of the rank without examples is NaN: a mean over no examples is 0/0. "
        "If you log the mean over the ranks, that's NaN too."
        if np.isnan(losses).any()
        else (
            f"The mean of the ranks' losses is {losses.mean():.4f}, the loss of the "
            f"batch {batch:.4f}."
        ),
    )


def _wrong_average(found: torch.Tensor, wanted: torch.Tensor) -> str:
    if _close(found, wanted / 2):
        return (
            "The gradient is too small by a factor of k: DDP divides by the number of "
            "ranks, after `backward`."
        )
    if _close(found, wanted * 4):
        return (
            "The gradient is as many times too large as a shard has examples: you add "
            "up the losses of a shard and never divide the sum."
        )
    if _close(found, wanted * 2):
        return (
            "The gradient is too large by a factor of k: you return the mean over the "
            "shard, times k."
        )
    far = float((found - wanted).norm() / wanted.norm())
    return (
        f"It differs from the right gradient by {far:.0%} of its length. How much does "
        "each example count in yours?"
    )


# ------------------------------------------------------------------ 08.6


def _sharded(answer: Callable, gpus: Gpus, parts: Sequence[np.ndarray]) -> dict:
    shards = [torch.tensor(part).to(gpus[i]) for i, part in enumerate(parts)]
    with d2l.transfers() as log:
        result = answer(shards)
    return {
        "texts": [_shape(each) for each in result],
        "shapes": [tuple(getattr(each, "shape", ())) for each in result],
        "where": [gpus.where(each) for each in result],
        "values": [
            each.detach().cpu().numpy()
            for each in result
            if isinstance(each, torch.Tensor)
        ],
        "copies": gpus.copies(log),
    }


@EXERCISES.add("08.6", "shards", returns=tuple, gpus=3)
def statistics(run: Run):
    torch.manual_seed(6)
    values = torch.randn(60, 8) * torch.linspace(0.5, 2, 8)
    values[:30] += 3  # give the shards different means
    sizes = [30, 20, 10]
    parts = values.split(sizes)
    found = run(_sharded, [part.numpy() for part in parts])
    fits = found["shapes"] == [(8,), (8,)] and len(found["values"]) == 2
    yield Claim(
        "it returns a mean and a variance for each channel",
        fits,
        "There are 8 channels, so two tensors of shape (8,) are needed. You return "
        f"{len(found['texts'])} values: {', '.join(found['texts'])}.",
    )
    if not fits:
        return
    mean, variance = (torch.tensor(each) for each in found["values"])
    wanted = values.mean(0), values.var(0, correction=0)
    yield Claim(
        "the mean is that of the whole batch",
        torch.allclose(mean, wanted[0], atol=1e-4),
        _wrong_mean(mean, wanted[0], parts),
    )
    yield Claim(
        "the variance is that of the whole batch",
        torch.allclose(variance, wanted[1], rtol=1e-3),
        _wrong_variance(variance, wanted[1], parts),
    )
    yield Claim(
        "both are on the device of the first shard",
        set(found["where"]) == {"GPU 0"},
        f"The mean is on {found['where'][0]} and the variance on {found['where'][1]}; "
        "the first shard is on GPU 0.",
    )
    enough = 2 * 2 * 8 * 4 + 2 * 8
    copies = found["copies"]
    crossed = sum(nbytes for nbytes, *_ in copies)
    hint = f"{crossed:,} bytes crossed, and {enough} are enough. "
    if any(HOST in (source, target) for _, source, target in copies):
        hint += "Some of them went by way of the CPU."
    elif crossed >= parts[2].nbytes:
        hint += (
            "A whole shard crossed. Which numbers does another device need from a "
            "shard's 8 columns?"
        )
    else:
        hint += (
            f"They crossed in {len(copies)} copies. What does each of the two other "
            "devices send, and does anything go back to them?"
        )
    yield Claim(
        "only two numbers per channel cross from each other device",
        crossed <= enough,
        hint,
    )


def _wrong_mean(found, wanted, parts) -> str:
    means = [part.mean(0) for part in parts]
    if torch.allclose(found, sum(means) / len(means), atol=1e-4):
        sizes = ", ".join(str(len(part)) for part in parts)
        return f"You average the shards' means, but the shards have {sizes} examples."
    if any(torch.allclose(found, mean, atol=1e-4) for mean in means):
        return "That's the mean of one shard alone."
    n = sum(map(len, parts))
    if torch.allclose(found, wanted * n, rtol=1e-3):
        return "That's the sum: you never divide by the number of examples."
    if torch.allclose(found, wanted * n / len(parts), rtol=1e-3):
        return (
            f"You divide the sum by the number of shards, {len(parts)}, instead of the "
            f"number of examples, {n}."
        )
    return _in_worst_channel("mean", found, wanted)


def _wrong_variance(found, wanted, parts) -> str:
    n = sum(map(len, parts))
    if torch.allclose(found, wanted * n / (n - 1), rtol=1e-3):
        return (
            "You divide by one less than the number of examples. Batch normalization "
            "divides by their number (`correction=0`)."
        )
    for correction in (0, 1):
        own = [part.var(0, correction=correction) for part in parts]
        within = sum(v * len(p) for v, p in zip(own, parts, strict=True)) / n
        if any(
            torch.allclose(found, each, rtol=1e-3) for each in (within, sum(own) / 3)
        ):
            return (
                "You average the shards' variances. That leaves out how far the "
                "shards' means are from each other."
            )
    if torch.allclose(found, wanted.sqrt(), rtol=1e-3):
        return "That's the standard deviation, the square root of the variance."
    if torch.allclose(found, torch.cat(parts).square().mean(0), rtol=1e-3):
        return "That's the mean of the squares. Where does the mean come in?"
    if torch.allclose(found, wanted * n, rtol=1e-3):
        return (
            "That's the sum of the squared deviations: you never divide by the number "
            "of examples."
        )
    return _in_worst_channel("variance", found, wanted)


def _in_worst_channel(what: str, found, wanted) -> str:
    """Return a hint that quotes the value which is furthest from the right one."""
    worst = int((found - wanted).abs().argmax())
    return (
        f"In channel {worst}, your {what} is {found[worst]:.4g}, but it should be "
        f"{wanted[worst]:.4g}."
    )


def _shape(value) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"
