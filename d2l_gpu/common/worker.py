"""One rank of ``d2l.launch``: ``python -m d2l_gpu.common.worker SCRIPT [ARGUMENT…]``.

torchrun starts it in place of the script. It runs the script as Python would, leaves a
record of an exception in the folder of the run, and ends when the process that called
``launch`` ends. It does not import PyTorch, which would come before the script's own
first line: what a script sets before it imports PyTorch would be too late.
"""

import atexit
import contextlib
import faulthandler
import json
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import NoReturn

from d2l_gpu.common.children import end_with_parent
from d2l_gpu.common.files import write_whole
from d2l_gpu.vgpu.programs import is_ours, of_program, run_script

FOLDER = "D2L_GPU_RUN"
"""The environment variable that names the folder of a run. What belongs to one attempt,
from a start of all ranks to their end, lies in a folder of its own there."""

PORT = "D2L_GPU_PORT"
"""The environment variable with the port by which restarted ranks find each other."""

AGENT = "agent-pid"
"""A file in the folder of a run: the number of torchrun's process."""

STACKS_WANTED = "stacks-wanted"
"""A file of this name asks the ranks where they are before they end."""

CRASH = "crash"
"""Files that begin so, and end with the rank, say where Python was in a crash of C."""

SECONDS_FOR_THE_OTHER_END = 1.0  # several of torchrun's looks at its ranks

# What gloo, TCPStore and NCCL say when it was the other end that failed.
_CONNECTION_LOST = (
    "connection closed by peer",
    "connection reset by peer",
    "connection was closed",
    "broken pipe",
    "remote process exited",
)


def main() -> None:
    folder = attempt_folder()
    folder.mkdir(exist_ok=True)
    rank = int(os.environ["RANK"])
    if PORT in os.environ:
        os.environ["MASTER_PORT"] = os.environ[PORT]
    write_whole(folder / f"pid-{rank}", str(os.getpid()))
    if os.name == "posix":  # on Windows the pipe does not get past torchrun
        end_with_parent(lambda: _before_the_end(folder, rank))
    crash = (folder / f"{CRASH}-{rank}").open("w")
    faulthandler.enable(crash, all_threads=False)
    for stream in (sys.stdout, sys.stderr):  # into files, which launch reads as UTF-8
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    del sys.argv[0]
    code = 0
    try:
        run_script(Path(sys.argv[0]))
    except SystemExit as error:
        if error.code is not None and error.code != 0:
            _record(error, folder, rank)
            # A text would be printed; launch shows it.
            code = error.code if isinstance(error.code, int) else 1
    except BaseException as error:
        # While the traceback lives, so do the script's variables and its connections:
        # the record is there before another rank can notice that they are gone.
        _record(error, folder, rank)
        code = 1
        if _lost_connection(error):
            # torchrun tells only of the rank that it sees end first: let that be the
            # one at the other end, which may have left no record. Its end ends this.
            time.sleep(SECONDS_FOR_THE_OTHER_END)
    _leave(code)


def attempt_folder() -> Path:
    """Return the folder of the attempt that this rank belongs to."""
    return folder_of(
        Path(os.environ[FOLDER]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    )


def folder_of(run: Path, attempt: int) -> Path:
    """Return the folder of an attempt, counted from 0."""
    return run / f"attempt-{attempt}"


def number_of(folder: Path) -> int:
    """Return which attempt a folder belongs to."""
    return int(folder.name.removeprefix("attempt-"))


def _leave(code: int) -> NoReturn:
    """End this process as Python would, but for taking the interpreter down.

    A thread of gloo may still hold the last tensors that it has sent. If it lets go of
    them while the interpreter goes down, C++ aborts the process (torch 2.13, Python
    3.11; seen once in some hundred runs), and a run that went well would have failed.
    The processes of ``multiprocessing`` end in the same way.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code & 0xFF)


# ------------------------------------------------------------------ why it failed


def _record(error: BaseException, folder: Path, rank: int) -> None:
    """Write down what launch needs to find the first failure and to show it."""
    now = time.time()
    error.__traceback__ = of_program(error.__traceback__, __file__)
    record = {
        "rank": rank,
        "time": now,
        "summary": _summary(error),
        "traceback": "".join(traceback.format_exception(error)),
        "lost_connection": _lost_connection(error),
    }
    write_whole(folder / f"error-{rank}.json", json.dumps(record))
    # What stands on stderr from now on is about the end: connections without another
    # end, threads that are still there. It would only hide the cause.
    sys.stderr.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def _summary(error: BaseException) -> str:
    """The exception in one line."""
    name = type(error).__name__
    lines = str(error).strip().splitlines()
    return f"{name}: {lines[0]}" if lines else name


def _lost_connection(error: BaseException | None) -> bool:
    """Whether the error, or one that led to it, says that another rank is gone."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        text = str(error).lower()
        if isinstance(error, ConnectionError) or any(
            words in text for words in _CONNECTION_LOST
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


# ------------------------------------------------------------------ the end


def _before_the_end(folder: Path, rank: int) -> None:
    """Do what is left to do when the caller of launch is gone, or wants the end.

    torchrun hands the pipe on to the ranks, and makes each of them a group.
    """
    if (folder.parent / STACKS_WANTED).exists():
        _write_stack(folder, rank)
    if rank == 0:
        _keep_torchrun_from_restarting(folder.parent)


def _keep_torchrun_from_restarting(run: Path) -> None:
    """End torchrun, for which the end of the ranks would be another failure."""
    if (
        os.environ["TORCHELASTIC_RESTART_COUNT"]
        == os.environ["TORCHELASTIC_MAX_RESTARTS"]
    ):
        return
    with contextlib.suppress(OSError):
        agent = int((run / AGENT).read_text())
        if os.getppid() == agent:  # or that number could be another's by now
            os.kill(agent, signal.SIGTERM)


def _write_stack(folder: Path, rank: int) -> None:
    """Write down where the main thread is, from the script's first line on.

    Then wait a moment for the other ranks: with the end of the first one, torchrun
    ends them.
    """
    frames = sys._current_frames()
    stack = traceback.extract_stack(frames[threading.main_thread().ident])
    while stack and is_ours(stack[0].filename, __file__):
        del stack[0]
    write_whole(folder / f"stack-{rank}", "".join(stack.format()))
    for _ in range(100):
        written = {path.name for path in folder.glob("stack-*")}
        if all(f"stack-{i}" in written for i in range(int(os.environ["WORLD_SIZE"]))):
            break
        time.sleep(0.01)


if __name__ == "__main__":
    main()
