"""PyTorch's profiler on virtual GPUs."""

import os
import subprocess
import sys

import pytest

from tests.helpers.fresh_process import NO_GPUS, PATH
from tests.helpers.paths import PROGRAMS
from tests.helpers.waiting import PATIENCE


@pytest.mark.parametrize(
    "program",
    [
        "as_cuda/the_profiler_shows_kernels.py",
        "simulators/profiling_a_simulator.py",
    ],
)
def test_the_profiler_shows_simulated_kernels_and_their_operators(program):
    done = subprocess.run(
        [sys.executable, PROGRAMS / program],
        env=os.environ | PATH | NO_GPUS,
        capture_output=True,  # stderr isn't empty: the profiler has a log of its own
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
