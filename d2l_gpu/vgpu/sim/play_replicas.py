"""Networks for images in a playground: each GPU has a replica; see ``play.py``."""

from collections.abc import Callable, Mapping
from typing import Any

from .plans import Machine
from .replicas import FILES, PRECISIONS, Outcome, network, simulate
from .units import size_text

BATCHES = {
    "LeNet": (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
    "ResNet-18": (16, 32, 64, 128, 256, 512, 1024, 2048, 4096),
    "ResNet-50": (8, 16, 32, 64, 112, 128, 192, 256, 512),
}
DEFAULTS = {
    "LeNet": {"batch": 256},
    "ResNet-18": {"batch": 256},
    "ResNet-50": {"batch": 112, "gpus": 8},
}


def abouts() -> dict[str, dict[str, Any]]:
    """Return what there is to choose for each network, by its name."""
    found = {}
    for name in FILES:
        recorded = network(name)
        size = recorded.title.rpartition(", ")[2]
        found[name] = {
            "name": name,
            "title": recorded.title,
            "size": size,
            "kind": "replicas",
            "unit": "images",
            "batches": list(BATCHES[name]),
            "precisions": list(PRECISIONS),
            "source": recorded.source,
            "parameters": recorded.parameters,
            "default": {
                **{"model": name, "gpu": "V100", "nodes": 1, "gpus": 2},
                **{"link": None, "network": None, "cards": None, "precision": "fp32"},
                **{"batch": 1, "algorithm": "automatic"},
                **DEFAULTS[name],
            },
        }
    return found


def simulated(full: Mapping[str, Any], machine: Machine) -> Outcome:
    """Simulate a complete setting."""
    return simulate(full["model"], machine, full["batch"], full["precision"])


def on_others(full: Mapping[str, Any], gpus: int) -> dict[str, Any]:
    """Return a setting for another number of GPUs, which needs no change."""
    return dict(full)


def hint(
    full: Mapping[str, Any], machine_of: Callable[[Mapping[str, Any]], Machine]
) -> str:
    """Return which batch would fit, in a sentence; empty if none does.

    Args:
        machine_of: returns the cluster of a complete setting.
    """
    smaller = [size for size in BATCHES[full["model"]] if size < full["batch"]]
    for size in reversed(smaller):
        outcome = simulated({**full, "batch": size}, machine_of(full))
        if outcome.fits:
            return (
                f"A batch of {size} images per GPU would fit: it needs "
                f"{size_text(outcome.allocated)}."
            )
    return ""
