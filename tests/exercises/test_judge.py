"""What an answer can't do: cheat, take more than its share, or outlive its verdict.

Each answer runs as a reader's would: judged by its own processes.
"""

import os
import sys
import textwrap
import time
from pathlib import Path

import pytest

from d2l_gpu.exercises.judge import judge
from d2l_gpu.exercises.limits import PROCESSES
from d2l_gpu.exercises.records import RecordError, from_json, to_json
from tests.helpers.waiting import runs, wait_until

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux can do this")


def answer_from(code: str):
    """Return the function `f` that some code defines, as a notebook's cell would."""
    names = {"__name__": "__main__"}
    exec(compile(textwrap.dedent(code), "<cell>", "exec"), names)
    return names["f"]


def verdict_on(code: str, number: str = "03.1"):
    return judge("pytorch", number, answer_from(code))


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
def test_no_cheat_passes(code):
    verdict = verdict_on(code)
    assert not verdict.all_hold
    said = str(verdict)
    assert verdict.hint or verdict.problem
    assert "Traceback" not in said and len(said) < 3000
    assert not any(line.startswith("03.1: all") for line in said.splitlines())
    assert all(c == "\n" or c.isprintable() for c in said)
    assert not (Path.home() / "d2l_gpu_was_here").exists()


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

    said = str(judge("pytorch", "02.2", [1]))
    assert said == "02.2: the answer must be an int or a float, not [1]."
    assert judge("pytorch", "02.2", Four(4)).claims  # it is a number, after all


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


@linux
def test_an_answer_that_forks_without_end_is_stopped():
    verdict = verdict_on("""
        import os
        def f(a, b, c, device):
            while True:
                os.fork()
    """)
    assert verdict.problem == f"your answer started more than {PROCESSES} processes."


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
def test_time_ends_for_an_answer_that_lets_no_thread_run():
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
    assert "didn't finish within 30 seconds" in verdict.problem
    assert time.monotonic() - began < 300


# ---- Records

PLAIN = [
    None,
    True,
    -3,
    2.5,
    "ä\n",
    b"\0\xff",
    [1, [2, (3, "4")], {5, 6}],
    {"a": 1, 2: (3,), (4, 5): None},
    float("inf"),
]


@pytest.mark.parametrize("value", PLAIN, ids=str)
def test_plain_data_cross(value):
    assert from_json(to_json(value)) == value
    assert type(from_json(to_json(value))) is type(value)


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_arrays_cross(dtype, shape):
    import numpy as np

    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    found = from_json(to_json({"x": array.T}))["x"]
    assert found.dtype == array.dtype and np.array_equal(found, array.T)
    assert from_json(to_json(np.float32(0.5))) == 0.5


@pytest.mark.parametrize(
    "value",
    [object(), print, os, {"a": object()}],
    ids=["object", "function", "module", "dictionary"],
)
def test_anything_else_does_not(value):
    with pytest.raises(RecordError):
        to_json(value)


def test_data_within_themselves_do_not():
    endless: list = []
    endless.append(endless)
    with pytest.raises(RecordError):
        to_json(endless)


NO_RECORDS = [
    "",
    "{",
    "{}",
    '{"d2l_gpu": "eval", "of": []}',
    '{"d2l_gpu": "array", "of": ""}',
    '{"d2l_gpu": "array", "dtype": "O", "shape": [1], "of": "AAAAAAAAAAA="}',
]


@pytest.mark.parametrize("text", NO_RECORDS)
def test_what_is_no_record_is_an_error(text):
    with pytest.raises(RecordError):
        from_json(text)
