"""Copies of the project, and tests that run in one of them."""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "d2l_gpu"
CHILD = Path(__file__).with_name("child.py")

_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_RAN = re.compile(r"^\d+ (?:passed|failed|errors?)\b", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """What came of running tests.

    Attributes:
        passed: whether all that ran passed; also where none ran.
        ran: whether one ran, and was not skipped.
        how: the first test that failed, or what else there is to say.
        hung: whether they were ended for want of an end.
        seconds: that they took.
        output: what pytest printed.
    """

    passed: bool
    ran: bool
    how: str
    hung: bool
    seconds: float
    output: str


def copy_project(root: Path, target: Path) -> None:
    """Copy the files of a project, as they are, without those that git ignores.

    Raises:
        RuntimeError: git cannot say which files these are.
    """
    asked = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    try:
        listed = subprocess.run(
            ["git", *asked], cwd=root, capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise RuntimeError(
            f"git has to say what belongs to the project in {root}, and cannot "
            f"({error}): run this in a clone."
        ) from error
    for name in filter(None, listed.stdout.decode().split("\0")):
        source = root / name
        if source.is_file():  # not one that was deleted, and not committed yet
            copy = target / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)


class Runs:
    """Tests that run, each in processes of their own, all of which can be ended."""

    def __init__(self):
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen] = set()
        self._ended = False

    def tests(self, project: Path, path: str, limit: float) -> Outcome:
        """Run a file of tests in a copy of the project, up to the first that fails.

        Args:
            project: the copy, whose package is the one that is imported.
            path: of the file, below the project's folder.
            limit: seconds after which they are ended.
        """
        options = ("-x", "-q", "--color=no", "-rfE", "-p", "no:cacheprovider")
        command = [sys.executable, "-m", "pytest", *options, path]
        start = time.monotonic()
        code, output = self._run(command, project, project, limit)
        seconds = time.monotonic() - start
        # The last summary: tests that run pytest may show another before.
        failed = _FAILED.search(output.rpartition("short test summary info")[2])
        last = output.strip().splitlines()[-1:] or ["pytest said nothing"]
        if code is None:
            how = f"a hang: {path} had not ended after {limit:.0f} s"
        elif failed:
            how = failed.group(1)
        else:
            how = last[0]
        ran = _RAN.search(output) is not None
        # 5: no test was collected, as where a whole file is skipped.
        return Outcome(code in (0, 5), ran, how, code is None, seconds, output)

    def imported(self, project: Path) -> Path:
        """Return where a process that runs in a copy imports the package from."""
        code = f"import {PACKAGE}; print({PACKAGE}.__file__)"
        _, output = self._run([sys.executable, "-c", code], project, project.parent, 60)
        return Path(output.strip().splitlines()[-1])

    def end(self) -> None:
        """End all tests that run, and let no other begin."""
        with self._lock:
            self._ended = True
            for process in self._running:
                process.stdin.close()

    def _run(
        self, command: Sequence[str], project: Path, folder: Path, limit: float
    ) -> tuple[int | None, str]:
        """Return the exit status, None where time was up, and what was printed."""
        temporary = project.parent / f"{project.name}-tmp"
        temporary.mkdir(exist_ok=True)
        others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        environment = os.environ | {
            # Before whatever is installed, also for processes that tests start.
            "PYTHONPATH": os.pathsep.join([str(project), *filter(None, others)]),
            "TMPDIR": str(temporary),
        }
        environment.pop("PYTEST_ADDOPTS", None)
        with (temporary / "output").open("w+", encoding="utf-8") as log:
            with self._lock:
                if self._ended:
                    raise RuntimeError("Tests were ended before they began.")
                process = subprocess.Popen(
                    [sys.executable, CHILD, *command],
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
                self._running.add(process)
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                process.stdin.close()  # the child ends, and what it has started
                process.wait()
                with self._lock:
                    self._running.discard(process)
            log.seek(0)
            return code, log.read()
