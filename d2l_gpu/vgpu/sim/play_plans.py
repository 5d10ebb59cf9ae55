"""Language models in a playground: a setting is a ``plans.Plan``; see ``play.py``."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from .plans import Machine, Outcome, Plan, model, simulate
from .recordings import FILES

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
        default = {
            **{"model": name, "gpu": "H100", "nodes": 1, "gpus": 8},
            **{"link": None, "network": None, "precision": PRECISION, "batch": 1},
            "algorithm": "automatic",
            **{field.name: field.default for field in CHOSEN},
            "shards": None,
            **DEFAULTS.get(name, {}),
        }
        found[name] = {
            "name": name,
            "title": name,
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
            f"A batch of {batch} can't be divided into {parts} microbatches: choose a "
            f"batch that is a multiple of {parts}."
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
