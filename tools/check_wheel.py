"""Try a wheel as a reader would: install it, run the command, execute lesson 01.

    python -m tools.check_wheel dist/d2l_gpu-0.1.0-py3-none-any.whl
    python -m tools.check_wheel dist/*.whl --torch torch==2.13.0

This uses a new virtual environment of this Python and an empty folder, out of reach of
the clone. It prints each command with its time, and the sizes of wheel and environment.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Sequence
from pathlib import Path

from d2l_gpu.common.processor import size_text

LESSON = "01"

# Variables that would let a program find packages outside the environment, or change
# the devices that it uses.
_HIDDEN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "D2L_GPU_VIRTUAL")


class StepError(Exception):
    """A step failed; the message is one sentence."""


def check_wheel(
    wheel: Path,
    folder: Path,
    torch: str | None = None,
    torch_index: str | None = None,
) -> None:
    """Install a wheel with the course's dependencies, and execute one lesson.

    Args:
        wheel: the file.
        folder: an empty folder, for the environment and the lesson's output.
        torch: a requirement to install first, as the README advises for machines that
            don't need the CUDA build; None to let pip resolve the wheel's own.
        torch_index: the package index for `torch`; None for pip's default.

    Raises:
        StepError: a command failed, or had the wrong result.
    """
    environment, reader = folder / "environment", folder / "reader"
    reader.mkdir()
    print(f"{wheel.name}: {size_text(wheel.stat().st_size)}", flush=True)
    venv.create(environment, with_pip=True)
    scripts = Path(
        sysconfig.get_path("scripts", "venv", vars={"base": str(environment)})
    )
    pip = [str(scripts / "python"), "-m", "pip", "install", "--quiet"]
    if torch is not None:
        index = ["--index-url", torch_index] if torch_index else []
        _run([*pip, *index, torch], reader)
    _run([*pip, f"{wheel.resolve()}[course]"], reader)
    print(f"the environment: {size_text(_size(environment))}", flush=True)

    command = str(scripts / "d2l-gpu")
    said = _run([command, "--version"], reader).split()[-1]
    version = wheel.name.split("-")[1]
    if said != version:
        raise StepError(f"the wheel is {version}, but its command says it is {said}")
    _run([command, "run", LESSON], reader)
    made = sorted(path.name for path in reader.glob("d2l-gpu-course/executed/*"))
    if [name.split("_")[0] for name in made] != [LESSON]:
        raise StepError(
            f"d2l-gpu run {LESSON} should have executed lesson {LESSON}, but left "
            f"{', '.join(made) or 'nothing'} in d2l-gpu-course/executed"
        )


def _run(command: Sequence[str], folder: Path) -> str:
    """Run a command in a folder, print it with its time, and return its output.

    Raises:
        StepError: its exit code isn't 0.
    """
    name, *arguments = command
    shown = " ".join([Path(name).stem, *arguments])
    environment = {k: v for k, v in os.environ.items() if k not in _HIDDEN}
    start = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    print(f"{shown}: {time.perf_counter() - start:.0f} s", flush=True)
    if done.returncode != 0:
        print(done.stdout, file=sys.stderr)
        raise StepError(f"{shown} exited with code {done.returncode}")
    return done.stdout


def _size(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def main(arguments: Sequence[str] | None = None) -> int:
    """Check a wheel; return 0, or 1 with one sentence on what failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.check_wheel", description=__doc__.splitlines()[0]
    )
    parser.add_argument("wheel", type=Path, help="the file")
    parser.add_argument("--torch", metavar="REQUIREMENT", help="install this first")
    parser.add_argument("--torch-index", metavar="URL", help="package index for it")
    options = parser.parse_args(arguments)
    if not options.wheel.is_file():
        print(f"there is no wheel {options.wheel}: build one first", file=sys.stderr)
        return 1
    try:
        # Windows may keep files locked for a moment.
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            check_wheel(options.wheel, Path(folder), options.torch, options.torch_index)
    except StepError as error:
        print(error, file=sys.stderr)
        return 1
    print("passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
