"""PyTorch's profiler on virtual GPUs that answer to the name cuda."""

import os
import subprocess
import sys

from tests.helpers.fresh_process import NO_GPUS, PATH
from tests.helpers.paths import PROGRAMS
from tests.helpers.waiting import PATIENCE


def test_the_profiler_shows_simulated_kernels_and_their_operators():
    done = subprocess.run(
        [sys.executable, PROGRAMS / "as_cuda" / "the_profiler_shows_kernels.py"],
        env=os.environ | PATH | NO_GPUS,
        capture_output=True,  # stderr isn't empty: the profiler has a log of its own
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
