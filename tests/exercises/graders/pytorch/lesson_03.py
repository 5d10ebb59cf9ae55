import torch

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


@right("03.3")
def adds_on_the_gpu(losses):
    total = losses[0].clone()
    for loss in losses[1:]:
        total += loss
    return float(total / len(losses))


@wrong("03.3", "each loss was fetched separately, by")
def fetches_each(losses):
    return sum(loss.item() for loss in losses) / len(losses)


@wrong("03.3", "you never fetched its value")
def returns_a_tensor(losses):
    return torch.stack(losses).mean()


@wrong("03.3", "That's the sum of the losses")
def forgets_to_divide(losses):
    return torch.stack(losses).sum().item()


@wrong("03.3", "let the GPU do the arithmetic")
def fetches_all_at_once(losses):
    return torch.stack(losses).cpu().mean().item()


@wrong("03.3", "You copied something back to the GPU")
def makes_a_new_tensor(losses):
    device = losses[0].device
    return torch.tensor([x.item() for x in losses], device=device).mean().item()


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


@right("03.5")
def into_an_empty_tensor(x, device):
    return torch.empty_like(x, device=device).copy_(x)


@wrong("03.5", "shares its memory")
def aliases(x, device):
    return x.to(device)


@wrong("03.5", "of them only to send it on")
def clones_first(x, device):
    return x.clone().to(device)


@wrong("03.5", "you copied what was already a copy")
def clones_last(x, device):
    return x.to(device).clone()


@wrong("03.5", "device doesn't have to leave it")
def by_way_of_the_cpu(x, device):
    return x.cpu().to(device)


@wrong("03.5", "they're on")
def forgets_the_device(x, device):
    return x.clone()
