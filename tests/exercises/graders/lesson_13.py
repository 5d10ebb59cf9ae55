"""Answers to the exercises of lesson 13 that frameworks share."""

import math

from tests.exercises.graders.answers import Answers


def add_answers(answers: Answers, zeros, joined) -> None:
    """Register the answers to 13.1 and 13.5.

    Args:
        answers: of the framework.
        zeros: makes a vector of zeros, given its length.
        joined: joins a list of vectors.
    """
    _gpus_needed(answers)
    _load_shard(answers, zeros, joined)


def _gpus_needed(answers):
    right, wrong = answers.right, answers.wrong

    def counted(parameters, memory, kept, rounded=math.ceil):
        left = memory - kept * parameters
        if kept == 16:
            return 1 if left >= 0 else None
        return rounded((16 - kept) * parameters / left) if left > 0 else None

    @right("13.1")
    def by_trying(parameters, memory, stage):
        kept = {0: 16, 1: 8, 2: 4, 3: 0}[stage]
        for n in range(1, 20_000):
            if kept + (16 - kept) / n <= memory / parameters:
                return n
        return None

    @wrong("13.1", "You shard one of Adam's averages")
    def shards_one_average(parameters, memory, stage):
        return counted(parameters, memory, (16, 12, 8, 0)[stage])

    @wrong("13.1", "and* what stage 1 shards")
    def shards_only_gradients(parameters, memory, stage):
        return counted(parameters, memory, (16, 8, 12, 0)[stage])

    @wrong("13.1", "Which way do you round")
    def rounds_down(parameters, memory, stage):
        return counted(parameters, memory, (16, 8, 4, 0)[stage], math.floor)

    @wrong("13.1", "fills the memory already")
    def forgets_what_stays(parameters, memory, stage):
        return max(1, math.ceil(16 * parameters / memory))

    @wrong("13.1", "GPUs are enough")
    def adds_one(parameters, memory, stage):
        n = counted(parameters, memory, (16, 8, 4, 0)[stage], math.floor)
        return n and n + (stage > 0)


def _load_shard(answers, zeros, joined):
    right, wrong = answers.right, answers.wrong

    def lengths(size, old, new):
        return -(-size // old), -(-size // new)

    @right("13.5")
    def number_by_number(read, size, old, rank, new):
        before, now = lengths(size, old, new)
        shard = zeros(now)
        for k in range(now):
            i, place = divmod(rank * now + k, before)
            if rank * now + k < size:
                shard[k : k + 1] = read(i, place, place + 1)
        return shard

    @wrong("13.5", "reads all 24 numbers")
    def reads_everything(read, size, old, rank, new):
        before, now = lengths(size, old, new)
        whole = joined([read(i, 0, before) for i in range(old)])[:size]
        shard = zeros(now)
        part = whole[rank * now : (rank + 1) * now]
        shard[: len(part)] = part
        return shard

    @wrong("13.5", "you leave out the padding")
    def leaves_out_padding(read, size, old, rank, new):
        _, now = lengths(size, old, new)
        return number_by_number(read, size, old, rank, new)[: max(0, size - rank * now)]

    @wrong("13.5", "rank 0 reads 12 numbers, and it needs 6")
    def reads_whole_files(read, size, old, rank, new):
        before, now = lengths(size, old, new)
        start, stop = rank * now, min((rank + 1) * now, size)
        shard = zeros(now)
        if start < stop:
            files = range(start // before, (stop - 1) // before + 1)
            whole = joined([read(i, 0, before) for i in files])
            first = start - files[0] * before
            shard[: stop - start] = whole[first : first + stop - start]
        return shard

    @wrong("13.5", "but you return the chunk of rank")
    def numbers_ranks_backwards(read, size, old, rank, new):
        return number_by_number(read, size, old, new - 1 - rank, new)

    @wrong("13.5", "but you return [")
    def forgets_the_offset(read, size, old, rank, new):
        before, now = lengths(size, old, new)
        i = min(rank * now // before, old - 1)
        shard = zeros(now)
        part = read(i, 0, min(now, before))
        shard[: len(part)] = part
        return shard
