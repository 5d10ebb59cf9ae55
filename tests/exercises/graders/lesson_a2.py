"""Answers to the exercises of lesson A2 that the frameworks share."""

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np

from tests.exercises.graders.answers import Answers


def add_shared(
    answers: Answers,
    to: Callable,
    home: Callable,
    host: Callable,
    on: Callable = nullcontext,
) -> None:
    """Add answers that differ by no more than the names of a framework.

    Args:
        answers: takes them.
        to: copies an array, or one of NumPy's, to a device.
        home: returns the device of an array.
        host: makes a NumPy array of one.
        on: the context in which one computes on a device.
    """
    _centred(answers, to, home, host, on)
    _shards(answers, to)
    _sums(answers, to, home, host, on)


def _centred(answers, to, home, host, on):
    right, wrong = answers.right, answers.wrong

    @right("A2.1")
    def mean_from_the_host(x, device):
        values = host(x)
        return to(values - values.mean(), device)

    @wrong("A2.1", "as if you had ignored `device`")
    def stays(x, device):
        with on(home(x)):
            return x - host(x).mean()

    @wrong("A2.1", "and subtract nothing")
    def only_copies(x, device):
        return to(x, device)

    @wrong("A2.1", "You subtracted the sum")
    def subtracts_the_sum(x, device):
        return to(host(x) - host(x).sum(), device)

    @wrong("A2.1", "Its shape is ()")
    def returns_the_mean(x, device):
        return to(np.array(host(x).mean()), device)

    @wrong("A2.1", "returned an ndarray")
    def stays_with_numpy(x, device):
        values = host(x)
        return values - values.mean()


def _shards(answers, to):
    right, wrong = answers.right, answers.wrong

    @right("A2.2")
    def by_hand(X, devices):
        size, rest = divmod(len(X), len(devices))
        found, start = [], 0
        for i, device in enumerate(devices):
            end = start + size + (i < rest)
            found.append(to(X[start:end], device))
            start = end
        return tuple(found)

    @wrong("A2.2", "`devices` had changed")
    def takes_the_devices_away(X, devices):
        return [to(part, devices.pop(0)) for part in np.array_split(X, len(devices))]

    @wrong("A2.2", "into 2 shards")
    def rounds_up(X, devices):
        size = -(-len(X) // len(devices))
        return [
            to(X[start : start + size], device)
            for start, device in zip(range(0, len(X), size), devices, strict=False)
        ]

    @wrong("A2.2", "you dropped the remainder")
    def rounds_down(X, devices):
        size = len(X) // len(devices)
        return [
            to(X[i * size : (i + 1) * size], device) for i, device in enumerate(devices)
        ]

    @wrong("A2.2", "those are copies, not shards")
    def all_to_each(X, devices):
        return [to(X, device) for device in devices]

    @wrong("A2.2", "but the devices are GPU 0, GPU 1, GPU 2")
    def all_to_one(X, devices):
        return [to(part, devices[0]) for part in np.array_split(X, len(devices))]

    @wrong("A2.2", "have the type ndarray")
    def stays_on_the_host(X, devices):
        return np.array_split(X, len(devices))

    @wrong("A2.2", "The first shard of 8 rows is")
    def every_third(X, devices):
        return [to(X[i :: len(devices)], device) for i, device in enumerate(devices)]

    @wrong("A2.2", "You split 8 rows into [2, 3, 3]")
    def the_rest_last(X, devices):
        ends = [len(X) * (i + 1) // len(devices) for i in range(len(devices))]
        return [
            to(X[start:end], device)
            for start, end, device in zip([0, *ends], ends, devices, strict=False)
        ]

    @wrong("A2.2", "There are now 9 rows")
    def overlapping(X, devices):
        shards = by_hand(X, devices)
        return [to(X[:4], devices[0]), to(X[3:6], devices[1]), shards[2]]


def _sums(answers, to, home, host, on):
    right, wrong = answers.right, answers.wrong

    def summed(parts, device):
        with on(device):
            return sum([to(part, device) for part in parts[1:]], to(parts[0], device))

    @right("A2.3")
    def each_for_itself(parts):
        return [summed(parts, home(part)) for part in parts]

    @wrong("A2.3", "the mean of all")
    def averages(parts):
        found = []
        for part in each_for_itself(parts):
            with on(home(part)):
                found.append(part / len(parts))
        return found

    @wrong("A2.3", "Only the first has the sum")
    def reduces_only(parts):
        return [summed(parts, home(parts[0])), *parts[1:]]

    @wrong("A2.3", "but the arrays you were given are on GPU 0, GPU 1, GPU 2")
    def sends_nothing_back(parts):
        return [summed(parts, home(parts[0]))] * len(parts)

    @wrong("A2.3", "the sum of the arrays up to its own")
    def adds_as_it_goes(parts):
        return [summed(parts[: i + 1], home(part)) for i, part in enumerate(parts)]

    @wrong("A2.3", "counted twice")
    def adds_its_own_again(parts):
        total = summed(parts, home(parts[0]))
        return [summed([total, part], home(part)) for part in parts]

    @wrong("A2.3", "but 1 came out")
    def one_sum(parts):
        return [summed(parts, home(parts[0]))]

    @wrong("A2.3", "They have the type")
    def stays_with_numpy(parts):
        total = sum(host(part) for part in parts)
        return [total, *each_for_itself(parts)[1:]]
