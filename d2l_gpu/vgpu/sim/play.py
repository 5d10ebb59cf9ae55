"""The simulator as a playground sees it: settings in, results out, all of it JSON.

    from d2l_gpu.vgpu.sim.play import play

    play({"model": "Llama 3.1 8B", "gpu": "H100", "gpus": 8})["rate"]

A setting is a flat dictionary. What's missing takes the model's default, which
``choices`` returns with everything there is to choose from. Nonsense raises ValueError
with one sentence. A model that doesn't fit into memory is no error: the result says how
much is missing.
"""

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from . import play_plans, play_replicas
from .catalogue import LINKS, MODELS, choose, closest
from .catalogue import Model as Processor
from .expected import RUNS
from .fabric import NETWORKS
from .nccl import NVLS, NVLS_TREE, RING, TREE
from .plan_results import Outcome
from .plan_schedules import SCHEDULES
from .plans import CHECKPOINTS, ZERO, Machine
from .recordings.networks import PRECISIONS
from .replicas import Outcome as Replicas
from .units import size_text

__all__ = ["choices", "play", "scaling"]

DEFAULT = "ResNet-18"
AUTOMATIC = "automatic"
ALGORITHMS = (AUTOMATIC, RING, TREE, NVLS, NVLS_TREE)
GPUS = {name: model for name, model in MODELS.items() if model.asynchronous}
COUNTS = (1, 2, 4, 8, 16)

# How many GPUs a node has, as far as it isn't said; a rack of GB200 is one.
USUAL, USUAL_OF = 8, {"GB200": 72}

# More would take a browser too long.
MOST = {"nodes": 512, "gpus": 72, "cards": 72, "batch": 2**16, "microbatches": 64}

# The networks and GPUs of published runs, as they are called here.
PUBLISHED = {
    "ResNet-50 v1.5": "ResNet-50",
    "ResNet-18 of the book": "ResNet-18",
    "A100": "A100 80GB",
    "H100-96": "H100 96GB",
}

# Settings that may be None: what's usual.
MAY_BE_NONE = ("link", "network", "cards", "shards")


def precisions_of(gpu: Processor) -> list[str]:
    """Return the types of number in which a GPU can train."""
    return [kind for kind in PRECISIONS if kind == "fp32" or kind in gpu.tensor_rates]


def choices() -> dict[str, Any]:
    """Return everything that a setting can choose from.

    Returns:
        ``models``, with their ``default`` settings and the batches and precisions that
        each has; ``gpus`` with their memory in bytes, their precisions, and the
        ``link`` and ``network`` that usually connect them; ``links`` within a node and
        ``networks`` between nodes; ``algorithms`` of the all-reduce; and for language
        models ``checkpoints``, ``schedules`` and ``zero``.
    """
    return {
        "models": list(_models().values()),
        "gpus": [
            {
                "name": name,
                "title": f"{name}, {size_text(gpu.memory)}",
                "memory": gpu.memory,
                "precisions": precisions_of(gpu),
                "link": usual.link.name,
                "network": usual.network.name,
                "source": gpu.source,
            }
            for name, gpu in GPUS.items()
            for usual in (Machine(nodes=2, model=name).fabric,)
        ],
        "links": [_titled(link) for link in LINKS.values()],
        "networks": [_titled(network) for network in NETWORKS.values()],
        "algorithms": list(ALGORITHMS),
        "checkpoints": list(CHECKPOINTS),
        "schedules": list(SCHEDULES),
        "zero": list(ZERO),
    }


def _titled(one) -> dict[str, str]:
    """Return a link's or a network's name, and a title with its bandwidth."""
    speed = f"{one.bandwidth / 10**9:g} GB/s"
    return {
        "name": one.name,
        "title": f"{one.name}, {speed}",
        "source": one.source,
    }


@cache
def _models() -> dict[str, dict[str, Any]]:
    return play_replicas.abouts() | play_plans.abouts()


def _kind(full: Mapping[str, Any]):
    """Return the module that knows a setting's kind of model."""
    kinds = {"replicas": play_replicas, "plans": play_plans}
    return kinds[_models()[full["model"]]["kind"]]


# ------------------------------------------------------------------ settings


def completed(setting: Mapping[str, Any]) -> dict[str, Any]:
    """Return a setting with all its keys.

    Raises:
        ValueError: a value makes no sense, or a key has none.
    """
    if not isinstance(setting, Mapping):
        raise ValueError(f"A setting must be a dictionary, but got {setting!r}.")
    models = _models()
    name = setting.get("model", DEFAULT)
    choose("model", name, tuple(models))
    about = models[name]
    for key in setting:
        if key not in about["default"]:
            known = ", ".join(about["default"])
            raise ValueError(
                f"{name} has no setting {key!r}{closest(str(key), about['default'])}: "
                f"choose one of {known}."
            )
    full = {**about["default"], **setting}
    for key, value in full.items():
        if isinstance(about["default"][key], int) or key in ("cards", "shards"):
            _check_number(key, value)
    _check_names(full, about["precisions"])
    return full


def _check_number(key: str, value: object) -> None:
    if value is None and key in MAY_BE_NONE:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{key} must be a whole number, but got {value!r}.")
    most = MOST.get(key, MOST["nodes"] * MOST["gpus"])
    if not 1 <= value <= most:
        raise ValueError(f"{key} must be from 1 to {most:,}, but got {value:,}.")


def _check_names(full: Mapping[str, Any], precisions: Sequence[str]) -> None:
    known = {
        "gpu": tuple(GPUS),
        "algorithm": ALGORITHMS,
        "link": tuple(LINKS),
        "network": tuple(NETWORKS),
        "checkpoint": CHECKPOINTS,
        "schedule": tuple(SCHEDULES),
    }
    for key, names in known.items():
        value = full.get(key)
        if key in full and not (value is None and key in MAY_BE_NONE):
            choose("GPU" if key == "gpu" else key, value, names)
    if full["precision"] not in precisions:
        raise ValueError(
            f"{full['model']} was recorded in {' and '.join(precisions)}, but not in "
            f"{full['precision']!r}."
        )
    has = precisions_of(GPUS[full["gpu"]])
    if full["precision"] not in has:
        able = [n for n, gpu in GPUS.items() if full["precision"] in precisions_of(gpu)]
        raise ValueError(
            f"A {full['gpu']} trains in {' or '.join(has)}, but not in "
            f"{full['precision']}: choose a GPU that does, such as {able[0]}, "
            "or another precision."
        )


def machine_of(full: Mapping[str, Any]) -> Machine:
    """Return the cluster of a complete setting."""
    only = None if full["algorithm"] == AUTOMATIC else full["algorithm"]
    return Machine(
        *(full["nodes"], full["gpus"], full["gpu"], full["network"], full["link"]),
        cards=full["cards"],
        algorithm=only,
    )


# ------------------------------------------------------------------ results


def play(setting: Mapping[str, Any]) -> dict[str, Any]:
    """Simulate a step of training.

    Args:
        setting: ``model``, ``gpu``, ``nodes``, ``gpus`` of each node, ``link`` and
            ``network`` (None: what's usual), network ``cards`` of each node (None: as
            usual with the network), ``precision``, ``batch`` of each GPU and step, and
            ``algorithm`` of the all-reduce. For language models the batch is
            that of GPUs that share a replica, and there are ``pipeline``, ``tensor``,
            ``shards`` (None: all GPUs that the others leave), ``replicas``,
            ``microbatches``, ``checkpoint``, ``schedule``, ``stages`` and ``zero``, as
            in ``plans.Plan``.

    Returns:
        ``setting`` with all its keys; ``machine`` in words; ``picoseconds`` of a step;
        ``rate`` of all GPUs together in ``unit``; ``fits``; if it doesn't, a ``reason``
        and a ``hint``, which names a change with which it would; ``memory`` of the
        fullest GPU at its peak, by category, ``allocated`` and ``capacity`` in bytes;
        ``limit``, a sentence on what limits the speed; ``spent``, what the step is
        spent on, in shares of it; ``timeline`` and ``memory_picture`` as SVG, the
        latter None for language models; and ``published`` measurements of this model,
        GPU, number of them and precision.

    Raises:
        ValueError: something in the setting makes no sense.
    """
    full = completed(setting)
    outcome = _simulated(full)
    fullest = max(outcome.memory, key=lambda found: sum(found.values()))
    return {
        "setting": full,
        "machine": str(outcome.machine),
        **_rates(outcome),
        "unit": f"{_models()[full['model']]['unit']}/s",
        "reason": outcome.reason,
        "hint": "" if outcome.fits else _kind(full).hint(full, machine_of),
        "memory": [
            {"category": name, "bytes": nbytes}
            for name, nbytes in fullest.items()
            if nbytes
        ],
        "allocated": outcome.allocated,
        "capacity": outcome.machine.capacity,
        "limit": outcome.limits,
        "spent": [
            {"name": name, "share": share}
            for name, share in outcome.shares.items()
            if share
        ],
        "timeline": outcome.timeline().svg(),
        "memory_picture": outcome.memory_picture(),
        "published": published(full),
    }


def _simulated(full: Mapping[str, Any]) -> Outcome | Replicas:
    return _kind(full).simulated(full, machine_of(full))


def _rates(outcome: Outcome | Replicas) -> dict[str, Any]:
    return {
        "picoseconds": outcome.picoseconds,
        "rate": outcome.rate,
        "fits": outcome.fits,
    }


@lru_cache(maxsize=64)
def _rates_of(pairs: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """Return the rates of a complete setting, given as its items."""
    return _rates(_simulated(dict(pairs)))


def published(full: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return published measurements of a setting's model, GPUs and precision.

    The batch and what else was different may not be as in the setting; each says so.
    """
    of_setting = full["gpu"], full["nodes"] * full["gpus"], full["precision"]
    return [
        {
            "work": run.network,
            "gpu": run.gpu,
            "gpus": run.gpus,
            "precision": run.kind,
            "year": run.year,
            "seconds": run.seconds,
            "error": run.error,
            "source": run.source,
            "batch": run.batch,
            "how": run.how,
        }
        for run in RUNS
        if PUBLISHED.get(run.network, run.network) == full["model"]
        and (PUBLISHED.get(run.gpu, run.gpu), run.gpus, run.kind) == of_setting
    ]


# ------------------------------------------------------------------ other numbers


def arranged(gpus: int, of: Mapping[str, Any]) -> tuple[int, int]:
    """Return over how many nodes some GPUs are divided, and how many each node has.

    Args:
        of: a complete setting, which says how large a node is; see ``scaling``.
    """
    node = of["gpus"]
    if of["nodes"] == 1:
        node = max(node, USUAL_OF.get(of["gpu"], USUAL))
    each = max(n for n in range(1, min(gpus, node) + 1) if gpus % n == 0)
    return gpus // each, each


def scaling(
    setting: Mapping[str, Any], counts: Sequence[int] = COUNTS
) -> list[dict[str, Any]]:
    """Simulate a setting with other numbers of GPUs, each with the same batch.

    A node has the GPUs that the setting says, if it has several nodes or more than 8
    GPUs in one; otherwise 8, or 72 of GB200. Further GPUs are on further nodes, with
    equally many in each. Language models divide their parameters over all GPUs;
    ``replicas`` stay if they can. Numbers on which a plan can't be run are left out.

    Returns:
        for each number: ``gpus`` in all, ``nodes``, ``picoseconds``, ``rate``,
        ``efficiency`` (the rate per GPU as a share of that of the fewest GPUs on which
        it fits, or of the first ones if it never does) and ``fits``.

    Raises:
        ValueError: something in the setting makes no sense.
    """
    full = completed(setting)
    own = _rates_of(tuple(full.items()))  # says what makes no sense
    found: list[dict[str, Any]] = []
    for count in counts:
        _check_number("gpus in all", count)
        other = _kind(full).on_others(full, count)
        if other is None:
            continue
        other["nodes"], other["gpus"] = arranged(count, full)
        try:
            rates = own if other == full else _rates_of(tuple(other.items()))
        except ValueError:
            continue
        found.append({"gpus": count, "nodes": other["nodes"], **rates})
    first = next((each for each in found if each["fits"]), found[0] if found else {})
    for each in found:
        alone = first["rate"] / first["gpus"]
        each["efficiency"] = each["rate"] / (each["gpus"] * alone)
    return found
