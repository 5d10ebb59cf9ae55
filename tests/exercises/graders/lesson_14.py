"""Answers to the exercises of lesson 14 that several frameworks share."""

import itertools

from tests.exercises.graders.answers import Answers


def add_shared(answers: Answers, who: str) -> None:
    """Add answers that differ by no more than a word in their hints.

    Args:
        answers: takes them.
        who: what the lesson calls one of those that compute, such as ``"rank"``.
    """
    _schedules(answers)
    _places(answers, who)


def _schedules(answers):
    right, wrong = answers.right, answers.wrong

    def actions(first, microbatches):
        first = min(first, microbatches)
        order = [("F", i) for i in range(first)]
        for i in range(microbatches):
            order.append(("B", i))
            if first + i < microbatches:
                order.append(("F", first + i))
        return order

    @right("14.3")
    def counting(stage, stages, microbatches):
        order, forward, backward = [], 0, 0
        while backward < microbatches:
            if forward < microbatches and forward - backward < stages - stage:
                order.append(("F", forward))
                forward += 1
            else:
                order.append(("B", backward))
                backward += 1
        return order

    @wrong("14.3", "stage 0 keeps 8 at a time")
    def gpipe(stage, stages, microbatches):
        return [(kind, i) for kind in "FB" for i in range(microbatches)]

    @wrong("14.3", "has enough to do")
    def one_at_a_time(stage, stages, microbatches):
        return actions(1, microbatches)

    @wrong("14.3", "stage 1 keeps 4 at a time")
    def all_as_the_first(stage, stages, microbatches):
        return actions(stages, microbatches)

    @wrong("14.3", "never gets to the backward pass of microbatch 7")
    def last_one_first(stage, stages, microbatches):
        order = counting(stage, stages, microbatches)
        if stage:
            return order
        return [(kind, i if kind == "F" else microbatches - 1 - i) for kind, i in order]

    @wrong("14.3", "stage 0 hasn't")
    def forgets_the_end(stage, stages, microbatches):
        return counting(stage, stages, microbatches)[: 2 * microbatches - stages]


def _places(answers, who):
    right, wrong = answers.right, answers.wrong

    @right("14.4")
    def from_both_ends(length, n):
        size = length // n // 2
        return [
            [
                *range(rank * size, (rank + 1) * size),
                *range(length - (rank + 1) * size, length - rank * size),
            ]
            for rank in range(n)
        ]

    @wrong("14.4", "That's the text in order")
    def in_order(length, n):
        return [list(range(i * length // n, (i + 1) * length // n)) for i in range(n)]

    @wrong("14.4", f"the last {who} gets the longest")
    def dealt_out(length, n):
        return [list(range(i, length, n)) for i in range(n)]

    @wrong("14.4", f"they form 16 on some {who}")
    def pairs(length, n):
        return [
            sorted(
                [
                    *range(i, length // 2, n),
                    *(length - 1 - j for j in range(i, length // 2, n)),
                ]
            )
            for i in range(n)
        ]

    @wrong("14.4", f"What should a {who} get")
    def shifted(length, n):
        size = length // n // 2
        pieces = [list(range(i * size, (i + 1) * size)) for i in range(2 * n)]
        return [pieces[i] + pieces[i + n] for i in range(n)]

    @wrong("14.4", f"those of some {who} don't")
    def backwards(length, n):
        return [tokens[::-1] for tokens in from_both_ends(length, n)]

    @wrong("14.4", "they have 32, 13, 10, 9")
    def by_scores(length, n):
        ends = [round(length * (i / n) ** 0.5) for i in range(n + 1)]
        return [list(range(a, b)) for a, b in itertools.pairwise(ends)]

    @wrong("14.4", "they aren't")
    def forgets_tokens(length, n):
        size = length // (2 * n)
        return [list(range(i * size, (i + 1) * size)) for i in range(n)]

    @wrong("14.4", "there are 8")
    def pieces_only(length, n):
        size = length // (2 * n)
        return [list(range(i * size, (i + 1) * size)) for i in range(2 * n)]
