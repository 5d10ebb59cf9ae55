import numpy as np
import torch

from d2l_gpu import torch as d2l
from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


@right("09.1")
def of_images_on_one(base, step):
    per_device = [x.batch_size / x.seconds for x in (base, step)]
    return per_device[1] / per_device[0]


@wrong("09.1", "how many times as many images")
def speedup(base, step):
    return step.examples_per_second / base.examples_per_second


@wrong("09.1", "ratio of the times")
def for_weak_scaling(base, step):
    return base.seconds / step.seconds


@wrong("09.1", "how many times longer it takes")
def upside_down(base, step):
    return base.batch_size / base.seconds / (step.batch_size / step.seconds)


@wrong("09.1", "How many GPUs does the base have")
def as_if_the_base_were_one(base, step):
    speedup = step.examples_per_second / base.examples_per_second
    return speedup / step.num_gpus


@wrong("09.1", "images a second")
def images_of_one_device(base, step):
    return base.examples_per_second / (step.batch_size / step.seconds) + 1


right("09.2")(1024)
wrong("09.2", "That's enough images if the exchange is hidden")(512)
wrong("09.2", "the exchange takes equally long")(128)
wrong("09.2", "already reach 0.967 (simulated)")(2048)
wrong("09.2", "Your answer is 300")(300)

right("09.3")(64)
wrong("09.3", "the best one with buckets")(16)
wrong("09.3", "What grows with the number of GPUs")(128)
wrong("09.3", "does each GPU have too few images")(32)
wrong("09.3", "Your answer is 48")(48)


def add_up(replicas, factor):
    for params in zip(*(net.parameters() for net in replicas), strict=True):
        d2l.allreduce([p.grad for p in params])
        for p in params:
            p.grad *= factor


@right("09.4")
def with_weighted_losses(replicas, loss, batches):
    for net, own in zip(replicas, batches, strict=True):
        weight = 1 / (len(own) * len(replicas))
        for X, y in own:
            (weight * loss(net(X), y)).backward()
    vectors = [
        torch.cat([p.grad.flatten() for p in net.parameters()]) for net in replicas
    ]
    d2l.allreduce(vectors)
    for net, vector in zip(replicas, vectors, strict=True):
        parts = vector.split([p.numel() for p in net.parameters()])
        for p, part in zip(net.parameters(), parts, strict=True):
            p.grad.copy_(part.view_as(p))


@wrong("09.4", "8 times too long")
def forgets_to_average(replicas, loss, batches):
    for net, own in zip(replicas, batches, strict=True):
        for X, y in own:
            loss(net(X), y).backward()
    add_up(replicas, 1)


@wrong("09.4", "2 times too long")
def forgets_the_gpus(replicas, loss, batches):
    for net, own in zip(replicas, batches, strict=True):
        for X, y in own:
            (loss(net(X), y) / len(own)).backward()
    add_up(replicas, 1)


@wrong("09.4", "only 0.25 of the length")
def divides_twice(replicas, loss, batches):
    for net, own in zip(replicas, batches, strict=True):
        for X, y in own:
            (loss(net(X), y) / len(own)).backward()
    add_up(replicas, 1 / 8)


@wrong("09.4", "the last small batches")
def clears_in_between(replicas, loss, batches):
    for net, own in zip(replicas, batches, strict=True):
        for X, y in own:
            net.zero_grad()
            loss(net(X), y).backward()
    add_up(replicas, 1 / 2)


@wrong("09.4", "to a sum that has already been exchanged")
def exchanges_the_sums_each_time(replicas, loss, batches):
    for part in zip(*batches, strict=True):
        for net, (X, y) in zip(replicas, part, strict=True):
            (loss(net(X), y) / 8).backward()
        add_up(replicas, 1)


@wrong("09.4", "How often did it cross")
def exchanges_each_time(replicas, loss, batches):
    for part in zip(*batches, strict=True):
        own = [
            list(torch.autograd.grad(loss(net(X), y) / 8, list(net.parameters())))
            for net, (X, y) in zip(replicas, part, strict=True)
        ]
        for each in zip(*own, strict=True):
            d2l.allreduce(each)
        for net, gradients in zip(replicas, own, strict=True):
            for p, g in zip(net.parameters(), gradients, strict=True):
                p.grad = g if p.grad is None else p.grad + g


@wrong("09.4", "What keeps a batch's activations in memory")
def adds_the_losses(replicas, loss, batches):
    for net, own in zip(replicas, batches, strict=True):
        sum(loss(net(X), y) / 8 for X, y in own).backward()
    add_up(replicas, 1)


@wrong("09.4", "bytes, on GPU 0; forward")
def adds_the_losses_of_one(replicas, loss, batches):
    sum(loss(replicas[0](X), y) / 8 for X, y in batches[0]).backward()
    for net, own in zip(replicas[1:], batches[1:], strict=True):
        for X, y in own:
            (loss(net(X), y) / 8).backward()
    add_up(replicas, 1)


@wrong("09.4", "What still has to be added up")
def exchanges_nothing(replicas, loss, batches):
    for net, own in zip(replicas, batches, strict=True):
        for X, y in own:
            (loss(net(X), y) / len(own)).backward()


def add_up_and_scale(replicas, weights):
    add_up(replicas, 1)
    for net, weight in zip(replicas, weights, strict=True):
        for p in net.parameters():
            p.grad.mul_(weight)


@wrong("09.4", "they have 1 and 8 times its length")
def averages_on_the_first(replicas, loss, batches):
    for net, own in zip(replicas, batches, strict=True):
        for X, y in own:
            loss(net(X), y).backward()
    add_up_and_scale(replicas, (1 / 8, 1))


@wrong("09.4", "they have 2 and 1 times its length")
def averages_on_the_second(replicas, loss, batches):
    for net, own in zip(replicas, batches, strict=True):
        for X, y in own:
            (loss(net(X), y) / len(own)).backward()
    add_up_and_scale(replicas, (1, 1 / 2))


@wrong("09.4", "reached replica 0, but replica 1")
def keeps_the_sum_on_the_first(replicas, loss, batches):
    for net, own in zip(replicas, batches, strict=True):
        for X, y in own:
            (loss(net(X), y) / 8).backward()
    for first, other in zip(*(net.parameters() for net in replicas), strict=True):
        first.grad += other.grad.to(first.device)


@wrong("09.4", "In replica 1, some examples count more")
def adds_in_turn(replicas, loss, batches):
    for net, own in zip(replicas, batches, strict=True):
        for X, y in own:
            (loss(net(X), y) / 8).backward()
    for first, other in zip(*(net.parameters() for net in replicas), strict=True):
        first.grad += other.grad.to(first.device)
        other.grad += first.grad.to(other.device)


@wrong("09.4", "Replica 0 has parameters without a gradient")
def returns_them(replicas, loss, batches):
    return [
        torch.autograd.grad(loss(net(X), y), list(net.parameters()))
        for net, own in zip(replicas, batches, strict=True)
        for X, y in own
    ]


@right("09.5")
def one_by_one(n, seconds):
    shares = [0] * len(seconds)
    for _ in range(n):
        i = min(range(len(shares)), key=lambda i: (shares[i] + 1) * seconds[i])
        shares[i] += 1
    return shares


@wrong("09.5", "Does a large time mean a high speed")
def by_time(n, seconds):
    first = [round(n * t / sum(seconds)) for t in seconds[1:]]
    return [n - sum(first), *first]


@wrong("09.5", "the fast ones wait")
def evenly(n, seconds):
    return [(n + i) // len(seconds) for i in range(len(seconds))]


@wrong("09.5", "images, not 256")
def drops_the_remainder(n, seconds):
    total = sum(1 / t for t in seconds)
    return [int(n / t / total) for t in seconds]


@wrong("09.5", "Who gets what is left after rounding")
def gives_the_remainder_to_the_last(n, seconds):
    total = sum(1 / t for t in seconds)
    *others, _ = [int(n / t / total) for t in seconds]
    return [*others, n - sum(others)]


@wrong("09.5", "where its share is 1.25. Who gets what is left after rounding")
def rounds_all_but_the_last(n, seconds):
    total = sum(1 / t for t in seconds)
    *others, _ = [round(n / t / total) for t in seconds]
    return [*others, n - sum(others)]


@wrong("09.5", "For 3 devices")
def in_fractions(n, seconds):
    total = sum(1 / t for t in seconds)
    return [n / t / total for t in seconds]


@wrong("09.5", "For 4 devices")
def for_two_kinds(n, seconds):
    slow = round(n / (2 * seconds[2] / seconds[0] + 1))
    return [(n - slow) // 2, n - slow - (n - slow) // 2, slow]


@wrong("09.5", "waits for GPU")
def without_the_slowest(n, seconds):
    slowest = seconds.index(max(seconds))
    rest = n // (len(seconds) - 1)
    shares = [rest] * len(seconds)
    shares[slowest] = 0
    shares[slowest - 1] += n - sum(shares)
    return shares


@right("09.6")
def by_formula(seconds, n):
    ordered = seconds.sort().values.double()
    m = len(ordered)
    return sum(
        float(t) * (((i + 1) / m) ** n - (i / m) ** n) for i, t in enumerate(ordered)
    )


@wrong("09.6", "a step waits for all")
def of_one_device(seconds, n):
    return seconds.mean()


@wrong("09.6", "How often is it among")
def the_slowest_ever(seconds, n):
    return seconds.max()


@wrong("09.6", "then the mean over the steps")
def means_first(seconds, n):
    drawn = seconds[torch.randint(len(seconds), (4000, n))]
    return drawn.mean(dim=1).max()


@wrong("09.6", "For n = 16")
def of_two(seconds, n):
    return by_formula(seconds, min(n, 2))


def different_times(seconds, n):
    drawn = torch.rand(4000, len(seconds)).argsort(dim=1)[:, :n]
    return seconds[drawn].max(dim=1).values.mean()


@wrong("09.6", "if no measured time is drawn twice")
def never_twice_if_possible(seconds, n):
    if n > len(seconds):
        return drawn_by_numpy(seconds, n)
    return different_times(seconds, n)


@wrong("09.6", "Are there 1024 devices in each step")
def as_many_as_there_are_times(seconds, n):
    return by_formula(seconds, min(n, len(seconds)))


@right("09.6")
def drawn_by_numpy(seconds, n):
    drawn = np.random.default_rng().choice(seconds.numpy(), (2000, n))
    return float(drawn.max(axis=1).mean())


@wrong("09.6", "after the other")
def in_sequence(seconds, n):
    return n * seconds.mean()


@wrong("09.6", "the devices split up one step")
def shared(seconds, n):
    return seconds.mean() / n


@wrong("09.6", "`seconds` had changed")
def sorts_in_place(seconds, n):
    value = by_formula(seconds, n)
    seconds.copy_(seconds.sort().values)
    return value
