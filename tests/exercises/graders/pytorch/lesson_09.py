import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

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


def program(*, images=64, cap=4, again=False, steps=3, wrapped=True):
    def train():
        net = d2l.resnet18(10).to("vgpu")
        if wrapped:
            net = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=cap)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        X = torch.zeros(images, 1, 28, 28, device="vgpu")
        y = torch.zeros(images, dtype=torch.long, device="vgpu")
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(net(X), y).backward()
            if again:
                for p in net.parameters():
                    dist.all_reduce(p.grad)
                    p.grad /= dist.get_world_size()
            optimizer.step()

    return train


right("09.4")(program())
right("09.4")(program(cap=1))
wrong("09.4", "What has DDP done")(program(cap=200, again=True))
wrong("09.4", "When can the first bucket start")(program(cap=200))
wrong("09.4", "how large is the last one")(program(cap=25))
wrong("09.4", "Keep the network and the batch")(program(images=32))
wrong("09.4", "the replicas drift apart")(program(wrapped=False))
wrong("09.4", "fewer than two times")(program(steps=1))


@right("09.5")
def by_formula(seconds, n):
    ordered = seconds.sort().values.double()
    m = len(ordered)
    return sum(
        float(t) * (((i + 1) / m) ** n - (i / m) ** n) for i, t in enumerate(ordered)
    )


@wrong("09.5", "a step waits for all")
def of_one_device(seconds, n):
    return seconds.mean()


@wrong("09.5", "How often is it among")
def the_slowest_ever(seconds, n):
    return seconds.max()


@wrong("09.5", "then the mean over the steps")
def means_first(seconds, n):
    drawn = seconds[torch.randint(len(seconds), (4000, n))]
    return drawn.mean(dim=1).max()


@wrong("09.5", "For n = 16")
def of_two(seconds, n):
    return by_formula(seconds, min(n, 2))


def different_times(seconds, n):
    drawn = torch.rand(4000, len(seconds)).argsort(dim=1)[:, :n]
    return seconds[drawn].max(dim=1).values.mean()


@wrong("09.5", "if no measured time is drawn twice")
def never_twice_if_possible(seconds, n):
    if n > len(seconds):
        return drawn_by_numpy(seconds, n)
    return different_times(seconds, n)


@wrong("09.5", "Are there 1024 devices in each step")
def as_many_as_there_are_times(seconds, n):
    return by_formula(seconds, min(n, len(seconds)))


@right("09.5")
def drawn_by_numpy(seconds, n):
    drawn = np.random.default_rng().choice(seconds.numpy(), (2000, n))
    return float(drawn.max(axis=1).mean())


@wrong("09.5", "after the other")
def in_sequence(seconds, n):
    return n * seconds.mean()


@wrong("09.5", "the devices split up one step")
def shared(seconds, n):
    return seconds.mean() / n


@wrong("09.5", "`seconds` had changed")
def sorts_in_place(seconds, n):
    value = by_formula(seconds, n)
    seconds.copy_(seconds.sort().values)
    return value
