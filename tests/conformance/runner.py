"""Running cases, each in a child process forked from one warm parent.

    python tests/conformance/runner.py [pattern] [--record FILE]

Importing PyTorch's databases takes seconds and forking milliseconds, so one process
imports them and its children run the cases. A child that aborts or hangs is one failed
case; another child goes on with the next.
"""

import argparse
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
# Whatever else the tests import, these two come first.
sys.path[:0] = [str(REPOSITORY), str(HERE)]

from cases import (  # noqa: E402
    CLOSE_ONLY,
    REFUSED_BY_DESIGN,
    SKIPPED,
    Case,
    all_cases,
    reason,
    run,
)
from compare import CLOSE, DIFFERENT, EQUAL, VARIES  # noqa: E402

TIME_LIMIT = 120  # seconds for one case
BATCH = 32  # cases for one child, which costs as much as some short cases
# Beside the verdicts of a comparison:
REFUSED, DIED = "refused", "died"
SKIPPED_VERDICT = "skipped"


@dataclass
class Result:
    """What became of a case: a verdict, the results compared, and what was wrong."""

    case: Case
    verdict: str
    count: int = 0
    notes: list[str] = field(default_factory=list)


# ------------------------------------------------------------------ one case, one child


def run_case(case: Case) -> Result:
    """Run a case in this process; an error is a verdict, too."""
    try:
        comparison = run(case)
    except NotImplementedError as error:
        return Result(case, REFUSED, notes=[str(error)])
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return Result(case, DIFFERENT, notes=[" ".join(text.split())])
    return Result(case, comparison.verdict, comparison.count, comparison.notes[:5])


class _Child:
    """A forked process that runs some cases and writes their results into a pipe."""

    def __init__(self, cases: list[Case]):
        self.cases = cases
        self.pipe, inlet = os.pipe()
        self.deadline = time.monotonic() + TIME_LIMIT
        self.text = b""
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.pipe)
            self._work(inlet)
        os.close(inlet)

    def _work(self, inlet: int) -> None:
        """Run the cases; never return, so that nothing of the parent runs twice."""
        status = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            with os.fdopen(inlet, "w") as file:
                for case in self.cases:
                    file.write(json.dumps(asdict(run_case(case))) + "\n")
                    file.flush()
            status = 0
        finally:
            os._exit(status)

    def read(self) -> bool:
        """Take what has arrived; return whether there can be more."""
        chunk = os.read(self.pipe, 65536)
        self.text += chunk
        if b"\n" in chunk:
            self.deadline = time.monotonic() + TIME_LIMIT
        return bool(chunk)

    def end(self) -> tuple[list[Result], list[Case]]:
        """Collect the process; return the results, and the cases that are left."""
        late = time.monotonic() > self.deadline
        if late:
            os.kill(self.pid, signal.SIGKILL)
        os.close(self.pipe)
        _, status = os.waitpid(self.pid, 0)
        lines = self.text.decode().splitlines()[: len(self.cases)]
        results = [
            Result(**json.loads(line) | {"case": case})
            for case, line in zip(self.cases, lines, strict=False)
        ]
        left = self.cases[len(results) :]
        if not left:
            return results, []
        if late:
            note = f"not done after {TIME_LIMIT} s"
        elif os.WIFSIGNALED(status):
            note = f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
        else:
            note = f"exit status {os.WEXITSTATUS(status)}"
        return [*results, Result(left[0], DIED, notes=[note])], left[1:]


def run_all(cases: list[Case], children: int) -> Iterator[Result]:
    """Run cases, ``children`` processes at a time; yield results as they come."""
    waiting = [cases[i : i + BATCH] for i in range(0, len(cases), BATCH)][::-1]
    selector = selectors.DefaultSelector()
    while waiting or selector.get_map():
        while waiting and len(selector.get_map()) < children:
            child = _Child(waiting.pop())
            selector.register(child.pipe, selectors.EVENT_READ, child)
        ready = [key.data for key, _ in selector.select(timeout=1)]
        done = [child for child in ready if not child.read()]
        running = [key.data for key in selector.get_map().values()]
        late = [c for c in running if time.monotonic() > c.deadline and c not in done]
        for child in done + late:
            selector.unregister(child.pipe)
            results, left = child.end()
            if left:
                waiting.append(left)
            yield from results


# ------------------------------------------------------------------ the warm parent


def warm_up() -> None:
    """Prepare this process for forking: no threads, virtual GPUs, databases."""
    import torch

    from d2l_gpu import vgpu

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # a child has no threads of its parent
    # torch.manual_seed seeds devices that are not there, too, for later, and formats
    # the stack each time (PyTorch 2.10 to 2.13): more than half of the suite's time.
    for absent in (torch.cuda, torch.xpu, torch.mtia):
        if not absent.is_available():
            absent.manual_seed_all = lambda seed: None
    vgpu.enable(2)
    all_cases()


def serve() -> None:
    """Read cases from stdin, a line of JSON each, and write results to stdout."""
    cases = [Case(**json.loads(line)) for line in sys.stdin]
    warm_up()
    for result in run_all(cases, children=os.cpu_count() or 1):
        print(json.dumps(asdict(result)), flush=True)


class Server:
    """A warm parent in a process of its own, which runs cases in their order."""

    def __init__(self, cases: list[Case]):
        self.process = _start("--serve", stdin=subprocess.PIPE)
        self.process.stdin.write("".join(json.dumps(asdict(c)) + "\n" for c in cases))
        self.process.stdin.close()
        self.results: dict[Case, Result] = {}

    def result(self, case: Case) -> Result:
        """Return the result of a case, once it is there."""
        while case not in self.results:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError("The process that runs the cases has ended.")
            values = json.loads(line)
            result = Result(**values | {"case": Case(**values["case"])})
            self.results[result.case] = result
        return self.results[case]

    def close(self) -> None:
        self.process.kill()
        self.process.stdout.close()
        self.process.wait()


def list_cases() -> list[Case]:
    """Return all cases, without importing the databases here."""
    with _start("--list") as process:
        return [Case(**json.loads(line)) for line in process.stdout]


def _start(option: str, **pipes) -> subprocess.Popen:
    # Real GPUs are hidden, so that results are the same on every machine.
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    return subprocess.Popen(
        [sys.executable, __file__, option],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        **pipes,
    )


# ------------------------------------------------------------------ summary


def summary(results: list[Result]) -> dict:
    """Count verdicts by database and mode, and name all that is not equal."""
    import torch

    counts: dict[str, Counter] = {}
    for result in results:
        key = f"{result.case.database} {result.case.mode}"
        counts.setdefault(key, Counter())[result.verdict] += 1
    skipped = [Result(case, SKIPPED_VERDICT) for case in all_cases()]
    order = (EQUAL, VARIES, CLOSE, REFUSED, DIFFERENT, DIED)
    return {
        "torch": torch.__version__.partition("+")[0],
        "build": "CUDA" if torch.version.cuda else "CPU",
        "python": ".".join(map(str, sys.version_info[:2])),
        "comparisons": sum(r.count for r in results),
        "cases": {
            key: {v: counts[key][v] for v in order if counts[key][v]}
            for key in sorted(counts)
        },
        "to rounding": _by_reason(results, {VARIES, CLOSE}, CLOSE_ONLY),
        "refused": _by_reason(results, {REFUSED}, REFUSED_BY_DESIGN),
        "skipped": _by_reason(skipped, {SKIPPED_VERDICT}, SKIPPED),
        "unexpected": {
            str(r.case): f"{r.verdict}: {'; '.join(r.notes)[:300]}"
            for r in sorted(results, key=lambda r: r.case)
            if not expected(r)
        },
    }


def _by_reason(
    results: list[Result], verdicts: set[str], reasons: dict[str, str]
) -> dict[str, list[str]]:
    """Return the names of cases by the reason for their verdict."""
    names: dict[str, set[str]] = {}
    for result in results:
        text = reason(result.case, reasons)
        if result.verdict in verdicts and text is not None:
            names.setdefault(text, set()).add(f"`{result.case.name}`")
    return {text: sorted(names[text]) for text in sorted(names)}


def expected(result: Result) -> bool:
    """Whether a verdict is one that the lists in ``cases`` allow."""
    if reason(result.case, REFUSED_BY_DESIGN) is not None:
        return result.verdict == REFUSED
    allowed = {EQUAL, VARIES}
    if reason(result.case, CLOSE_ONLY) is not None:
        allowed.add(CLOSE)
    return result.verdict in allowed and result.count > 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pattern", nargs="?", default="", help="regular expression")
    parser.add_argument("--record", type=Path, help="write the summary to this file")
    parser.add_argument("--list", action="store_true", help="print the cases only")
    parser.add_argument("--here", action="store_true", help="do not fork")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve()
    if options.list:
        print(*(json.dumps(asdict(case)) for case in all_cases()), sep="\n")
        return
    warm_up()
    cases = [c for c in all_cases() if re.search(options.pattern, str(c))]
    cases = [c for c in cases if reason(c, SKIPPED) is None]
    if options.here:
        for case in cases:
            comparison = run(case)
            print(case, comparison.verdict, *comparison.notes, sep="\n    ")
        return
    from tqdm import tqdm

    results = []
    for result in tqdm(run_all(cases, os.cpu_count() or 1), total=len(cases)):
        results.append(result)
        if result.verdict != EQUAL:
            notes = "; ".join(result.notes)
            tqdm.write(f"{result.case} {result.verdict} {notes[:250]}")
    record = summary(results)
    print(json.dumps(record, indent=1))
    if options.record:
        options.record.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
