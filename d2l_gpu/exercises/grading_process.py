"""The child process that grades an answer.

Its last argument is a folder, where it reads the answer and writes the verdict. It
ends with the process that started it, or when the answer runs out of time.
"""

import contextlib
import functools
import importlib
import io
import numbers
import os
import pickle
import re
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from d2l_gpu.common.children import end_with_parent
from d2l_gpu.common.files import write_whole
from d2l_gpu.common.frameworks import framework as framework_with
from d2l_gpu.exercises.registry import Claim, Exercise, find
from d2l_gpu.exercises.verdict import Verdict

ANSWER, VERDICT = "answer.pickle", "verdict.json"

# File names of functions that libraries compile from strings: MXNet's operators, and
# NumPy's dispatch wrappers before 1.25. Their source lines can't be looked up.
_OF_TEXTS = ("<string>", "<__array_function__ internals>")

# Marks a place in the answer. The parent process, which knows the source, fills in the
# line.
_PLACE = "\0{line}\0{file}\0"
PLACE = re.compile("\0(?P<line>\\d+)\0(?P<file>[^\0]*)\0")


class AnswerError(Exception):
    """The answer did something that ends its grading; the message says what."""


def main() -> None:
    tag, number, seconds, folder = sys.argv[1:]
    end_with_parent()  # input() finds the end of a file: no reader can answer it
    verdict = _graded_in_time(tag, number, float(seconds), Path(folder))
    _leave(verdict, Path(folder))


def _graded_in_time(tag: str, number: str, seconds: float, folder: Path) -> Verdict:
    exercise = find(tag, number)
    make_gpus(tag, exercise.gpus, exercise.as_cuda)
    printed = io.StringIO()
    claims: list[Claim] = []
    late = threading.Timer(
        seconds,
        lambda: _leave(
            Verdict(number, tuple(claims), _too_late(seconds), printed.getvalue()),
            folder,
        ),
    )
    late.daemon = True
    with contextlib.redirect_stdout(printed):
        try:
            answer = pickle.loads((folder / ANSWER).read_bytes())
        except Exception as error:
            problem = f"your answer cannot be carried to another process: {error}"
            return Verdict(number, problem=problem)
        late.start()
        verdict = grade(exercise, answer, claims)
        late.cancel()
    return Verdict(number, verdict.claims, verdict.problem, printed.getvalue())


def make_gpus(tag: str, n: int, as_cuda: bool = False) -> None:
    """Make n virtual GPUs in this process, for one framework."""
    names = {"as_cuda": True} if as_cuda else {}
    helper = importlib.import_module(f"d2l_gpu.{framework_with(tag).module}")
    with contextlib.redirect_stdout(io.StringIO()):
        helper.use_virtual_gpus(n, **names)


def grade(exercise: Exercise, answer: Any, claims: list[Claim]) -> Verdict:
    """Run an answer in this process, on its GPUs, and return the verdict.

    Args:
        exercise: the exercise.
        answer: the answer to it.
        claims: receives each claim as soon as it is checked, so that those checked
            before a timeout are not lost.
    """
    if exercise.parameters is not None:
        answer = _called_with_care(exercise, answer)
    problem = ""
    try:
        for claim in exercise.grader(answer):
            claims.append(replace(claim, holds=bool(claim.holds)))
    except AnswerError as error:
        problem = str(error)
    except (Exception, SystemExit) as error:
        problem = _what_was_raised(error)
    return Verdict(exercise.number, tuple(claims), problem)


def _called_with_care(exercise: Exercise, answer: Callable) -> Callable:
    """Wrap an answer so that it raises an AnswerError if it returns a wrong type."""

    @functools.wraps(answer, updated=())
    def call(*args, **kwargs):
        result = answer(*args, **kwargs)
        if not fits(result, exercise.returns):
            wanted = kinds(exercise.returns)
            what = "nothing" if result is None else _one(type(result))
            raise AnswerError(
                f"{exercise.name} returned {what}; what it returns is to be {wanted}."
            )
        return result

    return call


def fits(value: Any, types: Sequence[type]) -> bool:
    """Return whether a value has one of the types; an empty `types` allows any.

    NumPy's numbers count as Python's.
    """
    numeric = {int: numbers.Integral, float: numbers.Real}
    return not types or isinstance(value, tuple(numeric.get(t, t) for t in types))


def kinds(types: Sequence[type]) -> str:
    """Return the names of types with their articles, such as ``a Tensor``."""
    return " or ".join(_one(each) for each in types)


def _one(kind: type) -> str:
    name = kind.__name__.rpartition(".")[2]  # the name of JAX's array is a dotted path
    vowel = name[0].lower() in "aeiou" or name == "ndarray"  # pronounced "n-d array"
    return f"an {name}" if vowel else f"a {name}"


def _what_was_raised(error: BaseException) -> str:
    text = " ".join(str(error).split())
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    place = _place_in_answer(traceback.extract_tb(error.__traceback__))
    if place:
        return f"your answer raised {what}{place}"
    return f"what your answer gave back could not be used: {what}"


def _too_late(seconds: float) -> str:
    frame = sys._current_frames()[threading.main_thread().ident]
    place = _place_in_answer(traceback.extract_stack(frame))
    return f"your answer did not end within {seconds:g} seconds{place}."


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


def _leave(verdict: Verdict, folder: Path) -> None:
    write_whole(folder / VERDICT, verdict.to_json())
    sys.stdout.flush()
    # The answer may have left threads behind, or still be running.
    os._exit(0)
