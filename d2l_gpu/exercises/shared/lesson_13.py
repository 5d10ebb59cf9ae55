"""Sharding: how many GPUs the model states need, clipping, and shards cut again."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Run
from d2l_gpu.exercises.variants.draw import Draw

# ------------------------------------------------------------------ how many GPUs?

# Parameters, bytes of memory, and stage.
PLANS = (
    (1000, 16_000, 0),
    (1000, 15_999, 0),
    (1000, 16_000, 1),
    (1000, 9_000, 1),
    (1000, 8_000, 1),
    (1000, 8_001, 1),
    (1000, 5_000, 2),
    (1000, 4_900, 2),
    (1000, 3_000, 2),
    (1000, 4_000, 2),
    (1000, 2_000, 3),
    (1000, 1_900, 3),
    (8_030_261_248, 80 * 10**9, 0),
    (8_030_261_248, 80 * 10**9, 1),
    (8_030_261_248, 80 * 10**9, 3),
)
_KEPT = (16, 8, 4, 0)  # bytes per parameter that a stage leaves on every GPU


def other_plans(draw: Draw) -> tuple[tuple[int, int, int], ...]:
    """Return plans like `PLANS`, for models of other sizes."""
    n = 1000 * draw.integer(2, 9)
    memory = draw.choice((24, 40, 48, 96))
    return (
        *(
            (k * n, bytes_of * k * n - less, stage)
            for k, bytes_of, less, stage in _KINDS
        ),
        *(
            (draw.integer(2, 12) * 10**9, memory * 10**9, stage)
            for stage in (0, 1, 2, 3)
        ),
    )


# What a model needs beside what's given: multiples of the parameters, the bytes of
# memory for each, how many bytes fewer there are, and the stage.
_KINDS = (
    *((1, 16, 0, 0), (1, 16, 1, 0)),
    *((1, 16, 0, 1), (1, 9, 0, 1), (1, 8, 0, 1), (1, 8, -9, 1)),
    *((1, 5, 0, 2), (1, 5, 77, 2), (1, 3, 0, 2), (1, 4, 0, 2)),
    *((1, 2, 0, 3), (1, 2, 131, 3)),
)


def _needed(parameters: int, memory: int, stage: int, kept=_KEPT) -> int | None:
    left = memory - kept[stage] * parameters
    sharded = (16 - kept[stage]) * parameters
    if not sharded:
        return 1 if left >= 0 else None
    return math.ceil(sharded / left) if left > 0 else None


def _counted(answer: Callable, gpus: Gpus, plans: Sequence[tuple]) -> list:
    return [answer(*plan) for plan in plans]


def gpus_needed(run: Run, plans: Sequence[tuple] = PLANS) -> Iterator[Claim]:
    """Check that it returns the smallest number of GPUs, or None."""
    found = run(_counted, plans)
    for stage in range(4):
        name = f"stage {stage}" if stage else "DDP"
        wrong = [
            (plan, mine, _needed(*plan))
            for plan, mine in zip(plans, found, strict=True)
            if plan[2] == stage and mine != _needed(*plan)
        ]
        yield Claim(
            f"it returns the smallest number of GPUs with {name}",
            not wrong,
            _wrong_number(plans, found, *wrong[0]) if wrong else "",
        )
        if wrong:
            return


def _wrong_number(
    plans: Sequence[tuple], found: Sequence, plan: tuple, mine, true
) -> str:
    parameters, memory, stage = plan
    if found == [_needed(*plan, kept=(16, 12, 8, 0)) for plan in plans]:
        return (
            "You shard one of Adam's averages. Stage 1 shards both: 8 bytes of each "
            "parameter stay on all GPUs."
        )
    if found == [_needed(*plan, kept=(16, 8, 12, 0)) for plan in plans]:
        return "Stage 2 shards the gradients *and* what stage 1 shards."
    told = f"With {parameters:,} parameters and {memory:,} bytes in stage {stage}, "
    if true is None:
        return (
            told + f"you return {mine}. What's on every GPU fills the memory already, "
            "so no number of GPUs is large enough."
        )
    if mine is None:
        return told + f"you return None, but {true} GPUs are enough."
    if mine == true + 1:
        return told + f"you return {mine}, but {true} GPUs are enough."
    if mine == true - 1:
        return told + f"{mine} GPUs aren't enough. Which way do you round?"
    return told + f"you return {mine} instead of {true}."


# ------------------------------------------------------------------ clipping

LARGEST = 1.0


def wrong_norm(norms: Sequence[float], norm: float, who: str) -> str:
    """Return what's wrong with the norms of a gradient whose shards were clipped.

    Args:
        norms: what each of ``who`` returned.
        norm: the right one.
        who: "rank" or "GPU".
    """
    told = f"The {who}s return {', '.join(f'{x:.2f}' for x in norms)}"
    if len({round(x, 4) for x in norms}) > 1:
        return f"{told}: each the norm of its own shards."
    if math.isclose(norms[0], norm**2, rel_tol=1e-3):
        return f"{told}, the square of the norm."
    if norms[0] > norm:
        return f"{told}, which is more. Norms don't add up, but what does?"
    return f"{told}, which is less. Are all {who}s' shards counted?"


def wrong_shards(mine: np.ndarray, whole: np.ndarray, norm: float, kept: str) -> str:
    """Return what's wrong with a clipped gradient of the right size.

    Args:
        mine: the gradient.
        whole: what it was.
        norm: the norm that it had.
        kept: what to say if it's as it was.
    """
    if not np.isfinite(mine).all():
        return "Some numbers aren't finite. What's 0 / 0?"
    if np.allclose(mine, whole, rtol=1e-3):
        return kept
    if norm < LARGEST:
        return (
            f"This gradient isn't too large, but you change it. Its norm is {norm:.2f}."
        )
    length = float(np.linalg.norm(mine))
    return f"Afterwards, the norm of the whole gradient is {length:.2f}, not {LARGEST}."


# ------------------------------------------------------------------ cut again

# The size, the old number of ranks and the new one.
CUTS = (
    (24, 4, 2),
    (24, 2, 4),
    (24, 4, 3),
    (23, 4, 3),
    (10, 4, 7),
    (5, 3, 4),
    (9, 1, 4),
)


def other_cuts(draw: Draw) -> tuple[tuple[int, int, int], ...]:
    """Return cuts like `CUTS`, some with padding and some without."""
    even = 12 * draw.integer(1, 4)
    return (
        *((even, 4, 2), (even, 2, 4), (even, 4, 3), (even - 1, 4, 3)),
        *((draw.integer(9, 13), 4, 7), (5, 3, 4), (draw.integer(7, 15), 1, 4)),
        (draw.integer(20, 60), draw.integer(3, 6), draw.integer(2, 7)),
    )


def _chunks(size: int, n: int) -> list[list[float]]:
    """Return the chunks of the numbers 1 to ``size``, with padding."""
    k = -(-size // n)
    numbers = [*range(1, size + 1), *[0] * (n * k - size)]
    return [[float(x) for x in numbers[i * k : (i + 1) * k]] for i in range(n)]


def _cut(
    vector: Callable[[list], Any], answer: Callable, gpus: Gpus, cuts: Sequence[tuple]
) -> list[dict]:
    """Return the new chunks of each case, and what was read for each of them."""
    found = []
    for size, old, new in cuts:
        files = [vector(x) for x in _chunks(size, old)]
        chunks, reads = [], []
        for rank in range(new):
            asked = []

            def read(i, start, stop, files=files, asked=asked):
                asked.append([int(i), int(start), int(stop)])
                return vector(files[i][start:stop].tolist())

            chunks.append(answer(read, size, old, rank, new).tolist())
            reads.append(asked)
        found.append({"chunks": chunks, "reads": reads})
    return found


def load_shard(
    vector: Callable[[list], Any], run: Run, cuts: Sequence[tuple] = CUTS
) -> Iterator[Claim]:
    """Check that chunks are right, and that nothing is read that isn't needed.

    Args:
        vector: makes the framework's vector from a list of numbers.
    """
    found = run(_cut, cuts)
    for case, each in zip(cuts, found, strict=True):
        size, old, new = case
        told = f"{size} numbers, from {old} ranks to {new}"
        right = _chunks(size, new)
        wrong = [r for r in range(new) if each["chunks"][r] != right[r]]
        yield Claim(
            f"{told}: all chunks are right",
            not wrong,
            _wrong_chunk(each["chunks"][wrong[0]], right, wrong[0]) if wrong else "",
        )
        if wrong:
            return
    for case, each in zip(cuts, found, strict=True):
        size, old, new = case
        before, now = -(-size // old), -(-size // new)
        for rank, reads in enumerate(each["reads"]):
            numbers = sorted(
                i * before + x
                for i, start, stop in reads
                for x in range(max(start, 0), min(stop, before))
            )
            needed = [*range(rank * now, min((rank + 1) * now, size))]
            if numbers != needed:
                yield Claim(
                    "each rank reads the numbers that it needs, once",
                    False,
                    _wrong_reads(len(numbers), len(needed), case, rank),
                )
                return
    yield Claim("each rank reads the numbers that it needs, once", True)


def _wrong_chunk(mine: list, right: list[list[float]], rank: int) -> str:
    wanted = right[rank]
    told = f"Rank {rank} should get {_said(wanted)}"
    if len(mine) < len(wanted) and mine == wanted[: len(mine)]:
        return f"{told}, but you leave out the padding: {_said(mine)}."
    if mine in right:
        return f"{told}, but you return the chunk of rank {right.index(mine)}."
    return f"{told}, but you return {_said(mine)}."


def _said(numbers: Sequence[float]) -> str:
    return f"[{', '.join(f'{x:g}' for x in numbers)}]"


def _wrong_reads(read: int, needed: int, case: tuple, rank: int) -> str:
    size, old, new = case
    if read >= size:
        return (
            f"Rank {rank} of {new} reads all {size} numbers, and it needs {needed}. "
            "Which files does its chunk overlap with?"
        )
    return (
        f"With {size} numbers from {old} ranks to {new}, rank {rank} reads {read} "
        f"numbers, and it needs {needed}."
    )
