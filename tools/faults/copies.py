"""Copy the project, and run tests in a copy."""

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
    """The outcome of running a test file.

    Attributes:
        passed: whether no test failed; true if none ran.
        ran: whether any test ran instead of being skipped.
        how: the first test that failed, or another summary.
        hung: whether the tests ran out of time and were killed.
        seconds: the time that they took.
        output: what pytest printed.
    """

    passed: bool
    ran: bool
    how: str
    hung: bool
    seconds: float
    output: str


def copy_project(root: Path, target: Path) -> None:
    """Copy a project's working tree, except for files that git ignores.

    Raises:
        RuntimeError: git can't list the files.
    """
    asked = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    try:
        listed = subprocess.run(
            ["git", *asked], cwd=root, capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise RuntimeError(
            f"git must list the files of the project in {root}, but it cannot "
            f"({error}): run this in a clone."
        ) from error
    for name in filter(None, listed.stdout.decode().split("\0")):
        source = root / name
        if source.is_file():  # skip files deleted in the working tree
            copy = target / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)


class Runs:
    """Runs tests in child processes, and can kill all of them."""

    def __init__(self):
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen] = set()
        self._ended = False

    def tests(self, project: Path, path: str, limit: float) -> Outcome:
        """Run a test file in a copy of the project, up to the first failure.

        Args:
            project: the copy; the tests import its package.
            path: the test file's path in the project.
            limit: the time limit in seconds.

        Raises:
            RuntimeError: `end` has been called.
        """
        options = ("-x", "-q", "--color=no", "-rfE", "-p", "no:cacheprovider")
        command = [sys.executable, "-m", "pytest", *options, path]
        start = time.monotonic()
        code, output = self._run(command, project, project, limit)
        seconds = time.monotonic() - start
        # Use the last summary, since tests that run pytest may print others before.
        failed = _FAILED.search(output.rpartition("short test summary info")[2])
        last = output.strip().splitlines()[-1:] or ["pytest said nothing"]
        if code is None:
            how = f"a hang: {path} had not finished after {limit:.0f} s"
        elif failed:
            how = failed.group(1)
        else:
            how = last[0]
        ran = _RAN.search(output) is not None
        # 5: no tests were collected, for example because the whole file is skipped.
        return Outcome(code in (0, 5), ran, how, code is None, seconds, output)

    def imported(self, project: Path) -> Path:
        """Return the file that a process imports the package from in a copy."""
        code = f"import {PACKAGE}; print({PACKAGE}.__file__)"
        _, output = self._run([sys.executable, "-c", code], project, project.parent, 60)
        return Path(output.strip().splitlines()[-1])

    def end(self) -> None:
        """Kill all running tests, and start no others."""
        with self._lock:
            self._ended = True
            for process in self._running:
                process.stdin.close()

    def _run(
        self, command: Sequence[str], project: Path, folder: Path, limit: float
    ) -> tuple[int | None, str]:
        """Return the exit status, None after a timeout, and the output."""
        temporary = project.parent / f"{project.name}-tmp"
        temporary.mkdir(exist_ok=True)
        others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        environment = os.environ | {
            # Takes precedence over installed packages, also in processes of the tests.
            "PYTHONPATH": os.pathsep.join([str(project), *filter(None, others)]),
            "TMPDIR": str(temporary),
        }
        environment.pop("PYTEST_ADDOPTS", None)
        with (temporary / "output").open("w+", encoding="utf-8") as log:
            with self._lock:
                if self._ended:
                    raise RuntimeError("Tests were stopped before they began.")
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
                process.stdin.close()  # kills the child and the processes it started
                process.wait()
                with self._lock:
                    self._running.discard(process)
            log.seek(0)
            return code, log.read()
