"""Answers to the exercises of lesson 01 that several frameworks share."""

import numpy as np

from tests.exercises.graders.answers import Answers


def add_answers(answers: Answers, d2l) -> None:
    """Register the answers to 01.1, 01.2 and 01.4.

    Args:
        answers: of the framework.
        d2l: its helper.
    """
    add_gpu_in_turn(answers, d2l, "01.1")
    add_on_machine(answers, "01.2")
    _doubling_times(answers)


def add_gpu_in_turn(answers: Answers, d2l, number: str) -> None:
    """Register the answers to the exercise on numbering GPUs."""
    right, wrong = answers.right, answers.wrong

    @right(number)
    def asks_how_many(i):
        n = d2l.num_gpus()
        return d2l.gpu(i % n) if n else d2l.cpu()

    @wrong(number, "Index 2 returns ValueError")
    def does_not_count_around(i):
        return d2l.gpu(i)

    @wrong(number, "as `try_gpu` does")
    def goes_to_the_cpu(i):
        return d2l.try_gpu(i)

    @wrong(number, "There are two GPUs here")
    def knows_that_there_are_two(i):
        return d2l.gpu(i % 2)

    @wrong(number, "divides by zero")
    def forgets_that_there_may_be_none(i):
        return d2l.gpu(i % d2l.num_gpus())

    @wrong(number, "GPUs are numbered from 0")
    def counts_from_1(i):
        devices = d2l.try_all_gpus()
        return devices[(i - 1) % len(devices)]

    asked = []

    @wrong(number, "each index gave the right device")
    def takes_turns(i):
        devices = d2l.try_all_gpus()
        asked.append(i)
        return devices[(asked[0] + len(asked) - 1) % len(devices)]

    @wrong(number, "your numbering stops there")
    def stays_at_the_last(i):
        devices = d2l.try_all_gpus()
        return devices[min(i, len(devices) - 1)]


def add_on_machine(answers: Answers, number: str) -> None:
    """Register the answers to the exercise on ``CUDA_VISIBLE_DEVICES``."""
    right, wrong = answers.right, answers.wrong

    @right(number)
    def with_a_dictionary(i, visible):
        numbers = range(16) if visible is None else map(int, visible.split(",", 99))
        try:
            return dict(enumerate(numbers)).get(i)
        except ValueError:
            return None

    @wrong(number, "You return a str")
    def returns_a_text(i, visible):
        return str(i) if visible is None else visible.split(",")[i]

    @wrong(number, "You return the program's own numbers")
    def does_not_renumber(i, visible):
        return i

    @wrong(number, "should return the machine's")
    def renumbers_backwards(i, visible):
        numbers = [int(number) for number in visible.split(",")]
        return numbers.index(i) if i in numbers else numbers[i]

    @wrong(number, "the order of the list matters")
    def sorts(i, visible):
        return sorted(int(number) for number in visible.split(","))[i]

    @wrong(number, "Where does one number end?")
    def takes_one_digit(i, visible):
        return int(visible[2 * i])

    @wrong(number, "for the program's GPU 0")
    def forgets_that_it_may_be_unset(i, visible):
        return int(visible.split(",")[i])

    @wrong(number, "With `3,1`, the program has no third GPU")
    def goes_beyond(i, visible):
        return i if visible is None else int(visible.split(",")[i])

    @wrong(number, "What does `''.split(',')` return?")
    def forgets_that_it_may_be_empty(i, visible):
        if visible is None:
            return i
        numbers = visible.split(",")
        return int(numbers[i]) if i < len(numbers) else None


def _doubling_times(answers):
    right, wrong = answers.right, answers.wrong

    def fitted(gpus, log=np.log2):
        years, *columns = np.array(list(gpus.values()), dtype=float).T
        return [np.polyfit(years, log(column), 1)[0] for column in columns]

    @right("01.4")
    def by_covariance(gpus):
        years, *columns = zip(*gpus.values(), strict=True)
        times = []
        for column in columns:
            covariance = np.cov(years, np.log(column))
            times.append(np.log(2) * covariance[0, 0] / covariance[0, 1])
        return np.array(times)

    @wrong("01.4", "or to their logarithms")
    def forgets_the_logarithm(gpus):
        return [1 / slope for slope in fitted(gpus, lambda x: x)]

    @wrong("01.4", "doublings per year")
    def returns_the_slope(gpus):
        return fitted(gpus)

    @wrong("01.4", "by a factor of e")
    def takes_the_natural_logarithm(gpus):
        return [1 / slope for slope in fitted(gpus, np.log)]

    @wrong("01.4", "grows tenfold")
    def takes_the_decimal_logarithm(gpus):
        return [1 / slope for slope in fitted(gpus, np.log10)]

    @wrong("01.4", "doublings per decade")
    def counts_by_decade(gpus):
        return [10 * slope for slope in fitted(gpus)]

    @wrong("01.4", "You swapped the two")
    def changes_places(gpus):
        return [1 / slope for slope in fitted(gpus)][::-1]

    @wrong("01.4", "those in the middle")
    def looks_at_the_ends(gpus):
        first, last = min(gpus.values()), max(gpus.values())
        years = last[0] - first[0]
        return [years / np.log2(last[k] / first[k]) for k in (1, 2)]

    @wrong("01.4", "the best line through the first point")
    def starts_at_the_first(gpus):
        years, *columns = np.array(list(gpus.values())).T
        t = years - years[0]
        return [t @ t / (t @ np.log2(each / each[0])) for each in columns]

    @wrong("01.4", "weighs all points equally")
    def averages_the_steps(gpus):
        years, *columns = np.array(list(gpus.values())).T
        return [
            1 / np.mean(np.diff(np.log2(each)) / np.diff(years)) for each in columns
        ]

    @wrong("01.4", "one doubling time for arithmetic")
    def returns_one(gpus):
        return 1 / fitted(gpus)[0]
