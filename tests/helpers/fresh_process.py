"""Running code in a Python of its own: what is decided there, is decided there only."""

import functools
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from tests.helpers.paths import PROGRAMS, REPOSITORY
from tests.helpers.waiting import PATIENCE

PATH = {"PYTHONPATH": str(REPOSITORY)}
# Real GPUs are hidden, so that the tests say the same on every machine.
NO_GPUS = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}


def run_fresh(code: str, **environment: str) -> str:
    """Run code in a process that has done nothing but, perhaps, import PyTorch.

    Where that is known to work, it is forked from one that has, two seconds sooner.

    Returns:
        What it printed, having seen that it neither failed nor wrote to stderr.
    """
    if sys.platform != "linux":
        return run_without_torch(code, **environment)
    server = _server()
    with tempfile.TemporaryDirectory() as folder:
        names = {name: str(Path(folder, name)) for name in ("stdout", "stderr")}
        request = {
            "code": textwrap.dedent(code),
            "folder": str(Path.cwd()),
            "environment": _environment(environment),
            **names,
        }
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        status = int(server.stdout.readline())
        out, err = (Path(name).read_text("utf-8") for name in names.values())
    return _checked(status, out, err)


def run_without_torch(code: str, **environment: str) -> str:
    """Run code in a process that has imported nothing; return what it printed."""
    return _run_python(["-c", textwrap.dedent(code)], environment)


def _run_python(arguments: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        env=_environment(environment),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return _checked(done.returncode, done.stdout, done.stderr)


def run_program(name: str, *arguments: str, **environment: str) -> str:
    """Run a file of ``tests/programs`` as `run_fresh` runs code."""
    path = str(PROGRAMS / name)
    return run_fresh(
        f"import sys\nsys.argv = {[path, *arguments]!r}\n"
        f"exec(compile(open({path!r}, 'rb').read(), {path!r}, 'exec'))",
        **environment,
    )


def run_program_without_torch(name: str, *arguments: str, **environment: str) -> str:
    """Run a file of ``tests/programs`` as `run_without_torch` runs code."""
    return _run_python([str(PROGRAMS / name), *arguments], environment)


def _environment(added: dict[str, str]) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DISPLAY", "WAYLAND_DISPLAY", "D2L_GPU_VIRTUAL", "MPLBACKEND")
    }
    return inherited | PATH | NO_GPUS | added


def _checked(status: int, out: str, err: str) -> str:
    assert status == 0, err
    assert err == ""
    return out


@functools.cache
def _server() -> subprocess.Popen:
    """A process that forks for each code; it ends when its standard input does."""
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from tests.helpers.fork_server import code; exec(code())",
        ],
        env=_environment({}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
