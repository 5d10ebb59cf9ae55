"""The process in which an answer is graded.

It finds the answer in the folder that is its last argument, and leaves the verdict
there. It ends with the process that started it, and when the answer's time is over.
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

# What functions that libraries make of texts have for a file: those of MXNet, and those
# around NumPy's before 1.25. Nobody has their lines.
_OF_TEXTS = ("<string>", "<__array_function__ internals>")

# Where in the answer something happened, for the process that knows its lines.
_PLACE = "\0{line}\0{file}\0"
PLACE = re.compile("\0(?P<line>\\d+)\0(?P<file>[^\0]*)\0")


class AnswerError(Exception):
    """What an answer did that ends its grading, in a sentence."""


def main() -> None:
    tag, number, seconds, folder = sys.argv[1:]
    end_with_parent()  # what asks the reader for input finds the end of it
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
    """Make the virtual GPUs of this process, for one framework."""
    names = {"as_cuda": True} if as_cuda else {}
    helper = importlib.import_module(f"d2l_gpu.{framework_with(tag).module}")
    with contextlib.redirect_stdout(io.StringIO()):
        helper.use_virtual_gpus(n, **names)


def grade(exercise: Exercise, answer: Any, claims: list[Claim]) -> Verdict:
    """Return what holds of an answer; runs it here, with the GPUs of this process.

    Args:
        exercise: that is answered.
        answer: to it.
        claims: takes what is looked at, as it is looked at.
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
    """Return the answer, which says in a sentence if it returns what it must not."""

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
    """Return whether a value is of one of the types, of any if there are none; numbers
    of NumPy are as good as those of Python."""
    numeric = {int: numbers.Integral, float: numbers.Real}
    return not types or isinstance(value, tuple(numeric.get(t, t) for t in types))


def kinds(types: Sequence[type]) -> str:
    """Return the names of types for a sentence, as ``a Tensor``."""
    return " or ".join(_one(each) for each in types)


def _one(kind: type) -> str:
    name = kind.__name__.rpartition(".")[2]  # JAX's array has a path for a name
    vowel = name[0].lower() in "aeiou" or name == "ndarray"  # an n-d array
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
    """Return the place of the innermost line that belongs to nobody else."""
    others = [str(Path(__file__).resolve().parents[1])]
    others += [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    places = [
        frame
        for frame in reversed(frames)
        if not frame.filename.startswith(("<frozen", *others))
    ]
    # Where nothing else is left, the answer itself was made of a text.
    places.sort(key=lambda frame: frame.filename in _OF_TEXTS)
    if not places:
        return ""
    return _PLACE.format(line=places[0].lineno, file=places[0].filename)


def _leave(verdict: Verdict, folder: Path) -> None:
    write_whole(folder / VERDICT, verdict.to_json())
    sys.stdout.flush()
    # The answer may have left threads behind, or be running.
    os._exit(0)
