"""Training scripts in several processes, started from a notebook.

``launch`` runs torchrun, which runs ``d2l_gpu/common/worker.py`` once per rank, and
that runs the script. The ranks communicate through files in a temporary folder: the
output of rank 0, the values passed to ``report``, and records of exceptions.
"""

import contextlib
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from d2l_gpu.common.arguments import (
    PORTS,
    check_arguments,
    check_integer,
    check_script,
)
from d2l_gpu.common.children import start_child
from d2l_gpu.common.files import write_whole
from d2l_gpu.common.messages import localized, say
from d2l_gpu.common.processor import usable_cores
from d2l_gpu.common.settings import VIRTUAL
from d2l_gpu.common.worker import (
    AGENT,
    FOLDER,
    PORT,
    STACKS_WANTED,
    folder_of,
)
from d2l_gpu.show.progress import Progress

from ..gpus.torch_gpus import virtual_count
from .cluster import OWN_STORE
from .failures import AGENT_LOG, failure, how_ended, records, where_ranks_were
from .reports import PROGRESS, LogReader, log_of, results_of

SECONDS_BETWEEN_LOOKS = 0.05
GRACE = 10.0  # seconds that ranks get to end after a failure
SECONDS_FOR_STACKS = 3.0

# Written by C++, past Python: in PyTorch 2.10, gloo says that it is connected.
_NOISE = re.compile(r"\[Gloo\] Rank \d+ is connected")


def launch(
    script: str | Path,
    nproc: int,
    args: Sequence[Any] = (),
    *,
    port: int | None = None,
    timeout: float | None = None,
    restarts: int = 0,
) -> list[dict]:
    """Run a script in several processes with torchrun; return what rank 0 reports.

    The script is the same as for ``torchrun --nproc-per-node 2 script.py``. While it
    runs, rank 0's output and warnings are shown; the other ranks' output is not. The
    script can show its progress with ``report(progress=…)``. If this process uses
    virtual GPUs, so do the ranks. Ctrl-C ends all ranks, and so does the end of this
    process, whatever the cause. Windows is not supported, because torchrun fails there.

    If a rank fails and restarts are left, all ranks are ended and started again, and a
    printed line says why. A script that saves ``Checkpoints`` continues from the last
    one, and the values that it reports a second time count once, so the result is that
    of a run without failures. Without checkpoints, the result holds the values of all
    attempts, one after another.

    Args:
        script: the file to run.
        nproc: number of processes, which is the world size, at least 1.
        args: arguments of the script; anything but a string is converted to one.
        port: TCP port at which the processes meet, on this machine only;
            default: a free one.
        timeout: seconds after which all processes are ended, including restarts;
            default: no limit.
        restarts: how often all ranks are restarted after a failure, as with
            ``torchrun --max-restarts``.
    Returns:
        The values of each call of ``report`` on rank 0, in order.
    Raises:
        FileNotFoundError: there is no such script.
        TypeError, ValueError: an argument is invalid.
        RuntimeError: a rank failed, and no restart was left. The first line says which
            rank and why, followed by its traceback; failures that this caused on other
            ranks are left out. Or the port is in use, torchrun itself was ended, or
            this system or PyTorch build can't run it.
        TimeoutError: the script did not end in time; the message says where each rank
            was.
    """
    script = _check(script, nproc, args, port, timeout, restarts)
    command = [str(script), *map(str, args)]
    with tempfile.TemporaryDirectory(
        prefix="d2l-launch-", ignore_cleanup_errors=True
    ) as name:
        run = Path(name)
        with Progress(label=script.name) as progress:
            agent = _start_agent(command, nproc, port, restarts, run)
            try:
                ended = _follow(agent, run, script, restarts, progress, timeout)
                if not ended:
                    _ask_for_stacks(agent, run)
            finally:
                _end(agent, run)
        attempt = _attempt(run)
        if ended and agent.returncode < 0:
            how = how_ended(agent.returncode)
            raise RuntimeError(f"torchrun, which runs {script.name}, {how}.")
        if agent.returncode and (ended or records(run, attempt)):
            cause = failure(run, script, attempt)
            after = f"\n\nThis was restart {attempt} of {restarts}." if restarts else ""
            raise RuntimeError(cause.sentence + cause.details + after)
        if not ended:
            raise TimeoutError(where_ranks_were(run, script, attempt, timeout))
        return [
            json.loads(line)
            for path in results_of(run)
            for line in LogReader(path.parent, path.name).new()
        ]


def _start_agent(
    command: list[str], nproc: int, port: int | None, restarts: int, run: Path
) -> subprocess.Popen:
    """Start torchrun in its own session, which a terminal's Ctrl-C doesn't reach."""
    environment = os.environ | _environment(nproc) | {FOLDER: str(run)}
    # This machine's host name may not resolve, for example offline.
    rendezvous = ["--standalone", "--local-addr", "127.0.0.1"]
    if restarts:
        # torchrun hosts the store where the ranks find each other, and keeps it for
        # restarts, along with the addresses of ranks that are gone. Many restarts
        # therefore fail (torch 2.10 to 2.13; pytorch issue 135712, and PR 135957, which
        # was meant to make a new store for each). With this variable, rank 0 hosts a
        # new store each time.
        environment[OWN_STORE] = "1"
        if port is not None:
            environment[PORT] = str(port)
    elif port is not None:
        rendezvous = ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    # Rank 0's stdout and all ranks' stderr go to files, other stdout to the agent's.
    redirects = ",".join(f"{rank}:{2 if rank else 3}" for rank in range(nproc))
    with (run / AGENT_LOG).open("w") as log:
        agent = start_child(
            [
                *(sys.executable, "-m", "torch.distributed.run"),
                *("--nnodes", "1", "--nproc-per-node", str(nproc)),
                *("--max-restarts", str(restarts)),
                *("--log-dir", str(run), "--redirects", redirects),
                *rendezvous,
                *("-m", "d2l_gpu.common.worker", *command),
            ],
            stdout=subprocess.DEVNULL,
            stderr=log,
            env=environment,
        )
    write_whole(run / AGENT, str(agent.pid))
    return agent


def _environment(nproc: int) -> dict[str, str]:
    """Return what is added to this process's environment for the ranks."""
    added = {}
    if nproc > 1 and "OMP_NUM_THREADS" not in os.environ:
        # torchrun would set 1 and warn; PyTorch would use all cores for each rank.
        added["OMP_NUM_THREADS"] = str(max(1, usable_cores() // nproc))
    if virtual_count() and not os.environ.get(VIRTUAL, "").strip():
        added[VIRTUAL] = str(max(virtual_count(), nproc))
    return added


def _follow(
    agent: subprocess.Popen,
    run: Path,
    script: Path,
    restarts: int,
    progress: Progress,
    timeout: float | None,
) -> bool:
    """Show the output until torchrun ends; return False if time is up first."""
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    attempt = 0
    while True:
        ended = _follow_attempt(agent, run, attempt, progress, deadline)
        if _attempt(run) == attempt:
            return ended
        _kill_ranks(run, attempt)
        cause = failure(run, script, attempt).sentence
        attempt += 1
        with progress.aside():
            say(
                f"{cause}; all ranks start again, from the last checkpoint if there "
                f"is one: restart {attempt} of {restarts}.",
                flush=True,
            )


def _follow_attempt(
    agent: subprocess.Popen,
    run: Path,
    attempt: int,
    progress: Progress,
    deadline: float,
) -> bool:
    """Show rank 0's output until its attempt ends; return False if time is up first."""
    patience = math.inf
    stdout = LogReader(run, log_of(0, "stdout", attempt))
    stderr = LogReader(run, log_of(0, "stderr", attempt))
    fractions = LogReader(folder_of(run, attempt), PROGRESS)
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            agent.wait(SECONDS_BETWEEN_LOOKS)
        # Before reading the files: if the attempt is over, they are complete.
        restarted = _attempt(run) > attempt
        over = restarted or agent.returncode is not None
        late = time.monotonic() > deadline
        lines = [x for x in stdout.new(over or late) if not _NOISE.match(x)]
        if restarted and lines and not lines[-1].endswith("\n"):
            lines.append("\n")  # the rank ended in mid-line
        warnings = stderr.new(over or late)
        if lines or warnings:
            with progress.aside():
                _write(sys.stdout, list(map(localized, lines)))
                _write(sys.stderr, warnings)
        for fraction in fractions.new():
            progress.set(json.loads(fraction))
        progress.refresh()
        if over or late:
            return over
        if patience == math.inf and records(run, attempt):
            patience = time.monotonic() + GRACE
        elif time.monotonic() > patience:
            _kill_ranks(run, attempt)  # torchrun then handles it like any failure
            deadline = min(deadline, time.monotonic() + GRACE)


def _attempt(run: Path) -> int:
    """Return how often torchrun has restarted the ranks."""
    numbers = [int(path.name.partition("_")[2]) for path in run.glob("*/attempt_*")]
    return max(numbers, default=0)


def _write(stream: Any, lines: list[str]) -> None:
    if lines and stream is not None:  # None if Python has no console
        stream.write("".join(lines))
        stream.flush()


def _ask_for_stacks(agent: subprocess.Popen, run: Path) -> None:
    """Let the ranks end by themselves, so that they first record where they are."""
    (run / STACKS_WANTED).touch()
    agent.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        agent.wait(SECONDS_FOR_STACKS)


def _end(agent: subprocess.Popen, run: Path) -> None:
    """Leave no process behind: ask, wait, then kill."""
    agent.stdin.close()  # this makes the ranks end
    if agent.poll() is None:
        agent.terminate()  # it ends the remaining ranks, then itself
        with contextlib.suppress(subprocess.TimeoutExpired):
            agent.wait(GRACE)
    if agent.returncode != 0:
        _kill_ranks(run, _attempt(run))
        agent.kill()
        agent.wait()


def _kill_ranks(run: Path, attempt: int) -> None:
    """Kill the ranks of an attempt, and the processes that they started.

    torchrun makes each rank a process group. The rank has just ended or is about to, so
    its process id can't have been reused yet.
    """
    for path in folder_of(run, attempt).glob("pid-*"):
        with contextlib.suppress(OSError):
            os.killpg(int(path.read_text()), signal.SIGKILL)


# ------------------------------------------------------------------ checks


def _check(
    script: str | Path,
    nproc: int,
    args: Sequence[Any],
    port: int | None,
    timeout: float | None,
    restarts: int,
) -> Path:
    import torch.distributed

    if sys.platform == "win32":  # torch 2.10 to 2.13, pytorch PR 196855
        raise RuntimeError(
            "launch needs torchrun, which does not work with PyTorch's builds for "
            "Windows: use WSL, the Windows Subsystem for Linux."
        )
    if not torch.distributed.is_available():
        raise RuntimeError(
            "launch needs torch.distributed, which this build of PyTorch lacks: "
            "install one from https://pytorch.org/get-started."
        )
    path = check_script(script)
    check_integer("The number of processes", nproc, least=1, example=2)
    check_integer("The number of restarts", restarts, least=0, example=2)
    check_arguments(args)
    if timeout is not None:
        if isinstance(timeout, bool) or not isinstance(timeout, int | float):
            raise TypeError(
                "The timeout must be a number of seconds or None, but got "
                f"{timeout!r} ({type(timeout).__name__})."
            )
        if not timeout > 0:
            raise ValueError(f"The timeout must be positive, but got {timeout}.")
    if port is not None:
        _check_port(port)
    return path


def _check_port(port: int) -> None:
    advice = ": leave port out to have a free one chosen"
    check_integer("A port", port, least=None, example=29500, advice=advice)
    if port not in PORTS:
        raise ValueError(
            f"A port must be between {PORTS[0]} and {PORTS[-1]}, but got "
            f"{port}{advice}."
        )
    try:
        # Listen as torchrun does: on all addresses, even those a launch just used.
        if socket.has_dualstack_ipv6():
            taken = {"family": socket.AF_INET6, "dualstack_ipv6": True}
        else:
            taken = {}
        socket.create_server(("", port), **taken).close()
    except OSError as error:
        raise RuntimeError(
            f"Port {port} cannot be used ({error.strerror}): choose another one, or "
            "leave port out to have a free one chosen."
        ) from None
