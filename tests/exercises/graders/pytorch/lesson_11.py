import torch
from torch import nn
from torch.nn import functional as F

from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


# ------------------------------------------------------------------ 11.1


def share(rounded, counted):
    return int(((rounded != 0) & rounded.isfinite()).sum()) / counted


@right("11.1")
def by_counting(gradients, dtype, scale):
    """Judge by the size that's left, in fp32 again."""
    back = (gradients * scale).to(dtype).float().abs()
    kept = (back > 0) & (back < float("inf"))
    return int(kept.sum()) / int(gradients.count_nonzero())


@wrong("11.1", "leave them out of the total too")
def counts_zeros(gradients, dtype, scale):
    return share((gradients * scale).to(dtype), len(gradients))


@wrong("11.1", "you count them as survivors")
def forgets_infinity(gradients, dtype, scale):
    rounded = (gradients[gradients != 0] * scale).to(dtype)
    return (rounded != 0).float().mean().item()


@wrong("11.1", "already been rounded")
def scales_too_late(gradients, dtype, scale):
    gradients = gradients[gradients != 0]
    return share(gradients.to(dtype) * scale, len(gradients))


@wrong("11.1", "that are lost")
def of_the_lost(gradients, dtype, scale):
    return 1 - by_counting(gradients, dtype, scale)


@wrong("11.1", "not a percentage")
def in_per_cent(gradients, dtype, scale):
    return 100 * by_counting(gradients, dtype, scale)


@wrong("11.1", "It should be")
def drops_subnormals(gradients, dtype, scale):
    gradients = gradients[gradients != 0].abs() * scale
    info = torch.finfo(dtype)
    kept = (gradients >= info.smallest_normal) & (gradients <= info.max)
    return kept.float().mean().item()


# ------------------------------------------------------------------ 11.2


def eight_bits(X, peaks):
    factors = peaks / 448
    return (X / factors).to(torch.float8_e4m3fn), factors


@right("11.2")
def with_the_norm(X):
    peaks = X.norm(float("inf"), dim=1, keepdim=True)
    peaks[peaks == 0] = 448
    return eight_bits(X, peaks)


@wrong("11.2", "you divide zero by zero")
def forgets_zeros(X):
    return eight_bits(X, X.abs().amax(1, keepdim=True))


@wrong("11.2", "the factors have the shape ()")
def one_for_all(X):
    return eight_bits(X, X.abs().max())


@wrong("11.2", "All rows have the same factor")
def the_same_for_all(X):
    return eight_bits(X, X.abs().max().expand(len(X), 1).clone())


@wrong("11.2", "upside down")
def returns_scales(X):
    Q, factors = with_the_norm(X)
    return Q, 1 / factors


@wrong("11.2", "how large is -7")
def forgets_the_sign(X):
    return eight_bits(X, X.amax(1, keepdim=True).clamp(min=1e-30))


@wrong("11.2", "the largest number becomes 240")
def scales_to_240(X):
    return eight_bits(X, with_the_norm(X)[1] * 448 * 448 / 240)


@wrong("11.2", "They're float8_e5m2")
def with_another_format(X):
    Q, factors = with_the_norm(X)
    return Q.float().to(torch.float8_e5m2), factors


@wrong("11.2", "Return the rounded matrix and")
def returns_one(X):
    return (with_the_norm(X)[0],)


# ------------------------------------------------------------------ 11.3


def backward(net, X, y, optimizer, scaler):
    optimizer.zero_grad()
    with torch.autocast(X.device.type, torch.float16):
        loss = F.mse_loss(net(X), y)
    scaler.scale(loss).backward()


@right("11.3")
def clips_by_hand(net, X, y, optimizer, scaler, max_norm):
    backward(net, X, y, optimizer, scaler)
    scaler.unscale_(optimizer)
    grads = [p.grad for p in net.parameters()]
    norm = torch.stack([grad.norm() for grad in grads]).norm()
    for grad in grads:
        grad *= (max_norm / (norm + 1e-6)).clamp(max=1)
    scaler.step(optimizer)
    scaler.update()


@wrong("11.3", "1,024 times too little")
def clips_scaled(net, X, y, optimizer, scaler, max_norm):
    backward(net, X, y, optimizer, scaler)
    nn.utils.clip_grad_norm_(net.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()


@wrong("11.3", "the scale is still 1,024")
def forgets_update(net, X, y, optimizer, scaler, max_norm):
    backward(net, X, y, optimizer, scaler)
    for p in net.parameters():
        p.grad /= scaler.get_scale()
    nn.utils.clip_grad_norm_(net.parameters(), max_norm)
    optimizer.step()


@wrong("11.3", "much shorter than `max_norm`")
def leaves_the_bugs(net, X, y, optimizer, scaler, max_norm):
    backward(net, X, y, optimizer, scaler)
    nn.utils.clip_grad_norm_(net.parameters(), max_norm)
    optimizer.step()


@wrong("11.3", "nothing was clipped")
def never_clips(net, X, y, optimizer, scaler, max_norm):
    backward(net, X, y, optimizer, scaler)
    scaler.step(optimizer)
    scaler.update()


@wrong("11.3", "gradients that are still scaled")
def never_unscales(net, X, y, optimizer, scaler, max_norm):
    backward(net, X, y, optimizer, scaler)
    limit = max_norm * scaler.get_scale()
    nn.utils.clip_grad_norm_(net.parameters(), limit)
    optimizer.step()


@wrong("11.3", "don't move at all")
def never_steps(net, X, y, optimizer, scaler, max_norm):
    backward(net, X, y, optimizer, scaler)
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), max_norm)
    scaler.update()


@wrong("11.3", "although the gradients aren't finite")
def steps_regardless(net, X, y, optimizer, scaler, max_norm):
    backward(net, X, y, optimizer, scaler)
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), max_norm)
    optimizer.step()
    scaler.update()


# ------------------------------------------------------------------ 11.4


def trained(
    net, X, y, steps, clip=True, wait=False, inside=True, note=torch.clone, times=1
):
    device = X.device.type
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device, init_scale=1024.0)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast(device, torch.float16, enabled=inside):
            for _ in range(times):
                loss = F.mse_loss(net(X), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        for p in net.parameters():
            norm = p.grad.norm()
            if clip and wait:
                p.grad /= max(norm.item(), 1)
            elif clip:
                p.grad /= norm.clamp(min=1)
        scaler.step(optimizer)
        scaler.update()
        losses.append(note(loss.detach()))
    return losses


def fetched(losses):
    return torch.stack(losses).tolist()


@right("11.4")
def fetches_each_loss(net, X, y, steps):
    """The scaler waits once per step anyway."""
    return trained(net, X, y, steps, note=float)


@wrong("11.4", "times per step. Which values")
def waits_for_norms(net, X, y, steps):
    return fetched(trained(net, X, y, steps, wait=True))


@wrong("11.4", "don't run on tensor cores")
def stays_in_fp32(net, X, y, steps):
    return fetched(trained(net, X, y, steps, inside=False))


@wrong("11.4", "without the clipping")
def forgets_to_clip(net, X, y, steps):
    return fetched(trained(net, X, y, steps, clip=False))


@wrong("11.4", "Fetch their values at the end")
def leaves_the_losses_there(net, X, y, steps):
    return trained(net, X, y, steps)


@wrong("11.4", "You return 1 for 4 steps")
def returns_the_last(net, X, y, steps):
    return fetched(trained(net, X, y, steps))[-1:]


@wrong("11.4", "could be left out")
def goes_forward_twice(net, X, y, steps):
    return fetched(trained(net, X, y, steps, times=2))


# ------------------------------------------------------------------ 11.5


@right("11.5")
def with_sgd(net, masters, lr):
    """Let PyTorch's own SGD update the masters."""
    for p, master in zip(net.parameters(), masters, strict=True):
        master.grad = p.grad.float()
    torch.optim.SGD(masters, lr).step()
    for p, master in zip(net.parameters(), masters, strict=True):
        p.data = master.bfloat16()
        master.grad = None


def each(net, masters, update):
    with torch.no_grad():
        for p, master in zip(net.parameters(), masters, strict=True):
            update(p, master)


@wrong("11.5", "The masters don't change")
def updates_the_parameters(net, masters, lr):
    each(net, masters, lambda p, master: p.sub_(lr * p.grad))


@wrong("11.5", "many updates were rounded away")
def masters_of_the_rounded(net, masters, lr):
    def update(p, master):
        p -= lr * p.grad
        master.copy_(p)

    each(net, masters, update)


@wrong("11.5", "still what they were at first")
def forgets_the_parameters(net, masters, lr):
    each(net, masters, lambda p, master: master.sub_(lr * p.grad.float()))


@wrong("11.5", "something is rounded to bf16")
def rounds_the_update(net, masters, lr):
    def update(p, master):
        master -= lr * p.grad
        p.copy_(master)

    each(net, masters, update)


@wrong("11.5", "Do they go their own way")
def updates_both(net, masters, lr):
    def update(p, master):
        master -= lr * p.grad.float()
        p -= lr * p.grad

    each(net, masters, update)


@wrong("11.5", "They're torch.float32 now")
def makes_them_fp32(net, masters, lr):
    for p, master in zip(net.parameters(), masters, strict=True):
        master -= lr * p.grad.float()
    net.float()
