"""Answers to the exercises of lesson 08 that several frameworks share."""

from collections.abc import Callable

import numpy as np

from tests.exercises.graders.answers import Answers


def add_shared(answers: Answers, to: Callable, sums: Callable, host: Callable) -> None:
    """Add answers that differ by no more than the names of a framework.

    Args:
        answers: takes them.
        to: copies an array to a device.
        sums: adds up the arrays of a list, on a device.
        host: makes a NumPy array of one.
    """
    _gradients(answers, to, sums)
    add_accuracies(answers, to, host)
    _rates(answers)
    _settings(answers)


def _pieces(n, k):
    """Where the pieces of n begin and end, of sizes that differ by one at most."""
    ends = [n * (i + 1) // k for i in range(k)]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _gradients(answers, to, sums):
    right, wrong = answers.right, answers.wrong

    def parts(gradient, w, X, y, devices, sizes):
        found, start = [], 0
        for device, size in zip(devices, sizes, strict=True):
            end = start + size
            shard = to(X[start:end], device), to(y[start:end], device)
            found.append(gradient(to(w, device), *shard))
            start = end
        return found

    @right("08.1")
    def last_shard_first(gradient, w, X, y, devices, sizes):
        total, end = None, len(X)
        for device, size in reversed(list(zip(devices, sizes, strict=True))):
            rows = slice(end - size, end)
            part = gradient(*(to(x, device) for x in (w, X[rows], y[rows])))
            part = to(part, devices[0])
            part = sums([part] * size, devices[0])  # each example counts once
            total = part if total is None else sums([total, part], devices[0])
            end -= size
        return to(total * (1 / len(X)), devices[0])

    @wrong("08.1", "`sizes` had changed")
    def takes_the_sizes_away(gradient, w, X, y, devices, sizes):
        given, sizes[:] = list(sizes), []
        return last_shard_first(gradient, w, X, y, devices, given)

    @wrong("08.1", "the mean of the shards' gradients")
    def forgets_the_sizes(gradient, w, X, y, devices, sizes):
        found = parts(gradient, w, X, y, devices, sizes)
        return to(sums(found, devices[0]) * (1 / len(found)), devices[0])

    @wrong("08.1", "the sum of the shards' gradients")
    def forgets_to_average(gradient, w, X, y, devices, sizes):
        return sums(parts(gradient, w, X, y, devices, sizes), devices[0])

    @wrong("08.1", "you added the losses instead of averaging them")
    def forgets_to_divide(gradient, w, X, y, devices, sizes):
        found = parts(gradient, w, X, y, devices, sizes)
        found = [part * size for part, size in zip(found, sizes, strict=True)]
        return sums(found, devices[0])

    @wrong("08.1", "You cut the batch into equal parts")
    def ignores_the_sizes(gradient, w, X, y, devices, sizes):
        found = []
        for (start, end), device in zip(
            _pieces(len(X), len(devices)), devices, strict=True
        ):
            shard = to(X[start:end], device), to(y[start:end], device)
            found.append(gradient(to(w, device), *shard))
        return to(sums(found, devices[0]) * (1 / len(found)), devices[0])

    @wrong("08.1", "Every device got the whole batch")
    def whole_batch_on_each(gradient, w, X, y, devices, sizes):
        found = [gradient(*(to(x, device) for x in (w, X, y))) for device in devices]
        return to(sums(found, devices[0]) * (1 / len(found)), devices[0])

    @wrong("08.1", "but computed everything on GPU 0")
    def all_on_the_first(gradient, w, X, y, devices, sizes):
        found = parts(gradient, w, X, y, [devices[0]] * len(devices), sizes)
        found = [part * size for part, size in zip(found, sizes, strict=True)]
        return to(sums(found, devices[0]) * (1 / len(X)), devices[0])

    @wrong("08.1", "The parts went to the wrong devices")
    def turns_the_devices_round(gradient, w, X, y, devices, sizes):
        found = parts(gradient, w, X, y, devices[::-1], sizes)
        found = [
            to(part * size, devices[0]) for part, size in zip(found, sizes, strict=True)
        ]
        return to(sums(found, devices[0]) * (1 / len(X)), devices[0])

    @wrong("08.1", "labels on")
    def labels_stay_behind(gradient, w, X, y, devices, sizes):
        def moved(w, X, y_shard):
            return gradient(w, X, to(y_shard, devices[0]))

        found = parts(moved, w, X, y, devices, sizes)
        found = [part * size for part, size in zip(found, sizes, strict=True)]
        return to(sums(found, devices[0]) * (1 / len(X)), devices[0])

    @wrong("08.1", "parameters on")
    def parameters_stay_behind(gradient, w, X, y, devices, sizes):
        def moved(w, X, y):
            return gradient(to(w, devices[0]), X, y)

        found = parts(moved, w, X, y, devices, sizes)
        found = [part * size for part, size in zip(found, sizes, strict=True)]
        return to(sums(found, devices[0]) * (1 / len(X)), devices[0])

    @wrong("08.1", "The labels in a shard belong to other examples")
    def labels_from_the_beginning(gradient, w, X, y, devices, sizes):
        found, start = [], 0
        for device, size in zip(devices, sizes, strict=True):
            shard = to(X[start : start + size], device), to(y[:size], device)
            found.append(gradient(to(w, device), *shard) * size)
            start += size
        return to(sums(found, devices[0]) * (1 / len(X)), devices[0])

    @wrong("08.1", "was used 2 times")
    def shards_overlap(gradient, w, X, y, devices, sizes):
        found = []
        for i, (device, size) in enumerate(zip(devices, sizes, strict=True)):
            rows = slice(i, i + size)
            found.append(gradient(*(to(x, device) for x in (w, X[rows], y[rows]))))
        return sums(found, devices[0])

    @wrong("08.1", "but the first device is GPU 0")
    def left_on_the_last(gradient, w, X, y, devices, sizes):
        found = parts(gradient, w, X, y, devices, sizes)
        found = [part * size for part, size in zip(found, sizes, strict=True)]
        return to(sums(found, devices[-1]) * (1 / len(X)), devices[-1])

    @wrong("08.1", "examples but 12 labels")
    def labels_not_cut(gradient, w, X, y, devices, sizes):
        return gradient(*(to(x, devices[0]) for x in (w, X[: sizes[0]], y)))

    @wrong("08.1", "You never call it")
    def does_nothing(gradient, w, X, y, devices, sizes):
        return to(w, devices[0])


def add_accuracies(answers, to, host):
    """Add answers about the accuracy on several devices."""
    right, wrong = answers.right, answers.wrong

    def counts(nets, X, y, devices):
        """What is right of each shard, and how many examples it has."""
        k = min(len(X), len(devices))
        found = []
        for i, (start, end) in enumerate(_pieces(len(X), k)):
            logits = host(nets[i](to(X[start:end], devices[i])))
            right = logits.argmax(axis=1) == host(y)[start:end]
            found.append((int(right.sum()), end - start))
        return found

    @right("08.2")
    def counted_on_the_host(nets, X, y, devices):
        found = counts(nets, X, y, devices)
        return sum(count for count, _ in found) / len(X)

    @right("08.2")
    def every_kth_example(nets, X, y, devices):
        k, found = len(devices), 0
        for i in range(min(k, len(X))):
            logits = host(nets[i](to(X[i::k], devices[i])))
            found += (logits.argmax(axis=1) == host(y)[i::k]).sum()
        return float(found / len(X))

    @wrong("08.2", "`devices` had changed")
    def takes_the_devices_away(nets, X, y, devices):
        found = counts(nets, X, y, devices)
        devices.pop()
        return sum(count for count, _ in found) / len(X)

    @wrong("08.2", "the mean of the shards' accuracies")
    def adds_accuracies(nets, X, y, devices):
        found = counts(nets, X, y, devices)
        return sum(count / size for count, size in found) / len(found)

    @wrong("08.2", "That's how many predictions are right")
    def forgets_to_divide(nets, X, y, devices):
        return float(sum(count for count, _ in counts(nets, X, y, devices)))

    @wrong("08.2", "return a fraction between 0 and 1")
    def per_cent(nets, X, y, devices):
        return 100 * sum(count for count, _ in counts(nets, X, y, devices)) / len(X)

    @wrong("08.2", "per device, not per example")
    def divides_by_devices(nets, X, y, devices):
        found = counts(nets, X, y, devices)
        return sum(count for count, _ in found) / len(found)

    @wrong("08.2", "That's the accuracy of a single shard")
    def returns_the_last(nets, X, y, devices):
        count, size = counts(nets, X, y, devices)[-1]
        return count / size

    @wrong("08.2", "could have worked")
    def tests_on_one(nets, X, y, devices):
        logits = host(nets[0](to(X, devices[0])))
        return float((logits.argmax(axis=1) == host(y)).mean())

    @wrong("08.2", "2 of 14 examples were left out")
    def drops_the_rest(nets, X, y, devices):
        n = len(X) // len(devices) * len(devices) or len(X)
        return counted_on_the_host(nets, X[:n], y[:n], devices)

    @wrong("08.2", "While one device finishes the largest")
    def rest_to_the_last(nets, X, y, devices):
        k = min(len(X), len(devices))
        size, right = len(X) // k, 0
        for i in range(k):
            rows = slice(i * size, len(X) if i == k - 1 else (i + 1) * size)
            logits = host(nets[i](to(X[rows], devices[i])))
            right += int((logits.argmax(axis=1) == host(y)[rows]).sum())
        return right / len(X)

    @wrong("08.2", "You split 14 examples into shards of 4, 4, 4, 2")
    def in_chunks(nets, X, y, devices):
        size, right = -(-len(X) // len(devices)), 0
        for i, start in enumerate(range(0, len(X), size)):
            rows = slice(start, start + size)
            logits = host(nets[i](to(X[rows], devices[i])))
            right += int((logits.argmax(axis=1) == host(y)[rows]).sum())
        return right / len(X)

    @wrong("08.2", "You gave a network a shard without examples")
    def empty_shards(nets, X, y, devices):
        right = 0
        for i, (start, end) in enumerate(_pieces(len(X), len(devices))):
            logits = host(nets[i](to(X[start:end], devices[i])))
            right += int((logits.argmax(axis=1) == host(y)[start:end]).sum())
        return right / len(X)

    @wrong("08.2", "was used 2 times")
    def whole_set_on_each(nets, X, y, devices):
        k = min(len(X), len(devices))
        right = 0
        for net, device in zip(nets[:k], devices[:k], strict=True):
            right += (host(net(to(X, device))).argmax(axis=1) == host(y)).sum()
        return float(right / len(X) / k)

    @wrong("08.2", "but the network on GPU 1")
    def examples_stay_behind(nets, X, y, devices):
        return counted_on_the_host(nets, X, y, [devices[0]] * len(devices))

    @wrong("08.2", "You called one network 2 times")
    def batch_by_batch(nets, X, y, devices):
        right, k = 0, len(devices)
        for j, start in enumerate(range(0, len(X), 3)):
            i, rows = j % k, slice(start, start + 3)
            logits = host(nets[i](to(X[rows], devices[i])))
            right += int((logits.argmax(axis=1) == host(y)[rows]).sum())
        return right / len(X)

    @wrong("08.2", "You never call any of them")
    def asks_nobody(nets, X, y, devices):
        return 0.5


def _rates(answers):
    right, wrong = answers.right, answers.wrong

    def rates(steps, warmup, peak, first=1):
        rise = [peak * (i + first) / warmup for i in range(warmup)]
        fall = [peak * (steps - i) / (steps - warmup) for i in range(warmup, steps)]
        return rise + fall

    @right("08.3")
    def with_numpy(k, n, per_gpu, epochs, base_lr):
        per_epoch = n // (k * per_gpu)
        warmup = per_epoch if k > 1 else 0
        rise = np.linspace(0, 1, warmup + 1)[1:]
        fall = np.linspace(1, 0, epochs * per_epoch - warmup, endpoint=False)
        return (k * base_lr * np.concatenate([rise, fall])).tolist()

    @wrong("08.3", "which isn't a Python number")
    def of_numpy(k, n, per_gpu, epochs, base_lr):
        return list(np.array(with_numpy(k, n, per_gpu, epochs, base_lr), "float32"))

    @wrong("08.3", "as many rates as with one device")
    def steps_of_one_device(k, n, per_gpu, epochs, base_lr):
        per_epoch = n // per_gpu
        return rates(epochs * per_epoch, per_epoch * (k > 1), k * base_lr)

    @wrong("08.3", "You count the incomplete batch at")
    def with_the_rest(k, n, per_gpu, epochs, base_lr):
        per_epoch = -(-n // (k * per_gpu))
        return rates(epochs * per_epoch, per_epoch * (k > 1), k * base_lr)

    @wrong("08.3", "of a single epoch")
    def one_epoch(k, n, per_gpu, epochs, base_lr):
        return [k * base_lr] * (n // (k * per_gpu))

    @wrong("08.3", "You return one rate per epoch")
    def for_epochs(k, n, per_gpu, epochs, base_lr):
        return rates(epochs, int(k > 1), k * base_lr)

    @wrong("08.3", "rate of 0, so it learns nothing")
    def begins_with_zero(k, n, per_gpu, epochs, base_lr):
        per_epoch = n // (k * per_gpu)
        return rates(epochs * per_epoch, per_epoch * (k > 1), k * base_lr, first=0)

    @wrong("08.3", "the same as with one device")
    def forgets_to_scale(k, n, per_gpu, epochs, base_lr):
        per_epoch = n // (k * per_gpu)
        return rates(epochs * per_epoch, per_epoch * (k > 1), base_lr)

    @wrong("08.3", "square root")
    def scales_by_the_root(k, n, per_gpu, epochs, base_lr):
        per_epoch = n // (k * per_gpu)
        return rates(epochs * per_epoch, per_epoch * (k > 1), k**0.5 * base_lr)

    @wrong("08.3", "which is too high")
    def scales_by_the_batch(k, n, per_gpu, epochs, base_lr):
        per_epoch = n // (k * per_gpu)
        peak = k * per_gpu * base_lr
        return rates(epochs * per_epoch, per_epoch * (k > 1), peak)

    @wrong("08.3", "but your rate is highest in step 1")
    def no_warm_up(k, n, per_gpu, epochs, base_lr):
        return rates(epochs * (n // (k * per_gpu)), 0, k * base_lr)

    @wrong("08.3", "With k = 1")
    def always_warms_up(k, n, per_gpu, epochs, base_lr):
        per_epoch = n // (k * per_gpu)
        return rates(epochs * per_epoch, per_epoch, k * base_lr)

    @wrong("08.3", "your first rates are 0.05, 0.0524")
    def begins_as_with_one(k, n, per_gpu, epochs, base_lr):
        per_epoch = n // (k * per_gpu)
        warmup = per_epoch * (k > 1)
        rise = np.linspace(base_lr, k * base_lr, warmup).tolist()
        return rise + rates(epochs * per_epoch, warmup, k * base_lr)[warmup:]

    @wrong("08.3", "falling by 0 in the first and by 0")
    def stays_high(k, n, per_gpu, epochs, base_lr):
        per_epoch = n // (k * per_gpu)
        warmup = per_epoch * (k > 1)
        peak = k * base_lr
        rest = [peak] * (epochs * per_epoch - warmup)
        return rates(epochs * per_epoch, warmup, peak)[:warmup] + rest


def _settings(answers):
    answers.right("08.4")((12, 1.2))
    answers.wrong("08.4", "too short")((16, 0.1))
    answers.wrong("08.4", "steps are too long")((16, 3.2))
    answers.wrong("08.4", "Batches of 32 make how many steps")((4, 1.6))
    answers.wrong("08.4", "would take longer")((64, 0.8))
    answers.wrong("08.4", "the first epoch is the warm-up")((1, 1.6))
    answers.wrong("08.4", "-0.5 isn't a learning rate above zero")((16, -0.5))
    answers.wrong("08.4", "Your answer has length 3")((512, 16, 1.6))
