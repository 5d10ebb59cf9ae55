"""Have an answer graded in a separate process."""

import contextlib
import dis
import inspect
import io
import linecache
import marshal
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import ChainMap
from collections.abc import Callable, Iterator
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, BinaryIO, ClassVar

from d2l_gpu.common.children import kill_child, start_child
from d2l_gpu.common.requirements import install
from d2l_gpu.common.settings import PROGRESS, VIRTUAL
from d2l_gpu.exercises import grading_process
from d2l_gpu.exercises.answer_process import ANSWER, PLACE, fits, kinds
from d2l_gpu.exercises.grading_process import STARTUP
from d2l_gpu.exercises.records import to_json
from d2l_gpu.exercises.registry import Exercise, find
from d2l_gpu.exercises.verdict import Verdict

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
    environment = _environment(exercise)  # before the answer's code runs here
    with _folder() as name:
        try:
            if exercise.parameters is None:
                plain = value_as_json(answer)
                (Path(name) / grading_process.VALUE).write_text(plain, "utf-8")
            else:
                (Path(name) / ANSWER).write_bytes(_pickled(answer))
        except (ImportError, KeyboardInterrupt):
            raise
        except BaseException as error:  # of the answer's own methods, SystemExit too
            problem = f"your answer can't be sent to another process: {_text(error)}"
            return Verdict(exercise.number, problem=problem)
        verdict = _run(framework, exercise, Path(name), environment)
    return _with_lines(verdict, answer)


def value_as_json(answer: Any) -> str:
    """Return a value as its grader's process reads it: a ``Plan`` as a dictionary.

    Raises:
        RecordError: it's no plain data.
    """
    fields = is_dataclass(answer) and not isinstance(answer, type)
    return to_json(asdict(answer) if fields else answer)


def why_no_answer(exercise: Exercise, answer: Any) -> str:
    """Return why an answer can't be graded, without running it; empty if it can."""
    if answer is ... or answer is None:
        return f"not answered yet. It asks for {_wanted(exercise)}."
    if exercise.parameters is None:
        if not fits(answer, exercise.returns):
            wanted = kinds(exercise.returns)
            return f"the answer must be {wanted}, not {_text(answer, repr)}."
        return ""
    if not callable(answer):
        return f"it asks for {_wanted(exercise)}, not for {type(answer).__name__}."
    try:
        signature = inspect.signature(answer)
    except ValueError:
        signature = None  # a C function without a signature
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"your answer's signature can't be read: {_text(error)}."
    try:
        if signature is not None:
            signature.bind(*exercise.parameters)
    except TypeError:
        return f"it asks for {_wanted(exercise)}; yours takes {_text(signature)}."
    if isinstance(answer, FunctionType) and is_stub(answer):
        return f"not answered yet. It asks for {_wanted(exercise)}."
    return ""


def _text(value: Any, convert: Callable[[Any], str] = str, most: int = 200) -> str:
    """Return the beginning of a value's text, whatever its own methods do."""
    try:
        text = " ".join(convert(value).split())
    except KeyboardInterrupt:
        raise
    except BaseException:
        text = f"a {type(value).__name__}"
    return text if len(text) <= most else f"{text[:most]}…"


def _wanted(exercise: Exercise) -> str:
    if exercise.parameters is None:
        # A number's type would give away too much, or nothing.
        ours = [kind for kind in exercise.returns if kind.__module__ != "builtins"]
        return kinds(ours) if ours else "a value"
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
            f"{install('lessons')}.",
            name="cloudpickle",
        ) from error

    class Pickler(cloudpickle.Pickler):
        """Keeps the names of files, which errors tell; cloudpickle 3.1.3 doesn't."""

        dispatch_table: ClassVar = ChainMap(
            {CodeType: lambda code: (marshal.loads, (marshal.dumps(code),))},
            cloudpickle.Pickler.dispatch_table,
        )

    buffer = io.BytesIO()
    Pickler(buffer).dump(answer)
    return buffer.getvalue()


@contextlib.contextmanager
def _folder() -> Iterator[str]:
    """Make a temporary folder; remove it afterwards, whatever an answer put there."""
    name = tempfile.mkdtemp()
    try:
        yield name
    finally:
        with contextlib.suppress(RecursionError):  # folders in folders in folders
            shutil.rmtree(name, ignore_errors=True)
            for folder, inner, _ in os.walk(name):  # some may not be open to us
                for path in (Path(folder, each) for each in inner):
                    with contextlib.suppress(OSError):
                        path.is_symlink() or path.chmod(0o700)
            shutil.rmtree(name, ignore_errors=True)


def _run(
    framework: str, exercise: Exercise, folder: Path, environment: dict[str, str]
) -> Verdict:
    said: list[bytes] = []
    # Opened before the answer runs, which may put something else in this place.
    with (folder / "output").open("w+b") as output:
        with _process(framework, exercise, folder, environment, output) as process:
            # Its standard input stays open: the process ends when that closes.
            reader = threading.Thread(
                target=lambda: said.append(process.stdout.read()), daemon=True
            )
            reader.start()
            reader.join(2 * STARTUP + 2 * exercise.seconds)
        out = b"".join(said)
        if out:
            return Verdict.from_json(out.decode("utf-8"))
        lines = grading_process.end_of(output).splitlines()
    reason = f": {lines[-1][:200]}" if lines else ""
    problem = f"the check itself failed, and says nothing about it{reason}."
    return Verdict(exercise.number, problem=problem)


def _environment(exercise: Exercise) -> dict[str, str]:
    """Return the environment variables of the processes that run and grade."""
    path = [each for each in sys.path if each]
    if "" in sys.path:
        path.append(str(Path.cwd()))  # the answer runs in another folder
    return {
        **os.environ,
        **NO_GPUS,
        VIRTUAL: str(exercise.gpus),
        PROGRESS: "0",  # what an answer checks by itself is no pass of the reader's
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONIOENCODING": "utf-8",
    }


@contextlib.contextmanager
def _process(
    framework: str,
    exercise: Exercise,
    folder: Path,
    environment: dict[str, str],
    output: BinaryIO,
) -> Iterator[subprocess.Popen]:
    """Start the grading process; on leaving the block, kill it and what it started."""
    code = f"from {grading_process.__name__} import main; main()"
    process = start_child(
        [
            # -P: a file beside the notebook, such as secrets.py, is none of Python's.
            *(sys.executable, "-P", "-c", code),
            *(framework, exercise.number, str(exercise.seconds), str(folder)),
        ],
        stdout=subprocess.PIPE,
        stderr=output,
        env=environment,
        cwd=folder,
    )
    try:
        yield process
    finally:
        # Not killed at once: it ends what it has started first.
        process.stdin.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            kill_child(process)
            process.wait()


# No file of source code that a reader writes has more bytes.
_SOURCE = 2**22


def _with_lines(verdict: Verdict, answer: Any) -> Verdict:
    """Quote the line of the answer that caused the verdict's problem.

    Only this process can: it ran the notebook's cells, so it has their source. The
    answer says which file it is; only its own is read, or what is in the cache.
    """
    place = PLACE.search(verdict.problem)
    if place is None:
        return verdict
    file, line = place["file"], ""
    if file in linecache.cache or (
        file == getattr(getattr(answer, "__code__", None), "co_filename", None)
        and Path(file).is_file()  # and no device, which may have no end
        and Path(file).stat().st_size <= _SOURCE
    ):
        line = linecache.getline(file, int(place["line"])).strip()
    quoted = f" (line {place['line']}: `{line}`)" if line else ""
    return replace(verdict, problem=verdict.problem.replace(place.group(), quoted))
