import statistics

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


# ------------------------------------------------------------------ 16.1


def counts(net, X, y):
    return torch.stack(
        [(net(X).argmax(1) == y).sum(), torch.tensor(len(y), device=y.device)]
    ).float()


def average_gradients(net):
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def steps(net, batches, average=True):
    """Train, and yield the number of each step after it."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for step, (X, y) in enumerate(batches):
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        if average:
            average_gradients(net)
        optimizer.step()
        yield step


def accuracy(net, X, y):
    totals = counts(net, X, y)
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()


@right("16.1")
def notes_everywhere_and_returns_on_one(net, batches, test, rank):
    history = []
    for step in steps(net, batches):
        if step % 2:
            totals = counts(net, *test)
            dist.reduce(totals, 0)
            history.append((totals[0] / totals[1]).item())
    return [] if rank else history


@wrong("16.1", "where rank 0 calls all_reduce of float32 (2,)")
def only_rank_0_evaluates(net, batches, test, rank):
    history = []
    for step in steps(net, batches):
        if rank == 0 and step % 2:
            history.append(accuracy(net, *test))
    return history


@wrong("16.1", "calls barrier")
def with_a_barrier(net, batches, test, rank):
    history = []
    for step in steps(net, batches):
        if rank == 0 and step % 2:
            history.append(accuracy(net, *test))
        dist.barrier()
    return history


@wrong("16.1", "on rank 0's own examples")
def only_its_own_examples(net, batches, test, rank):
    history = []
    for step in steps(net, batches):
        if rank == 0 and step % 2:
            right_ones, number = counts(net, *test)
            history.append((right_ones / number).item())
    return history


@wrong("16.1", "You average the ranks' accuracies")
def mean_of_accuracies(net, batches, test, rank):
    history = []
    for step in steps(net, batches):
        if step % 2:
            right_ones, number = counts(net, *test)
            own = right_ones / number
            dist.all_reduce(own)
            history.append(own.item() / dist.get_world_size())
    return [] if rank else history


@wrong("16.1", "Rank 1 returns 3 numbers")
def everybody_notes(net, batches, test, rank):
    return [accuracy(net, *test) for step in steps(net, batches) if step % 2]


@wrong("16.1", "it should be 3, but you return 7")
def after_every_step(net, batches, test, rank):
    history = [accuracy(net, *test) for _ in steps(net, batches)]
    return [] if rank else history


@wrong("16.1", "The first one should be")
def without_averaging(net, batches, test, rank):
    history = [
        accuracy(net, *test) for step in steps(net, batches, average=False) if step % 2
    ]
    return [] if rank else history


# ------------------------------------------------------------------ 16.2


def number_of_steps(net, batches, op=dist.ReduceOp.MAX):
    number = torch.tensor(len(batches), device=next(net.parameters()).device)
    dist.all_reduce(number, op)
    return int(number)


@right("16.2")
def with_weights(net, batches):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    device = next(net.parameters()).device
    sizes = [None] * dist.get_world_size()
    dist.all_gather_object(sizes, [len(y) for _, y in batches])
    for i in range(max(map(len, sizes))):
        total = sum(each[i] for each in sizes if i < len(each))
        optimizer.zero_grad()
        if i < len(batches):
            X, y = batches[i]
            (F.cross_entropy(net(X), y) * len(y) / total).backward()
        for p in net.parameters():
            grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(grad)
            p.grad = grad.to(device)
        optimizer.step()


def averaged(net, batches, number, divide):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for i in range(number):
        for p in net.parameters():
            p.grad = torch.zeros_like(p)
        count = torch.zeros((), device=next(net.parameters()).device)
        if i < len(batches):
            X, y = batches[i]
            F.cross_entropy(net(X), y).backward()
            count += 1
        dist.all_reduce(count)
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= divide(count)
        optimizer.step()


@wrong("16.2", "The ranks would wait for ever")
def leaves(net, batches):
    for _ in steps(net, batches):
        pass


@wrong("16.2", "You stop when the first rank runs out")
def stops_with_the_shortest(net, batches):
    averaged(
        net, batches, number_of_steps(net, batches, dist.ReduceOp.MIN), lambda n: n
    )


@wrong("16.2", "You divide by the number of all ranks")
def divides_by_all(net, batches):
    number = number_of_steps(net, batches)
    averaged(net, batches, number, lambda n: dist.get_world_size())


@wrong("16.2", "You average over ranks, but")
def divides_by_those_left(net, batches):
    averaged(net, batches, number_of_steps(net, batches), lambda n: n)


@wrong("16.2", "What does a rank that has run out")
def goes_on_alone(net, batches):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    shortest = number_of_steps(net, batches, dist.ReduceOp.MIN)
    for i, (X, y) in enumerate(batches):
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        if i < shortest:
            average_gradients(net)
        optimizer.step()


@wrong("16.2", "The parameters haven't changed")
def forgets_the_step(net, batches):
    number_of_steps(net, batches)


# ------------------------------------------------------------------ 16.3


def gathered(mine):
    all_of_them = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(all_of_them, mine)
    return [x.tolist() for x in all_of_them]


def others_than(usual, found):
    return [rank for rank, x in enumerate(found) if x != usual]


def bits(tensors):
    return torch.cat([x.flatten() for x in tensors]).view(torch.int32).long()


def weighted(tensors):
    x = bits(tensors)
    return (x * torch.arange(1, len(x) + 1, device=x.device)).sum()


@right("16.3")
def by_hashing_on_the_host(tensors):
    text = b"".join(x.cpu().numpy().tobytes() for x in tensors)
    number = 0
    for byte in text:
        number = (31 * number + byte) % (2**61 - 1)
    found = gathered(torch.tensor(number, device=tensors[0].device))
    return others_than(statistics.mode(found), found)


@wrong("16.3", "so small a change is lost")
def adds_floats(tensors):
    found = gathered(sum(x.nan_to_num().sum() for x in tensors).half())
    return others_than(statistics.mode(found), found)


@wrong("16.3", "NaN == NaN is false")
def adds_floats_with_nan(tensors):
    found = gathered(sum(x.sum() for x in tensors))
    return others_than(found[0], found)


@wrong("16.3", "You take rank 0's tensors for the right ones")
def trusts_rank_0(tensors):
    found = gathered(weighted(tensors))
    return others_than(found[0], found)


@wrong("16.3", "A sum doesn't depend on the order")
def adds_integers(tensors):
    found = gathered(bits(tensors).sum())
    return others_than(statistics.mode(found), found)


@wrong("16.3", "equal, but not as bits")
def normalizes_zeros(tensors):
    found = gathered(weighted([x + 0.0 for x in tensors]))
    return others_than(statistics.mode(found), found)


@wrong("16.3", "GPU 0 sends")
def sends_everything(tensors):
    found = gathered(bits(tensors))
    usual = max(found, key=found.count)
    return others_than(usual, found)


@wrong("16.3", "Rank 0 returns [0], but rank 1 returns []")
def each_for_itself(tensors):
    found = gathered(weighted(tensors))
    rank = dist.get_rank()
    return [rank] if found[rank] != statistics.mode(found) else []


@wrong("16.3", "in all_gather")
def only_rank_0_gathers(tensors):
    if dist.get_rank():
        return []
    found = gathered(weighted(tensors))
    return others_than(statistics.mode(found), found)


# ------------------------------------------------------------------ 16.4


def waits_of(trace):
    return [[left - reached for reached, left in steps] for steps in trace]


def costs(trace):
    waits, found = waits_of(trace), {}
    for step in zip(*waits, strict=True):
        order = sorted(range(len(step)), key=lambda i: step[i])
        cost = step[order[1]] - step[order[0]]
        found[order[0]] = found.get(order[0], 0) + cost
    return found


@right("16.4")
def with_a_dictionary(trace):
    found = costs(trace)
    return max(found.items(), key=lambda pair: pair[1])


@wrong("16.4", "That rank waits longest")
def blames_the_victim(trace):
    totals = [sum(x) for x in waits_of(trace)]
    return totals.index(max(totals)), max(totals)


@wrong("16.4", "The clocks don't have the same zero")
def compares_clocks(trace):
    last = [steps[-1][0] for steps in trace]
    return last.index(max(last)), 0.0


@wrong("16.4", "last to arrive most often")
def counts_steps(trace):
    last = [step.index(min(step)) for step in zip(*waits_of(trace), strict=True)]
    rank = statistics.mode(last)
    return rank, costs(trace)[rank]


@wrong("16.4", "You compare with the first to arrive")
def compares_with_the_first(trace):
    found = costs(trace)
    rank = max(found, key=found.get)
    steps_lost = zip(*waits_of(trace), strict=True)
    return rank, sum(max(x) - min(x) for x in steps_lost if x[rank] == min(x))


@wrong("16.4", "what all ranks together cost")
def adds_all_up(trace):
    found = costs(trace)
    return max(found, key=found.get), sum(found.values())


@wrong("16.4", "but you return 0")
def forgets_the_seconds(trace):
    found = costs(trace)
    return max(found, key=found.get), 0.0


# ------------------------------------------------------------------ 16.5


def trained(
    data,
    new,
    epochs,
    rank,
    seed=lambda rank: rank,
    epoch_of=lambda epoch, rank: epoch,
    sampler=None,
    average=True,
    wrapped=True,
    each_step=False,
):
    net = new().to("vgpu")
    net = DistributedDataParallel(net) if wrapped else net
    torch.manual_seed(seed(rank))
    sampler = sampler or DistributedSampler(data)
    loader = DataLoader(data, 4, sampler=sampler)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = torch.zeros(epochs, device="vgpu")
    for epoch in range(epochs):
        if epoch_of is not None:
            loader.sampler.set_epoch(epoch_of(epoch, rank))
        for X, y in loader:
            if each_step:
                torch.manual_seed(seed(rank))
            loss = F.cross_entropy(net(X.to("vgpu")), y.to("vgpu"))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[epoch] += loss.detach() / len(loader)
    if average:
        dist.all_reduce(losses)
        losses /= dist.get_world_size()
    return losses.tolist()


@right("16.5")
def with_other_seeds(data, new, epochs, rank):
    return trained(
        data,
        new,
        epochs,
        rank,
        seed=lambda rank: 1000 + 17 * rank,
        epoch_of=lambda epoch, rank: epoch + 10,
    )


@wrong("16.5", "It's the same in each epoch")
def forgets_the_epoch(data, new, epochs, rank):
    return trained(data, new, epochs, rank, epoch_of=None)


@wrong("16.5", "The ranks must cut shards from the same order")
def an_order_for_each_rank(data, new, epochs, rank):
    return trained(
        data, new, epochs, rank, epoch_of=lambda epoch, rank: 10 * epoch + rank
    )


@wrong("16.5", "aren't shuffled at all")
def without_shuffling(data, new, epochs, rank):
    sampler = DistributedSampler(data, shuffle=False)
    return trained(data, new, epochs, rank, sampler=sampler)


@wrong("16.5", "In 12 of 12 steps, both ranks drop the same units")
def the_same_seed(data, new, epochs, rank):
    return trained(data, new, epochs, rank, seed=lambda rank: 0)


@wrong("16.5", "has only 1 different")
def seeds_in_each_step(data, new, epochs, rank):
    return trained(data, new, epochs, rank, each_step=True)


@wrong("16.5", "Each rank returns the losses of its own")
def its_own_losses(data, new, epochs, rank):
    return trained(data, new, epochs, rank, average=False)


@wrong("16.5", "They're the sums over the ranks")
def sums_of_losses(data, new, epochs, rank):
    losses = trained(data, new, epochs, rank)
    return [dist.get_world_size() * x for x in losses]


@wrong("16.5", "Are the gradients averaged")
def without_ddp(data, new, epochs, rank):
    return trained(data, new, epochs, rank, wrapped=False)


@wrong("16.5", "Rank 0's are right")
def only_rank_0_returns(data, new, epochs, rank):
    losses = trained(data, new, epochs, rank)
    return losses if rank == 0 else [0.0] * epochs


@wrong("16.5", "They make 16 and 16 steps")
def one_epoch_too_many(data, new, epochs, rank):
    return trained(data, new, epochs + 1, rank)[:epochs]
