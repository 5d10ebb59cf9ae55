"""Running the scripts for two ranks."""

import os
import subprocess
import sys

import pytest

from tests.helpers.fresh_process import NO_GPUS, PATH
from tests.helpers.paths import PROGRAMS
from tests.helpers.waiting import PATIENCE

SCRIPTS = PROGRAMS / "distributed"


def run(*command: str) -> subprocess.CompletedProcess:
    """Run Python with a script of tests/programs/distributed, on two ranks.

    The scripts end themselves if they hang, so no rank is left behind: torchrun starts
    each in a session of its own, where no signal from here reaches it.
    """
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=SCRIPTS,
        env=os.environ | PATH | NO_GPUS | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = process.communicate(timeout=2 * PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"The ranks have not come to an end.\n{out}{err}")
    return subprocess.CompletedProcess(command, process.returncode, out, err)
