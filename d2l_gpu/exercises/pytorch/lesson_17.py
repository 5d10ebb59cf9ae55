"""The thousand-GPU puzzle: the fastest plan for each level."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from d2l_gpu.exercises.best_plans import keep
from d2l_gpu.exercises.registry import Claim, Registry
from d2l_gpu.exercises.variants.draw import one_of
from d2l_gpu.vgpu.sim.plans import Plan, simulate
from d2l_gpu.vgpu.sim.puzzle import ENOUGH, Level, level

EXERCISES = Registry()

# Seconds: a plan with a thousand microbatches takes some to simulate.
_LONG = 120

# The fastest plan that we've found in a level's grid if a step has another number of
# sequences; a variant draws one of these numbers.
_OTHERS = {
    "17.1": {256: Plan(tensor=2, shards=128, microbatches=2, checkpoint="selective")},
    "17.2": {
        128: Plan(tensor=2, shards=32, microbatches=4, checkpoint="full"),
        192: Plan(tensor=2, shards=32, microbatches=6, checkpoint="full"),
    },
    "17.3": {32: Plan(pipeline=8, tensor=4, microbatches=32, zero=1)},
    "17.4": {
        256: Plan(
            pipeline=8,
            tensor=4,
            shards=32,
            microbatches=8,
            checkpoint="selective",
            schedule="interleaved",
            stages=2,
            zero=1,
        )
    },
}


def _level(number: str, batch: int) -> Level:
    return replace(level(number), batch=batch)


def _vary(number: str) -> dict[str, Any]:
    """Return what a registry takes of a level's variants."""
    batch = level(number).batch

    def key(batch: int) -> Plan:
        return _OTHERS[number].get(batch) or level(number).best

    return {"vary": {"batch": one_of(batch, *_OTHERS[number])}, "key": key}


def _solved(number: str, answer: dict, batch: int) -> Iterator[Claim]:
    """Yield the claims on a plan for a level; keep it if it's the reader's best."""
    puzzle, plan = _level(number, batch), Plan(**answer)
    yield Claim(
        f"it takes all {puzzle.machine.world_size:,} GPUs",
        plan.gpus == puzzle.machine.world_size,
        f"It takes pipeline × tensor × shards × replicas = {plan.gpus:,}.",
    )
    if plan.gpus != puzzle.machine.world_size:
        return
    problem = puzzle.problem(plan)
    yield Claim(
        f"it suits the model, and a step has {puzzle.batch:,} sequences",
        not problem,
        problem,
    )
    if problem:
        return
    if batch in _OTHERS[number]:
        yield from _compared(puzzle, plan, _OTHERS[number][batch])
        return
    score = puzzle.score(plan)
    outcome = score.outcome
    yield Claim("it fits into the GPUs' memory", outcome.fits, outcome.reason)
    if not outcome.fits:
        return
    # A score is worth something even where nothing can be written.
    with contextlib.suppress(OSError, ImportError):
        keep(score)
    said = f"it reaches {ENOUGH:.0%} of the fastest plan in the grid: {score.sentence}"
    if score.solved:
        said += f". {outcome.limits.removesuffix('.')}"
    yield Claim(said, score.solved, outcome.limits)


def _compared(puzzle: Level, plan: Plan, fastest: Plan) -> Iterator[Claim]:
    """Yield the claims on a plan in a variant, which has no grid to compare it with."""
    outcome, best = (
        simulate(puzzle.network, each, puzzle.machine) for each in (plan, fastest)
    )
    yield Claim("it fits into the GPUs' memory", outcome.fits, outcome.reason)
    if outcome.fits:
        share = outcome.tokens_per_second / best.tokens_per_second
        yield Claim(
            f"it reaches {ENOUGH:.0%} of the speed of the fastest plan: "
            f"{outcome.tokens_per_second:,.0f} tokens/s, {share:.1%}",
            share >= ENOUGH,
            outcome.limits,
        )


@EXERCISES.add("17.1", returns=Plan, seconds=_LONG, **_vary("17.1"))
def beat_published(answer, batch: int):
    yield from _solved("17.1", answer, batch)


@EXERCISES.add("17.2", returns=Plan, seconds=_LONG, **_vary("17.2"))
def little_memory(answer, batch: int):
    yield from _solved("17.2", answer, batch)


@EXERCISES.add("17.3", returns=Plan, seconds=_LONG, **_vary("17.3"))
def slow_network(answer, batch: int):
    yield from _solved("17.3", answer, batch)


@EXERCISES.add("17.4", returns=Plan, seconds=_LONG, **_vary("17.4"))
def thousand_gpus(answer, batch: int):
    yield from _solved("17.4", answer, batch)
