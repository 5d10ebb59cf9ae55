"""Plants faults, one in each copy of the project, and says which tests notice."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tools.faults.catalogue import Fault
from tools.faults.copies import Outcome, Runs, copy_project

SECONDS = 60.0  # that tests have in any case; they have some times what they need, too
TIMES = 5.0
SECONDS_WITHOUT_FAULT = 1800.0


@dataclass(frozen=True)
class Verdict:
    """What came of a fault.

    Attributes:
        fault: the fault.
        word: ``caught``, ``survived``, or ``not tried``.
        how: what noticed, or why there was nothing to notice.
        hung: whether it was caught by a hang.
        wrong: whether that is not as it should be.
        seconds: that the tests took.
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
    """Plant faults into copies of a project, and run the tests that ought to notice.

    Each set of tests is run without a fault first. Nothing is left behind, also where
    this is interrupted.

    Args:
        root: the project, which is not changed.
        faults: the faults.
        jobs: how many sets of tests run at once.
        say: is told each line of what goes on.
        least: seconds that tests have in any case.
    Returns:
        What came of each fault, in their order.
    Raises:
        ValueError: a fault does not fit the code, and nothing was run.
        RuntimeError: the copies cannot be made, or are not what is imported.
    """
    for fault in faults:
        fault.planted_in((root / fault.file).read_text(encoding="utf-8"))
    sets = list(dict.fromkeys(fault.tests for fault in faults))
    runs = Runs()
    with (
        tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as at,
        ThreadPoolExecutor(jobs) as pool,
    ):
        folder = Path(at).resolve()
        try:
            _check_import(runs, root, folder)
            without = {}
            tried = pool.map(lambda x: _without_fault(runs, root, folder, *x), _n(sets))
            for number, outcome in _n(tried):
                tests = sets[number - 1]
                without[tests] = outcome
                say(f"without a fault {number}/{len(sets)}: {_told(tests, outcome)}")
            verdicts = []
            found = pool.map(
                lambda x: _with_fault(runs, root, folder, *x, without, least),
                _n(faults),
            )
            for number, verdict in _n(found):
                verdicts.append(verdict)
                say(f"{number}/{len(faults)} {line(verdict)}")
            return verdicts
        finally:
            runs.end()
            pool.shutdown(wait=True, cancel_futures=True)


def line(verdict: Verdict) -> str:
    """Return a verdict as a line."""
    word = verdict.word.upper() if verdict.wrong else verdict.word
    seconds = f" ({verdict.seconds:.0f} s)" if verdict.seconds else ""
    return f"{word:9} {verdict.fault.name}: {verdict.how}{seconds}"


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return in a sentence how many faults were caught, and which were not."""
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
def _copy(root: Path, folder: Path, name: str) -> Iterator[Path]:
    """A new copy for each fault, with no bytecode of an earlier one in it."""
    with tempfile.TemporaryDirectory(
        prefix=name, dir=folder, ignore_cleanup_errors=True
    ) as own:
        project = Path(own, "project")
        copy_project(root, project)
        yield project


def _check_import(runs: Runs, root: Path, folder: Path) -> None:
    with _copy(root, folder, "import-") as project:
        imported = runs.imported(project)
        if not imported.is_relative_to(project):
            raise RuntimeError(
                f"Tests would import the package from {imported}, not from the copy "
                "with the fault: see what comes before PYTHONPATH there."
            )


def _without_fault(
    runs: Runs, root: Path, folder: Path, number: int, tests: Sequence[str]
) -> Outcome:
    with _copy(root, folder, f"without-{number}-") as project:
        return runs.tests(project, tests, SECONDS_WITHOUT_FAULT)


def _with_fault(
    runs: Runs,
    root: Path,
    folder: Path,
    number: int,
    fault: Fault,
    without: dict[tuple[str, ...], Outcome],
    least: float,
) -> Verdict:
    before = without[fault.tests]
    if not before.passed:
        how = f"its tests fail without it: {before.how}"
        return Verdict(fault, "not tried", how, wrong=True)
    if not before.ran:
        return Verdict(fault, "not tried", "its tests are all skipped here")
    with _copy(root, folder, f"{number}-") as project:
        fault.plant(project)
        outcome = runs.tests(project, fault.tests, least + TIMES * before.seconds)
    if outcome.passed:
        how = f"no test of {', '.join(fault.tests)} notices"
        if fault.survives:
            how = f"as is understood: {fault.survives}"
        word, wrong = "survived", not fault.survives
    else:
        word, how, wrong = "caught", outcome.how, bool(fault.survives)
        if fault.survives:
            how += "; it is listed as surviving: remove that from its entry"
    return Verdict(fault, word, how, outcome.hung, wrong, outcome.seconds)


def _told(tests: Sequence[str], outcome: Outcome) -> str:
    how = outcome.how if outcome.ran or not outcome.passed else "all are skipped here"
    return f"{', '.join(tests)}: {how}"


def _n(things):
    return enumerate(things, start=1)
