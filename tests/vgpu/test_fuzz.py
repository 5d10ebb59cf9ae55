"""Random programs on virtual GPUs: values are the CPU's, and no process ever dies."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable

import pytest

from tests.helpers.fresh_process import NO_GPUS, PATH
from tests.helpers.paths import PROGRAMS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="each program forks")
GOOD = {"agrees", "raises", "refused"}


def ends(seeds: Iterable[int]) -> dict[int, str]:
    """Return how the program of each seed ended; without seeds, the simple ones."""
    done = subprocess.run(
        [sys.executable, PROGRAMS / "fuzz" / "transforms.py", *map(str, seeds)],
        env=os.environ | PATH | NO_GPUS | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {entry["seed"]: entry["ended"] for entry in found}


@pytest.mark.all
def test_ctrl_c_and_errors_of_hooks_end_backward_and_nothing_else():
    # Ctrl-C; errors of a tensor's hook, of a module's, and in a checkpoint.
    found = ends([-8, -9, -12, -15])
    assert found == dict.fromkeys([-8, -9, -12, -15], "agrees")


@pytest.mark.all
def test_each_way_to_run_a_function_agrees_with_the_cpu():
    found = ends([])
    assert len(found) > 25
    assert {seed: end for seed, end in found.items() if end != "agrees"} == {}


@pytest.mark.all
def test_random_programs_agree_or_are_refused():
    found = ends(range(30))
    assert {seed: end for seed, end in found.items() if end not in GOOD} == {}
    assert sum(end == "agrees" for end in found.values()) > 20


@pytest.mark.weekly
def test_many_random_programs_agree_or_are_refused():
    found = ends(range(1000, 1600))
    assert {seed: end for seed, end in found.items() if end not in GOOD} == {}
