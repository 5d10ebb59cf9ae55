"""The process that runs an answer, and finds out what it does.

It's started by the process that grades, which sends requests, one JSON object a line,
on its standard input. A request names an *experiment*: a function in the module of a
grader that calls the answer and returns what it found, as plain data. The reply goes
to what was standard output, also as a line of JSON. Nothing is decided here: an answer
can tamper with everything in its own process, and a verdict would be part of that.
"""

import contextlib
import functools
import importlib
import io
import json
import numbers
import os
import pickle
import queue
import re
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from d2l_gpu.common.children import end_with_parent
from d2l_gpu.common.frameworks import framework as framework_with
from d2l_gpu.exercises.arguments import Arguments
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.limits import limit_this_process, restrict_files
from d2l_gpu.exercises.own import chosen_file, hidden_folders
from d2l_gpu.exercises.records import RecordError, from_json, to_json
from d2l_gpu.exercises.registry import Exercise, find

ANSWER, PRINTED = "answer.pickle", "printed"

# File names of functions that libraries compile from strings: MXNet's operators, and
# NumPy's dispatch wrappers before 1.25. Their source lines can't be looked up.
_OF_TEXTS = ("<string>", "<__array_function__ internals>")

# Marks a place in the answer. The process that asked for the verdict, which knows the
# source, fills in the line.
_PLACE = "\0{line}\0{file}\0"
PLACE = re.compile("\0(?P<line>[0-9]{1,7})\0(?P<file>[^\0]*)\0")


class AnswerError(Exception):
    """The answer did something that ends its grading; the message says what."""


def main() -> None:
    tag, number, seconds, folder = sys.argv[1:]
    # First of all: it holds for threads that begin later, not for those there are.
    restrict_files(Path(folder), hidden_folders(), [*filter(None, [chosen_file()])])
    requests = _Requests()
    end_with_parent(hear=requests.hear)  # input() finds the end of a file
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    exercise = replace(find(tag, number, chosen_file()), seconds=float(seconds))
    make_gpus(tag, exercise.gpus, exercise.as_cuda)
    process = AnswerProcess(tag, exercise, Path(folder))
    replies.write("{}\n")  # ready
    replies.flush()
    for request in requests:
        process.reply(request, replies)


class _Requests:
    """The lines that the parent writes, decoded, as they come."""

    def __init__(self):
        self._begun = b""
        self._whole: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def hear(self, data: bytes) -> None:
        *whole, self._begun = (self._begun + data).split(b"\n")
        for line in whole:
            self._whole.put(line)

    def __iter__(self) -> Iterator[dict]:
        while True:
            yield json.loads(self._whole.get())


def make_gpus(tag: str, n: int, as_cuda: bool = False) -> None:
    """Make n virtual GPUs in this process, for one framework."""
    names = {"as_cuda": True} if as_cuda else {}
    helper = importlib.import_module(f"d2l_gpu.{framework_with(tag).module}")
    with contextlib.redirect_stdout(io.StringIO()):
        helper.use_virtual_gpus(n, **names)


class AnswerProcess:
    """Runs the experiments on an answer that was sent here.

    Args:
        tag: the framework's tag.
        exercise: the exercise.
        folder: holds the answer; the only folder where it may write.
    """

    def __init__(self, tag: str, exercise: Exercise, folder: Path):
        self._tag, self._exercise, self._folder = tag, exercise, folder
        self._library = _functions()
        self._careful: Callable | None = None

    def reply(self, request: dict, replies: io.TextIOBase) -> None:
        """Run one experiment, and write what it found, or what went wrong."""
        lock, done = threading.Lock(), []

        def write(reply: dict) -> None:
            with lock:
                if not done:
                    done.append(True)
                    reply["ticket"] = request["ticket"]
                    replies.write(json.dumps(reply) + "\n")
                    replies.flush()

        seconds, limit = request["seconds"], self._exercise.seconds
        late = threading.Timer(
            seconds, lambda: write({"problem": _too_late(limit), "late": True})
        )
        late.daemon = True
        try:
            if self._careful is None:
                self._load()
            late.start()
            write(self._found(request))
        except AnswerError as error:
            write({"problem": str(error)})
        except BaseException as error:  # whatever it was, the grader has to know
            write({"problem": what_was_raised(error)})
        finally:
            late.cancel()

    def _load(self) -> None:
        """Read the answer, from then on with limits."""
        stdout = (self._folder / PRINTED).open("w", buffering=1, encoding="utf-8")
        pickled = (self._folder / ANSWER).read_bytes()
        limit_this_process()
        os.chdir(self._folder)
        sys.stdout = stdout
        try:
            answer = pickle.loads(pickled)
        except BaseException as error:
            raise AnswerError(
                f"your answer can't be sent to another process: {error}"
            ) from None
        self._careful = Careful(self._exercise, answer, self._tag)

    def _found(self, request: dict) -> dict:
        module, name = request["experiment"]
        experiment = getattr(importlib.import_module(module), name)
        gpus = Gpus.of(self._tag, request["reverse"])
        arguments = from_json(request["arguments"])
        record = run(experiment, self._exercise, self._careful, gpus, *arguments)
        if replaced := _replaced(self._library):
            raise AnswerError(
                f"your answer replaced `{replaced}`, a part of the course that the "
                "check relies on."
            )
        return {"found": record, "changed": self._careful.changed}


def run(
    experiment: Callable, exercise: Exercise, answer: Callable, gpus: Gpus, *arguments
) -> str:
    """Run an experiment here; return what it found, as JSON.

    Raises:
        AnswerError: it found something that isn't plain data.
    """
    found = experiment(*exercise.given, answer, gpus, *arguments)
    try:
        return to_json(found)
    except RecordError as error:
        raise AnswerError(f"what your answer returned can't be used: {error}") from None


class Careful:
    """An answer, with a look at its result and at its arguments on each call.

    Attributes:
        changed: the arguments that a call changed, though they are the caller's.
    """

    def __init__(self, exercise: Exercise, answer: Callable, tag: str):
        functools.update_wrapper(self, answer, updated=())
        self._exercise, self._answer, self._tag = exercise, answer, tag
        arrays = importlib.import_module(f"{__package__}.{tag}.arrays").ARRAYS
        self._disguised_array = arrays.disguised
        self.changed: list[str] = []

    def __call__(self, *args, **kwargs):
        exercise = self._exercise
        names = exercise.parameters
        own = {
            name: value
            for name, value in zip(names, args, strict=False)
            if name not in exercise.changes
        }
        arguments = Arguments(self._tag, own)
        result = self._answer(*args, **kwargs)
        self.changed += arguments.changed()
        # What they do when they are read, they would do after we have looked.
        for value in (result, args, kwargs):
            if what := self._disguised(value):
                raise AnswerError(
                    f"what your answer returned can't be used: {what}. Return a plain "
                    "value of the framework's own, and leave arguments what they are."
                )
        if not fits(result, exercise.returns):
            wanted = kinds(exercise.returns)
            what = "nothing" if result is None else _one(type(result))
            raise AnswerError(
                f"{exercise.name!s} returned {what}; it must be {wanted}."
            )
        return result

    def _disguised(self, value: Any, depth: int = 4) -> str:
        """Return what is wrong with a value that isn't what it seems; usually empty."""
        kind = type(value)
        if value.__class__ is not kind:
            return f"a {kind.__name__} says that it's another type"
        for plain in (bool, int, float, complex, str, bytes, list, tuple, dict, set):
            if issubclass(kind, plain):
                if kind is not plain and not _is_library(kind):
                    return f"{_one(kind)} is not {_one(plain)}, but a class of its own"
                break
        if depth and issubclass(kind, list | tuple | set):
            parts = plain.__iter__(value)
        elif depth and issubclass(kind, dict):
            parts = dict.values(value)
        else:
            return self._disguised_array(value)
        for part in parts:
            if what := self._disguised(part, depth - 1):
                return what
        return ""


def _is_library(kind: type) -> bool:
    """Whether a class comes from a library, or is a named tuple."""
    if (
        issubclass(kind, tuple)
        and kind.__bases__ == (tuple,)
        and "_fields" in vars(kind)
    ):
        return kind.__iter__ is tuple.__iter__
    module = sys.modules.get(kind.__module__)
    return (
        kind.__module__ != "__main__" and getattr(module, kind.__name__, None) is kind
    )


def _functions() -> dict[str, dict[str, Any]]:
    """Return the functions, classes and methods of this package, by module or class."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "d2l_gpu" and isinstance(module, ModuleType):
            found |= _functions_of(name, module)
    return found


def _functions_of(name: str, owner: Any) -> dict[str, dict[str, Any]]:
    own, found = {}, {name: {}}
    for attribute, value in vars(owner).items():
        if isinstance(value, FunctionType | type | property | staticmethod):
            own[attribute] = value, getattr(value, "__code__", None)
            if isinstance(value, type) and isinstance(owner, ModuleType):
                found |= _functions_of(f"{name}.{attribute}", value)
    found[name] = own
    return found


def _replaced(before: dict[str, dict[str, Any]]) -> str:
    """Return the name of a function that isn't what it was; empty if all are."""
    now = _functions()
    for owner, own in before.items():
        for name, (value, code) in own.items():
            there = now.get(owner, {}).get(name, (None, None))
            if there[0] is not value or there[1] is not code:
                return f"{owner}.{name}"
    return ""


def fits(value: Any, types: Sequence[type]) -> bool:
    """Return whether a value has one of the types; an empty `types` allows any.

    NumPy's numbers count as Python's.
    """
    numeric = {int: numbers.Integral, float: numbers.Real}
    # Not isinstance for numbers: it also asks the value itself, which may lie.
    return not types or any(
        issubclass(type(value), numeric[kind])
        if kind in numeric
        else isinstance(value, kind)
        for kind in types
    )


def kinds(types: Sequence[type]) -> str:
    """Return the names of types with their articles, such as ``a Tensor``."""
    return " or ".join(_one(each) for each in types)


def _one(kind: type) -> str:
    name = kind.__name__.rpartition(".")[2]  # the name of JAX's array is a dotted path
    vowel = name[0].lower() in "aeiou" or name == "ndarray"  # pronounced "n-d array"
    return f"an {name}" if vowel else f"a {name}"


def what_was_raised(error: BaseException) -> str:
    try:
        text = " ".join(str(error).replace("\0", "").split())
    except BaseException:
        text = ""  # its own __str__ raised
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    place = _place_in_answer(traceback.extract_tb(error.__traceback__))
    if place:
        return f"your answer raised {what + place}"
    return f"what your answer returned can't be used: {what}"


def _too_late(seconds: float) -> str:
    frame = sys._current_frames()[threading.main_thread().ident]
    place = _place_in_answer(traceback.extract_stack(frame))
    when = f"{seconds:g} seconds"
    return f"your answer didn't finish within {when + place}."


def _place_in_answer(frames: Sequence[traceback.FrameSummary]) -> str:
    """Return the innermost line outside this package and installed libraries."""
    others = [str(Path(__file__).resolve().parents[1])]
    others += [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    places = [
        frame
        for frame in reversed(frames)
        if not frame.filename.startswith(("<frozen", *others))
    ]
    # If no other frame is left, the answer itself was compiled from a string.
    places.sort(key=lambda frame: frame.filename in _OF_TEXTS)
    if not places:
        return ""
    return _PLACE.format(line=places[0].lineno, file=places[0].filename)
