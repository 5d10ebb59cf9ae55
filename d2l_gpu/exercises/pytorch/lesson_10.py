"""Surviving crashes: training that resumes, files that are never half written."""

import contextlib
import errno
import math
import os
import stat
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from d2l_gpu import torch as d2l
from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.registry import Claim, Registry, Run

EXERCISES = Registry()


# ------------------------------------------------------------------ 10.1


class _Died(BaseException):
    """A process dies. Not an Exception, so that answers don't catch it."""


@dataclass
class _Training:
    """One process's part of a training run, step by step.

    Attributes:
        dies: the number of steps after which it dies; None for never.
        batches: a fingerprint of each step's batch.
        dropped: each step's dropout mask, as bytes.
        parameters: the parameters before each step, as vectors.
        momentum: whether the optimizer had any before this process's first step.
    """

    dies: int | None = None
    batches: list[float] = field(default_factory=list)
    dropped: list[bytes] = field(default_factory=list)
    parameters: list[torch.Tensor] = field(default_factory=list)
    momentum: bool = False

    def new(self) -> tuple:
        """Return a network, an optimizer and batches, as in a new process."""
        torch.manual_seed(7)
        net = nn.Sequential(_Dropping(self), nn.Flatten(), nn.Linear(64, 10))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def note(optimizer, *_) -> None:
            if not self.parameters:
                self.momentum = bool(optimizer.state)
            self.parameters.append(_vector(net))

        optimizer.register_step_pre_hook(note)
        return net, optimizer, d2l.load_data_digits(64, resize=8)[0]


class _Dropping(nn.Module):
    """Dropout on a network's input; raises `_Died` when the run is due to die."""

    def __init__(self, run: _Training):
        super().__init__()
        self.run = run

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        if self.run.dies is not None and len(self.run.parameters) >= self.run.dies:
            raise _Died
        dropped = F.dropout(X + 1, 0.1, self.training)
        self.run.batches.append(float((X.sum((1, 2, 3)) * _WEIGHTS[: len(X)]).sum()))
        self.run.dropped.append((dropped == 0).numpy().tobytes())
        return dropped


_WEIGHTS = torch.linspace(1, 2, 64)
_LAST, _DIES, _EVERY = 50, 35, 10
_LEFT = _LAST - _DIES + _DIES % _EVERY  # the steps left after the last checkpoint
_ODD = 25  # a number of steps after which no checkpoint is due


def _vector(net: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


def _undisturbed() -> tuple[_Training, torch.Tensor]:
    """Return the run without a crash, and its final parameters."""
    run = _Training()
    net, optimizer, batches = run.new()
    for _ in range(_LAST // len(batches) + 1):
        for X, y in batches:
            if len(run.parameters) == _LAST:
                break
            optimizer.zero_grad()
            F.cross_entropy(net(X), y).backward()
            optimizer.step()
    return run, _vector(net)


def _calm(answer: Callable, gpus: Gpus, lasts: Sequence[int]) -> list[dict]:
    """Return what calls without a crash found, one after the other, in one folder."""
    found = []
    with _folder() as folder:
        for last in lasts:
            run = _Training()
            net = answer(run.new, folder, last)
            found.append(
                {"steps": len(run.parameters), "weights": _vector(net).numpy()}
            )
    return found


def _crashed(answer: Callable, gpus: Gpus) -> dict:
    """Return what a run that dies leaves behind, and what the next two runs do."""
    found: dict[str, Any] = {"resumed": None, "again": None}
    with _folder() as folder:
        with contextlib.suppress(_Died):
            answer(_Training(dies=_DIES).new, folder, _LAST)
        found["left"] = sorted(path.name for path in folder.iterdir())
        for name in ("resumed", "again") if found["left"] else ():
            run = _Training()
            net = answer(run.new, folder, _LAST)
            found[name] = {
                "steps": len(run.parameters),
                "batches": run.batches,
                "dropped": run.dropped,
                "first": run.parameters[0].numpy() if run.parameters else None,
                "momentum": run.momentum,
                "weights": _vector(net).numpy(),
            }
            if len(run.parameters) != _LEFT:
                break
    return found


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Make a folder for the block."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        yield Path(name)


@EXERCISES.add("10.1", "new, folder, last", returns=nn.Module)
def train_on(run: Run):
    wanted, weights = _undisturbed()
    calm, odd = run(_calm, [_LAST])[0], run(_calm, [_ODD])[0]
    ends = {_LAST: (calm, weights), _ODD: (odd, wanted.parameters[_ODD])}
    off = [last for last, (each, _) in ends.items() if each["steps"] != last]
    yield Claim(
        "a run without a crash makes all its steps",
        not off,
        f"It made {ends[off[0]][0]['steps']} steps, but `last` was {off[0]}."
        if off
        else "",
    )
    if off:
        return
    off = [last for last, (it, end) in ends.items() if not _same(it["weights"], end)]
    yield Claim(
        "it ends with the right weights",
        not off,
        f"The weights aren't the ones this network has after {off[0]} steps of its "
        "optimizer on the batches in their order."
        if off
        else "",
    )
    found = run(_crashed)
    left, resumed, again = found["left"], found["resumed"], found["again"]
    yield Claim(
        "a run that dies leaves a checkpoint behind",
        bool(left),
        f"It died after {_DIES} steps, and the folder is empty.",
    )
    if not left:
        return
    made = resumed["steps"]
    hint = f"The second run made {made} steps. "
    if made == _LAST:
        hint += "It started from the beginning."
    elif made > _LEFT:
        hint += "It resumed from an older checkpoint."
    else:
        hint += f"The first had made {_DIES}, so together they're too few."
    yield Claim(
        f"the next run continues after the last multiple of {_EVERY} steps",
        made == _LEFT,
        hint,
    )
    if made != _LEFT:
        return
    first = _LAST - made
    yield Claim(
        "its batches are the ones that come next",
        resumed["batches"] == wanted.batches[first:],
        _wrong_batch(resumed["batches"][0], wanted.batches, first),
    )
    if resumed["batches"] != wanted.batches[first:]:
        return
    yield Claim(
        "it continues with the parameters of that step",
        _same(resumed["first"], wanted.parameters[first]),
        "They're those of a new network."
        if _same(resumed["first"], wanted.parameters[0])
        else "They're those of another step.",
    )
    yield Claim(
        "the optimizer still has its momentum",
        resumed["momentum"],
        "Before the first step, the optimizer of the new process had no momentum.",
    )
    yield Claim(
        "dropout drops the same inputs as without a crash",
        resumed["dropped"] == wanted.dropped[first:],
        "It drops what it dropped at the very beginning: the random numbers start "
        "again from the seed."
        if resumed["dropped"][0] == wanted.dropped[0]
        else (
            "The state of the random number generator differs from the one "
            "without a crash."
        ),
    )
    # Bits are compared with those of the same process: another one may round otherwise.
    yield Claim(
        "the final weights are the same, bit for bit",
        np.array_equal(resumed["weights"], calm["weights"]),
        "The largest difference between two weights is "
        f"{np.abs(resumed['weights'] - calm['weights']).max():.2g}.",
    )
    first, second, third = run(_calm, [_ODD, _ODD, _LAST])
    repeated = {_LAST: (again, calm), _ODD: (second, first)}
    hint = ""
    for last, (it, end) in repeated.items():
        if it["steps"]:
            hint = f"All {last} steps had been made, but it made {it['steps']} more."
            if last % _EVERY:
                hint += f" {last} isn't a multiple of {_EVERY}. What had been saved?"
        elif not np.array_equal(it["weights"], end["weights"]):
            hint = (
                f"After all {last} steps, it made no more, but returned a network "
                "other than the trained one."
            )
        if hint:
            break
    yield Claim("called once more, it has nothing left to do", not hint, hint)
    yield Claim(
        "called with a larger `last`, it ends as if it had had that from the start",
        np.array_equal(third["weights"], calm["weights"]),
        f"It was called with {_ODD} and then with {_LAST}, where it made "
        f"{third['steps']} steps. The weights aren't those after {_LAST} steps without "
        "a stop. Was everything saved that the training needs to continue?",
    )


def _same(weights: np.ndarray, wanted: torch.Tensor) -> bool:
    """Return whether weights of two processes are the same, but for rounding."""
    return np.allclose(weights, wanted.numpy(), rtol=1e-5, atol=1e-6)


def _wrong_batch(found: float, batches: list[float], due: int) -> str:
    if found not in batches:
        return "The first batch doesn't occur in these epochs."
    step, per_epoch = batches.index(found), 23
    text = (
        f"The first batch is batch {step % per_epoch} of epoch {step // per_epoch}, "
        f"but it should be batch {due % per_epoch} of epoch {due // per_epoch}. "
    )
    if step == 0:
        return text + "The data start from the beginning."
    if step % per_epoch == 0:
        return text + "The epoch starts again."
    return text + "Which step did you count when you saved?"


# ------------------------------------------------------------------ 10.2


@dataclass
class _WatchedFile:
    """Records what happens to a file while it is being replaced.

    Attributes:
        path: the file.
        whole: its content before, or that of the last file renamed to it.
        events: in order, ``overwritten``, ``opened`` (for writing, with its content
            kept), ``removed``, ``forced`` (a file was flushed to disk), ``renamed``,
            and ``changed`` (its content wasn't whole in the middle of writing).
        sources: the folders of the files that were renamed to it.
        ready: for each of them, how many bytes it had when it was flushed to disk, and
            when it was renamed; None if it wasn't flushed.
        flushed: by file number, how many bytes a file had when it was flushed.
        full: whether to act as if the disk were full.
    """

    path: Path
    whole: bytes
    events: list[str] = field(default_factory=list)
    sources: list[Path] = field(default_factory=list)
    ready: list[tuple[int | None, int]] = field(default_factory=list)
    flushed: dict[int, int] = field(default_factory=dict)
    full: bool = False

    def hear(self, event: str, args: tuple) -> None:
        """Record an audit event if it concerns this file."""
        if event == "open" and self._is_it(args[0]) and _writes(args):
            self.events.append("overwritten" if _empties(args) else "opened")
        elif event == "os.remove" and self._is_it(args[0]):
            self.events.append("removed")
        elif event == "os.rename" and self._is_it(args[1]):
            self.check()
            self._will_be(Path(os.fsdecode(args[0])).absolute())

    def _will_be(self, source: Path) -> None:
        """Record that a file is about to take this one's place."""
        self.events.append("renamed")
        self.sources.append(source.parent)
        with contextlib.suppress(OSError), _unheard():
            self.whole = source.read_bytes()
            flushed = self.flushed.get(source.stat().st_ino)
            self.ready.append((flushed, len(self.whole)))

    def check(self) -> None:
        """Record if the file was opened and its content is another than it was."""
        if "opened" in self.events:
            with _unheard():
                there = self.path.read_bytes() if self.path.is_file() else None
            if there != self.whole:
                self.events.append("overwritten")

    def _is_it(self, path) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return Path(os.fsdecode(path)).absolute() == self.path.absolute()

    def force(self, file) -> None:
        """Stand in for `os.fsync`.

        Raises:
            OSError: the disk is meant to be full.
        """
        found = os.fstat(file if isinstance(file, int) else file.fileno())
        if stat.S_ISREG(found.st_mode):
            self.events.append("forced")
            self.flushed[found.st_ino] = found.st_size
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def look(self) -> None:
        """Check, in the middle of writing, that the old content is still there."""
        with contextlib.suppress(OSError):
            with _unheard():
                there = self.path.read_bytes()
            if there == self.whole:
                return
        self.events.append("changed")


def _empties(args: tuple) -> bool:
    _, mode, flags = args
    return "w" in (mode or "") or bool(flags & os.O_TRUNC)


def _writes(args: tuple) -> bool:
    _, mode, flags = args
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return bool(flags & (os.O_WRONLY | os.O_RDWR))


_hearing: list[_WatchedFile] = []


def _hook(event: str, args: tuple) -> None:
    for watch in _hearing:
        watch.hear(event, args)


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    heard, _hearing[:] = _hearing[:], []
    try:
        yield
    finally:
        _hearing[:] = heard


@contextlib.contextmanager
def _watched(watch: _WatchedFile) -> Iterator[None]:
    if not _hook_is_there:
        sys.addaudithook(_hook)  # permanent: audit hooks can't be removed
        _hook_is_there.append(True)
    _hearing.append(watch)
    try:
        with mock.patch.object(os, "fsync", watch.force):
            yield
    finally:
        _hearing.clear()


_hook_is_there: list[bool] = []


class _Probe:
    """Part of a state; calls a function when it is pickled."""

    def __init__(self, act: Callable[[], None]):
        self.act = act

    def __reduce__(self) -> tuple:
        self.act()
        return OrderedDict, ()  # one of the few types that torch.load allows


_FIRST = {"step": 10, "weight": np.arange(1000) / 7}


def _state(values: dict) -> dict:
    """Return a state with tensors instead of arrays."""
    return {
        key: torch.tensor(value) if isinstance(value, np.ndarray) else value
        for key, value in values.items()
    }


def _saved(answer: Callable, gpus: Gpus, values: dict) -> dict:
    """Return what saving a first state leaves in an empty folder."""
    with _folder() as folder:
        answer(_state(values), folder / _NAME)
        names = sorted(path.name for path in folder.iterdir())
        return {"names": names, **_read(folder / _NAME)}


def _replaced(answer: Callable, gpus: Gpus, values: dict, later: dict) -> dict:
    """Return what happens to a file when a later state replaces it."""
    with _folder() as folder:
        path = folder / _NAME
        answer(_state(values), path)
        watch = _WatchedFile(path, path.read_bytes())
        with _watched(watch):
            answer(_state(later) | {"probe": _Probe(watch.look)}, path)
        watch.check()
        return {
            "events": watch.events,
            "ready": watch.ready,
            "in the folder": [source == folder.absolute() for source in watch.sources],
            **_read(path),
        }


def _failed(answer: Callable, gpus: Gpus, values: dict) -> list[dict]:
    """Return what two failures to replace a file leave behind."""
    with _folder() as folder:
        path, found = folder / _NAME, []
        answer(_state(values), path)
        before, names = path.read_bytes(), set(folder.iterdir())
        watch = _WatchedFile(path, before, full=True)
        with _watched(watch):
            for state in {"step": 30}, {"step": 40, "probe": _Probe(_fail)}:
                try:
                    answer(state, path)
                    raised = False
                except (OSError, _NotSaved):
                    raised = True
                with _unheard():
                    there = path.read_bytes() if path.is_file() else None
                    left = sorted(each.name for each in set(folder.iterdir()) - names)
                found.append(
                    {
                        "raised": raised,
                        "there": there is not None,
                        "kept": there == before,
                        "left": left,
                    }
                )
        return found


@EXERCISES.add("10.2", "state, path")
def save_whole(run: Run):
    found, later = run(_saved, _FIRST), {**_FIRST, "step": 20}
    yield Claim(
        "`torch.load` returns what was saved",
        _equal(found["state"], _FIRST),
        _not_loaded(found),
    )
    if not _equal(found["state"], _FIRST):
        return
    found = run(_replaced, _FIRST, later)
    yield Claim(
        "a later state replaces the earlier one",
        _equal(found["state"], later),
        f"After a second call with step 20, {_difference(found, later)}.",
    )
    broken = {"overwritten", "removed", "changed"} & set(found["events"])
    yield Claim(
        "at every moment, one complete checkpoint exists",
        not broken,
        "You removed the old file before the new one had taken its place. If the "
        "process dies in between, there's no checkpoint."
        if "removed" in broken
        else (
            "You wrote the new state over the old file. If the process dies "
            "halfway, the file is incomplete and the old state is lost."
        ),
    )
    if broken:
        return
    why = _why_not_on_disk(found["events"], found["ready"])
    yield Claim(
        "the content is flushed to disk before the file gets its final name",
        not why,
        why,
    )
    if why:
        return
    yield Claim(
        "the new file is written in the same folder",
        found["in the folder"] == [True],
        _where_from(found["in the folder"]),
    )
    yield from _when_it_fails(run(_failed, _FIRST))


def _why_not_on_disk(events: list[str], ready: list[tuple[int | None, int]]) -> str:
    """Return a hint if a file wasn't on disk before it was renamed; else nothing."""
    if "forced" not in events:
        return (
            "You never flushed the file to disk (`os.fsync`). A system may rename "
            "a file at once and write its content later."
        )
    for flushed, size in ready:
        if flushed is None and events.index("renamed") < events.index("forced"):
            return (
                "You flushed the file to disk only after renaming it. After a power "
                "failure, the name can exist without its content."
            )
        if flushed is None:
            return (
                "You called `os.fsync`, but not for the file that was then renamed to "
                "the name you were given."
            )
        if flushed != size:
            return (
                f"When you called `os.fsync`, {flushed:,} of the file's {size:,} bytes "
                "had been written. Where were the others?"
            )
    return ""


def _where_from(in_the_folder: list[bool]) -> str:
    if False in in_the_folder:
        return (
            "You wrote it in another folder and then renamed it. That folder may be on "
            "another disk, and then renaming fails or becomes a copy."
        )
    if not in_the_folder:
        return "No file was renamed to the name you were given."
    return f"{len(in_the_folder)} files were renamed to the name you were given."


def _when_it_fails(found: list[dict]) -> Iterator[Claim]:
    failures = "the disk was full", "the state couldn't be saved"
    cases = list(zip(failures, found, strict=True))
    lost = [(when, each["there"]) for when, each in cases if not each["kept"]]
    yield Claim(
        "if saving fails, the earlier file is kept",
        not lost,
        f"When {lost[0][0]}, "
        f"{'the earlier file changed' if lost[0][1] else 'the earlier file was lost'}."
        if lost
        else "",
    )
    silent = [f"when {when}" for when, each in cases if not each["raised"]]
    yield Claim(
        "if saving fails, the error is raised",
        not silent,
        f"You raised no error {' or '.join(silent)}, so the caller can't know that "
        "nothing was saved.",
    )
    left = [(when, ", ".join(each["left"])) for when, each in cases if each["left"]]
    yield Claim(
        "if saving fails, no other file is left behind",
        not left,
        f"When {left[0][0]}, you left {left[0][1]} behind in the folder."
        if left
        else "",
    )


def _not_loaded(found: dict) -> str:
    if _NAME not in found["names"]:
        there = ", ".join(found["names"])
        return (
            f"There's no file {_NAME} after the call. The folder contains "
            f"{there or 'nothing'}."
        )
    return f"After the call, {_difference(found, _FIRST)}."


def _difference(found: dict, wanted: dict) -> str:
    """Return what differs between a state that was read and the right one."""
    state = found["state"]
    if found["problem"]:
        return f"`torch.load` can't read {_NAME}: {found['problem']}"
    if state is None:
        return f"{_NAME} contains a {found['type']} instead of the dictionary"
    for key, value in wanted.items():
        if key not in state:
            there = ", ".join(map(repr, state))
            return f"{_NAME} has no {key!r}, only {there or 'an empty dictionary'}"
        if not np.array_equal(state[key], value):
            short = isinstance(value, int) and isinstance(state[key], int)
            what = f"{state[key]}, not {value}" if short else "another value"
            return f"under {key!r}, the file has {what}"
    return f"{_NAME} has more in it than the state"


def _equal(state: dict | None, wanted: dict) -> bool:
    return state is not None and all(
        key in state and np.array_equal(state[key], value)
        for key, value in wanted.items()
    )


_NAME = "state.pt"


class _NotSaved(RuntimeError):
    """The state can't be saved."""


def _fail() -> None:
    raise _NotSaved("this state cannot be written")


def _read(path: Path) -> dict:
    """Return the saved state, or what else is in the file, or why it can't be read."""
    found: dict[str, Any] = {"state": None, "type": "", "problem": ""}
    try:
        state = torch.load(path)
    except Exception as error:  # a broken file can raise almost anything
        found["problem"] = f"{type(error).__name__}"
        return found
    found["type"] = type(state).__name__
    if isinstance(state, dict):
        found["state"] = {
            str(key): value.detach().cpu().numpy()
            if isinstance(value, torch.Tensor)
            else value
            for key, value in state.items()
            if isinstance(value, torch.Tensor | int)
        }
    return found


# ------------------------------------------------------------------ 10.3


def _returned(answer: Callable, gpus: Gpus, cases: Sequence[tuple]) -> list:
    """Return what the answer returns for each tuple of arguments."""
    return [answer(*case) for case in cases]


@EXERCISES.add("10.3", "step_seconds, save_seconds, hours_of_one, gpus", returns=int)
def steps_between(run: Run):
    cases = ((0.5, 60, 50_000, 16_384), (2, 20, 50_000, 1024), (0.25, 5, 9_000, 8))
    found = run(_returned, cases)
    few = [i for i, steps in enumerate(found) if steps < 1]
    yield Claim(
        "it's a number of steps, at least 1",
        not few,
        _returned_for(found[few[0]], *cases[few[0]]) if few else "",
    )
    if few:
        return
    more = max(map(_times_as_much, found, cases))
    yield Claim(
        "no other number of steps loses less time, to within 0.1%",
        more <= 1.001,
        _wrong_interval(found, cases)
        or f"{_returned_for(found[0], *cases[0])} In the worst of three cases, your "
        f"number loses {more:.2f} times as much time as necessary.",
    )
    long = ((600, 1, 10, 1000), (40, 1, 100, 1000))
    wrong = [
        (steps, *case)
        for steps, case in zip(run(_returned, long), long, strict=True)
        if steps < 1 or _times_as_much(steps, case) > 1.001
    ]
    yield Claim(
        "that's so even if a single step takes longer than the best interval",
        not wrong,
        _returned_for(*wrong[0]) if wrong else "",
    )


def _returned_for(steps: int, step: float, save: float, hours: float, gpus: int) -> str:
    return (
        f"You return {steps:,} for {gpus:,} GPUs, each of which fails once in "
        f"{hours:,} hours, with steps of {step} s and checkpoints of {save} s."
    )


def _times_as_much(steps: int, case: tuple) -> float:
    """Return how many times as much time is lost as necessary."""
    return _lost(steps, *case) / min(_around(case))


def _lost(steps: int, step: float, save: float, hours: float, gpus: int) -> float:
    """Return the fraction of time lost, by the lesson's formula."""
    seconds = steps * step
    return save / seconds + seconds / 2 / (hours * 3600 / gpus)


def _around(case: tuple) -> Iterator[float]:
    """Yield the fraction of time lost for numbers of steps 1% apart."""
    for i in range(2000):
        yield _lost(max(1, round(1.01**i)), *case)
        if 1.01**i > 1e8:
            return


def _wrong_interval(found: list[int], cases) -> str:
    """Return a hint on the mistake that explains these numbers; empty if unknown."""

    def gives(formula: Callable[..., float]) -> bool:
        return all(
            abs(steps - formula(*case)) <= 1 + 1e-3 * steps
            for steps, case in zip(found, cases, strict=True)
        )

    def young(step, save, between) -> float:
        return math.sqrt(2 * save * between) / step

    if gives(lambda t, s, h, g: young(t, s, h * 3600)):
        return "That's the interval for one GPU. How often does any one of them fail?"
    if gives(lambda t, s, h, g: young(t, s, h * 3600 * g)):
        return (
            "With more GPUs, your interval gets longer. Do more GPUs fail less often?"
        )
    if gives(lambda t, s, h, g: young(t, s, h / g)):
        return "One of your times is in hours and the other in seconds."
    if gives(lambda t, s, h, g: young(1, s, h * 3600 / g)):
        return "You return seconds, not steps."
    if gives(lambda t, s, h, g: young(t, s, h * 3600 / g) / math.sqrt(2)):
        return (
            "Your interval is too short by a factor of √2. On average, a failure costs "
            "half an interval, not a whole one."
        )
    if gives(lambda t, s, h, g: h * 3600 / g / t):
        return (
            "That's how long it takes until something fails, so each failure would "
            "lose everything since the previous one."
        )
    return ""


# ------------------------------------------------------------------ 10.4


def _net_and_optimizer() -> tuple[nn.Module, torch.optim.Optimizer]:
    net = nn.Linear(2, 1)
    return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def _write_checkpoint(path: Path, step: int) -> None:
    """Write a checkpoint whose weights and momentum are all equal to its step."""
    net, optimizer = _net_and_optimizer()
    for parameter in net.parameters():
        parameter.data.fill_(step)
        optimizer.state[parameter]["momentum_buffer"] = torch.full_like(parameter, step)
    state = {
        "step": step,
        "net": net.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    torch.save(state, path)


def _resumed(
    answer: Callable,
    gpus: Gpus,
    steps: Sequence[int],
    damaged: Sequence[int] = (),
    parts: Sequence[int] = (),
) -> dict:
    """Return what resuming from a folder with these checkpoints gives.

    Args:
        steps: the steps of the whole checkpoints.
        damaged: those of files that were cut off.
        parts: those of unfinished files; they're whole, but not under a final name.
    """
    with _folder() as folder:
        for step in (*steps, *damaged):
            _write_checkpoint(folder / f"step-{step}.pt", step)
        for step in damaged:
            path = folder / f"step-{step}.pt"
            path.write_bytes(path.read_bytes()[:200])
        for step in parts:
            _write_checkpoint(folder / f"step-{step}.pt.part", step)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        net, optimizer = _net_and_optimizer()
        found: dict[str, Any] = {"error": "", "step": None}
        try:
            found["step"] = answer(folder, net, optimizer)
        except Exception as error:  # a damaged file can raise almost anything
            if not damaged:
                raise
            found["error"] = type(error).__name__
        after = {path.name: path.read_bytes() for path in folder.iterdir()}
        momenta = [
            optimizer.state[parameter].get("momentum_buffer")
            for parameter in net.parameters()
        ]
        found |= {
            "weight": net.weight.detach().mean().item(),
            "momentum": None
            if any(momentum is None for momentum in momenta)
            else momenta[0].mean().item(),
            "kept": before == after,
        }
        return found


@EXERCISES.add("10.4", "folder, net, optimizer", returns=int, changes="net optimizer")
def resume(run: Run):
    found = run(_resumed, (80, 90, 100, 110))
    yield Claim(
        "it returns the step of the newest checkpoint",
        found["step"] == 110,
        f"The folder has checkpoints of steps 80, 90, 100 and 110, but you return "
        f"{found['step']}.",
    )
    if found["step"] != 110:
        return
    yield Claim(
        "the network has the weights of that checkpoint",
        found["weight"] == 110,
        "The network has other weights than those of step 110.",
    )
    yield Claim(
        "the optimizer has the momentum of that checkpoint",
        found["momentum"] == 110,
        "The optimizer has no momentum. What else is in the file?"
        if found["momentum"] is None
        else "The optimizer has a momentum other than that of step 110.",
    )
    unfinished = run(_resumed, (90, 100), (), (110,))
    yield Claim(
        "unfinished files are ignored",
        unfinished["step"] == 100,
        f"With whole files of steps 90 and 100 and step-110.pt.part, you return "
        f"{unfinished['step']}.",
    )
    damaged = run(_resumed, (90, 100), (110, 120))
    yield Claim(
        "damaged files are skipped",
        damaged["step"] == 100 == damaged["weight"] == damaged["momentum"],
        f"With whole files of steps 90 and 100 and damaged ones of 110 and 120, "
        f"your function raised {damaged['error']}."
        if damaged["error"]
        else (
            f"With whole files of steps 90 and 100 and damaged ones of 110 and 120, "
            f"you return {damaged['step']}, and the weights are those of step "
            f"{damaged['weight']:.0f}."
        ),
    )
    nothing = [run(_resumed, ()), run(_resumed, (), (10,))]
    yield Claim(
        "without a checkpoint that can be read, it returns 0",
        [each["step"] for each in nothing] == [0, 0],
        f"You return {nothing[0]['step']} for an empty folder and "
        f"{nothing[1]['step']} for one with a single, damaged file.",
    )
    yield Claim(
        "the files stay as they are",
        all(each["kept"] for each in (found, unfinished, damaged, *nothing)),
        "You changed or removed files in the folder.",
    )
