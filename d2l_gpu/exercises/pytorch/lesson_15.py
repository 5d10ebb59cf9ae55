"""Planning a run: operations, batches and deadlines, and plans for a cluster."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run
from d2l_gpu.exercises.variants.draw import Draw, Vary
from d2l_gpu.vgpu.sim.plans import Machine, Outcome, Plan, simulate

EXERCISES = Registry()

# ------------------------------------------------------------------ how long it takes

# Depth, width, parameters, tokens, length, GPUs, their peak, and the MFU.
_RUNS = (
    (32, 4096, 8.03e9, 160e9, 8192, 512, 989e12, 0.4),
    (80, 8192, 70.6e9, 15e12, 8192, 2048, 989e12, 0.35),
    (32, 4096, 8.03e9, 1e9, 131_072, 64, 312e12, 0.5),
)


def _other_runs(draw: Draw) -> tuple[tuple, ...]:
    """Return runs like `_RUNS`, the last one with long texts."""

    def on(gpus: int, peak: float) -> tuple[int, float, float]:
        return gpus, peak, draw.integer(25, 55) / 100

    return (
        (32, 4096, 8.03e9, draw.integer(50, 400) * 1e9, 8192, *on(256, 989e12)),
        (80, 8192, 70.6e9, draw.integer(2, 15) * 1e12, 4096, *on(4096, 989e12)),
        (32, 4096, 8.03e9, draw.integer(1, 9) * 1e9, 131_072, *on(32, 312e12)),
    )


def _days(depth, width, parameters, tokens, length, gpus, peak, mfu) -> float:
    each = 6 * parameters + 12 * depth * width * length
    return each * tokens / (gpus * peak * mfu) / 86_400


# What readers get wrong, each with what it would make of a run.
_WRONG_DAYS = {
    "You leave out attention, which does most of the work when texts are long.": (
        lambda L, d, n, t, s, g, p, m: 6 * n * t / (g * p * m) / 86_400
    ),
    "You count only the forward pass: it's two operations per parameter and token, and "
    "the backward pass takes twice as many.": (
        lambda L, d, n, t, s, g, p, m: (
            (2 * n + 4 * L * d * s) * t / (g * p * m) / 86_400
        )
    ),
    "You count half of attention's operations. A mask would save them, but here they "
    "count.": lambda L, d, n, t, s, g, p, m: _days(L, d, n, t, s / 2, g, p, m),
    "Those would be the days if the GPUs ran at their peak.": (
        lambda *run: _days(*run) * run[-1]
    ),
    "Those are the days of a single GPU.": lambda *run: _days(*run) * run[5],
    "Those are seconds.": lambda *run: _days(*run) * 86_400,
    "Those are hours.": lambda *run: _days(*run) * 24,
}


def _each(answer: Callable, gpus: Gpus, cases: Sequence) -> list[float]:
    return [float(answer(*case)) for case in cases]


@EXERCISES.add(
    "15.1",
    "depth, width, parameters, tokens, length, gpus, peak, mfu",
    returns=(int, float),
    vary={"runs": Vary(_RUNS, _other_runs)},
)
def training_days(run: Run, runs: Sequence[tuple]):
    said = "the days are right, for short texts and long ones"
    yield _claim(run, said, runs, _days, _WRONG_DAYS, "days")


def _claim(
    run: Run,
    said: str,
    cases: Sequence[tuple],
    formula: Callable[..., float],
    mistakes: Mapping[str, Callable],
    unit: str,
) -> Claim:
    """Return the claim that an answer agrees with a formula in all cases."""
    found = run(_each, cases)
    right = [formula(*case) for case in cases]
    hint = _hint(found, right, cases, mistakes, unit)
    return Claim(said, _close(found, right), hint)


def _close(found: Sequence[float], right: Sequence[float]) -> bool:
    return all(
        math.isclose(x, y, rel_tol=1e-3) for x, y in zip(found, right, strict=True)
    )


def _hint(
    found: Sequence[float],
    right: Sequence[float],
    cases: Sequence[tuple],
    mistakes: Mapping[str, Callable],
    unit: str,
) -> str:
    """Return the mistake that explains all results, or the first that's wrong."""
    for hint, formula in mistakes.items():
        if _close(found, [formula(*case) for case in cases]):
            return hint
    for case, mine, true in zip(cases, found, right, strict=True):
        if not math.isclose(mine, true, rel_tol=1e-3):
            given = ", ".join(f"{x:,g}" for x in case)
            return f"With {given}, you return {mine:.3g} {unit} instead of {true:.3g}."
    return ""


# ------------------------------------------------------------------ a wrong MFU

# Parameters, sequences, length, accumulation, world size, tensor, pipeline, seconds
# and peak.
_STEPS = (
    (8.03e9, 2, 8192, 1, 8, 1, 1, 2.5, 989e12),
    (70.6e9, 1, 8192, 16, 64, 8, 2, 6.5, 989e12),
    (70.6e9, 2, 4096, 8, 256, 1, 4, 70.0, 312e12),
)


def _other_steps(draw: Draw) -> tuple[tuple, ...]:
    """Return steps like `_STEPS`: without a split, with both, and with stages."""
    seconds = [draw.integer(10, 90) / 10 for _ in range(3)]
    return (
        (8.03e9, draw.integer(1, 4), 8192, 1, 8, 1, 1, seconds[0], 989e12),
        (70.6e9, 1, 8192, draw.integer(5, 20), 64, 4, 4, seconds[1], 989e12),
        (70.6e9, 2, 4096, draw.integer(5, 9), 256, 1, 8, 10 * seconds[2], 312e12),
    )


def _mfu(n, sequences, length, accumulation, world, tensor, pipeline, seconds, peak):
    tokens = sequences * length * accumulation * (world // (tensor * pipeline))
    return 6 * n * tokens / (seconds * world * peak)


_WRONG_MFU = {
    "That's what it was: it still counts tokens once for each GPU.": (
        lambda *step: _mfu(*step) * step[5] * step[6]
    ),
    "You forget that tensor-parallel GPUs work on the same sequences.": (
        lambda *step: _mfu(*step) * step[5]
    ),
    "You forget that the stages of a pipeline work on the same sequences.": (
        lambda *step: _mfu(*step) * step[6]
    ),
    "You count the tokens of a single pipeline.": (
        lambda *step: _mfu(*step) * step[5] * step[6] / step[4]
    ),
    "You leave out all microbatches but one.": lambda *step: _mfu(*step) / step[3],
    "Those are percent. Return a fraction.": lambda *step: 100 * _mfu(*step),
}


@EXERCISES.add(
    "15.2",
    "parameters, sequences, length, accumulation, world_size, tensor, pipeline, "
    "seconds, peak",
    returns=(int, float),
    vary={"steps": Vary(_STEPS, _other_steps)},
)
def mfu(run: Run, steps: Sequence[tuple]):
    said = "the MFU is right, with and without tensor and pipeline parallelism"
    yield _claim(run, said, steps, _mfu, _WRONG_MFU, "")


# ------------------------------------------------------------------ a slow plan

_SLOW = Plan(pipeline=8, tensor=8, microbatches=8, sequences=16, checkpoint="full")
_AT_LEAST = 1.6  # times as fast


def _cluster() -> Machine:
    return Machine(8, 8, "H100", network="Ethernet 100", cards=1)


def _better(answer: Callable, gpus: Gpus, plan: dict) -> dict:
    return asdict(answer(Plan(**plan)))


@EXERCISES.add("15.3", "plan", returns=Plan)
def faster(run: Run):
    plan = Plan(**run(_better, asdict(_SLOW)))
    yield Claim(
        "your plan takes all 64 GPUs of the cluster",
        plan.gpus == _SLOW.gpus,
        f"It takes {plan.gpus:,} GPUs.",
    )
    yield Claim(
        "a step has 128 sequences",
        plan.batch == _SLOW.batch,
        f"With {plan.shards} shard(s), {plan.replicas} replica(s), "
        f"{plan.microbatches} microbatch(es) and {plan.sequences} sequence(s) in "
        f"each, it has {plan.batch}.",
    )
    if plan.gpus != _SLOW.gpus or plan.batch != _SLOW.batch:
        return
    outcome = yield from _simulated("Llama 3.1 70B", plan, _cluster())
    if outcome is None:
        return
    before = simulate("Llama 3.1 70B", _SLOW, _cluster())
    times = before.seconds / outcome.seconds
    yield Claim(
        f"it's at least {_AT_LEAST} times as fast",
        times >= _AT_LEAST,
        f"It's {times:.2f} times as fast. {outcome.limits}",
    )


def _simulated(network: str, plan: Plan, machine: Machine):
    """Yield the claims that a plan can run and fits; return its outcome, or None."""
    try:
        outcome: Outcome | None = simulate(network, plan, machine)
        problem = ""
    except ValueError as error:
        outcome, problem = None, str(error)
    yield Claim("it suits the model and the cluster", not problem, problem)
    if outcome is None:
        return None
    yield Claim("it fits into the GPUs' memory", outcome.fits, outcome.reason)
    return outcome if outcome.fits else None


# ------------------------------------------------------------------ a deadline

_BATCH = 256
_NODES = (1, 2, 4, 8, 16)
# Tokens, days, and the fewest nodes that are enough (computed below).
_DEADLINES = ((20e9, 3.0), (20e9, 1.2), (60e9, 1.0))


@functools.cache
def _machine(nodes: int) -> Machine:
    return Machine(nodes, 8, "A100 80GB")


@functools.cache
def _usual(nodes: int) -> float:
    """Return the tokens per second of FSDP over all GPUs, 0 if it doesn't fit."""
    outcomes = [
        simulate("Llama 3.1 8B", plan, _machine(nodes))
        for plan in (
            Plan(
                shards=8 * nodes,
                microbatches=_BATCH // (8 * nodes),
                checkpoint=checkpoint,
            )
            for checkpoint in ("none", "selective", "full")
        )
    ]
    return max((x.tokens_per_second for x in outcomes if x.fits), default=0.0)


def _enough(tokens: float, days: float) -> int | None:
    """Return how many nodes are enough with the usual plan."""
    for nodes in _NODES:
        if _usual(nodes) * days * 86_400 >= tokens:
            return nodes
    return None


def _planned(answer: Callable, gpus: Gpus, tokens: float, days: float) -> dict | None:
    found = answer(tokens, days)
    if found is None:
        return None
    if not (
        isinstance(found, tuple | list)
        and len(found) == 2
        and isinstance(found[0], int)
        and isinstance(found[1], Plan)
    ):
        return {"wrong": type(found).__name__}
    return {"nodes": found[0], "plan": asdict(found[1])}


@EXERCISES.add("15.4", "tokens, days", seconds=60, repeat=False)
def plan_run(run: Run):
    for tokens, days in _DEADLINES:
        found = run(_planned, tokens, days)
        enough = _enough(tokens, days)
        case = f"for {tokens / 1e9:.0f} billion tokens in {days:g} days"
        if enough is None:
            yield Claim(
                f"{case}, it returns None",
                found is None,
                "Not even 16 nodes are fast enough.",
            )
            continue
        if found is None or "wrong" in found:
            what = "None" if found is None else f"of type {found['wrong']}"
            yield Claim(
                f"{case}, it returns a number of nodes and a `Plan`",
                False,
                f"What it returns is {what}.",
            )
            return
        nodes, plan = found["nodes"], Plan(**found["plan"])
        yield Claim(
            f"{case}, it chooses a number of nodes that you can have",
            nodes in _NODES,
            f"It chooses {nodes}.",
        )
        yield Claim(
            f"{case}, a step has {_BATCH} sequences",
            plan.batch == _BATCH,
            f"It has {plan.batch}.",
        )
        if nodes not in _NODES or plan.batch != _BATCH:
            return
        outcome = yield from _simulated("Llama 3.1 8B", plan, _machine(nodes))
        if outcome is None:
            return
        takes = tokens / outcome.tokens_per_second / 86_400
        yield Claim(
            f"{case}, it's in time",
            takes <= days,
            f"With {nodes} node(s) and your plan, it takes {takes:.2f} days.",
        )
        yield Claim(
            f"{case}, it takes no more nodes than necessary",
            nodes <= enough,
            f"Fewer nodes than your {nodes} are enough, if the plan is a good one.",
        )
        if takes > days or nodes > enough:
            return


# ------------------------------------------------------------------ the best batch

# Seconds of a step by batch, critical batch size, and the waste that's allowed.
_MEASURED = {2**k * 1_000_000: 4 + 0.1 * 2**k for k in range(6)}
_SLOWER = {4_000_000: 40.0, 1_000_000: 3.0, 2_000_000: 5.2}
_CHOICES = (
    (_MEASURED, 4_000_000, 2.0),
    (_MEASURED, 4_000_000, 100.0),
    (_MEASURED, 16_000_000, 1.5),
    (_SLOWER, 4_000_000, 3.0),
    (_SLOWER, 2_000_000, 1.1),
)


def _other_choices(draw: Draw) -> tuple[tuple, ...]:
    """Return choices like `_CHOICES`, with other measured times."""
    first = draw.integer(2, 9)
    measured = {
        2**k * 1_000_000: first + draw.integer(8, 14) * 2**k / 100 for k in range(6)
    }
    return (
        (measured, 4_000_000, 2.0),
        (measured, 4_000_000, 100.0),
        (measured, draw.integer(9, 20) * 1_000_000, 1.5),
        (_SLOWER, 4_000_000, 3.0),
        (_SLOWER, 2_000_000, 1.1),
    )


def _best(seconds, critical, waste, time=None):
    time = time or (lambda b: (1 + critical / b) * seconds[b])
    allowed = [b for b in seconds if 1 + b / critical <= waste]
    return min(allowed, key=time, default=None)


_WRONG_BATCHES = {
    "You choose the largest batch that's allowed, but its steps can take so long that "
    "a smaller one ends sooner.": (
        lambda s, c, w: max((b for b in s if 1 + b / c <= w), default=None)
    ),
    "You choose the batch whose steps are shortest, but it needs more of them.": (
        lambda s, c, w: _best(s, c, w, lambda b: s[b])
    ),
    "You choose the batch that processes tokens fastest. How many does it need?": (
        lambda s, c, w: _best(s, c, w, lambda b: s[b] / b)
    ),
    "You don't look at how many tokens a batch wastes.": (
        lambda s, c, w: _best(s, c, math.inf)
    ),
    "You allow too much: a batch as large as the critical one already needs twice as "
    "many tokens as the smallest.": (
        lambda s, c, w: _best({b: s[b] for b in s if b / c <= w}, c, math.inf)
    ),
}


def _chosen(answer: Callable, gpus: Gpus, cases: Sequence) -> list:
    return [answer(dict(seconds), critical, w) for seconds, critical, w in cases]


@EXERCISES.add(
    "15.5",
    "seconds, critical, waste",
    vary={"choices": Vary(_CHOICES, _other_choices)},
)
def best_batch(run: Run, choices: Sequence[tuple]):
    found = run(_chosen, choices)
    right = [_best(*case) for case in choices]
    hint = _wrong_batch(choices, found, right) if found != right else ""
    yield Claim("it's the batch that ends soonest", found == right, hint)


def _wrong_batch(choices: Sequence[tuple], found: Sequence, right: Sequence) -> str:
    for hint, rule in _WRONG_BATCHES.items():
        if found == [rule(*case) for case in choices]:
            return hint
    for (seconds, critical, waste), mine, true in zip(
        choices, found, right, strict=True
    ):
        if mine != true:
            return (
                f"With {_table(seconds)}, a critical batch size of {critical:,} and a "
                f"waste of {waste:g}, you return {mine!r} instead of {true!r}."
            )
    return ""


def _table(seconds: Mapping[int, float]) -> str:
    return "{" + ", ".join(f"{b:_}: {s:g}" for b, s in seconds.items()) + "}"
