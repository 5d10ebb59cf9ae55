"""Processes forked from one that has imported PyTorch and what that imports later.

    python -c "from tests.helpers.fork_server import code; exec(code())"

reads a line of JSON for each code to be run from stdin, and writes a line with its exit
status to stdout; see ``fresh_process.py``. It computes nothing itself, so that there
are no threads that a fork would lose.
"""

import faulthandler
import json
import os
import sys
import tempfile

import sympy  # noqa: F401  PyTorch's first operator on a virtual GPU imports it
import torch  # noqa: F401

from tests.helpers.waiting import PATIENCE


def code() -> str:
    """Return what is to be run: in each fork its code, here in the end nothing."""
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _become_fresh(request)
            return request["code"]
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return ""


def _become_fresh(request: dict) -> None:
    """Let this process be as one of ``python -c`` that has imported PyTorch."""
    faulthandler.dump_traceback_later(PATIENCE, exit=True)  # or a test would hang
    for number, name in enumerate([os.devnull, request["stdout"], request["stderr"]]):
        opened = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    # What was read ahead is not for this process.
    sys.stdin = os.fdopen(0, closefd=False)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # which depends on the environment
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
