"""Programs that run as if on another machine, one with other GPUs than this one."""

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from d2l_gpu.common.arguments import check_integer

SECONDS = 120.0
_WIDTH = 79
_AS_CUDA = "D2L_GPU_AS_CUDA"  # gives virtual GPUs to what `-m d2l_gpu.vgpu` starts
_REPOSITORY = Path(__file__).resolve().parents[3]
_HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}


def run_elsewhere(
    program: str, gpus: int, *, folder: str | Path, timeout: float = SECONDS
) -> None:
    """Run a program as if on another machine, with as many GPUs as you say.

    It runs in a Python process of its own. Its GPUs are virtual and answer to the name
    ``cuda``; GPUs of this machine are hidden from it, so it does the same on every
    machine. What it prints is printed here. If it ends with an exception, so is the
    last line of the traceback.

    Args:
        program: its text, which may be indented.
        gpus: how many GPUs it finds; 0 for none.
        folder: where it runs, and finds files that others have written there.
        timeout: seconds after which it is ended.
    Raises:
        TypeError, ValueError: ``gpus`` isn't an integer of at least 0.
        NotADirectoryError: there is no such folder.
        TimeoutError: the program did not end in time.
    """
    check_integer("gpus", gpus, least=0)
    if not Path(folder).is_dir():
        raise NotADirectoryError(f"There is no folder {folder} to run the program in.")
    with tempfile.TemporaryDirectory() as name:
        script = Path(name, "program.py")
        script.write_text(textwrap.dedent(program), encoding="utf-8")
        virtual = ["-m", "d2l_gpu.vgpu", "--gpus", str(gpus)] if gpus else []
        try:
            done = subprocess.run(
                [sys.executable, *virtual, str(script)],
                cwd=folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                encoding="utf-8",
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            raise TimeoutError(
                f"The program did not end within {timeout:g} seconds."
            ) from None
    if done.stdout:
        print(done.stdout, end="" if done.stdout.endswith("\n") else "\n")
    if done.returncode:
        errors = done.stderr.strip().splitlines()
        last = errors[-1] if errors else f"The program ended with {done.returncode}."
        print(textwrap.fill(last, _WIDTH, break_long_words=False))


def _environment() -> dict[str, str]:
    """Return the environment of a machine that this one's virtual GPUs aren't in."""
    inherited = {name: value for name, value in os.environ.items() if name != _AS_CUDA}
    before = inherited.get("PYTHONPATH", "").split(os.pathsep)
    folders = os.pathsep.join([*filter(None, before), str(_REPOSITORY)])
    return inherited | _HIDDEN | {"PYTHONPATH": folders, "PYTHONIOENCODING": "utf-8"}
