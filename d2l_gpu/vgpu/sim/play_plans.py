"""Language models in a playground: a setting is a ``plans.Plan``; see ``play.py``."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from .plans import Machine, Outcome, Plan, model, simulate
from .recordings import FILES
from .units import size_text

BATCHES = (1, 2, 4, 8, 16, 32)
PRECISION = "bf16"  # that of the recordings, beside fp32 for what is kept

# Where a model's default differs from 8 × H100 with everything else as it's in a Plan.
DEFAULTS = {
    "GPT-2 124M": {"batch": 8},
    "Llama 3.1 8B": {"batch": 2, "checkpoint": "selective"},
    "Llama 3.1 70B": {"nodes": 8, "checkpoint": "full"},
}

# Those of a Plan; ``sequences`` follow from the batch.
CHOSEN = tuple(x for x in fields(Plan) if x.name != "sequences")


def abouts() -> dict[str, dict[str, Any]]:
    """Return what there is to choose for each language model, by its name."""
    found = {}
    for name in FILES:
        recorded = model(name)
        size = f"{recorded.shape.length:,} tokens"
        default = {
            **{"model": name, "gpu": "H100", "nodes": 1, "gpus": 8},
            **{"link": None, "network": None, "cards": None, "precision": PRECISION},
            **{"batch": 1, "algorithm": "automatic"},
            **{field.name: field.default for field in CHOSEN},
            "shards": None,
            **DEFAULTS.get(name, {}),
        }
        found[name] = {
            "name": name,
            "title": f"{name}, {size}",
            "size": size,
            "kind": "plans",
            "unit": "tokens",
            "batches": list(BATCHES),
            "precisions": [PRECISION],
            "source": recorded.source,
            "parameters": recorded.parameters,
            "tensor": list(recorded.tensor),
            "checkpoints": list(recorded.checkpoints),
            "default": default,
        }
    return found


def plan_of(full: Mapping[str, Any]) -> Plan:
    """Return the plan of a complete setting.

    Raises:
        ValueError: the GPUs or the batch can't be divided so.
    """
    of_plan = {field.name: full[field.name] for field in CHOSEN}
    if full["shards"] is None:
        gpus = full["nodes"] * full["gpus"]
        others = full["pipeline"] * full["tensor"] * full["replicas"]
        if gpus % others:
            raise ValueError(
                f"{gpus:,} GPUs can't be divided into groups of {full['pipeline']} × "
                f"{full['tensor']} × {full['replicas']} = {others:,} (pipeline × "
                "tensor × replicas)."
            )
        of_plan["shards"] = gpus // others
    batch, parts = full["batch"], full["microbatches"]
    if batch % parts:
        raise ValueError(
            f"{batch} sequence{'s' if batch > 1 else ''} per shard can't be divided "
            f"into {parts} microbatches: choose a multiple of {parts} sequences, or "
            "fewer microbatches."
        )
    return Plan(**of_plan, sequences=batch // parts)


def simulated(full: Mapping[str, Any], machine: Machine) -> Outcome:
    """Simulate a complete setting."""
    return simulate(full["model"], plan_of(full), machine)


def on_others(full: Mapping[str, Any], gpus: int) -> dict[str, Any] | None:
    """Return a setting changed so that it takes another number of GPUs.

    Parameters are divided over as many GPUs as there are for a replica. Replicas become
    one if there can't be as many. None if there are too few GPUs, or some are left.
    """
    group = full["pipeline"] * full["tensor"]
    if gpus % group:
        return None
    replicas = full["replicas"] if gpus // group % full["replicas"] == 0 else 1
    return {**full, "shards": None, "replicas": replicas}


def hint(
    full: Mapping[str, Any], machine_of: Callable[[Mapping[str, Any]], Machine]
) -> str:
    """Return a change with which a setting would fit, in a sentence; empty if none.

    Args:
        machine_of: returns the cluster of a complete setting.
    """
    for change, words in _changes(full):
        other = {**full, **change}
        machine = machine_of(other)
        try:
            # In a byte nothing fits, so no time is simulated, which would be slow.
            outcome = simulated(other, replace(machine, memory=1))
        except ValueError:
            continue
        if outcome.allocated <= machine.capacity:
            return f"{words} it would need {size_text(outcome.allocated)}, which fits."
    return ""


def _changes(full: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield what saves memory, beginning with what costs least, and its words."""
    single: list[tuple[dict[str, Any], str]] = []
    if full["zero"] < 3:
        single.append(({"zero": 3}, "ZeRO stage 3"))
    batch = full["batch"]
    if full["microbatches"] < batch:
        words = f"1 sequence per microbatch ({batch} microbatches)"
        single.append(({"microbatches": batch}, words))
    if full["checkpoint"] != "full":
        single.append(({"checkpoint": "full"}, "full checkpointing"))
    yield from ((change, f"With {words}") for change, words in single)
    every = {key: value for change, _ in single for key, value in change.items()}
    *others, last = [words for _, words in single] or [""]
    said = f"{', '.join(others)} and {last}" if others else last
    if len(single) > 1:
        yield every, f"With {said}"
    for times in (2, 4, 8, 16, 32, 64):
        nodes = times * full["nodes"]
        gpus = f"{nodes * full['gpus']:,} GPUs"
        words = f"With {said}, on {gpus}," if single else f"On {gpus}"
        yield {**every, "nodes": nodes, "shards": None}, words
