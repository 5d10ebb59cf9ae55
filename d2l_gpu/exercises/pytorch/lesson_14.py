"""Splitting layers and stages: several ranks, or the plan for them."""

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional as F

from d2l_gpu import vgpu
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.pytorch.arrays import as_number
from d2l_gpu.exercises.registry import Claim, Registry, Run
from d2l_gpu.exercises.shared import lesson_14 as common
from d2l_gpu.exercises.variants.draw import one_of, seeds

EXERCISES = Registry()
_RANKS = 4

# ------------------------------------------------------------------ a bias too many


def _layer(data: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(data)
    return torch.randn(5, 24), torch.randn(6, 24), torch.randn(6)


def _row_parallel(answer: Callable, gpus: Gpus, ranks: int, data: int) -> list:
    """Return what each rank gets, None if it isn't a tensor of the right shape."""
    H, W, b = _layer(data)

    def call(rank: int, world_size: int):
        parts = H.chunk(ranks, 1)[rank], W.chunk(ranks, 1)[rank], b
        found = answer(*(x.to("vgpu") for x in parts))
        return found.detach().cpu().numpy() if isinstance(found, torch.Tensor) else None

    return vgpu.run_ranks(call, ranks)


@EXERCISES.add("14.1", "H, W, b", gpus=_RANKS, vary={"data": seeds()})
def row_parallel(run: Run, data: int):
    H, W, b = _layer(data)
    right = F.linear(H, W, b).numpy()
    cases = {ranks: run(_row_parallel, ranks, data) for ranks in (_RANKS, 2)}
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
            common.wrong_output(
                {n: each[0] for n, each in cases.items()}, right, b.numpy(), "rank"
            ),
        )


# ------------------------------------------------------------------ heads in order

_HEADS = 6


def _rows(size: int) -> torch.Tensor:
    """Return a weight whose first column numbers its rows.

    Args:
        size: of a head.
    """
    torch.manual_seed(0)
    W = torch.randn(3 * _HEADS * size, _HEADS * size)
    W[:, 0] = torch.arange(len(W))
    return W


def _split(answer: Callable, gpus: Gpus, world_size: int, size: int) -> list:
    W = _rows(size).to(gpus[0])
    return [
        answer(W, _HEADS, rank, world_size).detach().cpu().numpy()
        for rank in range(world_size)
    ]


@EXERCISES.add(
    "14.2",
    "W, heads, rank, world_size",
    returns=torch.Tensor,
    vary={"size": one_of(4, 3, 5, 6, 7)},
)
def split_qkv(run: Run, size: int):
    W = _rows(size).numpy()
    ordered = W.reshape(3, _HEADS, size, -1).swapaxes(0, 1)
    cases = {n: run(_split, n, size) for n in (1, 2, 3)}
    shapes = [
        (n, found.shape, (len(W) // n, W.shape[1]))
        for n, each in cases.items()
        for found in each
    ]
    strange = [case for case in shapes if case[1] != case[2]]
    yield Claim(
        "each rank gets an equal share of the rows",
        not strange,
        f"With {strange[0][0]} ranks, a rank gets the shape {strange[0][1]} instead of "
        f"{strange[0][2]}."
        if strange
        else "",
    )
    if strange:
        return
    heads = [
        {int(row) % (_HEADS * size) // size for row in found[:, 0]}
        == set(range(rank * _HEADS // n, (rank + 1) * _HEADS // n))
        for n, each in cases.items()
        for rank, found in enumerate(each)
    ]
    yield Claim(
        "each rank gets its heads, and no rows of others",
        all(heads),
        _wrong_heads(cases, size),
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
        _wrong_order(cases[2][0], size),
    )


def _wrong_heads(cases: dict[int, list], size: int) -> str:
    found = cases[2][0][:, 0].astype(int)
    per = _HEADS * size
    if len(set(found)) < len(found):
        return "Some rows are there twice."
    kinds = [int((found // per == kind).sum()) for kind in range(3)]
    if len(set(kinds)) > 1:
        return (
            f"The first of two ranks gets {kinds[0]} rows of queries, {kinds[1]} of "
            f"keys and {kinds[2]} of values. It needs equally many."
        )
    heads = sorted({int(row) % per // size for row in found})
    return f"The first of two ranks gets rows of heads {', '.join(map(str, heads))}."


def _wrong_order(found: np.ndarray, size: int) -> str:
    rows = found[:, 0].astype(int)
    per = _HEADS * size
    if np.all(np.diff(rows) > 0):
        return (
            "The rows are the right ones, but all queries come first. In this lesson's "
            "block, a head's queries are followed by the same head's keys."
        )
    first = [("queries", "keys", "values")[row // per] for row in rows[::size]]
    if np.array_equal(np.sort(rows), np.unique(rows)) and first[:2] == first[1:3]:
        return "Yours begins with the same kind of rows for several heads."
    return (
        "On the first of two ranks, yours begins with the "
        f"{first[0]} of head {rows[0] % per // size}, row {rows[0] % size}, then "
        f"row {rows[1] % size} of the {('queries', 'keys', 'values')[rows[1] // per]} "
        f"of head {rows[1] % per // size}."
    )


# ------------------------------------------------------------------ in plain Python

common.add_shared(EXERCISES, "rank")

# ------------------------------------------------------------------ a split loss

_TOKENS, _WORDS = 512, 256  # words of one rank


def _logits(large: bool, data: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(data)
    logits = torch.randn(_TOKENS, _RANKS * _WORDS) * (150 if large else 2)
    return logits, torch.randint(_RANKS * _WORDS, (_TOKENS,))


def _losses(answer: Callable, gpus: Gpus, large: bool, data: int) -> dict:
    """Return each rank's loss, and the most memory that one took beside its logits."""
    logits, y = _logits(large, data)

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


@EXERCISES.add("14.5", "logits, y", gpus=_RANKS, vary={"data": seeds()})
def split_loss(run: Run, data: int):
    small, large = run(_losses, False, data), run(_losses, True, data)
    scalars = all(x is not None for x in small["losses"] + large["losses"])
    yield Claim(
        "every rank returns a tensor with a single number",
        scalars,
        "On some rank it isn't one.",
    )
    if not scalars:
        return
    logits, y = _logits(False, data)
    wanted = float(F.cross_entropy(logits, y))
    right = np.allclose(small["losses"], wanted, rtol=1e-3)
    yield Claim(
        "it's the loss for all words together, on every rank",
        right,
        _wrong_loss(small["losses"], logits, y, wanted),
    )
    if not right:
        return
    wanted = float(F.cross_entropy(*_logits(True, data)))
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
