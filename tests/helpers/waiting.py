"""Waiting for other processes, and for what they do."""

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 300.0
"""Seconds that nothing takes, not even on a machine ten times as busy: a limit that
ends a test which would hang."""


def wait_until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def runs(process: int) -> bool:
    """Whether there is such a process; one that ended without being waited for, not."""
    state = _state(process)
    if state is not None:
        return state != "Z"
    if sys.platform == "linux":
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def sleeps(process: int) -> bool:
    """Whether the main thread of a process waits for something (on Linux)."""
    return _state(process) == "S"


def processes_with(text: str) -> list[int]:
    """The other processes whose command line contains a text (on Linux)."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile
            line = (path / "cmdline").read_bytes().replace(b"\0", b" ")
            if text.encode() in line and path.name != str(os.getpid()):
                found.append(int(path.name))
    return found


def _state(process: int) -> str | None:
    """The letter that Linux gives to what a process is doing, None without any."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return status.rpartition(")")[2].split()[0]
