"""Processes end with the one that started them, and so do those that they started."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from d2l_gpu.common.children import kill_child, start_child
from tests.helpers.fresh_process import NO_GPUS, PATH
from tests.helpers.paths import REPOSITORY
from tests.helpers.waiting import PATIENCE, runs, wait_until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs process groups")

AT_ONCE = 30.0  # the signal that ends a process is sent to its own as well

# Starts a process of its own, says the numbers of both, and never ends by itself.
SLEEPING = """
import os, subprocess, sys, time
from pathlib import Path

def sleep():
    code = "import time; time.sleep(600)"
    grandchild = subprocess.Popen([sys.executable, "-c", code])
    Path("part").write_text(f"{os.getpid()} {grandchild.pid}")
    Path("part").rename("numbers")
    time.sleep(600)

def probe():
    sleep()
    yield {}
"""

# Each starts a process in its own way, which calls `sleep`.
USERS = {
    "a rank": """
        from d2l_gpu import torch as d2l
        Path("script.py").write_text("from sleeping import sleep; sleep()")
        d2l.launch("script.py", 1)
    """,
    "a rank that would start again": """
        from d2l_gpu import torch as d2l
        Path("script.py").write_text("from sleeping import sleep; sleep()")
        d2l.launch("script.py", 1, restarts=99)
    """,
    "a probe": """
        import sleeping
        from d2l_gpu.doctor.probe_process import ask
        ask(sleeping.probe, 600)
    """,
    "an answer": """
        from d2l_gpu.exercises.judge import judge

        def answer(a, b, c, device):
            from sleeping import sleep
            sleep()

        judge("pytorch", "03.1", answer)
    """,
}


def numbers(folder) -> list[int]:
    """The processes that were started, once all are there."""
    # An answer may write only in its own folder, a temporary one.
    wait_until(lambda: any(folder.rglob("numbers")))
    return [int(number) for number in next(folder.rglob("numbers")).read_text().split()]


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(
            code, id=name, marks=[pytest.mark.all] * (name not in ("a rank", "a probe"))
        )
        for name, code in USERS.items()
    ],
)
@pytest.mark.parametrize(
    "sent",
    [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.all)],
    ids=["KILL", "INT"],
)
def test_all_processes_end_with_the_one_that_began(code, sent, tmp_path):
    (tmp_path / "sleeping.py").write_text(SLEEPING)
    path = os.pathsep.join([str(tmp_path), str(REPOSITORY), PATH["PYTHONPATH"]])
    process = subprocess.Popen(
        [sys.executable, "-c", "from pathlib import Path" + textwrap.dedent(code)],
        cwd=tmp_path,
        env=os.environ | PATH | NO_GPUS | {"PYTHONPATH": path, "TMPDIR": str(tmp_path)},
        stderr=subprocess.DEVNULL,
    )
    started = []
    try:
        started = child, grandchild = numbers(tmp_path)
        process.send_signal(sent)
        process.wait(PATIENCE)
        wait_until(lambda: not runs(child))
        wait_until(lambda: not runs(grandchild), AT_ONCE)
    finally:
        process.kill()
        process.wait()
        for number in filter(runs, started):
            os.kill(number, signal.SIGKILL)


def test_what_a_child_leaves_behind_is_ended(tmp_path):
    (tmp_path / "sleeping.py").write_text(SLEEPING)
    code = "import sleeping, os; sleeping.time.sleep = lambda _: os._exit(0)"
    process = start_child(
        [sys.executable, "-c", f"{code}; sleeping.sleep()"], cwd=tmp_path
    )
    with process:
        child, grandchild = numbers(tmp_path)
        assert process.wait(PATIENCE) == 0
        assert child == process.pid and runs(grandchild)
        kill_child(process)
        wait_until(lambda: not runs(grandchild))
        kill_child(process)  # nobody is left, which is no error


def test_input_is_empty_and_what_comes_first_may_fail(tmp_path):
    code = """
    import sys, time
    from pathlib import Path
    from d2l_gpu.common.children import end_with_parent

    def fail():
        Path("first").touch()
        raise ValueError

    end_with_parent(fail)
    print(repr(sys.stdin.read()), flush=True)
    time.sleep(600)
    """
    process = start_child(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=tmp_path,
        env=os.environ | PATH,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdout.readline() == "''\n"
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(PATIENCE) == -signal.SIGKILL
    assert (tmp_path / "first").exists()
