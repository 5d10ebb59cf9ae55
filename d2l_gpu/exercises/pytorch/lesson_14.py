"""Splitting layers and stages: several ranks, or the plan for them."""

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch.nn import functional as F

from d2l_gpu import vgpu
from d2l_gpu.exercises.cases import in_all
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.pytorch.arrays import as_number
from d2l_gpu.exercises.registry import Claim, Registry, Run

EXERCISES = Registry()
_RANKS = 4

# ------------------------------------------------------------------ a bias too many


def _layer() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return torch.randn(5, 24), torch.randn(6, 24), torch.randn(6)


def _row_parallel(answer: Callable, gpus: Gpus, ranks: int) -> list:
    """Return what each rank gets, None if it isn't a tensor of the right shape."""
    H, W, b = _layer()

    def call(rank: int, world_size: int):
        parts = H.chunk(ranks, 1)[rank], W.chunk(ranks, 1)[rank], b
        found = answer(*(x.to("vgpu") for x in parts))
        return found.detach().cpu().numpy() if isinstance(found, torch.Tensor) else None

    return vgpu.run_ranks(call, ranks)


@EXERCISES.add("14.1", "H, W, b", gpus=_RANKS)
def row_parallel(run: Run):
    H, W, b = _layer()
    right = F.linear(H, W, b).numpy()
    cases = {ranks: run(_row_parallel, ranks) for ranks in (_RANKS, 2)}
    tensors = all(found is not None for each in cases.values() for found in each)
    yield Claim("it returns a tensor", tensors, "On some rank it doesn't.")
    if not tensors:
        return
    shapes = [found.shape for each in cases.values() for found in each]
    yield Claim(
        "the result has a row for each row of `H` and a column for each output",
        set(shapes) == {right.shape},
        f"With {right.shape[0]} rows and {right.shape[1]} outputs, yours has the shape "
        f"{next((x for x in shapes if x != right.shape), None)}.",
    )
    if set(shapes) != {right.shape}:
        return
    alike = all(
        np.allclose(each[0], x, atol=1e-4) for each in cases.values() for x in each
    )
    yield Claim(
        "all ranks get the same",
        alike,
        "They don't: some have added what others haven't.",
    )
    if alike:
        yield Claim(
            "it's the output of the layer, with two ranks and with four",
            all(np.allclose(each[0], right, atol=1e-4) for each in cases.values()),
            _wrong_output(cases, right, b.numpy()),
        )


def _wrong_output(cases: dict[int, list], right: np.ndarray, b: np.ndarray) -> str:
    counts = {}
    for ranks, found in cases.items():
        extra = (found[0] - right) / b
        if not np.allclose(extra, extra[0, 0], atol=1e-3):
            return "It isn't, and the difference isn't a multiple of the bias."
        counts[ranks] = 1 + round(float(extra[0, 0]), 2)
    if set(counts.values()) == {0}:
        return "The bias is missing."
    return (
        "The bias is in it "
        + " and ".join(
            f"{count:g} times with {ranks} ranks" for ranks, count in counts.items()
        )
        + "."
    )


# ------------------------------------------------------------------ heads in order

_HEADS, _SIZE = 6, 4


def _rows() -> torch.Tensor:
    """Return a weight whose first column numbers its rows."""
    torch.manual_seed(0)
    W = torch.randn(3 * _HEADS * _SIZE, _HEADS * _SIZE)
    W[:, 0] = torch.arange(len(W))
    return W


def _split(answer: Callable, gpus: Gpus, world_size: int) -> list:
    W = _rows().to(gpus[0])
    return [
        answer(W, _HEADS, rank, world_size).detach().cpu().numpy()
        for rank in range(world_size)
    ]


@EXERCISES.add("14.2", "W, heads, rank, world_size", returns=torch.Tensor)
def split_qkv(run: Run):
    W = _rows().numpy()
    ordered = W.reshape(3, _HEADS, _SIZE, -1).swapaxes(0, 1)
    cases = {n: run(_split, n) for n in (1, 2, 3)}
    shapes = [
        (n, found.shape, (len(W) // n, W.shape[1]))
        for n, each in cases.items()
        for found in each
    ]
    strange = [case for case in shapes if case[1] != case[2]]
    yield Claim(
        "each rank gets an equal share of the rows",
        not strange,
        "With {} ranks, a rank gets the shape {} instead of {}.".format(*strange[0])
        if strange
        else "",
    )
    if strange:
        return
    heads = [
        {int(row) % (_HEADS * _SIZE) // _SIZE for row in found[:, 0]}
        == set(range(rank * _HEADS // n, (rank + 1) * _HEADS // n))
        for n, each in cases.items()
        for rank, found in enumerate(each)
    ]
    yield Claim(
        "each rank gets its heads, and no rows of others",
        all(heads),
        _wrong_heads(cases),
    )
    if not all(heads):
        return
    right = [
        np.array_equal(found, part.reshape(found.shape))
        for n, each in cases.items()
        for found, part in zip(each, np.split(ordered, n), strict=True)
    ]
    yield Claim(
        "its rows are ordered head by head: queries, keys, values",
        all(right),
        _wrong_order(cases[2][0], W),
    )


def _wrong_heads(cases: dict[int, list]) -> str:
    found = cases[2][0][:, 0].astype(int)
    per = _HEADS * _SIZE
    if len(set(found)) < len(found):
        return "Some rows are there twice."
    kinds = [int((found // per == kind).sum()) for kind in range(3)]
    if len(set(kinds)) > 1:
        return (
            f"The first of two ranks gets {kinds[0]} rows of queries, {kinds[1]} of "
            f"keys and {kinds[2]} of values. It needs equally many."
        )
    heads = sorted({int(row) % per // _SIZE for row in found})
    return f"The first of two ranks gets rows of heads {', '.join(map(str, heads))}."


def _wrong_order(found: np.ndarray, W: np.ndarray) -> str:
    rows = found[:, 0].astype(int)
    per = _HEADS * _SIZE
    if np.all(np.diff(rows) > 0):
        return (
            "The rows are the right ones, but all queries come first. In this lesson's "
            "block, a head's queries are followed by the same head's keys."
        )
    first = [("queries", "keys", "values")[row // per] for row in rows[::_SIZE]]
    if np.array_equal(np.sort(rows), np.unique(rows)) and first[:2] == first[1:3]:
        return "Yours begins with the same kind of rows for several heads."
    return (
        "On the first of two ranks, yours begins with the "
        f"{first[0]} of head {rows[0] % per // _SIZE}, row {rows[0] % _SIZE}, then "
        f"row {rows[1] % _SIZE} of the {('queries', 'keys', 'values')[rows[1] // per]} "
        f"of head {rows[1] % per // _SIZE}."
    )


# ------------------------------------------------------------------ 1F1B

_PIPELINES = ((4, 8), (1, 3), (3, 3), (4, 2), (5, 12))
_LONG = {"F": 1, "B": 2}


def _schedules(answer: Callable, gpus: Gpus) -> list:
    return [
        [
            [[str(kind), int(i)] for kind, i in answer(stage, stages, microbatches)]
            for stage in range(stages)
        ]
        for stages, microbatches in _PIPELINES
    ]


@EXERCISES.add("14.3", "stage, stages, microbatches", returns=(list, tuple))
def one_f_one_b(run: Run):
    yield from in_all(
        _of_a_pipeline(*case, [[tuple(x) for x in actions] for actions in found])
        for case, found in zip(_PIPELINES, run(_schedules), strict=True)
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


# ------------------------------------------------------------------ equal work

_TEXTS = ((64, 4), (12, 2), (30, 5), (8, 1))


def _placed(answer: Callable, gpus: Gpus) -> list:
    return [
        [[int(i) for i in tokens] for tokens in answer(length, n)]
        for length, n in _TEXTS
    ]


@EXERCISES.add("14.4", "length, n", returns=(list, tuple))
def places(run: Run):
    yield from in_all(
        _of_a_text(*case, found)
        for case, found in zip(_TEXTS, run(_placed), strict=True)
    )


def _of_a_text(length: int, n: int, found: list[list[int]]) -> Iterator[Claim]:
    what = f"With {length} tokens and {n} rank{'s' * (n > 1)}, "
    yield Claim(
        "there's one list for each rank",
        len(found) == n,
        f"{what}there are {len(found)}.",
    )
    if len(found) != n:
        return
    everything = sorted(itertools.chain(*found)) == list(range(length))
    yield Claim(
        "each token is on exactly one rank",
        everything,
        f"{what}they aren't.",
    )
    if not everything:
        return
    sizes = [len(tokens) for tokens in found]
    yield Claim(
        "all ranks have equally many tokens",
        len(set(sizes)) == 1,
        f"{what}they have {', '.join(map(str, sizes))}.",
    )
    if len(set(sizes)) > 1:
        return
    scores = [sum(i + 1 for i in tokens) for tokens in found]
    yield Claim(
        "all ranks have equally many scores",
        len(set(scores)) == 1,
        f"{what}they have {', '.join(map(str, scores))}. " + _why_unequal(found, n),
    )
    rising = all(tokens == sorted(tokens) for tokens in found)
    yield Claim(
        "a rank's tokens rise",
        rising,
        f"{what}those of some rank don't. Attention's mask needs their order.",
    )
    if not rising or len(set(scores)) > 1:
        return
    runs = [
        1 + sum(b != a + 1 for a, b in itertools.pairwise(tokens)) for tokens in found
    ]
    yield Claim(
        "a rank's tokens form at most two runs",
        max(runs) <= 2,
        f"{what}they form {max(runs)} on some rank.",
    )


def _why_unequal(found: list[list[int]], n: int) -> str:
    if all(
        tokens == list(range(rank, len(tokens) * n, n))
        for rank, tokens in enumerate(found)
    ):
        return (
            "Dealing tokens out one by one is almost fair, but each time the last rank "
            "gets the longest."
        )
    if all(len(tokens) == tokens[-1] - tokens[0] + 1 for tokens in found):
        return "That's the text in order, as it was."
    return "What should a rank get that has got the very first tokens?"


# ------------------------------------------------------------------ a split loss

_TOKENS, _WORDS = 512, 256  # words of one rank


def _logits(large: bool) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    logits = torch.randn(_TOKENS, _RANKS * _WORDS) * (150 if large else 2)
    return logits, torch.randint(_RANKS * _WORDS, (_TOKENS,))


def _losses(answer: Callable, gpus: Gpus, large: bool) -> dict:
    """Return each rank's loss, and the most memory that one took beside its logits."""
    logits, y = _logits(large)

    def call(rank: int, world_size: int):
        mine, labels = logits.chunk(_RANKS, 1)[rank].to("vgpu"), y.to("vgpu")
        device = mine.device
        before = torch.vgpu.memory_allocated(device)
        torch.vgpu.reset_peak_memory_stats(device)
        found = answer(mine, labels)
        most = torch.vgpu.max_memory_allocated(device) - before
        scalar = isinstance(found, torch.Tensor) and found.dim() == 0
        return as_number(found.detach().cpu()) if scalar else None, most

    found = vgpu.run_ranks(call, _RANKS)
    return {"losses": [x for x, _ in found], "most": max(most for _, most in found)}


@EXERCISES.add("14.5", "logits, y", gpus=_RANKS)
def split_loss(run: Run):
    small, large = run(_losses, False), run(_losses, True)
    scalars = all(x is not None for x in small["losses"] + large["losses"])
    yield Claim(
        "every rank returns a tensor with a single number",
        scalars,
        "On some rank it isn't one.",
    )
    if not scalars:
        return
    logits, y = _logits(False)
    wanted = float(F.cross_entropy(logits, y))
    right = np.allclose(small["losses"], wanted, rtol=1e-3)
    yield Claim(
        "it's the loss for all words together, on every rank",
        right,
        _wrong_loss(small["losses"], logits, y, wanted),
    )
    if not right:
        return
    wanted = float(F.cross_entropy(*_logits(True)))
    found = large["losses"]
    yield Claim(
        "large logits don't matter",
        np.allclose(found, wanted, rtol=1e-3),
        f"With logits beyond 500, it should be {wanted:.1f}, but yours is "
        f"{found[0]:.1f}.",
    )
    ratio = small["most"] / (4 * _TOKENS * _WORDS)
    yield Claim(
        "no rank gathers all logits",
        ratio < 3.5,
        f"Beside its own logits, a rank needs {ratio:.1f} times their memory.",
    )


def _wrong_loss(
    losses: list[float], logits: torch.Tensor, y: torch.Tensor, wanted: float
) -> str:
    if not np.allclose(losses, losses[0], rtol=1e-4):
        return "The ranks return different numbers. Has each of them heard of all?"
    found = losses[0]
    if np.isclose(found, wanted * _TOKENS, rtol=1e-3):
        return "It's the sum over the tokens, not their mean."
    if np.isclose(found, float(logits.logsumexp(1).mean()), rtol=1e-3):
        return "The logit of the right word is missing."
    return f"It should be {wanted:.4f}, but yours is {found:.4f}."
