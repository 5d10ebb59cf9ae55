import torch
import torch.distributed as dist
from torch.nn import functional as F

from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_14 import add_shared

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong

# ------------------------------------------------------------------ 14.1


def summed(x):
    x = x.clone()
    dist.all_reduce(x)
    return x


@right("14.1")
def bias_on_the_first_rank(H, W, b):
    return summed(F.linear(H, W, b if dist.get_rank() == 0 else None))


@right("14.1")
def a_part_of_the_bias(H, W, b):
    return summed(H @ W.T + b / dist.get_world_size())


@wrong("14.1", "The bias is in it 4 times with 4 ranks")
def as_it_was(H, W, b):
    return summed(F.linear(H, W, b))


@wrong("14.1", "The bias is missing")
def without_bias(H, W, b):
    return summed(F.linear(H, W))


@wrong("14.1", "4 ranks and 0.5 times")
def for_four_ranks_backwards(H, W, b):
    return summed(F.linear(H, W, b / 4))


@wrong("14.1", "isn't a multiple of the bias")
def takes_the_mean(H, W, b):
    return summed(F.linear(H, W)) / dist.get_world_size() + b


@wrong("14.1", "some have added what others haven't")
def adds_it_on_one_rank(H, W, b):
    Y = summed(F.linear(H, W))
    return Y + b if dist.get_rank() == 0 else Y


@wrong("14.1", "yours has the shape (5, 24)")
def gathers_instead(H, W, b):
    parts = [torch.empty_like(b.expand(len(H), -1)) for _ in range(4)]
    parts = parts[: dist.get_world_size()]
    dist.all_gather(parts, F.linear(H, W))
    return torch.cat(parts, 1)


@wrong("14.1", "On some rank it doesn't")
def returns_nothing(H, W, b):
    dist.all_reduce(F.linear(H, W))


# ------------------------------------------------------------------ 14.2


@right("14.2")
def with_indices(W, heads, rank, world_size):
    size, mine = len(W) // 3 // heads, heads // world_size
    rows = [
        (kind * heads + head) * size + i
        for head in range(rank * mine, (rank + 1) * mine)
        for kind in range(3)
        for i in range(size)
    ]
    return W[rows]


@wrong("14.2", "rows of queries")
def in_one_piece(W, heads, rank, world_size):
    return W.chunk(world_size)[rank]


@wrong("14.2", "but all queries come first")
def keeps_the_order(W, heads, rank, world_size):
    W = W.unflatten(0, (3, heads, -1)).chunk(world_size, 1)[rank]
    return W.flatten(0, 2)


@wrong("14.2", "row 0 of the keys of head 0")
def row_by_row(W, heads, rank, world_size):
    W = W.unflatten(0, (3, heads, -1)).chunk(world_size, 1)[rank]
    return W.permute(1, 2, 0, 3).flatten(0, 2)


@wrong("14.2", "instead of (36, 24)")
def all_of_them(W, heads, rank, world_size):
    return W.unflatten(0, (3, heads, -1)).transpose(0, 1).flatten(0, 2)


@wrong("14.2", "gets rows of heads 0, 2, 4")
def every_other_head(W, heads, rank, world_size):
    W = W.unflatten(0, (3, heads, -1)).transpose(0, 1)
    return W[rank::world_size].flatten(0, 2)


add_shared(ANSWERS, "rank")

# ------------------------------------------------------------------ 14.5


def parts(logits, y):
    """Return the largest logit, the sum of exponentials, and the right logit."""
    largest = logits.amax(1)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    total = summed((logits - largest[:, None]).exp().sum(1))
    return largest, total, summed(right_logit(logits, y))


def right_logit(logits, y):
    column = y - dist.get_rank() * logits.shape[1]
    mine = (column >= 0) & (column < logits.shape[1])
    found = logits[torch.arange(len(y), device=y.device), column * mine]
    return found * mine


@right("14.5")
def with_logsumexp(logits, y):
    sums = [torch.empty_like(logits[:, 0]) for _ in range(dist.get_world_size())]
    dist.all_gather(sums, logits.logsumexp(1))
    return (torch.stack(sums).logsumexp(0) - summed(right_logit(logits, y))).mean()


@wrong("14.5", "a rank needs")
def gathers(logits, y):
    parts = [torch.empty_like(logits) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, logits)
    return F.cross_entropy(torch.cat(parts, 1), y)


@wrong("14.5", "With logits beyond 500")
def without_the_largest(logits, y):
    total = summed(logits.exp().sum(1))
    return (total.log() - summed(right_logit(logits, y))).mean()


@wrong("14.5", "The ranks return different numbers")
def of_its_own_words(logits, y):
    largest, total, _ = parts(logits, y)
    return (total.log() + largest - right_logit(logits, y)).mean()


@wrong("14.5", "It's the sum over the tokens")
def adds(logits, y):
    largest, total, found = parts(logits, y)
    return (total.log() + largest - found).sum()


@wrong("14.5", "The logit of the right word is missing")
def forgets_the_right_word(logits, y):
    largest, total, _ = parts(logits, y)
    return (total.log() + largest).mean()


@wrong("14.5", "but yours is")
def forgets_to_add_it_back(logits, y):
    _, total, found = parts(logits, y)
    return (total.log() - found).mean()


@wrong("14.5", "On some rank it isn't one")
def for_each_token(logits, y):
    largest, total, found = parts(logits, y)
    return total.log() + largest - found
