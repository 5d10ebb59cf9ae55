import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_13 import add_answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong

add_answers(ANSWERS, torch.zeros, torch.cat)


# ------------------------------------------------------------------ 13.2


def chunks(x, n):
    return list(x.chunk(n))


def reduced(p, n):
    gradient = torch.empty(len(p) // n, device=p.device)
    dist.reduce_scatter(gradient, chunks(p.grad / n, n))
    return gradient


@right("13.2")
def with_tensors_in_place(p, velocity, rank, n):
    size = len(velocity)
    velocity.copy_(0.9 * velocity + reduced(p, n))
    whole = p.detach()
    whole[rank * size : (rank + 1) * size] -= 0.1 * velocity
    own = whole[rank * size : (rank + 1) * size].clone()
    dist.all_gather(chunks(whole, n), own)


@wrong("13.2", "How do the others learn of it")
def forgets_to_gather(p, velocity, rank, n):
    velocity.mul_(0.9).add_(reduced(p, n))
    p.detach().chunk(n)[rank].sub_(0.1 * velocity)


@wrong("13.2", "of the *sum* of the gradients")
def forgets_the_mean(p, velocity, rank, n):
    p.grad *= n
    with_tensors_in_place(p, velocity, rank, n)


@wrong("13.2", "What remains of the first step's")
def forgets_the_momentum(p, velocity, rank, n):
    velocity.zero_()
    with_tensors_in_place(p, velocity, rank, n)


@wrong("13.2", "`velocity` isn't updated")
def keeps_the_momentum_elsewhere(p, velocity, rank, n):
    if not hasattr(p, "momentum"):
        p.momentum = torch.zeros_like(velocity)
    with_tensors_in_place(p, p.momentum, rank, n)


@wrong("13.2", "Who needs the whole gradient")
def reduces_all(p, velocity, rank, n):
    dist.all_reduce(p.grad)
    velocity.mul_(0.9).add_(p.grad.chunk(n)[rank] / n)
    own = p.detach().chunk(n)[rank] - 0.1 * velocity
    dist.all_gather(chunks(p.detach(), n), own)


@wrong("13.2", "haven't changed")
def changes_a_copy(p, velocity, rank, n):
    velocity.mul_(0.9).add_(reduced(p, n))
    whole = p.detach().clone()
    own = whole.chunk(n)[rank] - 0.1 * velocity
    dist.all_gather(chunks(whole, n), own)


@wrong("13.2", "from the first step on")
def takes_the_first_chunk(p, velocity, rank, n):
    velocity.mul_(0.9).add_(reduced(p, n))
    own = p.detach().chunk(n)[0] - 0.1 * velocity
    dist.all_gather(chunks(p.detach(), n), own)


# ------------------------------------------------------------------ 13.3


def total(x):
    dist.all_reduce(x)
    return x


def own_square(shards):
    return torch.cat([g.flatten() for g in shards]).square().sum()


def scale(shards, factor):
    for g in shards:
        g.mul_(factor)


@right("13.3")
def with_python_numbers(shards, largest):
    norm = total(own_square(shards)).item() ** 0.5
    if norm > largest:
        scale(shards, largest / norm)
    return norm


@wrong("13.3", "each the norm of its own shards")
def forgets_the_others(shards, largest):
    norm = own_square(shards).sqrt()
    scale(shards, (largest / norm).clamp(max=1))
    return norm


@wrong("13.3", "but what does")
def adds_norms(shards, largest):
    norm = total(own_square(shards).sqrt())
    scale(shards, (largest / norm).clamp(max=1))
    return norm


@wrong("13.3", "the square of the norm")
def forgets_the_root(shards, largest):
    norm = total(own_square(shards))
    scale(shards, (largest / norm).clamp(max=1))
    return norm


@wrong("13.3", "Are all ranks' shards counted")
def takes_the_largest(shards, largest):
    norm = own_square(shards).sqrt()
    dist.all_reduce(norm, op=dist.ReduceOp.MAX)
    scale(shards, (largest / norm).clamp(max=1))
    return norm


@wrong("13.3", "to be changed in place")
def makes_new_ones(shards, largest):
    norm = total(own_square(shards)).sqrt()
    shards = [g * (largest / norm).clamp(max=1) for g in shards]
    return norm


@wrong("13.3", "isn't too large, but you change it")
def scales_always(shards, largest):
    norm = total(own_square(shards)).sqrt()
    scale(shards, largest / norm)
    return norm


@wrong("13.3", "aren't finite")
def divides_by_zero(shards, largest):
    norm = total(own_square(shards)).sqrt()
    scale(shards, norm.clamp(max=largest) / norm)
    return norm


@wrong("13.3", "Afterwards, the norm of the whole")
def scales_by_own_norm(shards, largest):
    norm = total(own_square(shards)).sqrt()
    scale(shards, (largest / own_square(shards).sqrt()).clamp(max=1))
    return norm


@wrong("13.3", "Which number do the other ranks need")
def gathers_everything(shards, largest):
    own = torch.cat(shards)
    whole = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(whole, own)
    norm = torch.cat(whole).norm()
    scale(shards, (largest / norm).clamp(max=1))
    return norm


# ------------------------------------------------------------------ 13.4


def each(modules, **how):
    for module in modules:
        fully_shard(module, **how)


@right("13.4")
def with_first_and_last(net):
    each([*net.blocks, net.first, net.last])
    fully_shard(net)


@wrong("13.4", "How many are gathered when the forward pass begins")
def as_one_unit(net):
    fully_shard(net)


@wrong("13.4", "aren't, such as `first.weight`")
def only_the_blocks(net):
    each(net.blocks)


@wrong("13.4", "What stays between forward and backward")
def keeps_the_parameters(net):
    each([*net.blocks, net], reshard_after_forward=False)


@wrong("13.4", "How many all-gathers are there for a block")
def layer_by_layer(net):
    each(x for x in net.modules() if isinstance(x, nn.Linear))
    fully_shard(net)
