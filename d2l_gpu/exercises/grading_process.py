"""The process that grades answers, without running any of their code.

For each, it starts a process that runs the answer (``answer_process.py``), has
experiments done there, and computes the verdict from the records that come back. That
goes to standard output, a line of JSON, which the answer's process doesn't have.
"""

import contextlib
import functools
import json
import os
import queue
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from d2l_gpu.common.children import end_with_parent, kill_child, start_child
from d2l_gpu.exercises import answer_process
from d2l_gpu.exercises.answer_process import PRINTED, AnswerError, make_gpus
from d2l_gpu.exercises.limits import (
    PROCESSES,
    THREADS,
    adopt_orphans,
    few_processes,
    kill_descendants,
    limit_memory,
)
from d2l_gpu.exercises.own import chosen_file
from d2l_gpu.exercises.records import RecordError, from_json, to_json
from d2l_gpu.exercises.registry import Claim, Exercise, Run, find
from d2l_gpu.exercises.variants.draw import current
from d2l_gpu.exercises.verdict import Verdict

VALUE = "value.json"

# Seconds for Python to start and import the framework, before the answer's time begins.
STARTUP = 120

# Seconds in which an answer's process that is too late can say where it is.
_GRACE = 3

# A reply of more bytes is no record that a grader asks for.
_LONGEST = 2**25
# Characters of what an answer has printed that are read, from the end.
_PRINTED = 2**16


def main() -> None:
    tag, *rest = sys.argv[1:]
    adopt_orphans()
    end_with_parent(first=kill_descendants)
    verdicts = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for number, seconds, folder in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        exercise = replace(find(tag, number, chosen_file()), seconds=float(seconds))
        verdict = _verdict(tag, exercise, Path(folder))
        verdicts.write(verdict.to_json() + "\n")
        verdicts.flush()
    os._exit(0)  # libraries may have left threads behind


def _verdict(tag: str, exercise: Exercise, folder: Path) -> Verdict:
    value = folder / VALUE
    if value.is_file():
        _ready(tag, exercise.gpus, exercise.as_cuda)
        return grade(exercise, from_json(value.read_text("utf-8")), current(tag))
    # Opened before the answer runs, which may put something else in this place.
    with (folder / PRINTED).open("w+b") as printed:
        with _started(tag, exercise, folder) as process:
            _ready(tag, exercise.gpus, exercise.as_cuda)
            verdict = grade(exercise, Remote(exercise, process), current(tag))
        return replace(verdict, printed=end_of(printed))


@functools.cache
def _ready(tag: str, gpus: int, as_cuda: bool) -> None:
    """Make virtual GPUs; from then on, limit memory.

    A value may say how large something is to be.
    """
    make_gpus(tag, gpus, as_cuda)
    limit_memory()


def grade(exercise: Exercise, subject: Any, variant: str | None = None) -> Verdict:
    """Return the verdict on an answer.

    Args:
        exercise: the exercise.
        subject: what its grader takes: the value that answers it, or a `Runner`.
        variant: of the exercise; None for the ordinary one.
    """
    claims: list[Claim] = []
    grader = functools.partial(exercise.grader, **exercise.drawn(variant))
    try:
        for claim in grader(subject):
            claims.append(replace(claim, holds=bool(claim.holds)))
        if isinstance(subject, Runner):
            _look_at_arguments(subject, claims)
            if exercise.repeat and all(claim.holds for claim in claims):
                _once_more(grader, subject, claims)
    except AnswerError as error:
        problem = str(error)
    except Exception as error:  # the grader can make nothing of a record
        problem = f"what your answer returned can't be used: {type(error).__name__}"
        problem += f": {error}" if str(error) else ""
    else:
        problem = ""
    return Verdict(exercise.number, tuple(claims), problem)


def _look_at_arguments(runner: "Runner", claims: list[Claim]) -> None:
    """Add a claim that does not hold if the answer changed what isn't its own."""
    changed = list(dict.fromkeys(runner.changed))
    if changed:
        names = ", ".join(f"`{name}`" for name in changed[:3])
        if len(changed) > 3:
            names = f"{names} and {len(changed) - 3} more"
        claim = Claim(
            "the arguments keep their values",
            False,
            f"After the call, {names} had changed. Arguments belong to the caller, who "
            "may need them again.",
        )
        # Before what may be its consequences, so that its hint is the one shown.
        first = next(
            (i for i, each in enumerate(claims) if not each.holds), len(claims)
        )
        claims.insert(first, claim)


def _once_more(grader: Callable, runner: "Runner", claims: list[Claim]) -> None:
    """Grade again, on used state and with the GPUs in reverse order.

    A claim that fails now, fails in all.
    """
    runner.once_more()
    places = {claim.text: i for i, claim in enumerate(claims)}
    again: list[Claim] = []
    try:
        for claim in grader(runner):
            again.append(replace(claim, holds=bool(claim.holds)))
    except AnswerError as error:
        raise AnswerError(
            f"everything was repeated with the GPUs in reverse order. Now {error}"
        ) from None
    _look_at_arguments(runner, again)
    for claim in again:
        if not claim.holds:
            hint = (
                "This held at first, but not when everything was repeated with the "
                f"GPUs in reverse order. {claim.hint}"
            )
            failed = replace(claim, hint=hint)
            if claim.text in places:
                claims[places[claim.text]] = failed
            else:
                claims.append(failed)


class Runner(Run):
    """A `Run`, and what it has noticed.

    Attributes:
        reverse: whether experiments get the GPUs in reverse order.
        changed: the arguments that calls of the answer have changed.
    """

    reverse = False
    changed: list[str]

    def once_more(self) -> None:
        """From now on, repeat what was done with the GPUs in reverse order."""
        self.reverse = True


class Remote(Runner):
    """Runs experiments in the answer's process.

    Args:
        exercise: the exercise.
        process: the answer's process.
    """

    def __init__(self, exercise: Exercise, process: "_Process"):
        self._process, self._left = process, exercise.seconds
        self._exercise, self.changed = exercise, []

    def __call__(self, experiment: Callable, *arguments: Any) -> Any:
        reply = self._reply([experiment.__module__, experiment.__name__], arguments)
        try:
            found = from_json(reply["found"])
            self.changed += [str(each) for each in reply["changed"]]
        except (RecordError, KeyError, TypeError):
            raise AnswerError(_NONSENSE) from None
        return found

    def once_more(self) -> None:
        super().once_more()
        self._left = self._exercise.seconds

    def _reply(self, experiment: list[str], arguments: tuple) -> dict:
        self._process.wait_until_ready()
        began = time.monotonic()
        reply = self._process.ask(
            {
                "experiment": experiment,
                "arguments": to_json(arguments),
                "reverse": self.reverse,
                "seconds": max(0.0, self._left),
            },
            self._left + _GRACE,
            self._exercise.seconds,
        )
        self._left -= time.monotonic() - began
        if "problem" in reply:
            raise AnswerError(self._sentence(str(reply["problem"])))
        return reply

    def _sentence(self, problem: str) -> str:
        """Return a problem that the answer's process reports, as one about the answer.

        The answer may have worded it itself, to read like a verdict.
        """
        if _SENTENCES.match(problem.replace(f"{self._exercise.name} returned", "f", 1)):
            return problem
        return f"your answer's process reports: {problem}"


# How problems that answer_process.py words begin; "f" is what the function is called.
_SENTENCES = re.compile(
    r"your answer (raised [\w.]+(: |$|\0)|didn't finish within [\d.e+]+ seconds"
    r"|can't be sent to another process: |replaced `[\w.]+`, a part of the course)"
    r"|what your answer returned can't be used: "
    r"|f (nothing|an? [\w.]+); it must be (an? [\w.]+)( or an? [\w.]+)*\.$"
)

_NONSENSE = "your answer interfered with its check: what came back can't be read."


class _Process:
    """The answer's process, once it's ready."""

    def __init__(self, process: subprocess.Popen):
        self._process, self._crowd = process, False
        # What nobody waits for stays in the pipe, so that its writer has to wait.
        self._replies: queue.Queue[bytes] = queue.Queue(maxsize=2)
        threading.Thread(target=self._read, daemon=True).start()
        self._ready = False

    def _read(self) -> None:
        """Pass on each line that the process writes, and an empty one at the end."""
        with contextlib.suppress(OSError, ValueError):
            while line := self._process.stdout.readline(_LONGEST):
                self._replies.put(line)
        self._replies.put(b"")

    def crowded(self) -> None:
        self._crowd = True

    def wait_until_ready(self) -> None:
        """Wait until the process has started, which is no part of the answer's time.

        Raises:
            AnswerError: it hasn't.
        """
        if not self._ready:
            self._next(STARTUP, "Python took too long to start; try again.")
            self._ready = True

    def ask(self, request: dict, seconds: float, limit: float) -> dict:
        """Send a request and return the reply.

        Args:
            request: what to send.
            seconds: how long to wait.
            limit: the time limit to name.
        Raises:
            AnswerError: there's no reply, or it makes no sense.
        """
        late = f"your answer didn't finish within {limit:g} seconds."
        ticket = secrets.token_hex(8)  # a reply to another request is none to this one
        line = json.dumps({**request, "ticket": ticket})
        # In a thread: nobody may be there who reads it.
        write = functools.partial(self._write, line.encode() + b"\n")
        threading.Thread(target=write, daemon=True).start()
        reply = self._next(seconds, late)
        if reply.get("ticket") != ticket:
            raise AnswerError(_NONSENSE)
        return reply

    def _write(self, line: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):  # it has ended: no reply
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _next(self, seconds: float, late: str) -> dict:
        try:
            line = self._replies.get(timeout=max(0.0, seconds))
        except queue.Empty:
            raise AnswerError(late) from None
        if not line:
            raise AnswerError(self._how_it_ended())
        try:
            reply = json.loads(line)
        except (ValueError, RecursionError):
            reply = None
        if not isinstance(reply, dict):
            raise AnswerError(_NONSENSE)
        return reply

    def _how_it_ended(self) -> str:
        if self._crowd:
            return (
                f"your answer started more than {PROCESSES} processes, or more than "
                f"{THREADS:,} threads in them."
            )
        try:
            code = self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            return _NONSENSE
        if code < 0:
            with contextlib.suppress(ValueError):
                return (
                    f"your answer's process was killed by {signal.Signals(-code).name}."
                )
        return f"your answer's process exited with code {code} before it was done."


@contextlib.contextmanager
def _started(tag: str, exercise: Exercise, folder: Path) -> Iterator[_Process]:
    """Start the answer's process; on leaving the block, kill it and what it started."""
    temporary = folder / "tmp"
    temporary.mkdir()
    with (folder / "stderr").open("wb") as stderr:
        process = start_child(
            [
                *(sys.executable, "-P", "-c"),
                f"from {answer_process.__name__} import main; main()",
                *(tag, exercise.number, str(exercise.seconds), str(folder)),
            ],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "TMPDIR": str(temporary)},
        )
    answers = _Process(process)
    try:
        with few_processes(process.pid, answers.crowded):
            yield answers
    finally:
        kill_child(process)
        kill_descendants(keep=process.pid)
        process.wait()


def end_of(file: BinaryIO) -> str:
    """Return the end of a text file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _PRINTED))
    return file.read(_PRINTED).decode("utf-8", errors="replace")
