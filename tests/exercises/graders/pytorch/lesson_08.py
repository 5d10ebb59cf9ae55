import copy
from contextlib import nullcontext
from statistics import mean

import torch
from torch.nn import functional as F

from d2l_gpu import torch as d2l
from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


def device_of(net):
    return next(net.parameters()).device


# ------------------------------------------------------------------ 08.1

right("08.1")((12, 1.2))
wrong("08.1", "too short")((16, 0.1))
wrong("08.1", "steps are too long")((16, 3.2))
wrong("08.1", "Batches of 32 make how many steps")((4, 1.6))
wrong("08.1", "would take longer")((64, 0.8))
wrong("08.1", "the first epoch is the warm-up")((1, 1.6))


# ------------------------------------------------------------------ 08.2


@right("08.2")
def of_the_helper(replicas, batches):
    return d2l.evaluate_accuracy_gpus(replicas, batches)


def hits_of(replicas, X, y):
    """Of each shard: the right answers and the examples, on its device."""
    shards = d2l.split_batch(X, y, [device_of(net) for net in replicas])
    for net, X_shard, y_shard in zip(replicas, *shards, strict=False):
        yield (net(X_shard).argmax(1) == y_shard).sum(), len(y_shard)


def tested(count):
    """Let a function count in evaluation mode, and without gradients."""

    def test(replicas, batches):
        modes = [net.training for net in replicas]
        for net in replicas:
            net.eval()
        with torch.no_grad():
            result = count(replicas, batches)
        for net, mode in zip(replicas, modes, strict=True):
            net.train(mode)
        return result

    test.__name__ = count.__name__
    return test


@right("08.2")
@tested
def adds_on_the_first(replicas, batches):
    totals = [torch.zeros((), device=device_of(net)) for net in replicas]
    for X, y in batches:
        for i, (hits, _) in enumerate(hits_of(replicas, X, y)):
            totals[i] += hits
    home = totals[0].device
    return sum(t.to(home) for t in totals).item() / sum(len(y) for _, y in batches)


@wrong("08.2", "mean of the batches")
@tested
def averages_batches(replicas, batches):
    return mean(
        sum(hits.item() for hits, _ in hits_of(replicas, X, y)) / len(y)
        for X, y in batches
    )


@wrong("08.2", "mean of the devices")
@tested
def averages_shards(replicas, batches):
    return mean(
        hits.item() / n for X, y in batches for hits, n in hits_of(replicas, X, y)
    )


@wrong("08.2", "Python waits for each copy")
@tested
def fetches_each(replicas, batches):
    right = sum(h.item() for X, y in batches for h, _ in hits_of(replicas, X, y))
    return right / sum(len(y) for _, y in batches)


@wrong("08.2", "The scores don't have to leave the GPU")
@tested
def fetches_scores(replicas, batches):
    right = 0
    for X, y in batches:
        parts = X.tensor_split(min(3, len(X)))
        scores = [
            net(part.to(device_of(net))).cpu()
            for net, part in zip(replicas, parts, strict=False)
        ]
        right += int((torch.cat(scores).argmax(1) == y).sum())
    return right / sum(len(y) for _, y in batches)


@wrong("08.2", "the three replicas got 32, 0 and 0 examples")
@tested
def uses_one(replicas, batches):
    right = sum(h for X, y in batches for h, _ in hits_of(replicas[:1], X, y)).item()
    return right / sum(len(y) for _, y in batches)


@wrong("08.2", "Of a batch of 4, the three replicas got 2, 2 and 0 examples")
@tested
def in_chunks(replicas, batches):
    right = torch.zeros((), device=device_of(replicas[0]))
    for X, y in batches:
        chunks = zip(replicas, X.chunk(3), y.chunk(3), strict=False)
        for net, part, labels in chunks:
            scores = net(part.to(device_of(net)))
            hits = (scores.argmax(1) == labels.to(scores.device)).sum()
            right += hits.to(right.device)
    return right.item() / sum(len(y) for _, y in batches)


@wrong("08.2", "some twice and others never")
@tested
def gives_the_last_again(replicas, batches):
    X, y = batches[-1]
    again = torch.cat([X[:1], X[:1]]), torch.cat([y[:1], y[:1]])
    return d2l.evaluate_accuracy_gpus(replicas, [*batches[:-1], again])


@wrong("08.2", "counted twice")
@tested
def fills_up(replicas, batches):
    right = n = 0
    for X, y in batches:
        while len(y) % 3:
            X, y = torch.cat([X, X[-1:]]), torch.cat([y, y[-1:]])
        right += sum(hits.item() for hits, _ in hits_of(replicas, X, y))
        n += len(y)
    return right / n


@wrong("08.2", "left over")
@tested
def drops_the_rest(replicas, batches):
    right = n = 0
    for X, y in batches:
        whole = len(y) // 3 * 3
        if whole:
            right += sum(h.item() for h, _ in hits_of(replicas, X[:whole], y[:whole]))
            n += whole
    return right / n


@wrong("08.2", "in training mode, in which")
def forgets_to_evaluate(replicas, batches):
    right = sum(h.item() for X, y in batches for h, _ in hits_of(replicas, X, y))
    return right / sum(len(y) for _, y in batches)


@wrong("08.2", "Two replicas were in training mode")
def stays_in_evaluation(replicas, batches):
    for net in replicas:
        net.eval()
    return of_the_helper(replicas, batches)


@wrong("08.2", "predictions, not the fraction")
@tested
def counts(replicas, batches):
    return float(sum(h.item() for X, y in batches for h, _ in hits_of(replicas, X, y)))


# ------------------------------------------------------------------ 08.3


def passes(net, batches, weight, quiet):
    """Go through the batches; all-reduce after those that aren't quiet."""
    n = sum(len(y) for _, y in batches)
    for i, (X, y) in enumerate(batches):
        context = net.no_sync() if quiet(i, len(batches)) else nullcontext()
        with context:
            total = F.cross_entropy(net(X), y, reduction="sum")
            (total * weight(len(y), n, len(batches))).backward()


def mean_of_all(size, n, count):
    return 1 / n


def but_the_last(i, count):
    return i < count - 1


@right("08.3")
def last_one_apart(net, optimizer, batches):
    net.zero_grad()
    n = sum(len(y) for _, y in batches)
    *others, (X_last, y_last) = batches
    with net.no_sync():
        for X, y in others:
            (F.cross_entropy(net(X), y) * (len(y) / n)).backward()
    (F.cross_entropy(net(X_last), y_last) * (len(y_last) / n)).backward()
    optimizer.step()


@right("08.3")
def all_in_one_pass(net, optimizer, batches):
    X, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
    optimizer.zero_grad()
    F.cross_entropy(net(X), y).backward()
    optimizer.step()


@wrong("08.3", "Only one of the batches is included")
def as_it_was(net, optimizer, batches):
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
    optimizer.step()


@wrong("08.3", "`optimizer.step` was called 3 times")
def a_step_each(net, optimizer, batches):
    for X, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()


@wrong("08.3", "about 3 times too long")
def adds_means_of_batches(net, optimizer, batches):
    optimizer.zero_grad()
    passes(net, batches, lambda size, n, count: 1 / size, but_the_last)
    optimizer.step()


@wrong("08.3", "counts twice as much")
def averages_batches_gradients(net, optimizer, batches):
    optimizer.zero_grad()
    passes(net, batches, lambda size, n, count: 1 / size / count, but_the_last)
    optimizer.step()


@wrong("08.3", "20 times too large")
def never_divides(net, optimizer, batches):
    optimizer.zero_grad()
    passes(net, batches, lambda size, n, count: 1, but_the_last)
    optimizer.step()


@wrong("08.3", "left in the gradients from the call before")
def never_clears(net, optimizer, batches):
    passes(net, batches, mean_of_all, but_the_last)
    optimizer.step()


@wrong("08.3", "all-reduced 3 times")
def always_sends(net, optimizer, batches):
    optimizer.zero_grad()
    passes(net, batches, mean_of_all, lambda i, count: False)
    optimizer.step()


@wrong("08.3", "without an all-reduce")
def never_sends(net, optimizer, batches):
    optimizer.zero_grad()
    passes(net, batches, mean_of_all, lambda i, count: True)
    optimizer.step()


@wrong("08.3", "before the last backward pass")
def sends_the_first(net, optimizer, batches):
    optimizer.zero_grad()
    passes(net, batches, mean_of_all, lambda i, count: i > 0)
    optimizer.step()


# ------------------------------------------------------------------ 08.4


@right("08.4")
@torch.no_grad()
def with_split_batch(net, X, devices):
    shards, _ = d2l.split_batch(X, torch.zeros(len(X)), devices)
    rows = []
    for shard in shards:
        there = net if shard.device == devices[0] else copy.deepcopy(net)
        rows.append(there.to(shard.device)(shard).to(devices[0]))
    return torch.cat(rows)


def on_all(net, shards, devices):
    replicas = d2l.replicate(net, devices)
    return [
        replica(shard.to(device)).to(devices[0])
        for replica, shard, device in zip(replicas, shards, devices, strict=False)
    ]


@wrong("08.4", "The result has the shape (96, 5)")
def drops(net, X, devices):
    size = len(X) // 16
    return torch.cat(on_all(net, X[: 16 * size].split(size), devices))


@wrong("08.4", "(112, 5), but you were given 100 examples")
def pads(net, X, devices):
    X = torch.cat([X, X[:12]])
    return torch.cat(on_all(net, X.chunk(16), devices))


@wrong("08.4", "but in a different order")
def deals_out(net, X, devices):
    return torch.cat(on_all(net, [X[i::16] for i in range(16)], devices))


@wrong("08.4", "The devices computed")
def in_pieces_of_seven(net, X, devices):
    return torch.cat(on_all(net, X.split(7), devices))


@wrong("08.4", "the CPU 16 times")
def sends_all(net, X, devices):
    rows = []
    for i, replica in enumerate(d2l.replicate(net, devices)):
        mine = X.to(devices[i]).tensor_split(16)[i]
        rows.append(replica(mine).to(devices[0]))
    return torch.cat(rows)


@wrong("08.4", "Copy the network once to each other device")
def replicates_by_way_of_the_cpu(net, X, devices):
    shards = X.tensor_split(16)
    rows = []
    for device, shard in zip(devices, shards, strict=True):
        replica = copy.deepcopy(net).to("cpu").to(device)
        rows.append(replica(shard.to(device)).to(devices[0]))
    return torch.cat(rows)


@wrong("08.4", "on GPU 0; both belong on GPU 0")
def takes_the_network_along(net, X, devices):
    shards = zip(devices, X.tensor_split(16), strict=True)
    rows = [net.to(device)(shard.to(device)) for device, shard in shards]
    return torch.cat([row.to(devices[0]) for row in rows])


@wrong("08.4", "Some rows differ")
def without_batch_statistics(net, X, devices):
    replicas = []
    for device in devices:
        replicas.append(copy.deepcopy(net).to(device))
        replicas[-1][2].reset_running_stats()
    shards = zip(replicas, X.tensor_split(16), devices, strict=True)
    return torch.cat([r(x.to(device)).to(devices[0]) for r, x, device in shards])


@wrong("08.4", "although it isn't trained")
def resets_the_statistics(net, X, devices):
    result = with_split_batch(net, X, devices)
    net[2].reset_running_stats()
    return result


@wrong("08.4", "had layer 0 in training mode. After the call, it's in evaluation")
def leaves_it_evaluating(net, X, devices):
    training = net.training
    net.eval()
    result = with_split_batch(net, X, devices)
    net.training = training
    return result


@wrong("08.4", "had the network itself in training mode")
def switches_to_evaluation(net, X, devices):
    return with_split_batch(net.eval(), X, devices)


@wrong("08.4", "had the network itself in evaluation mode")
def switches_back_to_training(net, X, devices):
    result = with_split_batch(net.eval(), X, devices)
    net.train()
    return result


@wrong("08.4", "had layer 2 in evaluation mode")
def has_one_mode_for_all_layers(net, X, devices):
    training = net.training
    result = with_split_batch(net.eval(), X, devices)
    net.train(training)
    return result


@wrong("08.4", "`requires_grad` of parameter 1.weight was True")
def freezes_it(net, X, devices):
    return with_split_batch(net.requires_grad_(False), X, devices)


@right("08.4")
def restores_each_mode(net, X, devices):
    modes = [(module, module.training) for module in net.modules()]
    try:
        return with_split_batch(net.eval(), X, devices)
    finally:
        for module, mode in modes:
            module.training = mode


@wrong("08.4", "For 5 examples, you return scores of")
def keeps_empty_shards(net, X, devices):
    parts = min(16, max(1, len(X) // 6))
    rows = on_all(net, X.tensor_split(parts), devices)
    return torch.cat(rows) if len(X) >= 16 else rows[0][:1]


# ------------------------------------------------------------------ 08.5


@right("08.5")
def of_each_example(scores, y, k, n):
    return F.cross_entropy(scores, y, reduction="none").sum().mul(k).div(n)


@wrong("08.5", "but you want a mean over examples")
def mean_of_the_shard(scores, y, k, n):
    return F.cross_entropy(scores, y)


@wrong("08.5", "the mean over the shard, times k")
def mean_times_k(scores, y, k, n):
    return F.cross_entropy(scores, y) * k


@wrong("08.5", "after `backward`")
def share(scores, y, k, n):
    return F.cross_entropy(scores, y, reduction="sum") / n


@wrong("08.5", "shard and never divide the sum")
def total(scores, y, k, n):
    return F.cross_entropy(scores, y, reduction="sum")


@wrong("08.5", "0/0")
def mean_with_a_weight(scores, y, k, n):
    return F.cross_entropy(scores, y) * (len(y) * k / n)


@wrong("08.5", "including those without examples")
def times_the_ranks_with_examples(scores, y, k, n):
    return F.cross_entropy(scores, y, reduction="sum") * min(k, n) / n


@wrong("08.5", "one loss for each example")
def each(scores, y, k, n):
    return F.cross_entropy(scores, y, reduction="none") * k / n


# ------------------------------------------------------------------ 08.6


@right("08.6")
def by_squares(shards):
    home, n = shards[0].device, sum(map(len, shards))
    sums = sum(torch.stack([x.sum(0), (x * x).sum(0)]).to(home) for x in shards)
    mean, squares = sums / n
    return mean, squares - mean**2


@wrong("08.6", "30, 20, 10 examples")
def mean_of_means(shards):
    home = shards[0].device
    means = torch.stack([x.mean(0).to(home) for x in shards])
    variances = torch.stack([x.var(0, correction=0).to(home) for x in shards])
    return means.mean(0), variances.mean(0)


def weighted(shards, values):
    home, n = shards[0].device, sum(map(len, shards))
    return sum(len(x) / n * v.to(home) for x, v in zip(shards, values, strict=True))


@wrong("08.6", "means are from each other")
def mean_of_variances(shards):
    return (
        weighted(shards, [x.mean(0) for x in shards]),
        weighted(shards, [x.var(0, correction=0) for x in shards]),
    )


@wrong("08.6", "one shard alone")
def looks_at_its_own(shards):
    return shards[0].mean(0), shards[0].var(0, correction=0)


@wrong("08.6", "You divide by one less than")
def sample_variance(shards):
    mean, variance = by_squares(shards)
    n = sum(map(len, shards))
    return mean, variance * n / (n - 1)


@wrong("08.6", "standard deviation")
def deviation(shards):
    mean, variance = by_squares(shards)
    return mean, variance.sqrt()


@wrong("08.6", "A whole shard crossed")
def sends_the_shards(shards):
    whole = torch.cat([x.to(shards[0].device) for x in shards])
    return whole.mean(0), whole.var(0, correction=0)


@wrong("08.6", "by way of the CPU")
def on_the_cpu(shards):
    mean, variance = by_squares([x.cpu() for x in shards])
    return mean.to(shards[0].device), variance.to(shards[0].device)


@wrong("08.6", "the first shard is on GPU 0")
def leaves_them(shards):
    mean, variance = by_squares(shards)
    return mean, variance.to(shards[1].device)


@wrong("08.6", "There are 8 channels")
def of_everything(shards):
    mean, variance = by_squares(shards)
    return mean.mean(), variance.mean()


@wrong("08.6", "`shards[1]`, `shards[2]` had changed")
def in_place(shards):
    n, home = sum(map(len, shards)), shards[0].device
    mean = sum(x.sum(0).to(home) for x in shards) / n
    squares = sum(x.square_().sum(0).to(home) for x in shards)
    return mean, squares / n - mean**2
