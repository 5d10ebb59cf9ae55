"""Limits for a process that runs an answer, and the end of all that it started.

Everywhere, the process gets a session of its own, and is killed with its process group
when it's done or its time is up. Linux and macOS also limit memory, open files and the
size of files. On Linux, moreover,

* the processes that it leaves behind become children of the process that grades, which
  kills them too, even if they left the group;
* it may write only in its own folder, may not read what is hidden from it, and may
  send signals to no other process (Landlock, from Linux 5.13, or 6.12 for signals);
* some system calls fail that Landlock doesn't know of (`system_calls.py`).

None of this needs root, and none of it makes a sandbox: an answer can read what its
reader can read, and use the network.
"""

import contextlib
import ctypes
import functools
import operator
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from d2l_gpu.exercises.system_calls import refuse_calls

# What an answer may use on top of what Python and the framework have taken already.
MEMORY = 4 * 2**30
FILE_SIZE = 256 * 2**20
OPEN_FILES = 512
PROCESSES = 64
THREADS = 4096  # a framework takes several for each core


# ---- In the process that runs the answer


def restrict_files(
    folder: Path, hidden: Sequence[Path] = (), but: Sequence[Path] = ()
) -> None:
    """Let this thread, and what it starts, write only in a folder, where that works.

    Threads that are there already aren't restricted, so call it before any starts.

    Args:
        folder: where to write.
        hidden: folders whose files can't be read either.
        but: files and folders in them that can.
    """
    if sys.platform == "linux":
        rules = [(place, _WRITE) for place in (folder, Path("/dev/null"))]
        if hidden:
            readable = [*_all_but({each.resolve() for each in hidden}), folder, *but]
            rules += [(place, _READ) for place in readable]
        _restrict(rules)
        refuse_calls()


def _all_but(hidden: set[Path]) -> Iterator[Path]:
    """Yield files and folders that together hold everything but some folders.

    What is made later in a folder that holds a hidden one isn't among them.
    """
    above = {parent for each in hidden for parent in each.parents} - hidden
    for folder in above:
        with contextlib.suppress(OSError):  # it may not be ours to list
            for path in folder.iterdir():
                # What a link leads to is found by its own name.
                if path not in hidden | above and not path.is_symlink():
                    yield path
    for path in (Path(each).resolve() for each in (*sys.path, sys.prefix) if each):
        if not any(each.is_relative_to(path) for each in hidden):
            yield path


def limit_this_process() -> None:
    """Limit this process, and those that it starts; call it before the answer's code.

    What it has taken until now doesn't count.
    """
    if os.name != "posix":
        return
    import resource

    _lower(resource.RLIMIT_FSIZE, FILE_SIZE)
    _lower(resource.RLIMIT_NOFILE, OPEN_FILES)
    _lower(resource.RLIMIT_CORE, 0)
    limit_memory()


def limit_memory() -> None:
    """Let this process have `MEMORY` more than it has already (Linux, macOS)."""
    if os.name != "posix":
        return
    import resource

    if taken := _memory_taken("VmData"):
        _lower(resource.RLIMIT_DATA, taken + MEMORY)
    # Shared memory counts here alone. So do addresses without memory, which threads
    # reserve: each its stack, and an arena.
    if taken := _memory_taken("VmSize"):
        threads = 2 * (os.cpu_count() or 1)
        _lower(resource.RLIMIT_AS, taken + 2 * MEMORY + threads * 2**27)


def _lower(limit: int, most: int) -> None:
    """Lower a limit for good, unless it is lower already."""
    import resource

    _, hard = resource.getrlimit(limit)
    if hard == resource.RLIM_INFINITY or hard > most:
        # A system may refuse a limit that it does not know.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(limit, (most, most))


def _memory_taken(kind: str) -> int | None:
    """Return the bytes that this process has; None if unknown.

    Args:
        kind: ``VmData``, its private memory, or ``VmSize``, all of its addresses.
    """
    try:
        status = Path("/proc/self/status").read_text("ascii", errors="replace")
    except OSError:
        return None
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == kind:
            return int(value.split()[0]) * 1024
    return None


# From linux/landlock.h.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH, _SCOPE_SIGNAL = 1, 1, 1 << 1
_NO_NEW_PRIVILEGES = 38  # prctl
# Writing files; removing and making files, folders, links and devices.
_WRITE = 1 << 1 | sum(1 << i for i in range(4, 13))
_DEVICES = 1 << 6 | 1 << 11
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_READ = 1 << 2
_OF_FILES = 1 << 1 | _READ | _TRUNCATE


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"  # Python 3.14 asks which packing is meant
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def _restrict(rules: Sequence[tuple[Path, int]]) -> None:
    """Let this thread, and what it starts, do only what is allowed.

    Args:
        rules: files and folders, and what is allowed there: `_WRITE` or `_READ`. What
            no rule names isn't restricted anywhere.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)
    if version < 1:
        return
    more = _REFER * (version >= 2) | _TRUNCATE * (version >= 3)
    handled = functools.reduce(operator.or_, (what for _, what in rules)) | more
    ruleset_of = _Ruleset(handled, 0, _SCOPE_SIGNAL * (version >= 6))
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = libc.syscall(
        _CREATE_RULESET, ctypes.byref(ruleset_of), ctypes.c_size_t(size), 0
    )
    if ruleset < 0:
        return
    try:
        for place, what in rules:
            try:
                path = os.open(place, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue  # it has gone
            access = what | more if what & _WRITE else what
            own = ~_DEVICES if place.is_dir() else _OF_FILES
            rule = _PathBeneath(access & own, path)
            failed = libc.syscall(
                _ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0
            )
            os.close(path)
            if failed:
                return
        if not libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
            libc.syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


# ---- In the process that grades

_SUBREAPER = 36  # prctl


def adopt_orphans() -> None:
    """Become the parent of whatever this process's descendants leave behind (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def kill_descendants(keep: int = 0) -> None:
    """Kill all processes that this one and its descendants have started (Linux).

    A process may go on in a child of its own and end, over and over, so that what we
    find has ended already. So we look until nothing new appears.

    Args:
        keep: a process that stays on the system's list when it has ended, for whoever
            waits for it.
    """
    before: set[int] | None = None
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        found = {each.pid: each for each in _descendants()}
        for pid, each in found.items():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            if each.ended and pid != keep:
                _take_off(pid)
        for _ in range(_QUICK_LOOKS):
            if not (children := _children()):
                break
            for pid in children:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        if before is not None and set(found) <= before and _all_ended(found.values()):
            return
        before = set(found)
        time.sleep(0.005)


# Seconds for which we follow processes that don't want to end.
_PATIENCE = 10.0
# Between two looks at all processes: at this one's children alone, which takes
# microseconds.
_QUICK_LOOKS = 200


def _children() -> list[int]:
    """Return the processes whose parent is this one; an empty list if unknown."""
    with contextlib.suppress(OSError):
        found = []
        for task in Path("/proc/self/task").iterdir():
            found += map(int, (task / "children").read_text("ascii").split())
        return found
    return []


def _take_off(pid: int) -> None:
    """Take a child that has ended off the system's list."""
    with contextlib.suppress(OSError):  # another's child
        os.waitpid(pid, os.WNOHANG)


@dataclass(frozen=True)
class _Process:
    pid: int
    ended: bool
    threads: int


def _all_ended(processes: Iterable[_Process]) -> bool:
    return all(process.ended for process in processes)


def _descendants() -> Iterator[_Process]:
    """Yield the processes below this one."""
    if sys.platform != "linux":
        return
    children: dict[int, list[_Process]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The name, in parentheses, may contain anything.
                text = (path / "stat").read_text("utf-8", errors="replace")
                state, parent, *rest = text.rpartition(")")[2].split()
                own = _Process(int(path.name), state == "Z", int(rest[15]))
                children.setdefault(int(parent), []).append(own)
    waiting = [os.getpid()]
    while waiting:
        own = children.get(waiting.pop(), [])
        yield from own
        waiting += [process.pid for process in own]


@contextlib.contextmanager
def few_processes(child: int, tell: Callable[[], None]) -> Iterator[None]:
    """Allow at most `PROCESSES`, and `THREADS` in them, while the block runs.

    Args:
        child: the process that this one started; those that it leaves behind are taken
            off the system's list when they end.
        tell: is called before they're killed, once.
    """
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.25):
            found = list(_descendants())
            threads = sum(process.threads for process in found)
            if len(found) > PROCESSES or threads > THREADS:
                tell()
                kill_descendants(keep=child)
                return
            for process in found:
                if process.ended and process.pid != child:
                    _take_off(process.pid)

    thread = threading.Thread(target=watch, name="few processes", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
