"""Running code in a Python of its own: what is decided there, is decided there only."""

import os
import subprocess
import sys
import textwrap

from conftest import REPOSITORY
from waiting import PATIENCE

PATH = {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests")])}
# Real GPUs are hidden, so that the tests say the same on every machine.
NO_GPUS = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}


def run_fresh(code: str, **environment: str) -> str:
    """Run code in a fresh process; return what it printed, having checked that it
    neither failed nor wrote to stderr."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DISPLAY", "WAYLAND_DISPLAY", "D2L_GPU_VIRTUAL", "MPLBACKEND")
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=inherited | PATH | NO_GPUS | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout
