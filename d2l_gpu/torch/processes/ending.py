"""The end of a process that gloo's threads have worked for.

``destroy_process_group`` doesn't end them while a ``DistributedDataParallel`` model
refers to the group. When such a thread lets go of the tensors it has sent, it needs
the interpreter (torch 2.13). If it asks for it just as the interpreter goes down, C++
aborts the process with "terminate called without an active exception", and torchrun
calls a run failed that went well. That happens on busy machines, where the thread
waits for a core. With threads that ask 10 to 60 ms late, 13 of 62 pairs of processes
were aborted; with this module, none of 62. (PyTorch's pull request 179291 describes
it, and was given up.)
"""

import atexit
import time
from pathlib import Path

THREADS = "pt_gloo_runloop"
QUIET_LOOKS = 3  # a thread may seem to sleep while it waits for this one
SECONDS_BETWEEN_LOOKS = 0.001
PATIENCE = 1.0  # seconds


def let_gloo_finish() -> None:
    """Wait, for a second at most, until gloo's threads have nothing left to do.

    Only Linux tells what another thread does; elsewhere, return at once.
    """
    deadline = time.monotonic() + PATIENCE
    quiet = 0
    states = _states()
    while states and quiet < QUIET_LOOKS and time.monotonic() < deadline:
        time.sleep(SECONDS_BETWEEN_LOOKS)  # meanwhile they can have the interpreter
        states = _states()
        quiet = 0 if "R" in states else quiet + 1


def _states() -> list[str]:
    """Return the state of each of gloo's threads: R for running, S for asleep."""
    states = []
    for path in Path("/proc/self/task").glob("*/stat"):
        try:
            line = path.read_text("utf-8", "replace")
        except OSError:
            continue  # a thread that has just ended
        name, state = line.split("(", 1)[1].rsplit(") ", 1)  # may hold brackets itself
        if name == THREADS:
            states.append(state[0])
    return states


# Registered early, it runs late: after what a script registers.
atexit.register(let_gloo_finish)
