"""Run the checks of how libraries behave on virtual GPUs, and print what came out.

    python -m tools.ecosystem                     all areas
    python -m tools.ecosystem ddp transformers    these areas
    python -m tools.ecosystem ddp.join storages   in an area only checks with that word
    python -m tools.ecosystem --short             few of each area: those in CI
    python -m tools.ecosystem --compare           fail if one passed before and doesn't
    python -m tools.ecosystem --record            write docs/ecosystem.md
    python -m tools.ecosystem --json FILE         write all that is known of each check
    python -m tools.ecosystem --real              on the CUDA GPUs of this machine
    python -m tools.ecosystem --sources DIR       also checks of programs in DIR, which
                                                  python -m tools.sources DIR fetches

The checks are in ``tests/ecosystem``. Each runs in a process of its own, by ``python -m
d2l_gpu.vgpu --gpus 2``, and gets 90 seconds. Install the libraries first, beside this
project: ``pip install -r tests/ecosystem/requirements.txt``. What is missing is left
out. What a check can come to:

* passes: values, devices and everything else are as on two real GPUs.
* refused: virtual GPUs can't do this, and say so in a sentence of their own.
* fails: an assertion doesn't hold, or an error says something else.
* died: a process was ended by a signal, such as that of a segmentation fault.
* hung: it hadn't come to an end in time.
* not installed: a library is missing.
"""

import argparse
import ast
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tools import ecosystem_docs

ROOT = Path(__file__).resolve().parents[1]
CHECKS = ROOT / "tests" / "ecosystem"
RESULTS = ("passes", "refused", "fails", "died", "hung", "not installed")
# What a file of checks says about them: packages, variables, those run in CI, a program
# that is checked out, and seconds for each.
CONSTANTS = ("NEEDS", "ENVIRONMENT", "SHORT", "SOURCE", "LIMIT")
VIRTUAL = ("-m", "d2l_gpu.vgpu", "--gpus", "2")
# Seconds for a check, unless its file says more. Most take up to 20 of them on a core
# of their own.
LIMIT = 90
# Signals by which a process ends itself, and what the C++ and Python runtimes say then.
SIGNS = re.compile(r"^(Fatal Python error: .*|terminate called .*)$", re.MULTILINE)


@dataclass
class Check:
    """A check and, once it has run, what came out.

    Attributes:
        promise: its docstring, which says what users expect.
        source: the program, if it isn't installed but checked out.
        result: one of ``RESULTS``.
        error: what went wrong, in a line.
        where: the last line of ``d2l_gpu`` that the error came through, if any.
        output: the end of what it printed, unless it passes.
    """

    area: str
    name: str
    promise: str
    needs: tuple[str, ...]
    environment: dict[str, str] = field(repr=False)
    short: bool = field(default=False, repr=False)
    source: str = ""
    limit: float = field(default=LIMIT, repr=False)
    library: str = ""
    result: str = ""
    error: str = ""
    where: str = ""
    seconds: float = 0.0
    output: str = field(default="", repr=False)

    @property
    def path(self) -> Path:
        return CHECKS / f"on_{self.area}.py"


# ------------------------------------------------------------------ finding them


def areas() -> list[str]:
    return sorted(path.stem.removeprefix("on_") for path in CHECKS.glob("on_*.py"))


def checks_of(area: str) -> list[Check]:
    """Return the checks of an area, in order, without importing it."""
    path = CHECKS / f"on_{area}.py"
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    constants = {
        statement.targets[0].id: ast.literal_eval(statement.value)
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        and getattr(statement.targets[0], "id", "") in CONSTANTS
    }
    return [
        Check(
            area,
            statement.name.removeprefix("check_"),
            " ".join((ast.get_docstring(statement) or "").split()),
            constants["NEEDS"],
            constants.get("ENVIRONMENT", {}),
            statement.name.removeprefix("check_") in constants.get("SHORT", ()),
            constants.get("SOURCE", ""),
            constants.get("LIMIT", LIMIT),
        )
        for statement in tree.body
        if isinstance(statement, ast.FunctionDef)
        and statement.name.startswith("check_")
    ]


def selected(names: Sequence[str]) -> list[Check]:
    """Return the checks that arguments of the command name; all if there are none.

    Raises:
        ValueError: there is no such area, or no check of that name in it.
    """
    found = []
    for name in names or areas():
        area, _, word = name.partition(".")
        if area not in areas():
            raise ValueError(f"there is no area {area!r}, but: {', '.join(areas())}.")
        here = [check for check in checks_of(area) if word in check.name]
        if not here:
            raise ValueError(f"no check of {area} has {word!r} in its name.")
        found += here
    return found


# ------------------------------------------------------------------ running them


def run(check: Check, real: bool = False, sources: Path | None = None) -> Check:
    """Run a check in a process of its own, and note what came out.

    Args:
        real: whether to run it on real GPUs.
        sources: the folder where programs are checked out.
    """
    versions = {}
    for package in check.needs:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            check.library, check.result = check.needs[0], "not installed"
            check.error = f"{package} is missing."
            return check
    check.library = f"{check.needs[0]} {versions[check.needs[0]]}"
    if check.source:
        if sources is None or not (sources / check.source).is_dir():
            check.library, check.result = check.source, "not installed"
            check.error = f"{check.source} isn't in the folder that --sources names."
            return check
        check.library = f"{check.source} {commit(sources / check.source)}"
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        reports = Path(folder, "reports")
        reports.mkdir()
        environment = {} if sources is None else {"ECOSYSTEM_SOURCES": str(sources)}
        status, output = _run(check, real, Path(folder), reports, environment)
        found = [json.loads(p.read_text("utf-8")) for p in sorted(reports.iterdir())]
    check.seconds = round(time.perf_counter() - start, 1)
    judge(check, status, output, found)
    return check


def judge(check: Check, status: int | None, output: str, reports: list[dict]) -> None:
    """Note the result of a check that has run.

    Args:
        status: with which its process ended, None if it hadn't in time.
        output: what its processes printed.
        reports: what they wrote down, the earliest first.
    """
    if status == 0:
        check.result = "passes"
        return
    check.output = output[-6000:]
    lines = [line for line in output.splitlines() if line.strip()]
    first = (
        reports[0] if reports else {"error": lines[-1] if lines else "", "where": ""}
    )
    check.error, check.where = first["error"], first["where"]
    if status is None:
        check.result = "hung"
        return
    deaths = [report["error"] for report in reports if report["result"] == "died"]
    deaths += SIGNS.findall(output)
    # A launcher may end its own process by SIGKILL or SIGTERM once another has failed.
    if status < 0 and not (reports and -status in (signal.SIGKILL, signal.SIGTERM)):
        deaths.insert(0, f"It was ended by {signal.Signals(-status).name}.")
    if deaths:
        check.result, check.error = "died", deaths[0]
    else:
        check.result = reports[0]["result"] if reports else "fails"


def commit(checkout: Path) -> str:
    """Return the first characters of the name of a checkout's commit."""
    command = ["git", "-C", str(checkout), "rev-parse", "--short=7", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip()


def _run(
    check: Check, real: bool, folder: Path, reports: Path, more: dict[str, str]
) -> tuple[int | None, str]:
    """Return the status of a check's process, None if it hung, and its output."""
    environment = os.environ | {
        "ECOSYSTEM_REPORTS": str(reports),
        "HF_HOME": str(folder / "huggingface"),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(folder),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        **check.environment,
        **more,
    }
    if not real and Path("/dev/nvidiactl").exists():
        # Virtual GPUs can't be called cuda beside real ones, so hide those.
        environment |= {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    python = [sys.executable, *(() if real else VIRTUAL)]
    log = folder / "output"
    with log.open("w") as file:
        process = subprocess.Popen(
            [*python, str(check.path), f"check_{check.name}"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(check.limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            end(process)
    return status, log.read_text(encoding="utf-8", errors="replace")


def end(process: subprocess.Popen) -> None:
    """End a process that started a session, and every process that it started."""
    others = descendants(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # torchrun starts each rank in a session of its own.
    for other in others:
        with contextlib.suppress(ProcessLookupError):
            os.kill(other, signal.SIGKILL)
    process.wait()


def descendants(pid: int) -> list[int]:
    """Return the processes below a process; none on systems without /proc."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The parent comes after the name, which is in parentheses.
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found, left = [], [pid]
    while left:
        left += (below := children.get(left.pop(), []))
        found += below
    return found


# ------------------------------------------------------------------ showing them


def row(check: Check, widths: Sequence[int], columns: int) -> str:
    """Return a line of the table: the error is cut to what is left of the columns."""
    cells = (check.area, check.library, check.name, check.result)
    text = "  ".join(cell.ljust(w) for cell, w in zip(cells, widths, strict=True))
    error = " ".join(check.error.split())
    room = max(columns - len(text) - 2, 40)
    if len(error) > room:
        error = error[: room - 1] + "…"
    return f"{text}  {error}".rstrip()


def counts(checks: Sequence[Check]) -> str:
    number = Counter(check.result for check in checks)
    parts = [f"{number[result]} {result}" for result in RESULTS if number[result]]
    return f"{len(checks)} checks: {', '.join(parts)}."


def as_entries(checks: Sequence[Check]) -> list[dict]:
    """Return all that is known of checks."""
    found = [asdict(check) for check in checks]
    for entry in found:
        for name in ("environment", "short", "source", "limit"):
            del entry[name]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run checks as the command line says, and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("areas", nargs="*", metavar="area", help=", ".join(areas()))
    parser.add_argument("--jobs", type=int, default=1, help="checks at a time")
    parser.add_argument("--short", action="store_true", help="run those of CI only")
    parser.add_argument(
        "--compare", action="store_true", help="fail if one passed before and doesn't"
    )
    parser.add_argument("--record", action="store_true", help="write the page")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results")
    parser.add_argument("--real", action="store_true", help="use real GPUs")
    parser.add_argument("--sources", type=Path, metavar="DIR", help="with programs")
    options = parser.parse_args(arguments)
    try:
        checks = selected(options.areas)
    except ValueError as error:
        parser.error(str(error))
    if options.record and options.real:
        parser.error("only what happens on virtual GPUs is recorded.")
    if options.short:
        checks = [check for check in checks if check.short]
    if options.sources is None and not options.areas:
        checks = [check for check in checks if not check.source]
    done = show(checks, options)
    entries = as_entries(done)
    if options.record:
        ecosystem_docs.record(entries, ecosystem_docs.here())
    if not options.compare:
        return 0
    lines = ecosystem_docs.worse(entries)
    print(*lines, sep="\n")
    return bool(lines)


def show(checks: Sequence[Check], options: argparse.Namespace) -> list[Check]:
    """Run checks, and print a line for each and how many there were of each result."""
    widths = [max(len(check.area) for check in checks), 20]
    widths += [max(len(check.name) for check in checks), max(map(len, RESULTS))]
    columns = shutil.get_terminal_size((160, 24)).columns
    done = []
    with ThreadPoolExecutor(options.jobs) as pool:
        sources = options.sources and options.sources.resolve()
        for check in pool.map(lambda c: run(c, options.real, sources), checks):
            print(row(check, widths, columns), flush=True)
            done.append(check)
            if options.json:  # after each check, so that little is lost
                text = json.dumps(as_entries(done), indent=1, ensure_ascii=False)
                options.json.write_text(text + "\n", encoding="utf-8")
    print(counts(checks))
    return done


if __name__ == "__main__":
    sys.exit(main())
