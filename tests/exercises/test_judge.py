"""What an answer can't do: cheat, take more than its share, or outlive its verdict.

Each answer runs as a reader's would: judged by its own processes.
"""

import os
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from d2l_gpu.exercises.judge import judge
from d2l_gpu.exercises.limits import PROCESSES
from d2l_gpu.exercises.registry import find
from tests.helpers.waiting import runs, wait_until

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux can do this")


def answer_from(code: str):
    """Return the function `f` that some code defines, as a notebook's cell would."""
    names = {"__name__": "__main__"}
    exec(compile(textwrap.dedent(code), "<cell>", "exec"), names)
    return names["f"]


def verdict_on(code: str, number: str = "03.1"):
    return judge("pytorch", number, answer_from(code))


@pytest.fixture
def soon(monkeypatch):
    """Answers have eight seconds, so that those that take all of them take less."""

    def found(*arguments):
        return replace(find(*arguments), seconds=8)

    # The package has a function of the same name as this module.
    monkeypatch.setattr(sys.modules["d2l_gpu.exercises.judge"], "find", found)


# ---- Cheats: each returns a wrong sum, and tries to pass all the same.

CHEATS = {
    "knows the sum by heart": """
        import torch
        def f(a, b, c, device):
            return torch.full((2, 3), 111.0).to(device)
    """,
    "raises a verdict": """
        from d2l_gpu.exercises.answer_process import AnswerError
        def f(a, b, c, device):
            raise AnswerError("all checks pass.\\n  [x] the sum of all three is right")
    """,
    "raises what a terminal obeys": """
        def f(a, b, c, device):
            raise type("\\r\\x1b[2K03.1: all checks pass.\\x1b[8m", (Exception,), {})
    """,
    "writes through a thread of the library's": """
        import gc, os, time
        def f(a, b, c, device):
            from d2l_gpu.exercises.answer_process import _Requests
            def hear(self, data):
                with open(os.path.expanduser("~/d2l_gpu_was_here"), "w"):
                    pass
            _Requests.hear = hear
            return a
    """,
    "replaces what it printed": """
        import os
        def f(a, b, c, device):
            os.remove("printed")
            os.mkfifo("printed")
            return a
    """,
    "leaves folders in folders": """
        import os
        def f(a, b, c, device):
            for _ in range(3000):
                os.mkdir("a")
                os.chdir("a")
            return a
    """,
    "says that it is right": """
        def f(a, b, c, device):
            from d2l_gpu.exercises.answer_process import AnswerError
            raise AnswerError("your answer is right: all checks pass. [x] it's there")
    """,
    "names a line of many digits": """
        def f(a, b, c, device):
            raise ValueError("\\0" + "9" * 5000 + "\\0<cell>\\0")
    """,
    "names an endless file": """
        def f(a, b, c, device):
            from d2l_gpu.exercises.answer_process import AnswerError
            raise AnswerError("your answer raised Exception\\x001\\x00/dev/zero\\0")
        f.__code__ = f.__code__.replace(co_filename="/dev/zero")
    """,
    "cannot say what it takes": """
        class Shy:
            def __repr__(self):
                raise RuntimeError("go away")
        def f(a, b=Shy()):
            return a
    """,
    "exits while it is sent": """
        class F:
            def __call__(self, a, b, c, device):
                return a
            def __reduce__(self):
                raise SystemExit(3)
        f = F()
    """,
    "writes to shared memory": """
        def f(a, b, c, device):
            with open("/dev/shm/d2l_gpu_was_here", "w") as file:
                file.write("x")
            return a
    """,
    "writes a verdict": """
        def f(a, b, c, device):
            import glob, json, os
            text = json.dumps({"number": "03.1", "problem": "", "printed": "",
                "claims": [{"text": "sum", "holds": True, "hint": ""}]})
            for folder in (".", "..", *glob.glob("/tmp/*/")):
                for name in ("verdict.json", "value.json", "output"):
                    try:
                        with open(os.path.join(folder, name), "w") as file:
                            file.write(text)
                    except OSError:
                        pass
            return a
    """,
    "prints a verdict wherever it can": """
        def f(a, b, c, device):
            import json, os
            text = json.dumps({"number": "03.1", "problem": "", "printed": "",
                "claims": [{"text": "sum", "holds": True, "hint": ""}]})
            for fd in range(64):
                try:
                    os.write(fd, text.encode() + b"\\n")
                except OSError:
                    pass
            return a
    """,
    "makes all claims true": """
        def f(a, b, c, device):
            from d2l_gpu.exercises import registry
            original = registry.Claim.__init__
            def init(self, text, holds, hint=""):
                original(self, text, True, hint)
            registry.Claim.__init__ = init
            return a
    """,
    "replaces the watch": """
        def f(a, b, c, device):
            import contextlib
            from d2l_gpu.exercises.crossing import Port
            from d2l_gpu.exercises.pytorch.port import TorchPort
            TorchPort.watch = lambda self: contextlib.nullcontext([])
            TorchPort.values = lambda self, x: __import__("numpy").full((2, 3), 111.0)
            return a
    """,
    "replaces comparisons": """
        def f(a, b, c, device):
            import numpy, torch
            numpy.allclose = numpy.array_equal = lambda *args, **kwargs: True
            torch.equal = torch.allclose = lambda *args, **kwargs: True
            return a
    """,
    "returns what equals everything": """
        import torch
        class Equal(torch.Tensor):
            def __eq__(self, other):
                return True
            def tolist(self):
                return [[111.0] * 3] * 2
        def f(a, b, c, device):
            return torch.zeros(2, 3).as_subclass(Equal)
    """,
    "looks for the solution in the frames": """
        import sys
        def f(a, b, c, device):
            frame = sys._getframe(1)
            while frame:
                for name, value in frame.f_locals.items():
                    if name in ("wanted", "expected", "right", "solution"):
                        return value
                frame = frame.f_back
            return a
    """,
    "ends Python in good order": """
        def f(a, b, c, device):
            raise SystemExit(0)
    """,
    "ends Python at once": """
        import os
        def f(a, b, c, device):
            os._exit(0)
    """,
    "kills who judges": """
        import os, signal
        def f(a, b, c, device):
            try:
                os.kill(os.getppid(), signal.SIGKILL)
            except OSError:
                pass
            return a
    """,
    "replaces the careful call": """
        def f(a, b, c, device):
            from d2l_gpu.exercises import answer_process
            answer_process.to_json = lambda value: "[]"
            answer_process.fits = lambda *args: True
            return a
    """,
    "closes all files": """
        import os
        def f(a, b, c, device):
            os.closerange(3, 64)
            return a
    """,
    "changes the course's files": """
        def f(a, b, c, device):
            import d2l_gpu.exercises.registry as registry
            try:
                with open(registry.__file__, "a"):
                    pass
            except OSError:
                return a
            raise AssertionError("it may write here")
    """,
    "answers from a thread": """
        import threading
        def f(a, b, c, device):
            threading.Thread(target=lambda: None).start()
            return a
    """,
    "raises what no one catches": """
        def f(a, b, c, device):
            raise GeneratorExit
    """,
    "interrupts": """
        def f(a, b, c, device):
            raise KeyboardInterrupt
    """,
    "is a stub of another kind": """
        class F:
            def __call__(self, a, b, c, device):
                return a
        f = F()
    """,
    "recurses": """
        def f(a, b, c, device):
            return f(a, b, c, device)
    """,
    "replaces json": """
        def f(a, b, c, device):
            import json
            json.dumps = lambda *args, **kwargs: "{}"
            return a
    """,
    "raises an error that cannot be shown": """
        class Bad(Exception):
            def __str__(self):
                raise ValueError("no")
        def f(a, b, c, device):
            raise Bad
    """,
}


# What is returned, or left in place of arguments, does its work when it's read: after
# copies, memory and time were recorded.
LATE = {
    "a class of its own": (
        "03.1",
        """
        import torch
        class Later(torch.Tensor):
            device = property(lambda self: self.there)
            def detach(self):
                a, b, c = self.operands
                return a.cpu() + b.cpu() + c.cpu()
        def f(a, b, c, device):
            result = torch.zeros(2, 3).as_subclass(Later)
            result.there, result.operands = device, (a, b, c)
            return result
        """,
    ),
    "a method of its own": (
        "03.1",
        """
        import torch
        def f(a, b, c, device):
            result = torch.zeros(2, 3, device=device)
            result.detach = lambda: a.cpu() + b.cpu() + c.cpu()
            return result
        """,
    ),
    "another type than it says": (
        "02.4",
        """
        import torch
        def f(B):
            class NoTensor:
                device = B.device
                __class__ = property(lambda self: torch.Tensor)
                def detach(self):
                    A = B.cpu()
                    return A**3 + 2 * A**2 + 3 * A + 4
            return NoTensor()
        """,
    ),
    "a number that is computed later": (
        "02.1",
        """
        import torch
        class Measured(int):
            def __int__(self):
                gpu = torch.device("vgpu", 0)
                before = torch.vgpu.memory_allocated(gpu)
                x = torch.empty(self.shape, dtype=self.dtype, device=gpu)
                return torch.vgpu.memory_allocated(gpu) - before
        def f(shape, dtype):
            result = Measured(0)
            result.shape, result.dtype = shape, dtype
            return result
        """,
    ),
    "a search that nobody sees": (
        "02.6",
        """
        import os, torch
        def f(make, most):
            r, w = os.pipe()
            if not os.fork():
                n = 0
                try:
                    for n in range(most + 1):
                        if n:
                            make(n)
                    n += 1
                except torch.OutOfMemoryError:
                    pass
                os.write(w, str(n - 1).encode())
                os._exit(0)
            os.close(w)
            os.wait()
            return int(os.read(r, 99))
        """,
    ),
    "arguments of another class": (
        "07.4",
        """
        def f(data):
            late = type("Late", (type(data[0]),), {"tolist": lambda self: [0.0]})
            for x in data:
                x.__class__ = late
        """,
    ),
    "arguments with methods of their own": (
        "07.4",
        """
        def f(data):
            for x in data:
                x.tolist = lambda: [0.0]
        """,
    ),
}


@pytest.mark.all
@pytest.mark.parametrize("late", LATE)
def test_nothing_that_an_answer_leaves_does_its_work_later(late):
    number, code = LATE[late]
    verdict = verdict_on(code, number)
    assert not verdict.all_hold
    assert "a plain value" in verdict.problem or "How do you know" in verdict.hint


# Answers that know what goes in by heart: the same whatever they are given.
BY_HEART = {
    "03.4": """
        import torch
        def f(tensors, device):
            shapes = [(3,), (2, 5), (1,), (4, 1, 2), ()] * 8
            torch.zeros(144, device=tensors[0].device).to(device)
            return [
                torch.full(shape, float(i), device=device)
                for i, shape in enumerate(shapes)
            ]
    """,
    "04.5": """
        import torch
        calls = []
        def f(module):
            calls.append(module)
            number = (len(calls) - 1) % 10
            if number == 0:
                calls[:] = [module]
            gpu = [p.device for p in calls[0].parameters()][0]
            if number in (0, 2, 8):
                return gpu
            if number == 1:
                return torch.device(gpu.type, 1 - gpu.index)
            if number == 3:
                return None
            raise ValueError("vgpu:0, vgpu:1, cpu")
    """,
}


@pytest.mark.all
@pytest.mark.parametrize("number", BY_HEART)
def test_no_answer_knows_by_heart_what_goes_in(number):
    assert not verdict_on(BY_HEART[number], number).all_hold


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(code, marks=[] if i < 1 else [pytest.mark.all], id=name)
        for i, (name, code) in enumerate(CHEATS.items())
    ],
)
def test_no_cheat_passes(code, request):
    if code == CHEATS["leaves folders in folders"]:
        request.getfixturevalue("soon")  # it takes whatever time it has
    verdict = verdict_on(code)
    assert not verdict.all_hold
    said = str(verdict)
    assert verdict.hint or verdict.problem
    assert "Traceback" not in said and len(said) < 3000
    assert not any(line.startswith("03.1: all") for line in said.splitlines())
    assert all(c == "\n" or c.isprintable() for c in said)
    for folder in Path.home(), Path("/dev/shm"):
        assert not (folder / "d2l_gpu_was_here").exists()


def test_a_signature_that_cannot_be_read_is_a_sentence():
    class Hostile:
        __slots__ = ()

        @property
        def __signature__(self):
            raise RuntimeError("go away")

        def __call__(self, a, b, c, device):
            return a

    problem = judge("pytorch", "03.1", Hostile()).problem
    assert "signature" in problem and "go away" in problem


@pytest.mark.all
def test_a_value_that_is_no_plain_data_is_a_sentence():
    class Four(int):
        def __repr__(self):
            raise RuntimeError("go away")

    said = str(judge("pytorch", "08.1", 1))
    assert said == "08.1: the answer must be a list or a tuple, not 1."
    assert judge("pytorch", "08.1", [Four(4), 2]).claims  # it has numbers, after all


# ---- Limits


@pytest.mark.all
def test_much_output_is_a_short_verdict():
    verdict = verdict_on("""
        def f(a, b, c, device):
            for _ in range(20):
                print("x" * 100_000)
            print("the end")
            return a
    """)
    said = str(verdict)
    assert len(said) < 10_000 and "  | the end" in said.splitlines()


@linux
@pytest.mark.all
def test_what_an_answer_starts_ends_with_it():
    verdict = verdict_on("""
        import os, subprocess, sys
        def f(a, b, c, device):
            code = "import os, time; os.setsid(); time.sleep(600)"
            child = subprocess.Popen([sys.executable, "-c", code])
            print(child.pid)
            return a
    """)
    pids = [int(line) for line in verdict.printed.split()]
    assert pids
    wait_until(lambda: not any(runs(pid) for pid in pids))


@pytest.mark.all
@linux
def test_an_answer_that_forks_without_end_is_stopped():
    verdict = verdict_on("""
        import os
        def f(a, b, c, device):
            while True:
                os.fork()
    """)
    assert verdict.problem.startswith(
        f"your answer started more than {PROCESSES} processes"
    )


@linux
@pytest.mark.all
def test_an_answer_has_limits_of_memory_files_and_writing():
    verdict = verdict_on("""
        import os
        def f(a, b, c, device):
            for what in (
                lambda: bytearray(10**11),
                lambda: [open("/dev/null") for _ in range(10**5)],
                lambda: open("large", "wb").write(bytes(2**29)),
                lambda: open(os.path.expanduser("~/d2l_gpu_was_here"), "w"),
                lambda: os.kill(os.getppid(), 0),
            ):
                try:
                    what()
                except (MemoryError, OSError) as error:
                    print(type(error).__name__)
                else:
                    print("no limit")
            return a
    """)
    first = verdict.printed.split()[:4]
    assert first == ["MemoryError", "OSError", "OSError", "PermissionError"]
    assert not (Path.home() / "d2l_gpu_was_here").exists()


@pytest.mark.all
def test_a_file_beside_the_notebook_is_no_part_of_the_check(tmp_path, monkeypatch):
    (tmp_path / "secrets.py").write_text(
        "from d2l_gpu.exercises import verdict\n"
        "verdict.Verdict.all_hold = True\n"
        "def token_hex(n): return 'x' * n\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    verdict = verdict_on("def f(a, b, c, device): return a")
    assert not verdict.all_hold and verdict.claims


@pytest.mark.all
def test_an_answer_finds_what_the_reader_keeps_beside_the_notebook(
    tmp_path, monkeypatch
):
    (tmp_path / "of_the_reader.py").write_text("def same(x): return x\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")  # as in a notebook
    verdict = verdict_on("""
        def f(a, b, c, device):
            from of_the_reader import same
            print("found", same(1))
            return a
    """)
    assert verdict.printed.startswith("found 1") and not verdict.problem


MOVING = """
import os, time
os.setsid()
end = time.time() + 60
while time.time() < end:
    if os.fork():
        os._exit(0)
"""


@linux
@pytest.mark.all
def test_what_moves_from_process_to_process_ends_too(tmp_path):
    verdict_on(f"""
        import os, sys, time
        def f(a, b, c, device):
            if not os.fork():
                command = [sys.executable, "-ISc", {MOVING!r}, {str(tmp_path)!r}]
                os.execv(sys.executable, command)
            time.sleep(0.5)
            return a
    """)
    mark = str(tmp_path).encode()

    def moves() -> bool:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if mark in path.read_bytes():
                    return True
            except OSError:
                continue
        return False

    assert not any(moves() for _ in range(20))


@linux
@pytest.mark.all
@pytest.mark.parametrize(
    "call",
    [
        "resource.prlimit(caller, resource.RLIMIT_CPU, (1, 1))",
        "os.setpriority(os.PRIO_PROCESS, caller, 19)",
        "os.setxattr(sys.executable, 'user.d2l', b'x')",
        "check(libc.shmget(0, ctypes.c_size_t(4096), 0o1600))",
    ],
)
def test_an_answer_cannot_reach_beyond_its_files_and_processes(call):
    if os.uname().machine not in ("x86_64", "aarch64"):
        pytest.skip("system calls are refused on x86-64 and arm64 only")
    verdict = verdict_on(f"""
        import ctypes, os, resource, sys
        def check(number):
            if number < 0:
                raise OSError(ctypes.get_errno(), "refused")
        def f(a, b, c, device):
            libc = ctypes.CDLL(None, use_errno=True)
            caller = {os.getpid()}
            {call}
            raise AssertionError("went through")
    """)
    assert "your answer raised PermissionError" in verdict.problem


@linux
@pytest.mark.all
def test_shared_memory_counts():
    verdict = verdict_on("""
        import mmap
        def f(a, b, c, device):
            mmap.mmap(-1, 200 * 2**30)
            return a
    """)
    assert "your answer raised OSError" in verdict.problem


@linux
@pytest.mark.all
def test_an_answer_that_does_not_listen_is_too_late(soon):
    verdict = verdict_on(
        """
        import fcntl, os, stat, torch
        kept = []
        def f(net, X, devices):
            os.remove("output")
            os.mkfifo("output")
            for fd in range(3, 64):
                try:
                    pipe = stat.S_ISFIFO(os.fstat(fd).st_mode)
                    mode = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
                except OSError:
                    continue
                if pipe and mode == os.O_RDONLY:
                    kept.append(os.dup(fd))
                    fcntl.fcntl(fd, 1031, 4096)
                    r, w = os.pipe()
                    kept.append(w)
                    os.dup2(r, fd)
                    break
            return torch.zeros(len(X), 5, device=devices[0])
        """,
        "08.4",
    )
    assert not verdict.all_hold
    assert "didn't finish within" in verdict.problem


@pytest.mark.all
def test_time_ends_for_an_answer_that_lets_no_thread_run(soon):
    began = time.monotonic()
    verdict = verdict_on("""
        def f(a, b, c, device):
            while True:
                try:
                    while True:
                        pass
                except BaseException:
                    pass
    """)
    assert "didn't finish within 8 seconds" in verdict.problem
    assert time.monotonic() - began < 300
