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
        f"examples. They were to have {sizes[0]} and {sizes[1]}.",
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
        "the second replica has it, too",
        _close(second, wanted),
        "The two replicas have different gradients, and would be different networks "
        "after one step.",
    )
    other = torch.randn(12, 12), torch.arange(12) % 5
    answer(replicas, *other, [9, 3])
    wanted = _loss_gradient(replicas[0], *other)
    yield Claim(
        "a second call knows nothing of the first",
        all(_close(_gradient(net), wanted) for net in replicas),
        "`backward` adds to the gradients that are there, also to those of the batch "
        "before.",
    )
    yield Claim(
        "each example is sent to one device only",
        sent <= X.nbytes + y.nbytes + 8,
        f"{sent:,} bytes left the CPU, and the batch has {X.nbytes + y.nbytes:,}. What "
        "does a device do with examples that are not its own?",
    )


def _wrong_gradient(found, wanted, replicas, X, y, sizes) -> str:
    if found is None:
        return "Some of its parameters have no gradient."
    shards = [
        _loss_gradient(net, *part)
        for net, *part in zip(replicas, X.split(sizes), y.split(sizes), strict=True)
    ]
    if _close(found, sum(shards) / 2):
        return (
            "This is the plain mean of the shards' gradients. Each of them is a mean "
            "itself, over how many examples?"
        )
    if _close(found, sum(shards)):
        return (
            "The shards' gradients were added as they are. Each of them is a mean over "
            "its shard already, and a sum of two means is no mean."
        )
    if any(_close(found, shard * w) for shard in shards for w in (1, *_shares(sizes))):
        return "This is the gradient of one shard. What do the other examples say?"
    if _close(found, wanted * len(y)):
        return f"It is {len(y)} times as large as it should be: a sum, where a mean is."
    ratio = float(found.norm() / wanted.norm())
    return f"Its length is {ratio:.3g} times the one that it should have."


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
    hint = f"The replicas computed {counted} examples, and there are {n}. "
    if counted > n:
        hint += "Some are counted twice: was a batch filled up, or sent to all?"
    else:
        hint += "Which of them are left over where a batch is cut into three?"
    yield Claim("every example is computed, and once", counted == n, hint)
    yield Claim(
        "the networks are tested as they are tested, not as they are trained",
        not any(training for _, _, training in seen),
        "A network was in training mode, in which dropout goes on and batch "
        "normalization looks at the batch.",
    )
    if counted != n or any(training for _, _, training in seen):
        return
    right = [
        int((scores.argmax(1) == y).sum())
        for scores, y in ((_scores(replicas[0], X), y) for X, y in batches)
    ]
    wanted = sum(right) / n
    yield Claim(
        "the accuracy is that of all examples",
        abs(result - wanted) < 1e-6,
        _wrong_accuracy(result, wanted, right, replicas[0], batches),
    )
    most = max(len(y) for _, y in batches)
    largest = max(examples for _, examples, _ in seen)
    yield Claim(
        "each batch is divided among all devices",
        largest <= -(-most // 3),
        f"A replica got {largest} examples of a batch of {most} at once. There are "
        "three of them.",
    )
    fetched = [copy for copy in log if copy.target.type == "cpu"]
    nbytes = sum(copy.nbytes for copy in fetched)
    yield Claim(
        "one number of each device is fetched, at most",
        len(fetched) <= 3 and nbytes <= 3 * 8,
        f"{len(fetched)} copies with {nbytes:,} bytes came to the host. "
        + (
            "The scores themselves do not have to."
            if nbytes > 8 * len(fetched)
            else "It waits for each of them, and need not know a count before the end."
        ),
    )
    modes = [net.training for net in replicas]
    after = [b.cpu() for net in replicas for b in net.buffers()]
    same = all(map(torch.equal, statistics, after))
    yield Claim(
        "the replicas are afterwards as they were",
        modes == [True, True, False] and same,
        "Two replicas came in training mode and one in evaluation mode. They went with "
        f"`training` {', '.join(map(str, modes))}.",
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
            "This is the mean of the batches' accuracies, in which one of the 2 "
            "examples of the last batch weighs as much as 16 of the others."
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
            "This is a mean of the devices' accuracies, and the devices did not have "
            "the same number of examples."
        )
    if near(sum(right)):
        return "This is the number of right answers, not their share."
    return f"It is {result:.4f}, not {wanted:.4f}."


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
        "it returns the best setting, and a dictionary of all",
        len(result) == 2 and isinstance(result[1], dict),
        f"What came back has {len(result)} parts; it was to have two, the second a "
        "dictionary.",
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
        "the dictionary has a list for each setting, with a number for each seed",
        complete,
        f"It has {len(found)} keys of {len(settings)} settings, and the first value is "
        f"{_short(next(iter(found.values()), None))}.",
    )
    if not complete:
        return
    runs = len(settings) * len(seeds)
    yield Claim(
        "each run begins with a network of its own",
        calls == {seed: len(settings) for seed in seeds},
        f"`new_net` was called {calls.total()} times, with the seeds "
        f"{sorted(calls)}, for {runs} runs. A network that is used again goes on from "
        "where the run before has left it.",
    )
    yield Claim(
        "each setting has its own batch size",
        sizes == {size for _, size, _ in settings},
        f"Batches were asked for of the sizes {sorted(sizes)}.",
    )
    histories = {run: _accuracies(*run) for run in itertools.product(settings, seeds)}

    def differs(choose) -> bool:
        return any(
            abs(value - choose(histories[setting, seed])) > 1e-6
            for setting in settings
            for seed, value in zip(seeds, found[setting], strict=True)
        )

    hint = "They are others than `d2l.train` gives for these settings and seeds."
    if not differs(max):
        hint = (
            "These are the best epochs. Who looks for the best of several has looked "
            "at the test data once more, and is too optimistic."
        )
    elif not differs(lambda accuracy: accuracy[0]):
        hint = "These are the accuracies after the first epoch."
    yield Claim(
        "the numbers are the test accuracies after the last epoch",
        not differs(lambda accuracy: accuracy[-1]),
        hint,
    )
    if differs(lambda accuracy: accuracy[-1]):
        return
    wanted = max(settings, key=lambda setting: sum(found[setting]))
    lucky = max(settings, key=lambda setting: max(found[setting]))
    hint = f"{_short(best)} is not the one with the highest mean."
    if best == lucky:
        hint = (
            f"{best} has the highest single accuracy, with one of the seeds. With the "
            "others, how good is it?"
        )
    elif best not in settings:
        hint = f"{_short(best)} is none of the settings."
    yield Claim("the best is the best in the mean over the seeds", best == wanted, hint)


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
        "there is a row for each example",
        tuple(result.shape) == tuple(wanted.shape),
        f"The shape is {tuple(result.shape)}, and {len(X)} examples went in. 100 is "
        "not a multiple of 16.",
    )
    if result.shape != wanted.shape:
        return
    found = result.detach().cpu()
    same = torch.allclose(found, wanted, atol=1e-5)
    mixed = torch.allclose(found.sum(0), wanted.sum(0), atol=1e-3)
    yield Claim(
        "the rows are those of the network, in the order of the examples",
        same,
        "The rows are there, in another order."
        if mixed
        else "Some rows are others than the network on one device gives.",
    )
    counts = sorted((took[str(device)] for device in devices), reverse=True)
    yield Claim(
        "the examples are spread over all 16, as evenly as they can be",
        counts == [7] * 4 + [6] * 12,
        f"The devices computed {', '.join(map(str, counts))} examples.",
    )
    home = {str(p.device) for p in net.parameters()}
    yield Claim(
        "the network is left where it was, and the result lives there",
        home == {str(devices[0])} and result.device == devices[0],
        f"The network lives on {', '.join(sorted(home))} now, and the result on "
        f"{result.device}; both belong on {devices[0]}.",
    )
    moved = log.nbytes
    needed = X.nbytes + 15 * size + wanted.nbytes
    hint = f"{moved:,} bytes crossed, and {needed:,} are enough. "
    whole = sum(copy.source.type == "cpu" and copy.nbytes >= X.nbytes for copy in log)
    if whole > 1:
        hint += f"The whole batch left the CPU {whole} times."
    else:
        hint += "A replica crosses once to each other device, and no example twice."
    yield Claim("no more crosses than has to", moved <= 1.05 * needed, hint)
    few = torch.randn(5, 256)
    with torch.no_grad():
        wanted = net(few.to(devices[0])).cpu()
    result = answer(net, few, list(devices)).detach().cpu()
    yield Claim(
        "it works with fewer examples than devices",
        result.shape == wanted.shape and torch.allclose(result, wanted, atol=1e-5),
        f"Of 5 examples it made scores of the shape {tuple(result.shape)}.",
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
        "a single number is returned for a shard",
        shape == (),
        f"It has the shape {shape}: one loss for each example, which `backward` does "
        "not take.",
    )
    if shape != ():
        return
    wanted = torch.autograd.grad(F.cross_entropy(net(X[:8]), y[:8]), net.weight)[0]
    found = averaged(2, 8)
    yield Claim(
        "with shards of one size, DDP's average is the gradient of the batch",
        _close(found, wanted),
        _wrong_average(found, wanted),
    )
    if not _close(found, wanted):
        return
    wanted = torch.autograd.grad(F.cross_entropy(net(X), y), net.weight)[0]
    found = averaged(3, 10)
    yield Claim(
        "it is with shards of 4, 3 and 3, too",
        _close(found, wanted),
        "An example in a shard of 4 weighs less than one in a shard of 3. What DDP "
        "averages are ranks, and what you want is a mean over examples.",
    )
    batch = F.cross_entropy(net(X[:2]), y[:2])
    wanted = torch.autograd.grad(batch, net.weight)[0]
    yield Claim(
        "it is where a rank has no examples, too",
        _close(averaged(3, 2), wanted),
        "DDP divides by the number of all ranks, also of those without examples.",
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
        "the mean of the ranks' losses is the loss of the batch, there as well",
        bool(torch.isclose(losses.mean(), batch)),
        "The loss of the rank without examples is not a number: a mean over none is "
        "0/0, and whoever logs the mean over the ranks gets the same."
        if bool(losses.isnan().any())
        else f"The ranks' losses have the mean {losses.mean():.4f}, the batch "
        f"{batch:.4f}.",
    )


def _wrong_average(found: torch.Tensor, wanted: torch.Tensor) -> str:
    if _close(found, wanted / 2):
        return (
            "It is too small by a factor of k: DDP divides by the number of ranks, "
            "after `backward`."
        )
    if _close(found, wanted * 4):
        return (
            "It is as many times too large as a shard has examples: the losses of a "
            "shard are added, and nothing divides the sum."
        )
    if _close(found, wanted * 2):
        return (
            "It is too large by a factor of k: this is the mean of the shard, times k."
        )
    ratio = float(found.norm() / wanted.norm())
    return f"Its length is {ratio:.3g} times the one that it should have."


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
        "a mean and a variance of each channel are returned",
        fits,
        f"There are 8 channels, and what came back are {len(result)} parts: "
        f"{', '.join(_shape(each) for each in result)}.",
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
        "both live on the device of the first shard",
        home == {str(d2l.gpu(0))},
        f"They live on {' and '.join(sorted(home))}.",
    )
    enough = 2 * 2 * 8 * 4 + 2 * 8
    hint = f"{log.nbytes:,} bytes crossed, and {enough} are enough. "
    if any("cpu" in (copy.source.type, copy.target.type) for copy in log):
        hint += "Some of them went by way of the CPU."
    elif log.nbytes >= shards[2].nbytes:
        hint += "Which of a shard's 8 columns of numbers have to be known elsewhere?"
    yield Claim(
        "two numbers cross for each channel and other device",
        log.nbytes <= enough,
        hint,
    )


def _wrong_mean(found, wanted, parts) -> str:
    means = [part.mean(0) for part in parts]
    if torch.allclose(found, sum(means) / len(means), atol=1e-4):
        sizes = ", ".join(str(len(part)) for part in parts)
        return f"It is the mean of the shards' means, and they have {sizes} examples."
    if any(torch.allclose(found, mean, atol=1e-4) for mean in means):
        return "It is the mean of one shard alone."
    return f"In the first channel it is {found[0]:.4g}, not {wanted[0]:.4g}."


def _wrong_variance(found, wanted, parts) -> str:
    n = sum(map(len, parts))
    if torch.allclose(found, wanted * n / (n - 1), rtol=1e-3):
        return (
            "It is divided by one less than there are examples. Batch normalization "
            "divides by their number (`correction=0`)."
        )
    for correction in (0, 1):
        own = [part.var(0, correction=correction) for part in parts]
        within = sum(v * len(p) for v, p in zip(own, parts, strict=True)) / n
        if any(
            torch.allclose(found, each, rtol=1e-3) for each in (within, sum(own) / 3)
        ):
            return (
                "It is a mean of the shards' variances. How far the shards' means are "
                "from each other is missing."
            )
    if torch.allclose(found, wanted.sqrt(), rtol=1e-3):
        return "This is the standard deviation."
    return f"In the first channel it is {found[0]:.4g}, not {wanted[0]:.4g}."


def _shape(value) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of the shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"
