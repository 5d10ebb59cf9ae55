"""Processes that end with the one that started them, and take their own along.

The parent holds one end of a pipe, whose other end is the child's standard input. It
closes with the parent, however that ends, and then the child kills itself and every
process of its group. Where there are no groups, on Windows, only the child ends.

Nothing but the standard library is imported: a rank runs this before its script.
"""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Any


def start_child(command: Sequence[Any], **options: Any) -> subprocess.Popen:
    """Start a process in a group of its own, with a pipe that closes with this one.

    The process calls ``end_with_parent``, or passes its standard input on to one that
    does. Close ``stdin`` of what is returned to end it early.

    Args:
        command: the program and its arguments.
        options: for ``subprocess.Popen``.
    """
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        start_new_session=os.name == "posix",
        **options,
    )


def kill_child(process: subprocess.Popen) -> None:
    """Kill a process by ``start_child``, and what it has started or left behind.

    If it has ended, call this right away: its number may soon be another group's.
    """
    with contextlib.suppress(OSError):  # none of them is left
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def end_with_parent(
    first: Callable[[], None] | None = None,
    hear: Callable[[bytes], None] | None = None,
) -> None:
    """End this process, and those that it started, as soon as its parent is gone.

    A thread waits for the end of standard input. Everything else in this process, and
    what it starts, finds standard input empty.

    Args:
        first: is called before the end; the end comes even if it raises.
        hear: is called with each piece of what the parent writes.
    """
    pipe = os.dup(0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)

    def wait() -> None:
        try:
            with contextlib.suppress(OSError):
                while data := os.read(pipe, 2**16):
                    if hear is not None:
                        hear(data)
            if first is not None:
                first()
        finally:
            # Not if the group is that of others: then only this process is ours.
            if os.name == "posix" and os.getpgrp() == os.getpid():
                os.killpg(0, signal.SIGKILL)
            os._exit(1)

    threading.Thread(target=wait, name="end with parent", daemon=True).start()
