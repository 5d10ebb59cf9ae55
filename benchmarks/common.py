"""Shared by all benchmarks: describe the hardware, take turns, print the result."""

import json
import platform
from collections.abc import Callable, Sequence
from statistics import median

from d2l_gpu.common.processor import cpu_name, usable_cores


def hardware() -> str:
    """Describe the machine: processor, usable cores, system and Python version."""
    parts = [
        f"{cpu_name()}, {usable_cores()} cores",
        f"{platform.system()} {platform.machine()}",
        f"Python {platform.python_version()}",
    ]
    return "; ".join(parts)


def in_turns(
    measures: Sequence[Callable[[], float]], rounds: int, *, cold: bool = False
) -> list[tuple[float, ...]]:
    """Run measurements in turns, and return the figures of each.

    Taking turns means that whatever slows the machine for a while slows all of them. A
    first round is discarded, because it runs with cold caches.

    Args:
        measures: functions that take one measurement and return the figure.
        rounds: how many figures to return for each; at least 1.
        cold: skip the discarded round, for a trial run whose figures don't matter.

    Raises:
        ValueError: `rounds` is less than 1.
    """
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}; at least 1 is needed")
    if not cold:
        for measure in measures:
            measure()
    figures = [[measure() for measure in measures] for _ in range(rounds)]
    return list(zip(*figures, strict=True))


def alternated(
    measures: Sequence[Callable[[], float]], rounds: int, *, cold: bool = False
) -> list[float]:
    """Return the median of each measurement, taken `in_turns`.

    Raises:
        ValueError: `rounds` is less than 1.
    """
    return [median(figures) for figures in in_turns(measures, rounds, cold=cold)]


def print_result(name: str, value: float, unit: str, baseline: str) -> None:
    """Print a benchmark's last line, its result as JSON.

    Args:
        name: the benchmark's name.
        value: the result, usually the ratio to the baseline.
        unit: the unit of the value.
        baseline: what it is compared with, usually measured in the same run.
    """
    result = {
        "name": name,
        "value": value,
        "unit": unit,
        "baseline": baseline,
        "hardware": hardware(),
    }
    print(json.dumps(result, ensure_ascii=False))
