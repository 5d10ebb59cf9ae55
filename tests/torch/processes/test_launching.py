"""Scripts on several processes: what comes back, what is shown, and that they end.

Most scripts do not import PyTorch: what is tested is how they are run.
"""

import contextlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from d2l_gpu import torch as d2l
from tests.helpers.fresh_process import NO_GPUS, PATH, run_fresh
from tests.helpers.waiting import PATIENCE, processes_with, sleeps, wait_until

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or not torch.distributed.is_available(),
    reason="needs torch.distributed with gloo",
)
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/cmdline").exists(), reason="needs /proc"
)
MODULE = sys.modules["d2l_gpu.torch.processes.launching"]  # d2l.launch is the function
RANK = "import os, sys, time; rank = int(os.environ['RANK'])\n"
TWO_RANKS = RANK + "import torch, torch.distributed as dist\nX = torch.ones(1)\n"


@pytest.fixture(autouse=True)
def _environment(monkeypatch, tmp_path):
    """Ranks find this package; a folder for temporary files is empty in the end."""
    for name, value in (PATH | NO_GPUS).items():
        monkeypatch.setenv(name, value)
    for name in ("OMP_NUM_THREADS", "D2L_GPU_VIRTUAL"):
        monkeypatch.delenv(name, raising=False)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    before = state_of_process()
    yield
    # PyTorch itself leaves an empty folder where some of its modules are imported.
    left = {path.name for path in temporary.iterdir()}
    assert left - {path.name for path in temporary.glob("torchinductor_*")} == set()
    assert state_of_process() == before


def state_of_process() -> tuple[dict, list]:
    """What a launch must leave as it was."""
    environment = {**os.environ, "PYTEST_CURRENT_TEST": ""}
    return environment, [signal.getsignal(number) for number in signal.valid_signals()]


@pytest.fixture
def script(tmp_path):
    """A function that writes a script."""

    def write(code: str, name: str = "train.py", prefix: str = RANK) -> Path:
        path = tmp_path / name
        path.write_text(prefix + textwrap.dedent(code))
        return path

    return write


def failure_of(path: Path, nproc: int = 2) -> str:
    """Launch a script that fails; return the error's text."""
    with pytest.raises(RuntimeError) as caught:
        d2l.launch(path, nproc, timeout=PATIENCE)
    assert caught.value.__cause__ is caught.value.__context__ is None
    return str(caught.value)


# ---------------------------------------------------------------- what comes back


@pytest.mark.all
def test_what_rank_0_reports_is_returned_in_order(script):
    path = script(
        """
        from d2l_gpu import torch as d2l
        import torch
        for epoch in range(3):
            d2l.report(epoch=epoch, rank=rank, loss=torch.tensor([epoch / 2]))
            d2l.report(progress=epoch / 3)
        d2l.report(sizes=[1, torch.tensor(2)], name="ü", nothing=None)
        """
    )
    assert d2l.launch(path, 2) == [
        *({"epoch": i, "rank": 0, "loss": i / 2} for i in range(3)),
        {"sizes": [1, 2], "name": "ü", "nothing": None},
    ]


def test_a_script_runs_as_under_torchrun(script, tmp_path, monkeypatch):
    script("VALUE = 3", "neighbour.py")
    path = script(
        """
        import __main__, atexit
        from neighbour import VALUE
        print(sys.argv, __name__, __main__.__file__ == __file__, sys.path[0], VALUE)
        print([os.environ[name] for name in ("WORLD_SIZE", "LOCAL_RANK")])
        print([name for name in ("torch", "numpy") if name in sys.modules])
        print(repr(sys.stdin.read()))
        atexit.register(print, "the end")
        """,
        "name with spaces.py",
    )
    monkeypatch.chdir(tmp_path)
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        arguments = ["-m", 0.5, "--rdzv-id"]
        assert d2l.launch(path.name, 1, arguments, timeout=PATIENCE) == []
    command = [*("-m", "torch.distributed.run", "--standalone"), path.name]
    plain = subprocess.run(
        [sys.executable, *command, "-m", "0.5", "--rdzv-id"],
        env=os.environ | {"PET_LOG_DIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert plain.returncode == 0, plain.stderr
    assert shown.getvalue() == plain.stdout
    assert "'-m', '0.5', '--rdzv-id'] __main__ True" in shown.getvalue()


@pytest.mark.all
def test_a_run_that_went_well_does_not_fail_while_python_is_taken_down(script):
    path = script(
        """
        import signal

        class Thread:  # of C++, which wants something of Python when it is too late
            def __del__(self):
                os.kill(os.getpid(), signal.SIGABRT)

        thread = Thread()
        """
    )
    assert d2l.launch(path, 1, timeout=PATIENCE) == []


@pytest.mark.all
def test_report_without_launch_prints_a_line_of_json(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    code = """
        from d2l_gpu import torch as d2l
        d2l.report(progress=0.5)
        d2l.report(loss=0.5, progress=1)
    """
    assert [json.loads(line) for line in run_fresh(code).splitlines()] == [
        {"loss": 0.5, "progress": 1}
    ]
    assert run_fresh(code, RANK="1") == ""


@pytest.mark.parametrize(
    ("values", "kind", "sentence"),
    [
        ({"x": torch.ones(2)}, TypeError, r"a Tensor of shape \(2,\), which JSON"),
        ({"x": {1}}, TypeError, "a set, which JSON cannot represent: pass numbers"),
        ({"x": [1j]}, TypeError, "a complex, which JSON cannot represent"),
        ({"x": torch.tensor(1j)}, TypeError, r"a Tensor of shape \(\), which JSON"),
        ({}, TypeError, "got nothing to report"),
        ({"progress": 1.5}, ValueError, "from 0 to 1, but got 1.5"),
        ({"progress": float("nan")}, ValueError, "from 0 to 1, but got nan"),
        ({"progress": "half"}, TypeError, "from 0 to 1, but got 'half'"),
    ],
)
def test_what_cannot_be_reported_is_an_error(values, kind, sentence, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(kind, match=sentence):
        d2l.report(**values)


@pytest.mark.all
def test_ranks_share_the_cores(script, monkeypatch, capfd):
    monkeypatch.setattr(MODULE, "usable_cores", lambda: 6)
    path = script("print(os.environ.get('OMP_NUM_THREADS'))")
    d2l.launch(path, 2)
    assert capfd.readouterr() == ("3\n", "")
    with monkeypatch.context() as patched:
        patched.setenv("OMP_NUM_THREADS", "7")
        d2l.launch(path, 2)
    assert capfd.readouterr() == ("7\n", "")


@pytest.mark.all
def test_ranks_of_a_process_with_virtual_gpus_have_virtual_ones(script):
    path = script("print('variable', os.environ.get('D2L_GPU_VIRTUAL'))")
    out = run_fresh(
        f"""
        import os
        from d2l_gpu import torch as d2l
        d2l.launch({str(path)!r}, 1)
        d2l.use_virtual_gpus(3)
        for nproc in 1, 4:
            d2l.launch({str(path)!r}, nproc)
        assert "D2L_GPU_VIRTUAL" not in os.environ
        os.environ["D2L_GPU_VIRTUAL"] = "2"
        d2l.launch({str(path)!r}, 1)
        """
    )
    assert re.findall(r"variable (\w+)", out) == ["None", "3", "4", "2"]


# ---------------------------------------------------------------- what is shown


@pytest.mark.all
def test_lines_of_rank_0_are_shown_while_it_runs(script, tmp_path):
    seen = tmp_path / "seen"
    path = script(
        f"""
        print("rank", rank, "ä")
        print("[Gloo] Rank 0 is connected to 1 peer ranks.")
        while not os.path.exists({str(seen)!r}):
            time.sleep(0.01)
        print("the end", end="")
        """
    )

    class Screen(io.StringIO):
        def write(self, text):
            seen.touch()  # the script waits for somebody to read
            return super().write(text)

    screen = Screen()
    with contextlib.redirect_stdout(screen):
        d2l.launch(path, 2, timeout=PATIENCE)
    assert screen.getvalue() == "rank 0 ä\nthe end"


@pytest.mark.all
def test_warnings_of_rank_0_are_shown_on_stderr(script, capsys):
    path = script("import warnings; warnings.warn(f'careful, {rank}')")
    d2l.launch(path, 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("UserWarning") == 1
    assert "UserWarning: careful, 0\n" in err


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize("failing", [pytest.param(0, marks=pytest.mark.all), 1])
@pytest.mark.parametrize(
    "tidy",
    [False, pytest.param(True, marks=pytest.mark.all)],
    ids=["", "closes its connections"],
)
def test_only_the_rank_that_failed_first_is_shown(script, capfd, failing, tidy):
    path = script(
        f"""
        def step():
            if rank == {failing}:
                raise ValueError("a bad batch")
            dist.all_reduce(X)

        dist.init_process_group("gloo")
        dist.all_reduce(X)
        print("one step")
        try:
            step()
        finally:
            if {tidy}:
                dist.destroy_process_group()
        """,
        prefix=TWO_RANKS,
    )
    first, _, traceback, *frames = failure_of(path).splitlines()
    assert first == f"Rank {failing} of train.py failed with ValueError: a bad batch"
    assert traceback == "Traceback (most recent call last):"
    assert frames[0].startswith(f'  File "{path}", line ')
    assert frames[0].endswith("in <module>")
    assert frames[-1] == "ValueError: a bad batch"
    assert [line for line in frames if "  File " in line][1].endswith("in step")
    assert capfd.readouterr() == ("one step\n", "")


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.all
def test_of_two_errors_the_first_counts(script, first):
    path = script(
        f"""
        import atexit
        from pathlib import Path

        def wait_for(rank):
            run = Path(os.environ["D2L_GPU_RUN"])
            while not (run / "attempt-0" / f"error-{{rank}}.json").exists():
                time.sleep(0.01)

        if rank == {first}:
            atexit.register(wait_for, 1 - rank)  # or torchrun would end the other
        else:
            wait_for({first})
        raise ValueError(rank)
        """
    )
    assert failure_of(path).startswith(f"Rank {first} of train.py failed with ")


@pytest.mark.all
def test_a_rank_that_fails_and_does_not_end_is_ended(script, monkeypatch):
    monkeypatch.setattr(MODULE, "GRACE", 1.0)
    path = script(
        """
        import threading
        from pathlib import Path

        def linger():
            time.sleep(30)
            Path(__file__).with_suffix(".lingered").touch()

        threading.Thread(target=linger).start()
        raise ValueError("no")
        """
    )
    assert failure_of(path).endswith("\nValueError: no")
    assert not path.with_suffix(".lingered").exists()


@pytest.mark.all
def test_what_stderr_says_after_the_failure_is_not_shown(script, capfd):
    path = script(
        """
        import atexit
        atexit.register(os.write, 2, b"a thread is still there")
        sys.stderr.write("careful")
        raise ValueError("no")
        """
    )
    assert failure_of(path, 1).endswith("\nValueError: no")
    assert capfd.readouterr() == ("", "careful")


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.all
def test_a_lost_connection_is_the_cause_where_there_is_no_other(script, failing):
    path = script(
        f"""
        dist.init_process_group("gloo")
        if rank == {failing}:
            sys.exit(0)
        dist.all_reduce(X)
        """,
        prefix=TWO_RANKS,
    )
    text = failure_of(path)
    assert text.startswith(f"Rank {1 - failing} of train.py failed with ")
    assert "Connection" in text


@pytest.mark.all
def test_no_python_is_an_error_with_the_line(script):
    text = failure_of(script("for:"))
    assert re.match(r"Rank [01] of train.py failed with SyntaxError: ", text)
    assert "line 2\n    for:\n" in text
    assert "worker.py" not in text


@pytest.mark.all
@pytest.mark.parametrize(
    ("failing", "end", "how"),
    [
        (0, "os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
        (1, "os._exit(3)", "exited with code 3"),
    ],
    ids=["signal-0", "exit-1"],
)
def test_a_rank_that_dies_is_the_cause(script, failing, end, how):
    path = script(
        f"""
        dist.init_process_group("gloo")
        if rank == {failing}:
            sys.stderr.write("help")
            {end}
        dist.all_reduce(X)
        """,
        prefix=TWO_RANKS,
    )
    words = "its last output:\n\nhelp"
    assert failure_of(path) == f"Rank {failing} of train.py {how}; {words}"


@pytest.mark.all
def test_a_crash_in_c_says_where_python_was(script):
    text = failure_of(script("import ctypes\nctypes.string_at(0)"), 1)
    assert text.startswith("Rank 0 of train.py was killed by SIGSEGV; its last output:")
    assert text.splitlines()[-1].endswith('train.py", line 3 in <module>')


@pytest.mark.all
def test_exit_codes_count_as_python_counts_them(script):
    assert d2l.launch(script("sys.exit(0) if rank else sys.exit()"), 2) == []
    first, *_, last = failure_of(script("sys.exit(3)"), 1).splitlines()
    assert first == "Rank 0 of train.py failed with SystemExit: 3"
    assert last == "SystemExit: 3"
    text = failure_of(script("sys.exit('no data')"), 1)
    assert text.startswith("Rank 0 of train.py failed with SystemExit: no data\n")


@pytest.mark.all
def test_what_torchrun_says_is_shown_where_no_rank_said_anything(script, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setenv("PYTHON_EXEC", "/nowhere/python")
        text = failure_of(script(""), 1)
    assert text.startswith("torchrun could not run train.py; its last output:\n\n")
    assert "/nowhere/python" in text


# ---------------------------------------------------------------- restarts

ATTEMPT = RANK + "attempt = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"


SIGNAL = ("os.kill(os.getpid(), 9)", "was killed by SIGKILL")
EXIT = ("os._exit(3)", "exited with code 3")
ERROR = ("raise ValueError('a bad batch')", "failed with ValueError: a bad batch")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((0, *SIGNAL), (1, *EXIT)),
        ((1, *SIGNAL), (0, *ERROR)),
    ],
)
@pytest.mark.all
def test_ranks_start_again_and_a_line_says_why(script, capfd, first, second):
    path = script(
        f"""
        dist.init_process_group("gloo")
        attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        print("attempt", attempt)
        dist.all_reduce(X)
        if (attempt, rank) == (0, {first[0]}):
            {first[1]}
        if (attempt, rank) == (1, {second[0]}):
            {second[1]}
        dist.all_reduce(X)
        dist.destroy_process_group()
        """,
        prefix=TWO_RANKS,
    )
    assert d2l.launch(path, 2, restarts=2, timeout=PATIENCE) == []
    again = "all ranks start again, from the last checkpoint if there is one"
    assert capfd.readouterr() == (
        "attempt 0\n"
        f"Rank {first[0]} of train.py {first[2]}; {again}: restart 1 of 2.\n"
        "attempt 1\n"
        f"Rank {second[0]} of train.py {second[2]}; {again}: restart 2 of 2.\n"
        "attempt 2\n",
        "",
    )


@pytest.mark.all
def test_when_no_restart_is_left_the_last_failure_is_the_error(script, capfd):
    path = script(
        "sys.stdout.write(f'half a line {attempt}'); raise ValueError(attempt)",
        prefix=ATTEMPT,
    )
    with pytest.raises(RuntimeError) as caught:
        d2l.launch(path, 1, restarts=1)
    first, *_, value, empty, last = str(caught.value).splitlines()
    assert first == "Rank 0 of train.py failed with ValueError: 1"
    assert (value, empty) == ("ValueError: 1", "")
    assert last == "This was restart 1 of 1."
    out, err = capfd.readouterr()
    assert out.startswith(
        "half a line 0\nRank 0 of train.py failed with ValueError: 0;"
    )
    assert out.endswith("\nhalf a line 1")
    assert err == ""


@pytest.mark.all
def test_values_of_all_attempts_follow_each_other(script):
    path = script(
        """
        from d2l_gpu import torch as d2l
        for step in range(2):
            d2l.report(attempt=attempt, step=step)
        if attempt == 0:
            os.kill(os.getpid(), 9)
        """,
        prefix=ATTEMPT,
    )
    assert d2l.launch(path, 1, restarts=3) == [
        {"attempt": attempt, "step": step} for attempt in (0, 1) for step in (0, 1)
    ]


@pytest.mark.all
def test_values_after_the_last_checkpoint_are_reported_once(script, tmp_path):
    path = script(
        """
        import torch
        from d2l_gpu import torch as d2l

        net = torch.nn.Linear(1, 1)
        kept = d2l.Checkpoints(sys.argv[1], net, torch.optim.SGD(net.parameters()))
        d2l.report(begin=True)
        first = kept.resume()
        for step in range(first + 1, 8):
            d2l.report(step=step)
            if step == 3 * attempt + 2:  # 2 and 5: before and after the first save
                raise ValueError
            if step % 3 == 0:
                kept.save(step)
        """,
        prefix=ATTEMPT,
    )
    steps = [{"step": step} for step in range(1, 9)]
    folder = tmp_path / "run"
    assert d2l.launch(path, 1, [folder], restarts=2) == [{"begin": True}, *steps[:7]]
    # From a checkpoint of another launch, and killed before the first of its own.
    code = path.read_text().replace("3 * attempt + 2", "7 - attempt")
    path.write_text(code.replace("first + 1, 8", "first + 1, 9"))
    assert d2l.launch(path, 1, [folder], restarts=1) == [{"begin": True}, *steps[6:]]


@pytest.mark.all
def test_a_port_can_be_used_twice_in_a_row_also_by_restarted_ranks(script):
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
    path = script(
        """
        from d2l_gpu import torch as d2l
        dist.init_process_group("gloo")
        dist.all_reduce(X)
        d2l.report(port=os.environ["MASTER_PORT"], sum=X)
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and sys.argv[rank + 1]:
            os.kill(os.getpid(), 9)
        dist.barrier()
        dist.destroy_process_group()
        """,
        prefix=TWO_RANKS,
    )
    result = {"port": str(port), "sum": 2}
    assert d2l.launch(path, 2, ["", ""], port=port, timeout=PATIENCE) == [result]
    got = d2l.launch(path, 2, ["die", ""], port=port, restarts=2, timeout=PATIENCE)
    assert got == [result] * 2


@pytest.mark.all
@needs_proc
def test_what_a_killed_rank_had_started_is_ended(script):
    name = f"children_{os.getpid()}.py"
    path = script(
        """
        import subprocess
        if attempt == 0:
            code = "import time; time.sleep(600)"
            subprocess.Popen([sys.executable, "-c", code, __file__])
            os.kill(os.getpid(), 9)
        """,
        name,
        prefix=ATTEMPT,
    )
    d2l.launch(path, 1, restarts=1)
    see_all_ended(path)


@pytest.mark.all
def test_a_rank_that_fails_and_does_not_end_starts_again(script, monkeypatch):
    path = script(
        """
        import threading
        from d2l_gpu import torch as d2l
        if attempt == 0:
            threading.Thread(target=time.sleep, args=[600]).start()
            raise ValueError("no")
        d2l.report(attempt=attempt)
        """,
        prefix=ATTEMPT,
    )
    got = None
    for grace in (1.0, 8.0, 64.0):  # in which torchrun has to start the rank again
        monkeypatch.setattr(MODULE, "GRACE", grace)
        with contextlib.suppress(RuntimeError):
            got = d2l.launch(path, 1, restarts=1)
            break
    assert got == [{"attempt": 1}]


# ---------------------------------------------------------------- the end

HANG = """
    import pathlib, subprocess

    def wait_for_ever():
        time.sleep(600)

    # A process of the script's own, as those of a DataLoader
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", __file__])
    pathlib.Path(__file__).with_suffix(f".{rank}").write_text(str(os.getpid()))
    wait_for_ever()
"""


@pytest.fixture
def hanging(script, request):
    """A script that hangs on both ranks."""
    name = f"hang_{os.getpid()}_{abs(hash(request.node.name))}.py"
    return script(HANG, name)


def both_hang(path: Path) -> bool:
    """Whether both ranks, having said who they are, have come to where they wait."""
    said = [path.with_suffix(f".{rank}") for rank in (0, 1)]
    numbers = [file.read_text() for file in said if file.exists()]
    return len(numbers) == 2 and all(n and sleeps(int(n)) for n in numbers)


@contextlib.contextmanager
def once_both_hang(path: Path, act: Callable[[], object]):
    """Do something from another thread when both ranks of a launch hang."""
    over = threading.Event()

    def wait() -> None:
        wait_until(lambda: over.is_set() or all_run(path, 5))
        if not over.is_set():
            act()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def all_run(path: Path, number: int) -> bool:
    """Whether both ranks hang, and all processes of the script can be seen.

    There are five, and the one that called launch if its command line says so:
    torchrun, the ranks, and what each has started.
    """
    return both_hang(path) and len(processes_with(path.name)) == number


def timed_out(path: Path, monkeypatch: pytest.MonkeyPatch, restarts: int = 0) -> str:
    """Launch a script whose time is up once both ranks hang; return the error."""
    sightings = 0  # one could be a short wait on the way, on a machine that is busy
    hung = False

    def monotonic() -> float:
        nonlocal hung, sightings
        sightings = sightings + 1 if both_hang(path) else 0
        hung = hung or sightings == 5
        return time.monotonic() + hung * PATIENCE

    with monkeypatch.context() as patched:
        patched.setattr(MODULE, "time", SimpleNamespace(monotonic=monotonic))
        with pytest.raises(TimeoutError) as caught:
            d2l.launch(path, 2, timeout=PATIENCE, restarts=restarts)
    assert hung
    return str(caught.value)


def see_all_ended(path: Path) -> None:
    """Wait until no process of a script is left.

    Those that were killed take a moment to end where others want the cores.
    """
    wait_until(lambda: not processes_with(path.name))


# Without restarts, and with ranks that would come back.
RESTARTS = [pytest.param(0, marks=pytest.mark.all), 9999]


@needs_proc
@pytest.mark.parametrize("restarts", RESTARTS)
def test_ctrl_c_leaves_no_process(hanging, restarts):
    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with once_both_hang(hanging, interrupt), pytest.raises(KeyboardInterrupt):
        d2l.launch(hanging, 2, timeout=PATIENCE, restarts=restarts)
    see_all_ended(hanging)


@needs_proc
@pytest.mark.parametrize("restarts", RESTARTS)
@pytest.mark.all
def test_a_killed_kernel_leaves_no_process(hanging, tmp_path, restarts):
    code = f"""if True:
        from d2l_gpu import torch as d2l
        d2l.launch({str(hanging)!r}, 2, restarts={restarts})
    """
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        wait_until(lambda: all_run(hanging, 6))
    finally:
        process.kill()
        process.wait()
    see_all_ended(hanging)
    # Nobody was left who could have removed the folder.
    [folder] = (tmp_path / "temporary").iterdir()
    assert folder.name.startswith("d2l-launch-")
    subprocess.run(["rm", "-r", folder], check=True)


@needs_proc
@pytest.mark.parametrize("restarts", RESTARTS)
@pytest.mark.all
def test_a_timeout_leaves_no_process_and_says_where_the_ranks_were(
    hanging, restarts, monkeypatch
):
    text = timed_out(hanging, monkeypatch, restarts)
    see_all_ended(hanging)
    assert text.startswith(
        f"{hanging.name} had not finished after {PATIENCE} s, so all"
    )
    for rank in (0, 1):
        _, _, stack = text.partition(f"\n\nRank {rank} was here:\n")
        assert re.match(
            rf'  File "{hanging}", line \d+, in <module>\n'
            r"    wait_for_ever\(\)\n"
            r'  File ".*", line \d+, in wait_for_ever\n'
            r"    time.sleep\(600\)",
            stack,
        )


@needs_proc
@pytest.mark.parametrize("restarts", RESTARTS)
@pytest.mark.all
def test_a_killed_torchrun_leaves_no_process(hanging, restarts):
    def kill_torchrun() -> None:
        ours = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
        [torchrun] = {*map(int, ours.split())} & {*processes_with(hanging.name)}
        os.kill(torchrun, signal.SIGKILL)

    with once_both_hang(hanging, kill_torchrun), pytest.raises(RuntimeError) as caught:
        d2l.launch(hanging, 2, timeout=PATIENCE, restarts=restarts)
    see_all_ended(hanging)
    assert str(caught.value) == (
        f"torchrun, which runs {hanging.name}, was killed by SIGKILL."
    )


@needs_proc
@pytest.mark.parametrize("busy", [False, True], ids=["", "and no thread can run"])
@pytest.mark.all
def test_a_rank_that_ignores_signals_is_ended(script, monkeypatch, busy):
    monkeypatch.setattr(MODULE, "GRACE", 1.0)
    name = f"stubborn_{os.getpid()}.py"
    code = "\n    import ctypes, signal; signal.signal(15, signal.SIG_IGN)" + HANG
    if busy:  # PyDLL does not let go of the interpreter's lock
        code = code.replace("time.sleep(600)\n\n", "ctypes.PyDLL(None).sleep(600)\n\n")
    path = script(code, name)
    timed_out(path, monkeypatch)
    see_all_ended(path)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "kind", "sentence"),
    [
        (("none.py", 2), FileNotFoundError, "no script 'none.py' in /"),
        ((".", 2), IsADirectoryError, r"\. is a folder: give the name of a file"),
        ((__file__, 0), ValueError, "at least 1, but got 0"),
        ((__file__, "2"), TypeError, r"such as 2, but got '2' \(str\)"),
        ((__file__, True), TypeError, r"such as 2, but got True \(bool\)"),
        ((__file__, 2, "--lr 1"), TypeError, "a list such as .*, but got '--lr 1'"),
        ((__file__, 2, 3), TypeError, "a list such as .*, but got 3"),
    ],
)
def test_arguments_that_make_no_sense(arguments, kind, sentence):
    with pytest.raises(kind, match=sentence):
        d2l.launch(*arguments)


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        ({"timeout": 0}, ValueError, "must be positive, but got 0"),
        ({"timeout": float("nan")}, ValueError, "must be positive, but got nan"),
        ({"timeout": "1"}, TypeError, "but got '1'"),
        (
            {"restarts": -1},
            ValueError,
            "number of restarts must be at least 0, but got -1",
        ),
        ({"restarts": "2"}, TypeError, r"such as 2, but got '2' \(str\)"),
        ({"port": 0}, ValueError, "between 1 and 65535, but got 0: leave port out"),
        ({"port": 65536}, ValueError, "between 1 and 65535, but got 65536"),
        ({"port": "80"}, TypeError, r"such as 29500, but got '80' \(str\)"),
    ],
)
def test_options_that_make_no_sense(options, kind, sentence):
    with pytest.raises(kind, match=sentence):
        d2l.launch(__file__, 2, **options)


@pytest.mark.parametrize("address", ["", "127.0.0.1"])
def test_a_port_in_use_is_named(address, script):
    with socket.create_server((address, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RuntimeError, match=f"Port {port} cannot be used .*free"):
            d2l.launch(script(""), 2, port=port)


# ---------------------------------------------------------------- the real thing


@pytest.mark.all
def test_a_step_of_ddp_on_two_virtual_gpus_is_one_on_the_whole_batch(script, capfd):
    path = script(
        """
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel
        from d2l_gpu import torch as d2l

        d2l.require_gpus(2)
        dist.init_process_group("gloo")
        device = d2l.gpu(rank)
        torch.manual_seed(0)
        X, net = torch.randn(8, 4), nn.Linear(4, 1)
        whole = net(X).square().mean()
        whole.backward()
        expected = net.weight.grad.flatten().tolist()
        net.zero_grad()
        ddp = DistributedDataParallel(net.to(device))
        for _ in range(3):
            ddp.zero_grad()
            ddp(X[4 * rank : 4 * rank + 4].to(device)).square().mean().backward()
        got = net.weight.grad.flatten().tolist()
        d2l.report(device=str(net.weight.device), got=got, expected=expected)
        dist.destroy_process_group()
        """,
        prefix=TWO_RANKS,
    )
    [result] = d2l.launch(path, 2)
    out, err = capfd.readouterr()
    assert out.startswith("Using 2 virtual GPUs, vgpu:0 and vgpu:1: ")
    assert (out.count("\n"), err) == (1, "")
    assert result["device"] == "vgpu:0"
    assert result["got"] == pytest.approx(result["expected"], abs=1e-6)
