"""Training scripts on several processes, started from a notebook.

``launch`` runs torchrun, which runs ``d2l_gpu/worker.py`` once per rank, and that runs
the script. What the ranks have to say goes through files in a temporary folder: the
output of rank 0, what ``report`` was given, and records of exceptions.
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
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from d2l_gpu.settings import VIRTUAL
from d2l_gpu.worker import FOLDER, STACKS_WANTED

from .checks import check_integer
from .devices import virtual_count
from .failures import AGENT_LOG, failure, records, where_ranks_were
from .progress import Progress
from .results import PROGRESS, RESULTS, Lines, log_of

SECONDS_BETWEEN_LOOKS = 0.05
GRACE = 10.0  # seconds that ranks have to end after a failure
SECONDS_FOR_STACKS = 3.0

# What C++ writes past Python: PyTorch 2.10 lets gloo say that it is connected.
_NOISE = re.compile(r"\[Gloo\] Rank \d+ is connected")


def launch(
    script: str | Path,
    nproc: int,
    args: Sequence[Any] = (),
    *,
    port: int | None = None,
    timeout: float | None = None,
) -> list[dict]:
    """Run a script on several processes with torchrun; return what rank 0 reports.

    The script is the same that ``torchrun --nproc-per-node 2 script.py`` runs. While
    it runs, lines that rank 0 prints are shown, as are its warnings; what other ranks
    print is not. It can show progress with ``report(progress=…)``. If this process
    uses virtual GPUs, the ranks use virtual ones, too. Ctrl-C ends all ranks; so does
    the end of this process, whatever ends it. Not on Windows, where torchrun fails.

    Args:
        script: the file to run.
        nproc: number of processes, which is the world size, at least 1.
        args: arguments of the script; what is no string becomes one.
        port: TCP port by which the processes find each other, on this machine only;
            default a free one.
        timeout: seconds after which all processes are ended; default no limit.
    Returns:
        The values of each call of ``report`` on rank 0, in order.
    Raises:
        FileNotFoundError: there is no such script.
        TypeError, ValueError: an argument makes no sense.
        RuntimeError: a rank failed. The first line says which and why, the traceback of
            this rank follows; what failed in consequence on other ranks is left out.
            Or the port is in use.
        TimeoutError: the script did not end in time; where each rank was follows.
    """
    script = _check(script, nproc, args, port, timeout)
    command = [str(script), *map(str, args)]
    with tempfile.TemporaryDirectory(
        prefix="d2l-launch-", ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        with Progress(label=script.name) as progress:
            agent = _start_agent(command, nproc, port, folder)
            try:
                ended = _follow(agent, folder, progress, timeout)
                if not ended:
                    _ask_for_stacks(agent, folder)
            finally:
                _end(agent, folder)
        if agent.returncode and (ended or records(folder)):
            raise RuntimeError(failure(folder, script))
        if not ended:
            raise TimeoutError(where_ranks_were(folder, script, timeout))
        return [json.loads(line) for line in Lines(folder, RESULTS).new()]


def _start_agent(
    command: list[str], nproc: int, port: int | None, folder: Path
) -> subprocess.Popen:
    """Start torchrun in a session of its own, where no Ctrl-C of a terminal arrives."""
    if port is None:
        # The name of this machine may not be known, offline for example.
        rendezvous = ["--standalone", "--local-addr", "127.0.0.1"]
    else:
        rendezvous = ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    # Rank 0's stdout and everyone's stderr into files; other stdout is the agent's.
    redirects = ",".join(f"{rank}:{2 if rank else 3}" for rank in range(nproc))
    with (folder / AGENT_LOG).open("w") as log:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run"),
                *("--nnodes", "1", "--nproc-per-node", str(nproc)),
                *("--log-dir", str(folder), "--redirects", redirects),
                *rendezvous,
                *("-m", "d2l_gpu.worker", *command),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env=os.environ | _environment(nproc) | {FOLDER: str(folder)},
            start_new_session=True,
        )


def _environment(nproc: int) -> dict[str, str]:
    """What the ranks' environment has on top of this process's."""
    added = {}
    if nproc > 1 and "OMP_NUM_THREADS" not in os.environ:
        # torchrun would set 1 and warn; PyTorch would take all cores for each rank.
        added["OMP_NUM_THREADS"] = str(max(1, _cores() // nproc))
    if virtual_count() and not os.environ.get(VIRTUAL, "").strip():
        added[VIRTUAL] = str(max(virtual_count(), nproc))
    return added


def _cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _follow(
    agent: subprocess.Popen, folder: Path, progress: Progress, timeout: float | None
) -> bool:
    """Show what rank 0 says until torchrun ends; return False if time is up first."""
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    failing = False
    stdout = Lines(folder, log_of(0, "stdout"))
    stderr = Lines(folder, log_of(0, "stderr"))
    fractions = Lines(folder, PROGRESS)
    while True:
        try:
            agent.wait(SECONDS_BETWEEN_LOOKS)
        except subprocess.TimeoutExpired:
            ended = False
        else:
            ended = True  # looked at before the files: nothing more is written
        late = time.monotonic() > deadline
        lines = [x for x in stdout.new(ended or late) if not _NOISE.match(x)]
        warnings = stderr.new(ended or late)
        if lines or warnings:
            with progress.aside():
                _write(sys.stdout, lines)
                _write(sys.stderr, warnings)
        for fraction in fractions.new():
            progress.set(json.loads(fraction))
        progress.refresh()
        if ended or late:
            return ended
        if not failing and records(folder):
            failing = True
            deadline = min(deadline, time.monotonic() + GRACE)


def _write(stream: Any, lines: list[str]) -> None:
    if lines:
        stream.write("".join(lines))
        stream.flush()


def _ask_for_stacks(agent: subprocess.Popen, folder: Path) -> None:
    """Let the ranks end by themselves, so that they can first say where they are."""
    (folder / STACKS_WANTED).touch()
    agent.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        agent.wait(SECONDS_FOR_STACKS)


def _end(agent: subprocess.Popen, folder: Path) -> None:
    """Leave no process behind: ask, wait, then insist."""
    agent.stdin.close()  # the ranks end
    if agent.poll() is not None:
        return
    agent.terminate()  # it ends ranks that do not, and itself
    try:
        agent.wait(GRACE)
    except subprocess.TimeoutExpired:
        # Still the ranks' parent: their numbers cannot belong to others.
        for path in folder.glob("pid-*"):
            _kill(int(path.read_text()))
        agent.kill()
        agent.wait()


def _kill(rank: int) -> None:
    """Kill a rank, and the processes that it started: torchrun makes it a group."""
    with contextlib.suppress(OSError):
        if os.name == "posix" and os.getpgid(rank) == rank:
            os.killpg(rank, signal.SIGKILL)
        else:
            os.kill(rank, getattr(signal, "SIGKILL", signal.SIGTERM))


# ------------------------------------------------------------------ checks


def _check(
    script: str | Path,
    nproc: int,
    args: Sequence[Any],
    port: int | None,
    timeout: float | None,
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
    path = Path(script)
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no script {str(script)!r} in {Path.cwd()}: check its name, or "
            "write it first."
        )
    check_integer("The number of processes", nproc, least=1, example=2)
    if isinstance(args, str | bytes) or not isinstance(args, Iterable):
        raise TypeError(
            "The arguments of a script are a list such as ['--epochs', 3], not "
            f"{args!r}."
        )
    if timeout is not None:
        if isinstance(timeout, bool) or not isinstance(timeout, int | float):
            raise TypeError(
                "The timeout is a number of seconds or None, not "
                f"{timeout!r} ({type(timeout).__name__})."
            )
        if not timeout > 0:
            raise ValueError(f"The timeout is a positive number, not {timeout}.")
    if port is not None:
        _check_port(port)
    return path


def _check_port(port: int) -> None:
    if isinstance(port, bool) or not isinstance(port, int):
        raise TypeError(
            "A port is an integer such as 29500, not "
            f"{port!r} ({type(port).__name__}): leave port out to have a free one "
            "chosen."
        )
    if not 1 <= port <= 65535:
        raise ValueError(
            f"A port is between 1 and 65535, not {port}: leave port out to have a free "
            "one chosen."
        )
    try:
        # As torchrun listens: on all addresses, also those of a launch a moment ago.
        if socket.has_dualstack_ipv6():
            taken = {"family": socket.AF_INET6, "dualstack_ipv6": True}
        else:
            taken = {}
        socket.create_server(("", port), **taken).close()
    except OSError as error:
        raise RuntimeError(
            f"Port {port} cannot be used ({error.strerror}): name another, or leave "
            "port out to have a free one chosen."
        ) from None
