"""What every benchmark of this project shares: hardware, fair turns, the last line."""

import json
import platform
from collections.abc import Callable, Sequence
from statistics import median

from d2l_gpu.common.processor import cpu_name, usable_cores


def hardware() -> str:
    """Describe the machine: processor, cores that may be used, system, versions."""
    parts = [
        f"{cpu_name()}, {usable_cores()} cores",
        f"{platform.system()} {platform.machine()}",
        f"Python {platform.python_version()}",
    ]
    return "; ".join(parts)


def in_turns(
    measures: Sequence[Callable[[], float]], rounds: int, *, cold: bool = False
) -> list[tuple[float, ...]]:
    """Return the figures of each measure, taken in turns.

    In turns, so that whatever slows the machine down for a while slows all of them.
    One round before the first is thrown away: it finds the disk's cache cold.

    Args:
        measures: each measures once and returns a figure.
        rounds: how many figures of each are returned, at least 1.
        cold: keep the first round, too: for a try, whose figures do not matter.

    Raises:
        ValueError: fewer than one round.
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
    """Return the median of each measure, taken ``in_turns``."""
    return [median(figures) for figures in in_turns(measures, rounds, cold=cold)]


def print_result(name: str, value: float, unit: str, baseline: str) -> None:
    """Print the last line of a benchmark, JSON that a program can read.

    Args:
        name: of the benchmark.
        value: the figure that matters, mostly the ratio to the baseline.
        unit: of the value.
        baseline: what it is compared with, measured in the same run.
    """
    result = {
        "name": name,
        "value": value,
        "unit": unit,
        "baseline": baseline,
        "hardware": hardware(),
    }
    print(json.dumps(result, ensure_ascii=False))
