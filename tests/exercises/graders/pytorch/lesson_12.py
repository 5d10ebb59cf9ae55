import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


# ------------------------------------------------------------------ 12.1


def parts(width, depth, batch, length):
    """The parameters, the bytes that blocks keep, those of the scores."""
    p = depth * (12 * width**2 + 13 * width) + (50_257 + length + 2) * width
    return p, 32 * batch * length * width * depth, 2 * batch * length * 50_257


@right("12.1")
def moment_by_moment(width, depth, batch, length):
    p, kept, scores = parts(width, depth, batch, length)
    always = 2 * p + 4 * p
    return max(always + kept + 3 * scores, always + 2 * p)


@wrong("12.1", "You leave out the update")
def forgets_the_update(*plan):
    p, kept, scores = parts(*plan)
    return 6 * p + kept + 3 * scores


@wrong("12.1", "take the larger of two moments")
def adds_everything(*plan):
    p, kept, scores = parts(*plan)
    return 8 * p + kept + 3 * scores


@wrong("12.1", "You leave out the loss")
def forgets_the_loss(*plan):
    p, kept, _ = parts(*plan)
    return max(8 * p, 6 * p + kept)


@wrong("12.1", "as if they were fp32")
def counts_sixteen_bytes(*plan):
    p, kept, scores = parts(*plan)
    return max(16 * p, 12 * p + kept + 3 * scores)


@wrong("12.1", "Adam's two averages")
def forgets_adam(*plan):
    p, kept, scores = parts(*plan)
    return max(4 * p, 2 * p + kept + 3 * scores)


@wrong("12.1", "of a single block")
def forgets_the_depth(width, depth, batch, length):
    p, kept, scores = parts(width, depth, batch, length)
    return max(8 * p, 6 * p + kept / depth + 3 * scores)


@wrong("12.1", "Those are GiB")
def in_gib(*plan):
    return moment_by_moment(*plan) / 2**30


@wrong("12.1", "You predict")
def counts_activations_in_fp32(*plan):
    p, kept, scores = parts(*plan)
    return max(8 * p, 6 * p + 2 * kept + 6 * scores)


# ------------------------------------------------------------------ 12.2


def piece_loss(h, W, labels, reduction="sum"):
    return F.cross_entropy(h @ W.T, labels, reduction=reduction)


def in_pieces(H, W, y, pieces, call, reduction="sum"):
    return sum(
        call(piece_loss, h, W, labels, reduction)
        for h, labels in zip(H.chunk(pieces), y.chunk(pieces), strict=True)
    )


def again(*arguments):
    return checkpoint(*arguments, use_reentrant=False)


class Slices(torch.autograd.Function):
    """Computes the gradients in the forward pass, so that nothing is kept."""

    @staticmethod
    def forward(ctx, H, W, y, pieces):
        dH, dW = torch.zeros_like(H), torch.zeros_like(W)
        total = torch.zeros((), device=H.device)
        for part in torch.arange(len(H), device=H.device).tensor_split(pieces):
            P = (H[part] @ W.T).log_softmax(1)
            total -= P.gather(1, y[part, None]).sum()
            P = P.exp_()
            P[torch.arange(len(part), device=H.device), y[part]] -= 1
            dH[part] = P @ W / len(H)
            dW += P.T @ H[part] / len(H)
        ctx.save_for_backward(dH, dW)
        return total / len(H)

    @staticmethod
    def backward(ctx, scale):
        dH, dW = ctx.saved_tensors
        return scale * dH, scale * dW, None, None


@right("12.2")
def with_gradients_in_the_forward_pass(H, W, y, pieces):
    return Slices.apply(H, W, y, pieces)


@wrong("12.2", "Are they computed in pieces at all")
def at_once(H, W, y, pieces):
    return F.cross_entropy(H @ W.T, y)


@wrong("12.2", "is kept until the backward pass")
def keeps_each_piece(H, W, y, pieces):
    return in_pieces(H, W, y, pieces, lambda f, *a: f(*a)) / len(H)


@wrong("12.2", "computes all of them again at once")
def checkpoints_the_whole(H, W, y, pieces):
    def whole(H, W):
        return in_pieces(H, W, y, pieces, lambda f, *a: f(*a)) / len(H)

    return again(whole, H, W)


@wrong("12.2", "you add up means")
def adds_means(H, W, y, pieces):
    return in_pieces(H, W, y, pieces, again, "mean")


@wrong("12.2", "don't weigh the same")
def averages_means(H, W, y, pieces):
    return in_pieces(H, W, y, pieces, again, "mean") / len(H.chunk(pieces))


@wrong("12.2", "It's the sum over the tokens")
def forgets_to_divide(H, W, y, pieces):
    return in_pieces(H, W, y, pieces, again)


@wrong("12.2", "What cuts it off from the loss")
def detaches(H, W, y, pieces):
    return in_pieces(H, W.detach(), y, pieces, again) / len(H)


@wrong("12.2", "has the shape (400,)")
def returns_one_for_each(H, W, y, pieces):
    return F.cross_entropy(H @ W.T, y, reduction="none")


# ------------------------------------------------------------------ 12.3


@right("12.3")
def with_a_default(blocks, X):
    for block in blocks:
        X = checkpoint(lambda X, block=block: block(X), X, use_reentrant=False)
    return X


@right("12.3")
def sequentially(blocks, X):
    return checkpoint_sequential(
        torch.nn.Sequential(*blocks), len(blocks), X, use_reentrant=False
    )


@wrong("12.3", "Which block is run when")
def as_it_was(blocks, X):
    for block in blocks:
        X = checkpoint(lambda X: block(X), X, use_reentrant=False)  # noqa: B023
    return X


@wrong("12.3", "it has to drop the same elements")
def forgets_the_generator(blocks, X):
    for block in blocks:
        X = checkpoint(block, X, use_reentrant=False, preserve_rng_state=False)
    return X


@wrong("12.3", "of what's kept without checkpointing is there")
def without_checkpoints(blocks, X):
    for block in blocks:
        X = block(X)
    return X


@wrong("12.3", "it runs many blocks again before it uses any")
def all_in_one(blocks, X):
    return checkpoint(torch.nn.Sequential(*blocks), X, use_reentrant=False)


@wrong("12.3", "It's another one")
def forgets_a_block(blocks, X):
    return with_a_default(blocks[:-1], X)


@wrong("12.3", "Some parameters have none")
def detaches_between(blocks, X):
    for block in blocks:
        X = checkpoint(block, X.detach(), use_reentrant=False)
    return X


# ------------------------------------------------------------------ 12.4


def training(net, optimizer, batches, note, note_loss=torch.Tensor.detach):
    norms, losses = [], []

    def watch(layer, inputs, output):
        norms.append(note(output))

    handles = [layer.register_forward_hook(watch) for layer in net]
    for X, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(X), y)
        loss.backward()
        optimizer.step()
        losses.append(note_loss(loss))
    for handle in handles:
        handle.remove()
    return losses, norms


def fetched(*lists):
    return tuple(torch.stack(each).tolist() for each in lists)


@right("12.4")
def without_gradients(net, optimizer, batches):
    @torch.no_grad()
    def note(output):
        return output.square().sum().sqrt()

    return fetched(*training(net, optimizer, batches, note))


@wrong("12.4", "that never comes")
def leaks(net, optimizer, batches):
    return fetched(*training(net, optimizer, batches, torch.Tensor.norm))


@wrong("12.4", "Python waited")
def fetches_each(net, optimizer, batches):
    return training(
        net, optimizer, batches, lambda Y: Y.detach().norm().item(), torch.Tensor.item
    )


@wrong("12.4", "still tensors")
def returns_tensors(net, optimizer, batches):
    return training(net, optimizer, batches, lambda Y: Y.detach().norm())


@wrong("12.4", "and 0 norms")
def records_nothing(net, optimizer, batches):
    losses, _ = training(net, optimizer, batches, torch.detach)
    return torch.stack(losses).tolist(), []


@wrong("12.4", "The network still has")
def leaves_the_hooks(net, optimizer, batches):
    found = fetched(*training(net, optimizer, batches, lambda Y: Y.detach().norm()))
    net[0].register_forward_hook(lambda *_: None)
    return found


@wrong("12.4", "The first of your norms")
def measures_the_mean(net, optimizer, batches):
    return fetched(*training(net, optimizer, batches, lambda Y: Y.detach().mean()))


@wrong("12.4", "The first of your losses")
def forgets_to_step(net, optimizer, batches):
    class Still:
        zero_grad = optimizer.zero_grad

        def step(self):
            pass

    return fetched(*training(net, Still(), batches, lambda Y: Y.detach().norm()))


# ------------------------------------------------------------------ 12.5


def search(fits):
    if not fits(1):
        return 0
    low, high = 1, 2
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@right("12.5")
def bit_by_bit(peak, memory):
    batch, bit = 0, 1
    while peak(bit) <= memory:
        bit *= 2
    while bit := bit // 2:
        if batch + bit == bit or peak(batch + bit) <= memory:
            batch += bit
    return batch


@wrong("12.5", "times are enough")
def one_after_the_other(peak, memory):
    batch = 0
    while peak(batch + 1) <= memory:
        batch += 1
    return batch


@wrong("12.5", "Batches between two powers of two")
def doubles(peak, memory):
    batch = 0
    while peak(max(2 * batch, 1)) <= memory:
        batch = max(2 * batch, 1)
    return batch


@wrong("12.5", "the first batch that doesn't fit")
def one_too_many(peak, memory):
    best = search(lambda batch: peak(batch) <= memory)
    return best + 1 if best else 0


@wrong("12.5", "the peak doesn't grow at first")
def along_a_line(peak, memory):
    first, second = peak(1), peak(2)
    each = second - first
    if first > memory:
        return 0
    return 1 + int((memory - first) // each) if each else 10**6


@wrong("12.5", "can't be run")
def asks_for_none(peak, memory):
    return search(lambda batch: peak(batch) <= memory) if peak(0) <= memory else 0


@wrong("12.5", "You return 1.")
def at_least_one(peak, memory):
    return max(search(lambda batch: peak(batch) <= memory), 1)


@wrong("12.5", "You return 20 where")
def leaves_room(peak, memory):
    best = search(lambda batch: peak(batch) <= memory)
    return best - 3 if best > 20 else best
