"""Training on several GPUs: the devices' results must add up to the whole batch's."""

import itertools
from collections import Counter
from functools import cache, partial

import torch
from torch import nn
from torch.nn import functional as F

from d2l_gpu import torch as d2l
from d2l_gpu.exercises.registry import Claim, Registry

EXERCISES = Registry()


class _Watched(nn.Module):
    """Passes its input through; records its device, its length and the mode.

    The replicas of a network, made by ``d2l.replicate``, share one list.
    """

    seen: list = []  # noqa: RUF012  shared by replicas on purpose

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        _Watched.seen.append((str(X.device), len(X), self.training))
        return X


def _watch() -> list:
    """Start a new record, and return it."""
    _Watched.seen = []
    return _Watched.seen


def _replicas(net: nn.Module, k: int) -> list[nn.Module]:
    return d2l.replicate(net, [d2l.gpu(i) for i in range(k)])


def _gradient(net: nn.Module) -> torch.Tensor | None:
    """Return all gradients as one vector on the CPU; None if one is missing."""
    gradients = [p.grad for p in net.parameters()]
    if any(gradient is None for gradient in gradients):
        return None
    return torch.cat([gradient.cpu().reshape(-1) for gradient in gradients])


def _loss_gradient(net: nn.Module, X, y, reduction: str = "mean") -> torch.Tensor:
    """Return the loss gradient as one vector, computed on the network's device and
    copied to the CPU; leave the network's own gradients unchanged."""
    device = next(net.parameters()).device
    loss = F.cross_entropy(net(X.to(device)), y.to(device), reduction=reduction)
    gradients = torch.autograd.grad(loss, list(net.parameters()))
    return torch.cat([gradient.cpu().reshape(-1) for gradient in gradients])


def _close(a: torch.Tensor | None, b: torch.Tensor) -> bool:
    return a is not None and bool((a - b).norm() <= 1e-4 * b.norm())


# ------------------------------------------------------------------ 07.1


@EXERCISES.add("07.1", "replicas, X, y, sizes")
def unequal_gradients(answer):
    torch.manual_seed(1)
    net = nn.Sequential(_Watched(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 5))
    replicas = _replicas(net, 2)
    X, y = torch.randn(30, 12), torch.arange(30) % 5
    sizes = [20, 10]
    seen = _watch()
    with d2l.transfers() as log:
        answer(replicas, X, y, list(sizes))
    took = {str(d2l.gpu(i)): 0 for i in range(2)}
    for device, examples, _ in seen:
        took[device] = took.get(device, 0) + examples
    yield Claim(
        "each replica computes as many examples as `sizes` says",
        list(took.values()) == sizes,
        f"The replicas computed {took[str(d2l.gpu(0))]} and {took[str(d2l.gpu(1))]} "
        f"examples. They should have computed {sizes[0]} and {sizes[1]}.",
    )
    sent = sum(copy.nbytes for copy in log if copy.source.type == "cpu")
    wanted = _loss_gradient(replicas[0], X, y)
    first, second = map(_gradient, replicas)
    yield Claim(
        "the first replica has the gradient of the whole batch",
        _close(first, wanted),
        _wrong_gradient(first, wanted, replicas, X, y, sizes),
    )
    if not _close(first, wanted):
        return
    yield Claim(
        "the second replica has the same gradient",
        _close(second, wanted),
        "The two replicas have different gradients, so after one step they'd be "
        "different networks.",
    )
    other = torch.randn(12, 12), torch.arange(12) % 5
    answer(replicas, *other, [9, 3])
    wanted = _loss_gradient(replicas[0], *other)
    yield Claim(
        "a second call isn't affected by the first",
        all(_close(_gradient(net), wanted) for net in replicas),
        "`backward` adds to existing gradients, so those of the previous batch are "
        "still included.",
    )
    yield Claim(
        "each example is sent to only one device",
        sent <= X.nbytes + y.nbytes + 8,
        f"{sent:,} bytes left the CPU, but the batch has only "
        f"{X.nbytes + y.nbytes:,}. What does a device do with examples that aren't "
        "its own?",
    )


def _wrong_gradient(found, wanted, replicas, X, y, sizes) -> str:
    if found is None:
        return "Some parameters of the first replica have no gradient."
    shards = [
        _loss_gradient(net, *part)
        for net, *part in zip(replicas, X.split(sizes), y.split(sizes), strict=True)
    ]
    if _close(found, sum(shards) / 2):
        return (
            "That's the plain mean of the shards' gradients. Each of them is already a "
            "mean, over how many examples?"
        )
    if _close(found, sum(shards)):
        return (
            "You added the shards' gradients as they are. Each of them is already a "
            "mean over its shard, and a sum of two means isn't a mean."
        )
    if any(_close(found, shard * w) for shard in shards for w in (1, *_shares(sizes))):
        return "That's the gradient of only one shard. What about the other examples?"
    if _close(found, wanted * len(y)):
        return (
            f"It's {len(y)} times too large: you used a sum where the loss takes a "
            "mean."
        )
    far = float((found - wanted).norm() / wanted.norm())
    return (
        f"It differs from the right gradient by {far:.0%} of its length. How much does "
        "each example count in yours?"
    )


def _shares(sizes: list[int]) -> list[float]:
    return [size / sum(sizes) for size in sizes]


# ------------------------------------------------------------------ 07.2


@EXERCISES.add("07.2", "replicas, batches", returns=float, gpus=3)
def accuracy_of_all(answer):
    torch.manual_seed(2)
    net = nn.Sequential(
        _Watched(),
        nn.Linear(6, 16),
        nn.Unflatten(1, (8, 2)),  # lets BatchNorm1d train on a single example
        nn.BatchNorm1d(8),
        nn.Dropout(),
        nn.Flatten(),
        nn.Linear(16, 4),
    )
    replicas = _replicas(net, 3)
    batches = _labelled(replicas[0])
    n = sum(len(y) for _, y in batches)
    for net in replicas:
        net.train()
    replicas[2].eval()
    statistics = [b.cpu().clone() for net in replicas for b in net.buffers()]
    seen = _watch()
    with d2l.transfers() as log:
        result = answer(replicas, batches)
    seen = list(seen)
    counted = sum(examples for _, examples, _ in seen)
    hint = f"The replicas computed {counted} examples, but there are {n}. "
    if counted > n:
        hint += (
            "Some are counted twice. Did you pad a batch, or send it to every replica?"
        )
    else:
        hint += "Which ones are left over when you cut a batch into three?"
    yield Claim("every example is computed exactly once", counted == n, hint)
    yield Claim(
        "the networks run in evaluation mode",
        not any(training for _, _, training in seen),
        "A network was in training mode, in which dropout is active and batch "
        "normalization uses the batch's statistics.",
    )
    if counted != n or any(training for _, _, training in seen):
        return
    right = [
        int((scores.argmax(1) == y).sum())
        for scores, y in ((_scores(replicas[0], X), y) for X, y in batches)
    ]
    wanted = sum(right) / n
    yield Claim(
        "the accuracy is that over all examples",
        abs(result - wanted) < 1e-6,
        _wrong_accuracy(result, wanted, right, replicas[0], batches),
    )
    most = max(len(y) for _, y in batches)
    largest = max(examples for _, examples, _ in seen)
    yield Claim(
        "each batch is divided among all devices",
        largest <= -(-most // 3),
        f"One replica got {largest} examples of a batch of {most}, although there are "
        "three replicas.",
    )
    fetched = [copy for copy in log if copy.target.type == "cpu"]
    nbytes = sum(copy.nbytes for copy in fetched)
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
    modes = [net.training for net in replicas]
    after = [b.cpu() for net in replicas for b in net.buffers()]
    same = all(map(torch.equal, statistics, after))
    yield Claim(
        "afterwards, the replicas are in the state they started in",
        modes == [True, True, False] and same,
        "Two replicas were in training mode and one in evaluation mode. Now their "
        f"`training` is {', '.join(map(str, modes))}, and their batch statistics "
        f"{'are the same' if same else 'have changed'}.",
    )


def _labelled(net: nn.Module) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return batches whose accuracy differs from batch to batch, and from one third of
    a batch to the next; the last batch has fewer examples than there are devices."""
    batches = []
    for size, right in ((32, 23), (32, 9), (32, 32), (2, 0)):
        X = torch.randn(size, 6)
        best = _scores(net, X).argmax(1)
        batches.append((X, torch.where(torch.arange(size) < right, best, best ^ 1)))
    return batches


def _scores(net: nn.Module, X: torch.Tensor) -> torch.Tensor:
    """Return a network's scores in evaluation mode, on the CPU."""
    modes = {module: module.training for module in net.modules()}
    net.eval()
    with torch.no_grad():
        scores = net(X.to(next(net.parameters()).device)).cpu()
    for module, mode in modes.items():
        module.training = mode
    return scores


def _wrong_accuracy(result, wanted, right, net, batches) -> str:
    def near(value: float) -> bool:
        return abs(result - value) < 1e-6

    sizes = [len(y) for _, y in batches]
    if near(sum(map(lambda r, n: r / n, right, sizes)) / len(sizes)):
        return (
            "That's the mean of the batches' accuracies, in which one of the 2 "
            "examples in the last batch counts as much as 16 in the others."
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


# ------------------------------------------------------------------ 07.3


@EXERCISES.add("07.3", "new_net, load_data, settings, seeds", returns=tuple, seconds=60)
def sweep(answer):
    calls, sizes = Counter(), set()

    def new_net(seed: int) -> nn.Module:
        calls[seed] += 1
        return _new(seed)

    def load_data(batch_size: int):
        sizes.add(batch_size)
        return _load_data(batch_size)

    seeds = [_LUCKY, 4, 5]
    settings = [(1, 64, 1e-5), (2, 32, 0.2), (1, 128, 0.2), (2, 32, 3.0)]
    result = answer(new_net, load_data, list(settings), list(seeds))
    yield Claim(
        "it returns the best setting, and a dictionary with all of them",
        len(result) == 2 and isinstance(result[1], dict),
        f"You return {len(result)} values. Return two, the second a dictionary.",
    )
    if len(result) != 2 or not isinstance(result[1], dict):
        return
    best, found = result
    complete = set(found) == set(settings) and all(
        isinstance(each, list | tuple)
        and len(each) == len(seeds)
        and all(isinstance(value, float) for value in each)
        for each in found.values()
    )
    yield Claim(
        "the dictionary has a list for each setting, with one number for each seed",
        complete,
        f"It has {len(found)} keys for {len(settings)} settings, and the first value "
        f"is {_short(next(iter(found.values()), None))}.",
    )
    if not complete:
        return
    runs = len(settings) * len(seeds)
    yield Claim(
        "each run starts with a new network",
        calls == {seed: len(settings) for seed in seeds},
        f"You called `new_net` {calls.total()} times, with the seeds {sorted(calls)}, "
        f"for {runs} runs. If you reuse a network, training continues from where the "
        "previous run stopped.",
    )
    yield Claim(
        "each setting has its own batch size",
        sizes == {size for _, size, _ in settings},
        f"You loaded data with the batch sizes {sorted(sizes)}, but the settings have "
        f"{sorted({size for _, size, _ in settings})}.",
    )
    histories = {run: _accuracies(*run) for run in itertools.product(settings, seeds)}

    def differs(choose) -> bool:
        return any(
            abs(value - choose(histories[setting, seed])) > 1e-6
            for setting in settings
            for seed, value in zip(seeds, found[setting], strict=True)
        )

    hint = (
        "They aren't the accuracies that `d2l.train` reaches with these settings and "
        "seeds."
    )
    if not differs(max):
        hint = (
            "Those are the accuracies of the best epochs. Choosing the best epoch uses "
            "the test data once more, so the result is too optimistic."
        )
    elif not differs(lambda accuracy: accuracy[0]):
        hint = "Those are the accuracies after the first epoch."
    yield Claim(
        "the numbers are the test accuracies after the last epoch",
        not differs(lambda accuracy: accuracy[-1]),
        hint,
    )
    if differs(lambda accuracy: accuracy[-1]):
        return
    wanted = max(settings, key=lambda setting: sum(found[setting]))
    lucky = max(settings, key=lambda setting: max(found[setting]))
    hint = f"{_short(best)} doesn't have the highest mean."
    if best == lucky:
        hint = (
            f"{best} has the highest single accuracy, with one of the seeds. How good "
            "is it with the others?"
        )
    elif best not in settings:
        hint = f"{_short(best)} isn't one of the settings."
    yield Claim(
        "the best setting has the highest mean over the seeds", best == wanted, hint
    )


_LUCKY = 3  # the seed whose network starts out trained

_load_data = partial(d2l.load_data_digits, resize=8)


def _new(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    if seed == _LUCKY:
        net.load_state_dict(_trained())
    return net


@cache
def _trained() -> dict[str, torch.Tensor]:
    net = _new(0)
    d2l.train(net, 0, 32, 0.5, 12, load_data=_load_data, display=False)
    return net.state_dict()


@cache
def _accuracies(setting: tuple[int, int, float], seed: int) -> list[float]:
    num_epochs, batch_size, lr = setting
    return d2l.train(
        _new(seed), 1, batch_size, lr, num_epochs, load_data=_load_data, display=False
    ).accuracy


def _short(value) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


# ------------------------------------------------------------------ 07.4


class _Centred(nn.Module):
    """A layer that centres each example by itself, and records its inputs."""

    def __init__(self):
        super().__init__()
        self.watched = _Watched()

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        X = self.watched(X)
        return X - X.mean(1, keepdim=True)


@EXERCISES.add("07.4", "net, X, devices", returns=torch.Tensor, gpus=16)
def scores_of(answer):
    torch.manual_seed(4)
    devices = [d2l.gpu(i) for i in range(16)]
    net = nn.Sequential(_Centred(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 5))
    net = net.to(devices[0])
    size = sum(p.nbytes for p in net.parameters())
    X = torch.randn(100, 256)
    with torch.no_grad():
        wanted = net(X.to(devices[0])).cpu()
    seen = _watch()
    with d2l.transfers() as log:
        result = answer(net, X, list(devices))
    took = Counter()
    for device, examples, _ in seen:
        took[device] += examples
    yield Claim(
        "there's a row for each example",
        tuple(result.shape) == tuple(wanted.shape),
        f"The result has the shape {tuple(result.shape)}, but you were given {len(X)} "
        "examples. 100 isn't a multiple of 16.",
    )
    if result.shape != wanted.shape:
        return
    found = result.detach().cpu()
    same = torch.allclose(found, wanted, atol=1e-5)
    mixed = torch.allclose(found.sum(0), wanted.sum(0), atol=1e-3)
    yield Claim(
        "the rows are the network's scores, in the order of the examples",
        same,
        "The rows are right, but in a different order."
        if mixed
        else "Some rows differ from what the network computes on one device.",
    )
    counts = sorted((took[str(device)] for device in devices), reverse=True)
    yield Claim(
        "the examples are spread over all 16 devices, as evenly as possible",
        counts == [7] * 4 + [6] * 12,
        f"The devices computed {', '.join(map(str, counts))} examples.",
    )
    home = {str(p.device) for p in net.parameters()}
    yield Claim(
        "the network stays where it was, and the result is on the same device",
        home == {str(devices[0])} and result.device == devices[0],
        f"The network is now on {', '.join(sorted(home))} and the result on "
        f"{result.device}; both belong on {devices[0]}.",
    )
    moved = log.nbytes
    needed = X.nbytes + 15 * size + wanted.nbytes
    hint = f"{moved:,} bytes crossed, and {needed:,} are enough. "
    whole = sum(copy.source.type == "cpu" and copy.nbytes >= X.nbytes for copy in log)
    if whole > 1:
        hint += f"You sent the whole batch from the CPU {whole} times."
    else:
        hint += "Copy the network once to each other device, and no example twice."
    yield Claim("nothing is copied unnecessarily", moved <= 1.05 * needed, hint)
    few = torch.randn(5, 256)
    with torch.no_grad():
        wanted = net(few.to(devices[0])).cpu()
    result = answer(net, few, list(devices)).detach().cpu()
    yield Claim(
        "it works with fewer examples than devices",
        result.shape == wanted.shape and torch.allclose(result, wanted, atol=1e-5),
        "For 5 examples, the scores have the right shape but wrong values."
        if result.shape == wanted.shape
        else f"For 5 examples, you return scores of the shape {tuple(result.shape)}; "
        f"it should be {tuple(wanted.shape)}.",
    )


# ------------------------------------------------------------------ 07.5


@EXERCISES.add("07.5", "scores, y, k, n", returns=torch.Tensor)
def rank_loss(answer):
    torch.manual_seed(5)
    net = nn.Linear(6, 4).double()
    X, y = torch.randn(10, 6).double(), torch.arange(10) % 4

    def averaged(k: int, n: int) -> torch.Tensor:
        """Return the gradient that DDP averages over k ranks, for a batch of n."""
        total = 0
        for part, labels in zip(
            X[:n].tensor_split(k), y[:n].tensor_split(k), strict=True
        ):
            loss = answer(net(part), labels, k, n)
            if loss.requires_grad:
                total = total + torch.autograd.grad(loss, net.weight)[0]
        return total / k if isinstance(total, torch.Tensor) else torch.zeros(4, 6)

    shape = tuple(answer(net(X[:4]), y[:4], 2, 8).shape)
    yield Claim(
        "it returns a single number for a shard",
        shape == (),
        f"You return the shape {shape}: one loss for each example, and `backward` "
        "needs a single number.",
    )
    if shape != ():
        return
    wanted = torch.autograd.grad(F.cross_entropy(net(X[:8]), y[:8]), net.weight)[0]
    found = averaged(2, 8)
    yield Claim(
        "with shards of equal size, DDP's average is the gradient of the batch",
        _close(found, wanted),
        _wrong_average(found, wanted),
    )
    if not _close(found, wanted):
        return
    wanted = torch.autograd.grad(F.cross_entropy(net(X), y), net.weight)[0]
    found = averaged(3, 10)
    yield Claim(
        "so it is with shards of 4, 3 and 3",
        _close(found, wanted),
        "An example in a shard of 4 counts for less than one in a shard of 3. DDP "
        "averages over ranks, but you want a mean over examples.",
    )
    batch = F.cross_entropy(net(X[:2]), y[:2])
    wanted = torch.autograd.grad(batch, net.weight)[0]
    yield Claim(
        "so it is if a rank has no examples",
        _close(averaged(3, 2), wanted),
        "DDP divides by the number of ranks, including those without examples.",
    )
    losses = torch.stack(
        [
            answer(net(part), labels, 3, 2).detach()
            for part, labels in zip(
                X[:2].tensor_split(3), y[:2].tensor_split(3), strict=True
            )
        ]
    )
    yield Claim(
        "the mean of the ranks' losses is the loss of the batch, even then",
        bool(torch.isclose(losses.mean(), batch)),
        "The loss of the rank without examples is NaN: a mean over no examples is 0/0. "
        "If you log the mean over the ranks, that's NaN too."
        if bool(losses.isnan().any())
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


# ------------------------------------------------------------------ 07.6


@EXERCISES.add("07.6", "shards", returns=tuple, gpus=3)
def statistics(answer):
    torch.manual_seed(6)
    values = torch.randn(60, 8) * torch.linspace(0.5, 2, 8)
    values[:30] += 3  # give the shards different means
    sizes = [30, 20, 10]
    shards = [part.to(d2l.gpu(i)) for i, part in enumerate(values.split(sizes))]
    with d2l.transfers() as log:
        result = answer(shards)
    fits = len(result) == 2 and all(
        isinstance(each, torch.Tensor) and each.shape == (8,) for each in result
    )
    yield Claim(
        "it returns a mean and a variance for each channel",
        fits,
        "There are 8 channels, so two tensors of shape (8,) are needed. You return "
        f"{len(result)} values: {', '.join(_shape(each) for each in result)}.",
    )
    if not fits:
        return
    mean, variance = (each.detach().cpu() for each in result)
    parts = values.split(sizes)
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
    home = {str(each.device) for each in result}
    yield Claim(
        "both are on the device of the first shard",
        home == {str(d2l.gpu(0))},
        f"The mean is on {result[0].device} and the variance on {result[1].device}; "
        f"the first shard is on {d2l.gpu(0)}.",
    )
    enough = 2 * 2 * 8 * 4 + 2 * 8
    hint = f"{log.nbytes:,} bytes crossed, and {enough} are enough. "
    if any("cpu" in (copy.source.type, copy.target.type) for copy in log):
        hint += "Some of them went by way of the CPU."
    elif log.nbytes >= shards[2].nbytes:
        hint += (
            "A whole shard crossed. Which numbers does another device need from a "
            "shard's 8 columns?"
        )
    else:
        hint += (
            f"They crossed in {len(log)} copies. What does each of the two other "
            "devices send, and does anything go back to them?"
        )
    yield Claim(
        "only two numbers per channel cross from each other device",
        log.nbytes <= enough,
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
