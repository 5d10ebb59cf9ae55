"""Training scripts on several processes, started from a notebook.

``launch`` runs torchrun, which runs ``d2l_gpu/worker.py`` once per rank, and that runs
the script. What the ranks have to say goes through files in a temporary folder: the
output of rank 0, what ``report`` was given, and records of exceptions.
"""

import codecs
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

from d2l_gpu import programs, worker
from d2l_gpu.worker import CRASH, FOLDER, STACKS_WANTED

from .devices import VARIABLE, virtual_count
from .progress import Progress, checked_fraction

RESULTS, PROGRESS, AGENT_LOG = "results.jsonl", "progress", "agent.log"
SECONDS_BETWEEN_LOOKS = 0.05
GRACE = 10.0  # seconds that ranks have to end after a failure
SECONDS_FOR_STACKS = 3.0
LINES_OF_STDERR = 20  # of a rank that died without an exception

# What C++ writes past Python: PyTorch 2.10 lets gloo say that it is connected.
_NOISE = re.compile(r"\[Gloo\] Rank \d+ is connected")


# ------------------------------------------------------------------ for the script


def report(**values: Any) -> None:
    """Hand values to the caller of ``launch``, from rank 0; other ranks do nothing.

    ``report(progress=0.25)`` alone is no result: it sets the progress bar. Without
    ``launch``, under plain torchrun or Python, the values are printed as one line of
    JSON, and progress is not shown.

    Args:
        values: numbers, strings, None, lists and dicts of them; tensors and arrays of
            one element become numbers, which waits for their device.
    Raises:
        TypeError: JSON cannot hold a value, or there is none.
        ValueError: progress is not between 0 and 1.
    """
    if int(os.environ.get("RANK", "0")) != 0:
        return
    if not values:
        raise TypeError(
            "report() was given nothing: name what it reports, as in report(loss=0.5)."
        )
    line = json.dumps(values, default=_number)
    folder = os.environ.get(FOLDER)
    if values.keys() == {"progress"}:
        line = json.dumps(checked_fraction(json.loads(line)["progress"]))
        if folder:
            _append(Path(folder, PROGRESS), line)
    elif folder:
        _append(Path(folder, RESULTS), line)
    else:
        print(line, flush=True)


def _number(value: Any) -> Any:
    """A tensor or array of one element as a number, for JSON."""
    size = value.numel() if hasattr(value, "numel") else getattr(value, "size", None)
    if hasattr(value, "item") and size == 1:
        number = value.item()
        if isinstance(number, bool | int | float):
            return number
    shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
    raise TypeError(
        f"report() was given a {type(value).__name__}{shape}, which JSON cannot hold: "
        "give numbers, strings, lists or dicts, or tensors of one element."
    )


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


# ------------------------------------------------------------------ for the notebook


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
    the end of this process, whatever ends it (not on Windows).

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
        if agent.returncode and (ended or _records(folder)):
            raise RuntimeError(_failure(folder, script))
        if not ended:
            raise TimeoutError(_where_ranks_were(folder, script, timeout))
        return [json.loads(line) for line in _Lines(folder, RESULTS).new()]


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
    if virtual_count() and not os.environ.get(VARIABLE, "").strip():
        added[VARIABLE] = str(max(virtual_count(), nproc))
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
    stdout = _Lines(folder, _log_of(0, "stdout"))
    stderr = _Lines(folder, _log_of(0, "stderr"))
    fractions = _Lines(folder, PROGRESS)
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
        if not failing and _records(folder):
            failing = True
            deadline = min(deadline, time.monotonic() + GRACE)


def _write(stream: Any, lines: list[str]) -> None:
    if lines:
        stream.write("".join(lines))
        stream.flush()


class _Lines:
    """The lines that other processes append to a file that may not be there yet."""

    def __init__(self, folder: Path, pattern: str):
        self._folder, self._pattern = folder, pattern
        self._file = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def new(self, last: bool = False) -> list[str]:
        """Return the lines that were completed since the last call.

        Args:
            last: whether a line without an end counts, since there will be no more.
        """
        if self._file is None:
            path = next(self._folder.glob(self._pattern), None)
            if path is None:
                return []
            self._file = path.open("rb")
        text = self._rest + self._decoder.decode(self._file.read(), final=last)
        *lines, self._rest = re.split(r"(?<=\n)", text)
        if last and self._rest:
            lines.append(self._rest)
            self._rest = ""
        return lines


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


# ------------------------------------------------------------------ what went wrong


def _failure(folder: Path, script: Path) -> str:
    """Say which rank failed first, and why.

    An error that says that a connection was lost is the consequence of another's: it
    counts only if no rank has another error or died without one.
    """
    records = _records(folder)
    causes = [record for record in records if not record["lost_connection"]]
    died = _died(folder, {record["rank"] for record in records})
    if causes or (records and not died):
        first = min(causes or records, key=lambda record: record["time"])
        return (
            f"Rank {first['rank']} of {script.name} failed with {first['summary']}\n\n"
            f"{first['traceback'].rstrip()}"
        )
    if died:
        rank, code = died[0]
        said = _Lines(folder, _log_of(rank, "stderr")).new(last=True)
        crash = _Lines(folder, f"{CRASH}-{rank}").new(last=True)
        how = f"with exit code {code}"
        if code < 0:
            how = f"by signal {-code}"
            with contextlib.suppress(ValueError):
                how = f"by {signal.Signals(-code).name}"
        sentence = f"Rank {rank} of {script.name} was ended {how}"
    else:
        said = _Lines(folder, AGENT_LOG).new(last=True)
        crash = []
        sentence = f"torchrun could not run {script.name}"
    # Frames above the script's and a list of libraries help nobody.
    ours = tuple(f'  File "{file}' for file in (worker.__file__, programs.__file__))
    skipped = (*ours, '  File "<frozen runpy>', "Extension modules:")
    said = said[-LINES_OF_STDERR:]
    said += [line for line in crash if not line.startswith(skipped)]
    last = "".join(said).strip()
    if not last:
        return f"{sentence}; nothing on stderr says why."
    return f"{sentence}; its last words:\n\n{last}"


def _records(folder: Path) -> list[dict]:
    """The exceptions of all ranks."""
    return [
        json.loads(path.read_text(encoding="utf-8"))
        for path in folder.glob("error-*.json")
    ]


def _died(folder: Path, recorded: Iterable[int]) -> list[tuple[int, int]]:
    """Ranks that ended without an exception, and their exit codes, first to last.

    From torchrun's summary. It ends the remaining ranks with SIGTERM, so that code is
    a cause only where there is no other; below "Root Cause" is whom it saw end first.
    """
    log = (folder / AGENT_LOG).read_text(encoding="utf-8", errors="replace")
    others, _, first = log.partition("Root Cause (first observed failure)")
    entry = re.compile(r"rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: (-?\d+)")
    found = [
        (int(rank), int(code))
        for part in (first, others)
        for rank, code in entry.findall(part)
        if int(rank) not in recorded
    ]
    return sorted(found, key=lambda rank_and_code: rank_and_code[1] == -signal.SIGTERM)


def _where_ranks_were(folder: Path, script: Path, timeout: float) -> str:
    """Say that time is up, and where each rank was."""
    stacks = {
        int(path.name.removeprefix("stack-")): path.read_text(encoding="utf-8")
        for path in folder.glob("stack-*")
    }
    parts = [
        f"{script.name} had not ended after {timeout} s, so all its processes were "
        "ended: give it more time, or find what a rank waits for."
    ]
    parts += [f"Rank {rank} was here:\n{stacks[rank]}" for rank in sorted(stacks)]
    return "\n\n".join(part.rstrip() for part in parts)


def _log_of(rank: int, stream: str) -> str:
    """Where torchrun writes what a rank says, as a pattern below its folder."""
    return f"*/attempt_0/{rank}/{stream}.log"


# ------------------------------------------------------------------ checks


def _check(
    script: str | Path,
    nproc: int,
    args: Sequence[Any],
    port: int | None,
    timeout: float | None,
) -> Path:
    import torch.distributed

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
    if isinstance(nproc, bool) or not isinstance(nproc, int):
        raise TypeError(
            "The number of processes is an integer such as 2, not "
            f"{nproc!r} ({type(nproc).__name__})."
        )
    if nproc < 1:
        raise ValueError(f"The number of processes is at least 1, not {nproc}.")
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
