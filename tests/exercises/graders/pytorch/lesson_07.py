import itertools

import torch

from d2l_gpu import torch as d2l
from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


def backward(loss, batches, replicas):
    for replica, (X, y) in zip(replicas, batches, strict=True):
        device = replica[0].device
        loss(replica, X.to(device), y.to(device)).backward()


def sum_and_step(replicas, lr):
    with torch.no_grad():
        for params in zip(*replicas, strict=True):
            d2l.allreduce([p.grad for p in params])
            for p in params:
                p -= lr * p.grad
                p.grad = None


@right("07.1")
def with_an_optimizer(loss, batches, replicas, lr):
    sums = None
    for replica, (X, y) in zip(replicas, batches, strict=True):
        device = replica[0].device
        own = torch.autograd.grad(loss(replica, X.to(device), y.to(device)), replica)
        first = replicas[0][0].device
        own = [g.to(first) / len(batches) for g in own]
        sums = own if sums is None else [a + b for a, b in zip(sums, own, strict=True)]
    for replica in replicas:
        for p, g in zip(replica, sums, strict=True):
            p.grad = g.to(p.device, copy=True)
        torch.optim.SGD(replica, lr).step()


@wrong("07.1", "and treated the sum as a mean")
def forgets_to_average(loss, batches, replicas, lr):
    backward(loss, batches, replicas)
    sum_and_step(replicas, lr)


@wrong("07.1", "What do you divide the sum by")
def averages_twice(loss, batches, replicas, lr):
    backward(loss, batches, replicas)
    sum_and_step(replicas, lr / len(replicas) ** 2)


@wrong("07.1", "They took the step for the first batch alone")
def gives_the_first_to_all(loss, batches, replicas, lr):
    backward(loss, [batches[0]] * len(replicas), replicas)
    sum_and_step(replicas, lr / len(replicas))


@wrong("07.1", "The step has the wrong direction")
def counts_a_batch_twice(loss, batches, replicas, lr):
    backward(loss, [batches[0], *batches[:-1]], replicas)
    sum_and_step(replicas, lr / len(replicas))


@wrong("07.1", "the gradients weren't added up")
def exchanges_nothing(loss, batches, replicas, lr):
    backward(loss, batches, replicas)
    for replica in replicas:
        torch.optim.SGD(replica, lr).step()
        for p in replica:
            p.grad = None


@wrong("07.1", "The sum reached the first GPU")
def keeps_the_sum_on_the_first(loss, batches, replicas, lr):
    backward(loss, batches, replicas)
    for first, *others in zip(*replicas, strict=True):
        for p in others:
            first.grad += p.grad.to(first.device)
        first.grad /= len(replicas)
    for replica in replicas:
        torch.optim.SGD(replica, lr).step()


@wrong("07.1", "still in it. What does `backward` do")
def keeps_the_gradients(loss, batches, replicas, lr):
    backward(loss, batches, replicas)
    with torch.no_grad():
        for params in zip(*replicas, strict=True):
            d2l.allreduce([p.grad for p in params])
            for p in params:
                p -= lr / len(replicas) * p.grad


def clears_only(some):
    def train_step(loss, batches, replicas, lr):
        keeps_the_gradients(loss, batches, replicas, lr)
        for replica in replicas[some]:
            torch.optim.SGD(replica, lr).zero_grad()

    train_step.__name__ = f"clears_only_{some.start}_to_{some.stop}"
    return train_step


wrong("07.1", "the right one plus 3 × the first")(clears_only(slice(0, 1)))
wrong("07.1", "the right one plus 2 × the first")(clears_only(slice(2, 4)))


@wrong("07.1", "is still in that of GPUs 1, 2, 3")
def adds_to_the_old_sum_on_the_others(loss, batches, replicas, lr):
    k, own = len(replicas), []
    for replica, (X, y) in zip(replicas, batches, strict=True):
        device = replica[0].device
        value = loss(replica, X.to(device), y.to(device)) / k
        own.append(list(torch.autograd.grad(value, replica)))
    for sums in zip(*own, strict=True):
        d2l.allreduce(sums)
    for i, (replica, sums) in enumerate(zip(replicas, own, strict=True)):
        for p, g in zip(replica, sums, strict=True):
            p.grad = g if p.grad is None or i == 0 else p.grad + g
        torch.optim.SGD(replica, lr).step()


@wrong("07.1", "at the point where the first one ended")
def goes_back_to_the_start(loss, batches, replicas, lr):
    for replica in replicas:
        for p in replica:
            if hasattr(p, "start"):
                p.data.copy_(p.start)
            p.start = p.detach().clone()
    backward(loss, batches, replicas)
    sum_and_step(replicas, lr / len(replicas))


@wrong("07.1", "the host sent")
def sends_all_to_all(loss, batches, replicas, lr):
    for i, replica in enumerate(replicas):
        device = replica[0].device
        X, y = [(X.to(device), y.to(device)) for X, y in batches][i]
        loss(replica, X, y).backward()
    sum_and_step(replicas, lr / len(replicas))


@wrong("07.1", "the host sent")
def sends_all_by_way_of_the_first(loss, batches, replicas, lr):
    first = replicas[0][0].device
    batches = [(X.to(first), y.to(first)) for X, y in batches]
    backward(loss, batches, replicas)
    sum_and_step(replicas, lr / len(replicas))


@wrong("07.1", "on the same device")
def forgets_the_labels(loss, batches, replicas, lr):
    for replica, (X, y) in zip(replicas, batches, strict=True):
        loss(replica, X.to(replica[0].device), y).backward()
    sum_and_step(replicas, lr / len(replicas))


@wrong("07.1", "Write into the tensors in `replicas`")
def makes_new_parameters(loss, batches, replicas, lr):
    backward(loss, batches, replicas)
    for params in zip(*replicas, strict=True):
        d2l.allreduce([p.grad for p in params])
    replicas[:] = [
        [(p - lr / len(replicas) * p.grad).detach() for p in replica]
        for replica in replicas
    ]


def quick(loss, X, y, replicas, lr, *, fetch=False, via_host=False, whole=False):
    k, losses = len(replicas), []
    for i, params in enumerate(replicas):
        device = params[0].device
        X_shard, y_shard = X.chunk(k)[i], y.chunk(k)[i]
        if whole:
            X_shard, y_shard = X.to(device).chunk(k)[i], y.to(device).chunk(k)[i]
        value = loss(params, X_shard.to(device), y_shard.to(device))
        value.backward()
        losses.append(value.item() if fetch else value.detach())
    with torch.no_grad():
        for same in zip(*replicas, strict=True):
            grads = [p.grad.cpu() if via_host else p.grad for p in same]
            d2l.allreduce(grads)
            for p, grad in zip(same, grads, strict=True):
                p -= lr / k * grad.to(p.device)
                p.grad = None
    return sum(float(value) for value in losses) / k


@right("07.2")
def with_the_batch_sent_first(loss, X, y, replicas, lr):
    shards = zip(
        *d2l.split_batch(X, y, [own[0].device for own in replicas]), strict=True
    )
    values = [
        loss(own, *shard) * len(shard[1]) / len(y)
        for own, shard in zip(replicas, shards, strict=True)
    ]
    grads = [
        list(torch.autograd.grad(value, own))
        for value, own in zip(values, replicas, strict=True)
    ]
    for same in zip(*grads, strict=True):
        d2l.allreduce(same)
    with torch.no_grad():
        for own, gs in zip(replicas, grads, strict=True):
            torch._foreach_add_(own, gs, alpha=-lr)
    return sum(value.item() for value in values)


@wrong("07.2", "and what has Python waited for")
def fetches_in_the_loop(loss, X, y, replicas, lr):
    return quick(loss, X, y, replicas, lr, fetch=True)


@wrong("07.2", "What else did you send")
def adds_gradients_on_the_host(loss, X, y, replicas, lr):
    return quick(loss, X, y, replicas, lr, via_host=True)


@wrong("07.2", "A shard has")
def sends_the_whole_batch(loss, X, y, replicas, lr):
    return quick(loss, X, y, replicas, lr, whole=True)


@wrong("07.2", "you return")
def adds_the_means(loss, X, y, replicas, lr):
    return quick(loss, X, y, replicas, lr) * len(replicas)


@wrong("07.2", "The first step is wrong on GPUs 0, 1, 2")
def steps_with_the_sum(loss, X, y, replicas, lr):
    return quick(loss, X, y, replicas, lr * len(replicas))


@wrong("07.2", "The second step is wrong on GPUs 0, 1, 2")
def leaves_the_gradients(loss, X, y, replicas, lr):
    devices = [own[0].device for own in replicas]
    shards = zip(*d2l.split_batch(X, y, devices), strict=True)
    values = []
    for own, shard in zip(replicas, shards, strict=True):
        values.append(loss(own, *shard) / len(replicas))
        values[-1].backward()
    with torch.no_grad():
        for same in zip(*replicas, strict=True):
            d2l.allreduce([p.grad for p in same])
            for p in same:
                p -= lr * p.grad
    return sum(value.item() for value in values)


@wrong("07.2", "The first step is wrong on GPUs 1, 2")
def updates_the_first_only(loss, X, y, replicas, lr):
    kept = [[p.detach().clone() for p in own] for own in replicas[1:]]
    value = quick(loss, X, y, replicas, lr)
    with torch.no_grad():
        for own, old in zip(replicas[1:], kept, strict=True):
            for p, before in zip(own, old, strict=True):
                p.copy_(before)
    return value


@right("07.3")
def in_a_loop(gradients):
    vectors = [torch.cat([g.reshape(-1) for g in own]) for own in gradients]
    for other in vectors[1:]:
        vectors[0].add_(other.to(vectors[0].device))
    for own, vector in zip(gradients, vectors, strict=True):
        vector, start = vectors[0].to(vector.device), 0
        for g in own:
            g.copy_(vector[start : start + g.numel()].view_as(g))
            start += g.numel()


@wrong("07.3", "cross one by one")
def one_by_one(gradients):
    for each in zip(*gradients, strict=True):
        d2l.allreduce(each)


@wrong("07.3", "`torch.cat` returns a copy")
def forgets_to_unpack(gradients):
    d2l.allreduce([torch.cat([g.flatten() for g in own]) for own in gradients])


@wrong("07.3", "On GPUs 1, 2, 3, none of the")
def unpacks_on_the_first(gradients):
    vectors = [torch.cat([g.flatten() for g in own]) for own in gradients]
    d2l.allreduce(vectors)
    parts = vectors[0].split([g.numel() for g in gradients[0]])
    for g, part in zip(gradients[0], parts, strict=True):
        g.copy_(part.view_as(g))


@wrong("07.3", "that's the mean, but you need the sum")
def averages(gradients):
    vectors = [torch.cat([g.flatten() for g in own]) for own in gradients]
    d2l.allreduce(vectors)
    for own, vector in zip(gradients, vectors, strict=True):
        vector /= len(gradients)
        for g, part in zip(own, vector.split([g.numel() for g in own]), strict=True):
            g.copy_(part.view_as(g))


@wrong("07.3", "which is the sum of the tensors 19")
def loses_the_order(gradients):
    vectors = [torch.cat([g.flatten() for g in own[::-1]]) for own in gradients]
    d2l.allreduce(vectors)
    for own, vector in zip(gradients, vectors, strict=True):
        for g, part in zip(own, vector.split([g.numel() for g in own]), strict=True):
            g.copy_(part.view_as(g))


@wrong("07.3", "by way of the host")
def adds_on_the_host(gradients):
    total = sum(torch.cat([g.flatten() for g in own]).cpu() for own in gradients)
    for own in gradients:
        vector = total.to(own[0].device)
        for g, part in zip(own, vector.split([g.numel() for g in own]), strict=True):
            g.copy_(part.view_as(g))


def tree(data):
    k, step = len(data), 1
    while step < k:
        for i in range(0, k - step, 2 * step):
            data[i] += data[i + step].to(data[i].device)
        step *= 2
    while step > 1:
        step //= 2
        for i in range(0, k - step, 2 * step):
            data[i + step].copy_(data[i])


@right("07.4")
def ring_in_two_turns(data):
    k = len(data)
    chunks = [vector.tensor_split(k) for vector in data]
    turns = [*range(0, k, 2), *range(1, k, 2)]
    for step in range(k - 1):
        for i in turns:
            right, c = (i + 1) % k, (i - step) % k
            chunks[right][c].add_(chunks[i][c].to(data[right].device))
    for step in range(k - 1):
        for i in turns:
            right = (i + 1) % k
            chunks[right][(i + 1 - step) % k].copy_(chunks[i][(i + 1 - step) % k])


@right("07.4")
def owners_in_turn(data):
    k = len(data)
    chunks = [vector.tensor_split(k) for vector in data]
    pairs = [(c, (c + d) % k) for d in range(1, k) for c in range(k)]
    for c, i in pairs:
        chunks[c][c].add_(chunks[i][c].to(data[c].device))
    for c, i in pairs:
        chunks[i][c].copy_(chunks[c][c])


@right("07.4")
def exchange_in_pairs(data):
    k = 2 ** (len(data).bit_length() - 1)
    spare = list(zip(data[k:], data, strict=False))
    for far, near in spare:
        near += far.to(near.device)
    step = 1
    while step < k:
        for i in range(k):
            j = i ^ step
            if i < j:
                other = data[j].to(data[i].device)
                data[j] += data[i].to(data[j].device)
                data[i] += other
        step *= 2
    for far, near in spare:
        far.copy_(near)


@wrong("07.4", "had already been added to")
def exchanges_what_was_added(data):
    step = 1
    while step < len(data):
        for i in range(len(data)):
            if i & step == 0:
                data[i] += data[i + step].to(data[i].device)
                data[i + step] += data[i].to(data[i + step].device)
        step *= 2


@wrong("07.4", "GPU 0 is missing the vector of GPU 2")
def stops_too_early(data):
    k = len(data)
    for i in range(0, k - 1, 2):
        data[i] += data[i + 1].to(data[i].device)
    for i in range(2, k, 2):
        data[0] += data[i].to(data[0].device)
    if k > 2:
        data[0] -= data[k - 2].to(data[0].device)
    for other in data[1:]:
        other.copy_(data[0])


@wrong("07.4", "has the mean of the vectors")
def averages_vectors(data):
    tree(data)
    for vector in data:
        vector /= len(data)


@wrong("07.4", "With 2 GPUs, part of the vector on")
def rebinds(data):
    total = sum(vector.to(data[0].device) for vector in data)
    data[:] = [total.to(vector.device) for vector in data]


@wrong("07.4", "list index out of range")
def for_powers_of_two(data):
    step = 1
    while step < len(data):
        for i in range(len(data)):
            if i & step == 0:
                other = data[i + step].to(data[i].device)
                data[i + step] += data[i].to(data[i + step].device)
                data[i] += other
        step *= 2


@wrong("07.4", "With 4 GPUs, part of the vector")
def drops_the_remainder(data):
    k, n = len(data), len(data[0]) // len(data)
    for c in range(k):
        part = slice(c * n, (c + 1) * n)
        for i in range(k):
            if i != c:
                data[c][part] += data[i][part].to(data[c].device)
        for i in range(k):
            if i != c:
                data[i][part] = data[c][part].to(data[i].device)


@wrong("07.4", "With 3 GPUs")
def leaves_out_who_has_no_partner(data):
    step = 1
    while step < len(data):
        for i in range(len(data) - step):
            if i & step == 0:
                other = data[i + step].to(data[i].device)
                data[i + step] += data[i].to(data[i + step].device)
                data[i] += other
        step *= 2


@wrong("07.4", "One GPU sends or receives 7.00 vectors")
def sends_everything_to_all(data):
    copies = [vector.clone() for vector in data]
    for i, vector in enumerate(data):
        for j, other in enumerate(copies):
            if i != j:
                vector += other.to(vector.device)


@wrong("07.4", "It takes 100% of that time")
def along_a_chain(data):
    for left, right in itertools.pairwise(data):
        right += left.to(right.device)
    for right, left in itertools.pairwise(data[::-1]):
        left.copy_(right)


@wrong("07.4", "of 112 copies")
def ring_of_the_lesson(data):
    k = len(data)
    chunks = [vector.tensor_split(k) for vector in data]
    for step in range(k - 1):
        for i in range(k):
            c, right = (i - step) % k, (i + 1) % k
            chunks[right][c].add_(chunks[i][c].to(data[right].device))
    for step in range(k - 1):
        for i in range(k):
            c, right = (i + 1 - step) % k, (i + 1) % k
            chunks[right][c].copy_(chunks[i][c])


def parts(n, shares):
    ends = [round(n * sum(shares[: i + 1]) / sum(shares)) for i in range(len(shares))]
    return [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]


def weighted(loss, X, y, replicas, slices, weights):
    first, total = replicas[0][0].device, None
    for replica, part, weight in zip(replicas, slices, weights, strict=True):
        device = replica[0].device
        value = loss(replica, X[part].to(device), y[part].to(device)) * weight
        own = [g.to(first) for g in torch.autograd.grad(value, replica)]
        total = (
            own if total is None else [a + b for a, b in zip(total, own, strict=True)]
        )
    return total


@right("07.5")
def with_slices(loss, X, y, replicas, shares):
    slices = parts(len(X), shares)
    weights = [(part.stop - part.start) / len(X) for part in slices]
    return weighted(loss, X, y, replicas, slices, weights)


@wrong("07.5", "all parts the same weight")
def averages_the_averages(loss, X, y, replicas, shares):
    weights = [1 / len(shares)] * len(shares)
    return weighted(loss, X, y, replicas, parts(len(X), shares), weights)


@wrong("07.5", "times as long as it should be")
def forgets_to_divide(loss, X, y, replicas, shares):
    slices = parts(len(X), shares)
    weights = [part.stop - part.start for part in slices]
    return weighted(loss, X, y, replicas, slices, weights)


@wrong("07.5", "which isn't quite that ratio")
def weighs_by_shares(loss, X, y, replicas, shares):
    weights = [share / sum(shares) for share in shares]
    return weighted(loss, X, y, replicas, parts(len(X), shares), weights)


@wrong("07.5", "part the weight of another")
def swaps_the_weights(loss, X, y, replicas, shares):
    slices = parts(len(X), shares)
    weights = [(part.stop - part.start) / len(X) for part in slices[::-1]]
    return weighted(loss, X, y, replicas, slices, weights)


@wrong("07.5", "and 21 examples, 63 in total")
def drops_an_example(loss, X, y, replicas, shares):
    sizes = [len(X) * share // sum(shares) for share in shares]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    slices = [slice(a, a + n) for a, n in zip(starts, sizes, strict=True)]
    weights = [size / sum(sizes) for size in sizes]
    return weighted(loss, X, y, replicas, slices, weights)


@wrong("07.5", "and 22 examples, 65 in total")
def counts_one_twice(loss, X, y, replicas, shares):
    slices = parts(len(X), shares)
    slices[-1] = slice(slices[-1].start - 1, len(X))
    weights = [(part.stop - part.start) / (len(X) + 1) for part in slices]
    return weighted(loss, X, y, replicas, slices, weights)


@wrong("07.5", "The host sent the GPUs 32 and 32 examples")
def shares_evenly(loss, X, y, replicas, shares):
    slices = parts(len(X), [1] * len(shares))
    weights = [(part.stop - part.start) / len(X) for part in slices]
    return weighted(loss, X, y, replicas, slices, weights)


@wrong("07.5", "Where are the others")
def returns_the_first(loss, X, y, replicas, shares):
    slices = parts(len(X), shares)
    gradients = [
        weighted(loss, X, y, [replica], [part], [1.0])
        for replica, part in zip(replicas, slices, strict=True)
    ]
    return gradients[0]


@wrong("07.5", "The gradient of parameter 0 is on GPU 1")
def returns_it_elsewhere(loss, X, y, replicas, shares):
    gradient = with_slices(loss, X, y, replicas, shares)
    return [g.to(replicas[-1][0].device) for g in gradient]


@wrong("07.5", "You return the shapes [(66,)]")
def returns_a_vector(loss, X, y, replicas, shares):
    gradient = with_slices(loss, X, y, replicas, shares)
    return [torch.cat([g.flatten() for g in gradient])]


@wrong("07.5", "examples, 49 in total, of 50")
def rounds_each_size(loss, X, y, replicas, shares):
    sizes = [round(len(X) * share / sum(shares)) for share in shares]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    slices = [slice(a, a + n) for a, n in zip(starts, sizes, strict=True)]
    weights = [size / sum(sizes) for size in sizes]
    return weighted(loss, X, y, replicas, slices, weights)


@wrong("07.5", "another gradient")
def leaves_the_gradients_behind(loss, X, y, replicas, shares):
    for replica, part in zip(replicas, parts(len(X), shares), strict=True):
        device = replica[0].device
        value = loss(replica, X[part].to(device), y[part].to(device))
        (value * (part.stop - part.start) / len(X)).backward()
    first = replicas[0][0].device
    return [sum(p.grad.to(first) for p in own) for own in zip(*replicas, strict=True)]


@wrong("07.5", "15 and 15 and 15 and 18 examples")
def gives_the_remainder_to_the_last(loss, X, y, replicas, shares):
    sizes = [len(X) * share // sum(shares) for share in shares]
    sizes[-1] += len(X) - sum(sizes)
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    slices = [slice(a, a + n) for a, n in zip(starts, sizes, strict=True)]
    weights = [size / len(X) for size in sizes]
    return weighted(loss, X, y, replicas, slices, weights)
