"""Have an answer graded in a separate process."""

import contextlib
import dis
import inspect
import io
import linecache
import marshal
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, BinaryIO, ClassVar

from d2l_gpu.common.children import kill_child, start_child
from d2l_gpu.common.requirements import install
from d2l_gpu.common.settings import EXERCISES, PROGRESS, VIRTUAL
from d2l_gpu.exercises import grading_process
from d2l_gpu.exercises.answer_process import ANSWER, PLACE, fits, kinds
from d2l_gpu.exercises.grading_process import STARTUP
from d2l_gpu.exercises.own import chosen_file
from d2l_gpu.exercises.records import to_json
from d2l_gpu.exercises.registry import Exercise, find
from d2l_gpu.exercises.verdict import Verdict

# Hide real GPUs, so that checks are the same on every machine.
NO_GPUS = {
    "CUDA_VISIBLE_DEVICES": "",
    "HIP_VISIBLE_DEVICES": "",
    "JAX_PLATFORMS": "cpu",
}


@dataclass(frozen=True)
class Prepared:
    """An answer on its way to another process: a value, a pickle, or why it's neither.

    Attributes:
        problem: why the answer can't be graded, as a sentence; empty if it can.
        value: the value as JSON; None if the exercise asks for a function.
        pickled: the function, which only the answer's process unpickles.
    """

    problem: str = ""
    value: str | None = None
    pickled: bytes = b""


def judge(
    framework: str, number: str, answer: Any = ..., exercises: str | None = None
) -> Verdict:
    """Run an answer in a separate process and return the verdict.

    Args:
        framework: the framework's tag.
        number: the exercise, such as ``03.1``.
        answer: the function or value that it asks for.
        exercises: a file with exercises of a teacher's own (`own`); None for the one
            that ``D2L_GPU_EXERCISES`` names.

    Raises:
        TypeError: `number` is not a string.
        ValueError: there is no such exercise, or `exercises` can't be loaded.
        ImportError: cloudpickle, which sends answers across, is not installed.
    """
    own = chosen_file(exercises)
    exercise = find(framework, number, own)
    environment = environment_for(exercise, own)  # before the answer's code runs here
    prepared = prepare(exercise, answer)
    (verdict,) = judge_prepared(framework, [(exercise, prepared)], environment)
    return _with_lines(verdict, answer)


def prepare(exercise: Exercise, answer: Any) -> Prepared:
    """Return an answer as `judge_prepared` takes it; nothing of it is called.

    Raises:
        ImportError: cloudpickle is not installed.
    """
    problem = why_no_answer(exercise, answer)
    if problem:
        return Prepared(problem)
    try:
        if exercise.parameters is None:
            return Prepared(value=value_as_json(answer))
        return Prepared(pickled=_pickled(answer))
    except (ImportError, KeyboardInterrupt):
        raise
    except BaseException as error:  # of the answer's own methods, SystemExit too
        return Prepared(f"your answer can't be sent to another process: {_text(error)}")


def judge_prepared(
    framework: str,
    answers: Sequence[tuple[Exercise, Prepared]],
    environment: Mapping[str, str],
) -> list[Verdict]:
    """Run answers, each in a process of its own, and return the verdicts.

    One process grades all of them, which saves the time to start it.

    Args:
        framework: the framework's tag.
        answers: exercises that want equally many GPUs, and answers to them. Of an
            exercise, only the number and the seconds count here: the processes look up
            the rest. No code of an answer runs in this process.
        environment: what `environment_for` returns.
    """
    verdicts = {
        exercise.number: Verdict(exercise.number, problem=prepared.problem)
        for exercise, prepared in answers
    }
    left = [each for each in answers if not each[1].problem]
    while left:
        with temporary_folder() as name:
            folders = [Path(name) / str(i) for i, _ in enumerate(left)]
            for folder, (_, prepared) in zip(folders, left, strict=True):
                folder.mkdir()
                if prepared.value is not None:
                    value = folder / grading_process.VALUE
                    value.write_text(prepared.value, "utf-8")
                else:
                    (folder / ANSWER).write_bytes(prepared.pickled)
            exercises = [exercise for exercise, _ in left]
            found = _run(framework, exercises, folders, environment)
        verdicts |= {each.number: each for each in found}
        left = left[len(found) :]  # if one ended the process, go on with the next
    return list(verdicts.values())


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
    parameters = ", ".join(exercise.parameters)
    return f"a function {exercise.name!s}({parameters!s})"


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
def temporary_folder(place: Path | None = None) -> Iterator[str]:
    """Make a temporary folder; remove it afterwards, whatever an answer put there."""
    name = tempfile.mkdtemp(dir=place)
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
    framework: str,
    exercises: Sequence[Exercise],
    folders: Sequence[Path],
    environment: Mapping[str, str],
) -> list[Verdict]:
    """Return the verdicts on answers, up to the first that can't be graded."""
    verdicts: list[Verdict] = []
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    # Opened before the answer runs, which may put something else in this place.
    with (folders[0] / "output").open("w+b") as output:
        with _process(framework, exercises, folders, environment, output) as process:
            # Its standard input stays open: the process ends when that closes.
            reader = threading.Thread(
                target=lambda: [*map(lines.put, process.stdout), lines.put(b"")],
                daemon=True,
            )
            reader.start()
            for exercise in exercises:
                line = b""
                with contextlib.suppress(queue.Empty):
                    line = lines.get(timeout=2 * STARTUP + 2 * exercise.seconds)
                if not line:
                    break
                verdicts.append(Verdict.from_json(line.decode("utf-8")))
        if len(verdicts) < len(exercises):
            last = grading_process.end_of(output).splitlines()[-1:]
            reason = f": {last[0][:200]}" if last else ""
            problem = f"the check itself failed, and says nothing about it{reason}."
            number = exercises[len(verdicts)].number
            verdicts.append(Verdict(number, problem=problem))
    return verdicts


def environment_for(exercise: Exercise, own: Path | None = None) -> dict[str, str]:
    """Return the environment variables of the processes that run and grade.

    Args:
        exercise: which says how many virtual GPUs they have.
        own: a file with a teacher's own exercises.
    """
    path = [each for each in sys.path if each]
    if "" in sys.path:
        path.append(str(Path.cwd()))  # the answer runs in another folder
    return {
        **os.environ,
        **NO_GPUS,
        VIRTUAL: str(exercise.gpus),
        EXERCISES: str(own or ""),
        PROGRESS: "0",  # what an answer checks by itself is no pass of the reader's
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONIOENCODING": "utf-8",
    }


@contextlib.contextmanager
def _process(
    framework: str,
    exercises: Sequence[Exercise],
    folders: Sequence[Path],
    environment: Mapping[str, str],
    output: BinaryIO,
) -> Iterator[subprocess.Popen]:
    """Start the grading process; on leaving the block, kill it and what it started."""
    code = f"from {grading_process.__name__} import main; main()"
    process = start_child(
        [
            # -P: a file beside the notebook, such as secrets.py, is none of Python's.
            *(sys.executable, "-P", "-c", code),
            framework,
            *(
                text
                for exercise, folder in zip(exercises, folders, strict=True)
                for text in (exercise.number, str(exercise.seconds), str(folder))
            ),
        ],
        stdout=subprocess.PIPE,
        stderr=output,
        env=environment,
        cwd=folders[0],
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
    before, after = verdict.problem.split(place.group(), 1)
    problem = f"{before}{after}"
    if line:
        problem = f"{before} (line {place['line']!s}: `{line!s}`){after}"
    return replace(verdict, problem=problem)
