"""Waiting for other processes, and for what they do."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path


def wait_until(condition: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def runs(process: int) -> bool:
    """Whether there is such a process; one that ended without being waited for, not."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
        return status.rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        if sys.platform == "linux":
            return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
