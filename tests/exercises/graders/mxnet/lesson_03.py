from mxnet import np

from d2l_gpu import mxnet as d2l
from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


@right("03.1")
def in_two_groups(a, b, c, device):
    near = [x for x in (a, b, c) if x.ctx == device]
    far = [x for x in (a, b, c) if x.ctx != device]
    if far:
        near.append(np.stack(far).sum(0).as_in_ctx(device))
    return np.stack(near).sum(0)


@wrong("03.1", "crossed to the same GPU")
def sends_each(a, b, c, device):
    return a.as_in_ctx(device) + b.as_in_ctx(device) + c.as_in_ctx(device)


@wrong("03.1", "then the result to the other")
def adds_what_lives_apart(a, b, c, device):
    return (a + b + c).as_in_ctx(device)


@wrong("03.1", "by way of the CPU")
def adds_on_the_cpu(a, b, c, device):
    total = sum(x.as_in_ctx(d2l.cpu()) for x in (a, b, c))
    return total.as_in_ctx(device)


@wrong("03.1", "After the call, `a` had changed")
def adds_in_place(a, b, c, device):
    for x in (b, c):
        if x.ctx == a.ctx:
            a += x
    far = [x.as_in_ctx(device) for x in (b, c) if x.ctx != a.ctx]
    return sum(far, a.as_in_ctx(device))


@wrong("03.1", "so the result has to be")
def forgets_one(a, b, c, device):
    return a.as_in_ctx(device) + b.as_in_ctx(device)


@wrong("03.1", "isn't always the device you need")
def leaves_it_where_a_is(a, b, c, device):
    return a + b.as_in_ctx(a.ctx) + c.as_in_ctx(a.ctx)


@right("03.2")
def in_place(images, device):
    batch = np.empty(images.shape, ctx=device)
    batch[:] = images.as_in_ctx(device).astype("float32")
    batch /= 255
    return batch


@wrong("03.2", "Which operation made the images larger")
def converts_first(images, device):
    return (images.astype("float32") / 255).as_in_ctx(device)


@wrong("03.2", "The values still go up to 255")
def forgets_to_scale(images, device):
    return images.as_in_ctx(device).astype("float32")


@wrong("03.2", "Its type is uint8")
def forgets_to_convert(images, device):
    return images.as_in_ctx(device)


@wrong("03.2", "you divided integers")
def divides_integers(images, device):
    return (images.as_in_ctx(device) == 255).astype("float32")


@wrong("03.2", "send the whole batch at once")
def sends_image_by_image(images, device):
    sent = np.stack([image.as_in_ctx(device) for image in images])
    return sent.astype("float32") / 255


@wrong("03.2", "The batch is still on the host")
def forgets_to_send(images, device):
    return images.astype("float32") / 255


@right("03.3")
def adds_on_the_gpu(losses):
    total = losses[0].copy()
    for loss in losses[1:]:
        total += loss
    return float(total / len(losses))


@wrong("03.3", "each loss was fetched separately")
def fetches_each(losses):
    return sum(float(loss) for loss in losses) / len(losses)


@wrong("03.3", "you never fetched its value")
def returns_an_array(losses):
    return np.stack(losses).mean()


@wrong("03.3", "That's the sum")
def forgets_to_divide(losses):
    return np.stack(losses).sum().item()


@wrong("03.3", "let the GPU do the arithmetic")
def fetches_all_at_once(losses):
    return float(np.stack(losses).asnumpy().mean())


@wrong("03.3", "copied something back to the GPU")
def makes_a_new_array(losses):
    numbers = [loss.item() for loss in losses]
    return np.array(numbers, ctx=losses[0].ctx).mean().item()


@right("03.4")
def with_slices(tensors, device):
    bucket = np.concatenate([x.reshape(-1) for x in tensors]).as_in_ctx(device)
    parts, start = [], 0
    for x in tensors:
        parts.append(bucket[start : start + x.size].reshape(x.shape))
        start += x.size
    return parts


@wrong("03.4", "copies were made")
def one_by_one(tensors, device):
    return [x.as_in_ctx(device) for x in tensors]


@wrong("03.4", "had the shape")
def forgets_the_shapes(tensors, device):
    bucket = np.concatenate([x.reshape(-1) for x in tensors]).as_in_ctx(device)
    parts, start = [], 0
    for x in tensors:
        parts.append(bucket[start : start + x.size])
        start += x.size
    return parts


@wrong("03.4", "bytes crossed, but the tensors have")
def pads(tensors, device):
    most = max(x.size for x in tensors)
    rows = np.zeros((len(tensors), most), ctx=tensors[0].ctx)
    for row, x in enumerate(tensors):
        rows[row, : x.size] = x.reshape(-1)
    rows = rows.as_in_ctx(device)
    return [rows[i, : x.size].reshape(x.shape) for i, x in enumerate(tensors)]


@wrong("03.4", "The first one is on GPU 0")
def creates_in_a_scope(tensors, device):
    with device:
        return [x.reshape(x.shape) for x in tensors]


@right("03.5")
def writes_one_number(a, b):
    if a.ctx != b.ctx:
        return False
    first, other = a[0, 0].item(), b[0, 0].item()
    a[0, 0] = max(first, other) + 1
    shared = b[0, 0].item() != other
    a[0, 0] = first
    return shared


@wrong("03.5", "a different Python object")
def compares_objects(a, b):
    return a is b


@wrong("03.5", "Equal values don't mean shared memory")
def compares_values(a, b):
    return a.ctx == b.ctx and bool((a.asnumpy() == b.asnumpy()).all())


@wrong("03.5", "whatever you wrote went into both")
def writes_to_both(a, b):
    if a.ctx != b.ctx:
        return False
    kept = a.copy(), b.copy()
    a[:] = b[:] = 7
    shared = a.tolist() == b.tolist()
    a[:], b[:] = kept
    return shared


@wrong("03.5", "its copy on the other GPU")
def takes_a_copy_for_the_same(a, b):
    kept, before = a.copy(), b.copy()
    a += 1
    b[:] = b + (a - kept).as_in_ctx(b.ctx) * int(a.ctx != b.ctx)
    shared = (b.asnumpy() != before.asnumpy()).any()
    a[:], b[:] = kept, before
    return bool(shared)


@wrong("03.5", "which works only on virtual GPUs")
def compares_across_devices(a, b):
    kept, before = a.copy(), b.copy()
    a += 1
    shared = bool((a - b - kept + before == 0).all())
    a[:] = kept
    return shared


@wrong("03.5", "`a`, `b` had changed")
def leaves_what_was_written(a, b):
    if a.ctx != b.ctx:
        return False
    before = b.asnumpy()
    a += 1
    return bool((b.asnumpy() != before).any())


@wrong("03.4", "aren't in the order")
def begins_in_the_middle(tensors, device):
    parts = with_slices(tensors, device)
    return parts[5:] + parts[:5]


@wrong("03.4", "went in, but 39 came out")
def loses_the_last(tensors, device):
    return with_slices(tensors[:-1], device)


@wrong("03.5", "For `Z` and `Z`, you return False")
def forgets_to_look(a, b):
    a += 1
    a -= 1
    return False
