"""What may crash or hang runs in a process of its own, with a time limit.

A probe is a generator that yields dictionaries of what it has learnt. Each reaches the
doctor at once, so that what was learnt before a crash is known after it.
"""

import contextlib
import faulthandler
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from d2l_gpu.common.children import end_with_parent, kill_child, start_child

from .findings import one_line

GRACE = 5.0  # seconds in which a killed process is gone, unless the system holds it


@dataclass(frozen=True)
class Answer:
    """What came of a probe.

    Attributes:
        said: what it yielded, joined to one dictionary.
        trouble: why it did not come to its end, empty if it did.
    """

    said: dict[str, Any] = field(default_factory=dict)
    trouble: str = ""


def ask(
    probe: Callable[..., Iterator[dict]], timeout: float, *arguments: str | float
) -> Answer:
    """Run a probe in a fresh process of this Python, which ends when this one ends.

    Args:
        probe: a function of a module, found there by its name.
        timeout: seconds after which the process is ended, with those it has started.
        arguments: for the probe.
    """
    # The same modules are found as here, whatever folder this was started from.
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; "
        "from d2l_gpu.doctor import probe_process; "
        f"probe_process.main({probe.__module__!r}, {probe.__name__!r}, {arguments!r}, "
        f"{timeout!r})"
    )
    process = start_child(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    # It is to close with this process; communicate would close it now.
    lifeline, process.stdin = process.stdin, None
    try:
        late = False
        try:
            output, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            late = True
            kill_child(process)
            try:
                output, errors = process.communicate(timeout=GRACE)
            except subprocess.TimeoutExpired as error:  # a driver may hold it for good
                output, errors = error.output or b"", b""
    finally:
        kill_child(process)
        lifeline.close()
    said: dict[str, Any] = {}
    for line in output.decode(errors="replace").splitlines():
        with contextlib.suppress(json.JSONDecodeError):  # cut off by a crash
            said |= json.loads(line)
    trouble = said.pop("trouble", "")
    if late:
        trouble = f"no answer within {timeout:g} s"
    elif process.returncode and not trouble:
        trouble = _death(process.returncode, errors.decode(errors="replace"))
    return Answer(said, trouble)


def _death(code: int, errors: str) -> str:
    how = f"Python exited with code {code}"
    if code < 0:
        how = f"Python was killed by signal {-code}"
        with contextlib.suppress(ValueError):
            how = f"Python was killed by {signal.Signals(-code).name}"
    last = errors.strip().splitlines()[-1:]
    return f"{how}; its last line was: {one_line(last[0])}" if last else how


# ------------------------------------------------------------------ in the process


def main(module: str, name: str, arguments: tuple, timeout: float) -> NoReturn:
    """Run a probe and write what it yields to stdout, a line of JSON for each."""
    # Should the parent be gone when time is up: no Python needs to run for this.
    faulthandler.dump_traceback_later(timeout + GRACE, exit=True)
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what libraries print is none of the answer
    end_with_parent()
    try:
        for learnt in getattr(importlib.import_module(module), name)(*arguments):
            print(json.dumps(learnt), file=answers, flush=True)
    except BaseException as error:
        print(json.dumps({"trouble": one_line(error)}), file=answers, flush=True)
    # Taking down what may be broken could crash or hang.
    os._exit(0)
