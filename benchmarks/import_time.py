"""Compare `import d2l_gpu.torch` with `import torch`, in fresh processes, in turns.

    python benchmarks/import_time.py [--rounds 11] [--quick]

The target is a ratio of at most 1.10: the helpers import other packages only when they
need them.
"""

import argparse
import subprocess
import sys
from importlib.metadata import version

from common import alternated, print_result

_TIMED = """
from time import perf_counter
start = perf_counter()
import {module}
print(perf_counter() - start)
"""


def seconds_to_import(module: str) -> float:
    """Return the seconds that a fresh interpreter takes to import ``module``."""
    result = subprocess.run(
        [sys.executable, "-c", _TIMED.format(module=module)],
        capture_output=True,
        check=True,
        text=True,
    )
    return float(result.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--quick", action="store_true", help="a try, not a result")
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    ours, theirs = alternated(
        [
            lambda: seconds_to_import("d2l_gpu.torch"),
            lambda: seconds_to_import("torch"),
        ],
        rounds,
        cold=options.quick,
    )
    ratio = ours / theirs
    print(
        f"import d2l_gpu.torch {ours:.3f} s, import torch {theirs:.3f} s: "
        f"{ratio:.3f} times (median of {rounds})"
    )
    baseline = f"import torch {version('torch')}: {theirs:.3f} s"
    print_result("import_time", round(ratio, 3), "times the baseline", baseline)


if __name__ == "__main__":
    main()
