"""Plant faults, each in its own copy of the project, and see which tests notice."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tools.faults.catalogue import Fault
from tools.faults.copies import Outcome, Runs, copy_project

SECONDS = 60.0  # time limit: this plus TIMES the time that the tests need otherwise
TIMES = 5.0
SECONDS_WITHOUT_FAULT = 1800.0


@dataclass(frozen=True)
class Verdict:
    """The verdict on a fault.

    Attributes:
        fault: the fault.
        word: ``caught``, ``survived``, or ``not tried``.
        how: the test that caught it, or why none did.
        hung: whether it was caught by a hang.
        wrong: whether this differs from what the fault's entry says, or its tests fail
            without it.
        seconds: the time that the tests took.
    """

    fault: Fault
    word: str
    how: str
    hung: bool = False
    wrong: bool = False
    seconds: float = 0.0


def plant_all(
    root: Path,
    faults: Sequence[Fault],
    *,
    jobs: int = 1,
    say: Callable[[str], None] = print,
    least: float = SECONDS,
) -> list[Verdict]:
    """Plant faults in copies of a project, and run the tests that should catch them.

    Each test file first runs without a fault; only those that pass then run with one.
    Nothing is left behind, even after an interrupt.

    Args:
        root: the project, which is not changed.
        faults: the faults.
        jobs: how many test files run at once.
        say: receives progress messages.
        least: seconds that each test file may take, on top of `TIMES` what it takes
            without a fault.
    Returns:
        The verdicts, in the order of the faults.
    Raises:
        ValueError: a fault doesn't fit the code; nothing was run.
        RuntimeError: the copies can't be made, or the tests don't import from them.
    """
    for fault in faults:
        fault.planted_in(root)
    files = list(dict.fromkeys(path for fault in faults for path in fault.tests))
    runs = Runs()
    with (
        tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as at,
        ThreadPoolExecutor(jobs) as pool,
    ):
        folder = Path(at).resolve()
        try:
            _check_import(runs, root, folder)
            without = {}
            tried = pool.map(
                lambda path: _without_fault(runs, root, folder, path), files
            )
            for path, outcome in zip(files, tried, strict=True):
                without[path] = outcome
                place = f"{len(without)}/{len(files)}"
                say(f"without a fault {place} {path}: {_told(outcome)}")
            verdicts = []
            found = pool.map(
                lambda fault: _with_fault(runs, root, folder, fault, without, least),
                faults,
            )
            for verdict in found:
                verdicts.append(verdict)
                say(f"{len(verdicts)}/{len(faults)} {line(verdict)}")
            return verdicts
        finally:
            runs.end()
            pool.shutdown(wait=True, cancel_futures=True)


def line(verdict: Verdict) -> str:
    """Return a verdict as a line of text."""
    word = verdict.word.upper() if verdict.wrong else verdict.word
    seconds = f" ({verdict.seconds:.0f} s)" if verdict.seconds else ""
    return f"{word:9} {verdict.fault.name}: {verdict.how}{seconds}"


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return a sentence with the number of faults caught, and the names of others."""
    of = {word: [v for v in verdicts if v.word == word] for word in _WORDS}
    hung = sum(verdict.hung for verdict in of["caught"])
    tried = len(of["caught"]) + len(of["survived"])
    text = f"{len(of['caught'])} of {tried} faults were caught"
    if hung:
        text += f", {hung} of them by a hang"
    for word in ("survived", "not tried"):
        if of[word]:
            names = ", ".join(verdict.fault.name for verdict in of[word])
            text += f"; {len(of[word])} {word}: {names}"
    return f"{text}."


_WORDS = ("caught", "survived", "not tried")


# ------------------------------------------------------------------ in a copy


@contextlib.contextmanager
def _copy(root: Path, folder: Path) -> Iterator[Path]:
    """Make a copy for one run of tests; a fresh one has no stale bytecode."""
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as own:
        project = Path(own, "project")
        copy_project(root, project)
        yield project


def _check_import(runs: Runs, root: Path, folder: Path) -> None:
    with _copy(root, folder) as project:
        imported = runs.imported(project)
        if not imported.is_relative_to(project):
            raise RuntimeError(
                f"Tests would import the package from {imported}, not from the copy "
                "with the fault: check what comes before PYTHONPATH there."
            )


def _without_fault(runs: Runs, root: Path, folder: Path, path: str) -> Outcome:
    with _copy(root, folder) as project:
        return runs.tests(project, path, SECONDS_WITHOUT_FAULT)


def _with_fault(
    runs: Runs,
    root: Path,
    folder: Path,
    fault: Fault,
    without: dict[str, Outcome],
    least: float,
) -> Verdict:
    for path in fault.tests:
        if not without[path].passed:
            how = f"its tests fail without it: {without[path].how}"
            return Verdict(fault, "not tried", how, wrong=True)
    there = [path for path in fault.tests if without[path].ran]
    if not there:
        return Verdict(fault, "not tried", "its tests are all skipped here")
    seconds = 0.0
    for path in there:
        with _copy(root, folder) as project:
            fault.plant(project)
            limit = least + TIMES * without[path].seconds
            outcome = runs.tests(project, path, limit)
        seconds += outcome.seconds
        if not outcome.passed:
            how = outcome.how
            if fault.survives:
                how += "; it is listed as surviving: remove that from its entry"
            wrong = bool(fault.survives)
            return Verdict(fault, "caught", how, outcome.hung, wrong, seconds)
    how = f"no test of {', '.join(there)} notices"
    if fault.survives:
        how = f"as expected: {fault.survives}"
    return Verdict(fault, "survived", how, wrong=not fault.survives, seconds=seconds)


def _told(outcome: Outcome) -> str:
    if not outcome.passed:
        return f"{outcome.how}\n{outcome.output}"
    return outcome.how if outcome.ran else "all tests are skipped here"
