import copy

import torch
from torch.nn import functional as F

from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


@right("03.1")
def in_two_groups(a, b, c, device):
    near = [x for x in (a, b, c) if x.device == device]
    far = [x for x in (a, b, c) if x.device != device]
    if far:
        near.append(torch.stack(far).sum(0).to(device))
    return torch.stack(near).sum(0)


@wrong("03.1", "crossed to the same GPU")
def sends_each(a, b, c, device):
    return a.to(device) + b.to(device) + c.to(device)


@wrong("03.1", "then the result to the other")
def adds_where_a_is(a, b, c, device):
    return (a + b.to(a.device) + c.to(a.device)).to(device)


@wrong("03.1", "by way of the CPU")
def adds_on_the_cpu(a, b, c, device):
    return (a.cpu() + b.cpu() + c.cpu()).to(device)


@wrong("03.1", "You fetched a value")
def looks_at_a_value(a, b, c, device):
    assert (a + 1).sum() > 0
    return in_two_groups(a, b, c, device)


@wrong("03.1", "After the call, `a` had changed")
def adds_in_place(a, b, c, device):
    for x in (b, c):
        if x.device == a.device:
            a += x
    return sum([x.to(device) for x in (b, c) if x.device != a.device], a.to(device))


@wrong("03.1", "so the result has to be")
def forgets_one(a, b, c, device):
    return a.to(device) + b.to(device)


@wrong("03.1", "which isn't always the device you need")
def leaves_it_where_a_is(a, b, c, device):
    return a + b.to(a.device) + c.to(a.device)


@right("03.2")
def in_place(images, device):
    return torch.empty(images.shape, device=device).copy_(images.to(device)).div_(255)


@wrong("03.2", "Which operation made the images larger")
def converts_first(images, device):
    return (images.float() / 255).to(device)


@wrong("03.2", "The values still go up to 255")
def forgets_to_scale(images, device):
    return images.to(device).float()


@wrong("03.2", "Its type is uint8")
def forgets_to_convert(images, device):
    return images.to(device)


@wrong("03.2", "you divided integers")
def divides_integers(images, device):
    return (images.to(device) // 255).float()


@wrong("03.2", "send the whole batch at once")
def sends_image_by_image(images, device):
    return torch.stack([image.to(device) for image in images]).float() / 255


@wrong("03.2", "The batch is still on the host")
def forgets_to_send(images, device):
    return images.float() / 255


@wrong("03.2", "All values are 0")
def returns_zeros(images, device):
    return torch.zeros(images.shape, device=device)


@right("03.3")
def chooses_on_the_gpu(grads, max_norm):
    norm = torch.cat([g.flatten() for g in grads]).norm()
    scale = torch.where(norm > max_norm, max_norm / norm, torch.tensor(1.0))
    for g in grads:
        g.mul_(scale)
    return norm


@right("03.3")
def takes_the_smaller_one(grads, max_norm):
    norm = torch.stack([g.norm() for g in grads]).norm()
    scale = torch.minimum(max_norm / norm, torch.tensor(1.0))
    for g in grads:
        g *= scale
    return norm


@wrong("03.3", "One byte was copied to the host: a truth value")
def asks(grads, max_norm):
    norm = torch.stack([g.norm() for g in grads]).norm()
    if norm > max_norm:
        for g in grads:
            g *= max_norm / norm
    return norm


@wrong("03.3", "4 bytes were copied to the host")
def fetches_the_norm(grads, max_norm):
    norm = torch.stack([g.norm() for g in grads]).norm()
    scale = min(1.0, max_norm / max(norm.item(), 1e-9))
    for g in grads:
        g *= scale
    return norm


@wrong("03.3", "4 bytes were copied to GPU 0")
def sends_a_one(grads, max_norm):
    norm = torch.stack([g.norm() for g in grads]).norm()
    one = torch.tensor(1.0, device=norm.device)
    for g in grads:
        g *= torch.minimum(max_norm / norm, one)
    return norm


@wrong("03.3", "and a `max_norm` of 2.0, they have a norm of 2")
def always_scales(grads, max_norm):
    norm = torch.stack([g.norm() for g in grads]).norm()
    for g in grads:
        g *= max_norm / (norm + 1e-9)
    return norm


@wrong("03.3", "You clipped each gradient separately")
def clips_each(grads, max_norm):
    for g in grads:
        g *= (max_norm / g.norm()).clamp(max=1.0)
    return torch.stack([g.norm() for g in grads]).norm()


@wrong("03.3", "They have to be changed in place")
def makes_new_ones(grads, max_norm):
    norm = torch.stack([g.norm() for g in grads]).norm()
    for g in grads:
        g = g * (max_norm / norm).clamp(max=1.0)
    return norm


@wrong("03.3", "What's 0 divided by 0?")
def divides_by_zero(grads, max_norm):
    norm = torch.stack([g.norm() for g in grads]).norm()
    for g in grads:
        g *= norm.clamp(max=max_norm) / norm
    return norm


@wrong("03.3", "you returned 2, on GPU 0")
def returns_the_norm_afterwards(grads, max_norm):
    takes_the_smaller_one(grads, max_norm)
    return torch.stack([g.norm() for g in grads]).norm()


@wrong("03.3", "to find out how many elements a mask selects")
def selects_with_a_mask(grads, max_norm):
    norm = torch.stack([g.norm() for g in grads]).norm()
    for g in grads:
        large = (norm > max_norm).expand_as(g)
        g[large] = g[large] * (max_norm / norm)
    return norm


@right("03.4")
def with_slices(tensors, device):
    bucket = torch.cat([x.flatten() for x in tensors]).to(device)
    parts, start = [], 0
    for x in tensors:
        parts.append(bucket[start : start + x.numel()].view_as(x))
        start += x.numel()
    return parts


@wrong("03.4", "copies were made")
def one_by_one(tensors, device):
    return [x.to(device) for x in tensors]


@wrong("03.4", "had the shape")
def forgets_the_shapes(tensors, device):
    bucket = torch.cat([x.reshape(-1) for x in tensors]).to(device)
    return list(bucket.split([x.numel() for x in tensors]))


@wrong("03.4", "bytes crossed, but the tensors have")
def pads(tensors, device):
    most = max(x.numel() for x in tensors)
    padded = torch.zeros(len(tensors), most, device=tensors[0].device)
    for row, x in zip(padded, tensors, strict=True):
        row[: x.numel()] = x.reshape(-1)
    return [
        row[: x.numel()].reshape(x.shape)
        for row, x in zip(padded.to(device), tensors, strict=True)
    ]


@wrong("03.4", "The tensors aren't in the order in")
def sorted_by_size(tensors, device):
    tensors = sorted(tensors, key=torch.numel)
    bucket = torch.cat([x.reshape(-1) for x in tensors]).to(device)
    parts = {}
    for part in bucket.split([x.numel() for x in tensors]):
        parts.setdefault(part.numel(), []).append(part)
    shapes = [(3,), (2, 5), (1,), (4, 1, 2), ()] * 8
    sizes = [torch.Size(shape).numel() for shape in shapes]
    return [
        parts[n].pop().reshape(shape) for n, shape in zip(sizes, shapes, strict=True)
    ]


@wrong("03.4", "number 1 of your list has the values of number 40")
def gives_them_backwards(tensors, device):
    return with_slices(tensors[::-1], device)


@wrong("03.4", "number 1 of your list has the values of number 2.")
def leaves_them_sorted(tensors, device):
    return with_slices(sorted(tensors, key=lambda x: -x.numel()), device)


@wrong("03.4", "Number 1 of the tensors now has other values")
def sends_zeros(tensors, device):
    return [torch.zeros_like(x) for x in with_slices(tensors, device)]


WEIGHTS = [1.0] * 5 + [2.0] * 5


def trained(
    net, images, labels, steps, *, index=None, weight=None, lr=0.5, log=torch.detach
):
    """Train, and return what is logged of each loss."""
    optimizer, logged = torch.optim.SGD(net.parameters(), lr=lr), []
    weights = torch.tensor(WEIGHTS, device=images.device)
    for step in range(steps):
        i = torch.arange(64, device=images.device) + 64 * step
        i = i if index is None else index(step)
        weights = weights if weight is None else weight()
        loss = F.cross_entropy(net(images[i]), labels[i], weight=weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        logged.append(log(loss))
    return logged


def fetched(losses):
    history = torch.stack(losses).tolist()
    return history, min(history)


@right("03.5")
def indices_on_the_gpu(net, images, labels, steps):
    return fetched(trained(net, images, labels, steps))


@right("03.5")
def keeps_the_best_there(net, images, labels, steps):
    losses = torch.stack(trained(net, images, labels, steps))
    return losses.tolist(), losses.min().item()


@wrong("03.5", "64 whole numbers, which say where something is")
def indexes_from_the_host(net, images, labels, steps):
    index = lambda step: torch.arange(64) + 64 * step  # noqa: E731
    return fetched(trained(net, images, labels, steps, index=index))


@wrong("03.5", "10 numbers, which are the same each time")
def sends_the_weights_each_time(net, images, labels, steps):
    weight = lambda: torch.tensor(WEIGHTS).to(images.device)  # noqa: E731
    return fetched(trained(net, images, labels, steps, weight=weight))


@wrong("03.5", "Again and again 4 bytes come to the host: a loss")
def fetches_each_loss(net, images, labels, steps):
    history = trained(net, images, labels, steps, log=torch.Tensor.item)
    return history, min(history)


@wrong("03.5", "one byte comes to the host: a truth value")
def asks_for_the_best(net, images, labels, steps):
    losses = trained(net, images, labels, steps)
    best = losses[0]
    for loss in losses:
        if loss < best:
            best = loss
    return torch.stack(losses).tolist(), best.item()


@wrong("03.5", "their values never reached the host")
def returns_tensors(net, images, labels, steps):
    losses = trained(net, images, labels, steps)
    return losses, min(losses).item()


@wrong("03.5", "`best` is a tensor")
def returns_the_best_as_a_tensor(net, images, labels, steps):
    losses = torch.stack(trained(net, images, labels, steps))
    return losses.tolist(), losses.min()


@wrong("03.5", "The smallest loss is")
def returns_the_last(net, images, labels, steps):
    history, _ = fetched(trained(net, images, labels, steps))
    return history, max(history)


@wrong("03.5", "the losses without the weights of the classes")
def forgets_the_weights(net, images, labels, steps):
    return fetched(trained(net, images, labels, steps, weight=lambda: None))


@wrong("03.5", "In step 2, the loss should be")
def trains_on_the_first_batch_only(net, images, labels, steps):
    index = lambda step: slice(0, 64)  # noqa: E731
    return fetched(trained(net, images, labels, steps, index=index))


@wrong("03.5", "It has 8 elements after 9 steps")
def forgets_the_last_step(net, images, labels, steps):
    return fetched(trained(net, images, labels, steps - 1))


@wrong("03.5", "Afterwards its parameters aren't those")
def trains_a_copy(net, images, labels, steps):
    return fetched(trained(copy.deepcopy(net), images, labels, steps))
