"""The thousand-GPU puzzle: the fastest plan for each level."""

import contextlib
from collections.abc import Iterator

from d2l_gpu.exercises.best_plans import keep
from d2l_gpu.exercises.registry import Claim, Registry
from d2l_gpu.vgpu.sim.plans import Plan
from d2l_gpu.vgpu.sim.puzzle import ENOUGH, level

EXERCISES = Registry()

# Seconds: a plan with a thousand microbatches takes some to simulate.
_LONG = 120


def _solved(number: str, answer: dict) -> Iterator[Claim]:
    """Yield the claims on a plan for a level; keep it if it's the reader's best."""
    puzzle, plan = level(number), Plan(**answer)
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


@EXERCISES.add("17.1", returns=Plan, seconds=_LONG)
def beat_published(answer):
    yield from _solved("17.1", answer)


@EXERCISES.add("17.2", returns=Plan, seconds=_LONG)
def little_memory(answer):
    yield from _solved("17.2", answer)


@EXERCISES.add("17.3", returns=Plan, seconds=_LONG)
def slow_network(answer):
    yield from _solved("17.3", answer)


@EXERCISES.add("17.4", returns=Plan, seconds=_LONG)
def thousand_gpus(answer):
    yield from _solved("17.4", answer)
