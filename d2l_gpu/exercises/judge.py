"""Have an answer graded in a separate process."""

import contextlib
import dis
import inspect
import linecache
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

from d2l_gpu.common.children import kill_child, start_child
from d2l_gpu.common.settings import OURS, VIRTUAL
from d2l_gpu.exercises import grading_process
from d2l_gpu.exercises.registry import Exercise, find
from d2l_gpu.exercises.verdict import Verdict

# Seconds for Python to start and import the framework, before the answer's time begins.
STARTUP = 120

# Hide real GPUs, so that checks are the same on every machine.
NO_GPUS = {
    "CUDA_VISIBLE_DEVICES": "",
    "HIP_VISIBLE_DEVICES": "",
    "JAX_PLATFORMS": "cpu",
}


def judge(framework: str, number: str, answer: Any = ...) -> Verdict:
    """Run an answer in a separate process and return the verdict.

    Args:
        framework: the framework's tag.
        number: the exercise, such as ``03.1``.
        answer: the function or value that it asks for.

    Raises:
        TypeError: `number` is not a string.
        ValueError: there is no such exercise.
        ImportError: cloudpickle, which sends answers across, is not installed.
    """
    exercise = find(framework, number)
    problem = why_no_answer(exercise, answer)
    if problem:
        return Verdict(exercise.number, problem=problem)
    try:
        pickled = _pickled(answer)
    except ImportError:
        raise
    except Exception as error:
        problem = f"your answer cannot be carried to another process: {error}"
        return Verdict(exercise.number, problem=problem)
    return _run(framework, exercise, pickled)


def why_no_answer(exercise: Exercise, answer: Any) -> str:
    """Return why an answer can't be graded, without running it; empty if it can."""
    if answer is ... or answer is None:
        wanted = "a value" if exercise.parameters is None else _wanted(exercise)
        return f"not answered yet. It asks for {wanted}."
    if exercise.parameters is None:
        if not grading_process.fits(answer, exercise.returns):
            kinds = grading_process.kinds(exercise.returns)
            return f"the answer is {kinds}, not {answer!r}."
        return ""
    if not callable(answer):
        return f"it asks for {_wanted(exercise)}, not for {type(answer).__name__}."
    try:
        signature = inspect.signature(answer)
        signature.bind(*exercise.parameters)
    except TypeError:
        return f"it asks for {_wanted(exercise)}; yours takes {signature}."
    except ValueError:
        pass  # a C function without a signature
    if isinstance(answer, FunctionType) and is_stub(answer):
        return f"not answered yet. It asks for {_wanted(exercise)}."
    return ""


def _wanted(exercise: Exercise) -> str:
    return f"a function {exercise.name}({', '.join(exercise.parameters)})"


def is_stub(function: FunctionType) -> bool:
    """Return whether all a function does is raise NotImplementedError, or return None
    or ``...``."""
    code = function.__code__
    if code.co_names == ("NotImplementedError",):
        return True
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE):
        return False
    nothing = {"RESUME", "NOP", "COPY_FREE_VARS", "MAKE_CELL", "CACHE"}
    rest = [each for each in dis.get_instructions(code) if each.opname not in nothing]
    returns = {"LOAD_CONST", "RETURN_VALUE", "RETURN_CONST"}
    return len(rest) <= 2 and all(
        each.opname in returns and each.argval in (None, ...) for each in rest
    )


def _pickled(answer: Any) -> bytes:
    try:
        import cloudpickle
    except ImportError as error:
        raise ImportError(
            "Checking exercises needs cloudpickle, which is not installed: "
            f'pip install "{OURS}[lessons]".',
            name="cloudpickle",
        ) from error
    return cloudpickle.dumps(answer)


def _run(framework: str, exercise: Exercise, pickled: bytes) -> Verdict:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / grading_process.ANSWER).write_bytes(pickled)
        with (
            (folder / "output").open("wb") as output,
            _process(framework, exercise, folder, output) as process,
        ):
            ended = _wait(process, exercise.seconds + STARTUP)
        printed = (folder / "output").read_text("utf-8", errors="replace")
        result = folder / grading_process.VERDICT
        if result.is_file():
            return _with_lines(Verdict.from_json(result.read_text("utf-8")))
        problem = (
            f"Python ended in the middle of it, with status {process.returncode}."
            if ended
            else f"your answer did not end within {exercise.seconds:g} seconds."
        )
        return Verdict(exercise.number, problem=problem, printed=printed)


@contextlib.contextmanager
def _process(
    framework: str, exercise: Exercise, folder: Path, output
) -> Iterator[subprocess.Popen]:
    """Start the grading process; on leaving the block, kill it and what it started."""
    environment = {
        **os.environ,
        **NO_GPUS,
        VIRTUAL: str(exercise.gpus),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONIOENCODING": "utf-8",
    }
    code = f"from {grading_process.__name__} import main; main()"
    process = start_child(
        [
            *(sys.executable, "-c", code),
            *(framework, exercise.number, str(exercise.seconds), str(folder)),
        ],
        stdout=output,
        stderr=subprocess.STDOUT,
        env=environment,
    )
    try:
        yield process
    finally:
        kill_child(process)
        process.wait()
        process.stdin.close()


def _wait(process: subprocess.Popen, seconds: float) -> bool:
    """Wait for a process; return whether it ended in time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _with_lines(verdict: Verdict) -> Verdict:
    """Quote the line of the answer that caused the verdict's problem.

    Only this process can: it ran the notebook's cells, so it has their source.
    """
    place = grading_process.PLACE.search(verdict.problem)
    if place is None:
        return verdict
    line = linecache.getline(place["file"], int(place["line"])).strip()
    quoted = f" (line {place['line']}: `{line}`)" if line else ""
    return replace(verdict, problem=verdict.problem.replace(place.group(), quoted))
