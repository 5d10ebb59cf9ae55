"""A schedule for pipelines, and a text divided evenly: exercises in plain Python."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from d2l_gpu.exercises.cases import in_all
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run, given
from d2l_gpu.exercises.variants.draw import Draw, Vary

if TYPE_CHECKING:
    import numpy as np


def add_shared(registry: Registry, who: str) -> None:
    """Add 14.3 and 14.4 to the exercises of one framework.

    Args:
        who: what the lesson calls one of those that compute, such as ``"rank"``.
    """
    lists = (list, tuple)
    registry.add(
        "14.3",
        "stage, stages, microbatches",
        returns=lists,
        vary={"pipelines": Vary(_PIPELINES, _other_pipelines)},
    )(one_f_one_b)
    registry.add(
        "14.4", "length, n", returns=lists, vary={"texts": Vary(_TEXTS, _other_texts)}
    )(given(places, who))


# ------------------------------------------------------------------ 14.1


def wrong_output(
    cases: Mapping[int, "np.ndarray"], right: "np.ndarray", b: "np.ndarray", who: str
) -> str:
    """Return a hint for a wrong output of a row-parallel layer.

    Args:
        cases: the output by the number of those that computed it.
        right: what it should be.
        b: the layer's bias.
        who: what the lesson calls one of those that compute.
    """
    import numpy as np

    counts = {}
    for n, found in cases.items():
        extra = (found - right) / b
        if not np.allclose(extra, extra[0, 0], atol=1e-3):
            return "It isn't, and the difference isn't a multiple of the bias."
        counts[n] = 1 + round(float(extra[0, 0]), 2)
    if set(counts.values()) == {0}:
        return "The bias is missing."
    return (
        "The bias is in it "
        + " and ".join(
            f"{count:g} times with {n} {who}s" for n, count in counts.items()
        )
        + "."
    )


# ------------------------------------------------------------------ 14.3

_PIPELINES = ((4, 8), (1, 3), (3, 3), (4, 2), (5, 12))
_LONG = {"F": 1, "B": 2}


def _other_pipelines(draw: Draw) -> tuple[tuple[int, int], ...]:
    """Return stages and microbatches: more of these, as many, fewer, and one stage."""
    few, many = draw.integer(2, 4), draw.integer(5, 7)
    return ((few, 2 * many), (1, few), (many, many), (many, few), (many, many + few))


def _schedules(
    answer: Callable, gpus: Gpus, pipelines: Sequence[tuple[int, int]]
) -> list:
    return [
        [
            [[str(kind), int(i)] for kind, i in answer(stage, stages, microbatches)]
            for stage in range(stages)
        ]
        for stages, microbatches in pipelines
    ]


def one_f_one_b(run: Run, pipelines: Sequence[tuple[int, int]]) -> Iterator[Claim]:
    """Check the order in which each stage of a pipeline does what."""
    yield from in_all(
        _of_a_pipeline(*case, [[tuple(x) for x in actions] for actions in found])
        for case, found in zip(pipelines, run(_schedules, pipelines), strict=True)
    )


def _of_a_pipeline(stages: int, microbatches: int, order: list) -> Iterator[Claim]:
    what = f"With {stages} stages and {microbatches} microbatches, "
    wanted = sorted(itertools.product("BF", range(microbatches)))
    complete = [sorted(actions) == wanted for actions in order]
    yield Claim(
        "each stage has one forward and one backward pass for each microbatch",
        all(complete),
        f"{what}stage {complete.index(False) if not all(complete) else 0} hasn't.",
    )
    if not all(complete):
        return
    seconds, stuck = _run_through(stages, order)
    yield Claim("no stage waits forever", not stuck, what + stuck)
    if stuck:
        return
    kept = [_most_kept(actions) for actions in order]
    allowed = [min(stages - stage, microbatches) for stage in range(stages)]
    at = next(
        (i for i, (k, a) in enumerate(zip(kept, allowed, strict=True)) if k > a), 0
    )
    yield Claim(
        "a stage keeps no more microbatches than it has to",
        all(k <= a for k, a in zip(kept, allowed, strict=True)),
        f"{what}stage {at} keeps {kept[at]} at a time, and {allowed[at]} would do.",
    )
    ideal = 3 * (microbatches + stages - 1)
    yield Claim(
        "it takes as long as the bubble formula says",
        seconds <= ideal,
        f"{what}it takes as long as {seconds} forward passes instead of {ideal}. Does "
        "some stage go backward before the next one has enough to do?",
    )


def _most_kept(actions: Sequence[tuple[str, int]]) -> int:
    return max(
        itertools.accumulate(1 if kind == "F" else -1 for kind, _ in actions), default=0
    )


def _run_through(stages: int, order: list) -> tuple[int, str]:
    """Return when everything is done, and who waits forever for what, if anybody."""
    done: dict[tuple, int] = {}
    clock, at = [0] * stages, [0] * stages
    moved = True
    while moved:
        moved = False
        for stage, actions in enumerate(order):
            while at[stage] < len(actions):
                kind, i = actions[at[stage]]
                needs = _needs(kind, stage, i, stages)
                if any(need not in done for need in needs):
                    break
                start = max([clock[stage], *(done[need] for need in needs)])
                clock[stage] = done[kind, stage, i] = start + _LONG[kind]
                at[stage], moved = at[stage] + 1, True
    for stage, actions in enumerate(order):
        if at[stage] < len(actions):
            kind, i = actions[at[stage]]
            name = {"F": "forward", "B": "backward"}[kind]
            return 0, f"stage {stage} never gets to the {name} pass of microbatch {i}."
    return max(clock), ""


def _needs(kind: str, stage: int, i: int, stages: int) -> list[tuple]:
    if kind == "F":
        return [("F", stage - 1, i)] if stage else []
    return [("F", stage, i)] + ([("B", stage + 1, i)] if stage < stages - 1 else [])


# ------------------------------------------------------------------ 14.4

_TEXTS = ((64, 4), (12, 2), (30, 5), (8, 1))


def _other_texts(draw: Draw) -> tuple[tuple[int, int], ...]:
    """Return lengths of texts, each a multiple of twice the number beside it."""
    numbers = [2, 1, *draw.sample((3, 4, 5, 6), 2)]
    return tuple((2 * n * draw.integer(2, 9), n) for n in numbers)


def _placed(
    who: str, answer: Callable, gpus: Gpus, texts: Sequence[tuple[int, int]]
) -> list:
    return [
        [[int(i) for i in tokens] for tokens in answer(length, n)]
        for length, n in texts
    ]


def places(who: str, run: Run, texts: Sequence[tuple[int, int]]) -> Iterator[Claim]:
    """Check that all have equally many tokens and scores of a text."""
    yield from in_all(
        _of_a_text(who, *case, found)
        for case, found in zip(texts, run(_placed, texts), strict=True)
    )


def _of_a_text(
    who: str, length: int, n: int, found: list[list[int]]
) -> Iterator[Claim]:
    what = f"With {length} tokens and {n} {who}{'s' * (n > 1)}, "
    yield Claim(
        f"there's one list for each {who}",
        len(found) == n,
        f"{what}there are {len(found)}.",
    )
    if len(found) != n:
        return
    everything = sorted(itertools.chain(*found)) == list(range(length))
    yield Claim(
        f"each token is on exactly one {who}",
        everything,
        f"{what}they aren't.",
    )
    if not everything:
        return
    sizes = [len(tokens) for tokens in found]
    yield Claim(
        f"all {who}s have equally many tokens",
        len(set(sizes)) == 1,
        f"{what}they have {', '.join(map(str, sizes))}.",
    )
    if len(set(sizes)) > 1:
        return
    scores = [sum(i + 1 for i in tokens) for tokens in found]
    yield Claim(
        f"all {who}s have equally many scores",
        len(set(scores)) == 1,
        f"{what}they have {', '.join(map(str, scores))}. "
        + _why_unequal(who, found, n),
    )
    rising = all(tokens == sorted(tokens) for tokens in found)
    yield Claim(
        f"a {who}'s tokens rise",
        rising,
        f"{what}those of some {who} don't. Attention's mask needs their order.",
    )
    if not rising or len(set(scores)) > 1:
        return
    runs = [
        1 + sum(b != a + 1 for a, b in itertools.pairwise(tokens)) for tokens in found
    ]
    yield Claim(
        f"a {who}'s tokens form at most two runs",
        max(runs) <= 2,
        f"{what}they form {max(runs)} on some {who}.",
    )


def _why_unequal(who: str, found: list[list[int]], n: int) -> str:
    if all(
        tokens == list(range(rank, len(tokens) * n, n))
        for rank, tokens in enumerate(found)
    ):
        return (
            "Dealing tokens out one by one is almost fair, but each time the last "
            f"{who} gets the longest."
        )
    if all(len(tokens) == tokens[-1] - tokens[0] + 1 for tokens in found):
        return "That's the text in order, as it was."
    return f"What should a {who} get that has got the very first tokens?"
