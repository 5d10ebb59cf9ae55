"""A process ends only when gloo's threads have let go of what they have sent."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="looks at Linux's threads"
)

# A thread with the name of gloo's. hashlib computes without the interpreter, as gloo
# does; afterwards the thread asks for it, as gloo's do to let go of a tensor.
SCRIPT = """
import ctypes, hashlib, threading, time
from d2l_gpu import torch as d2l

def work():
    PR_SET_NAME = 15
    ctypes.CDLL(None).prctl(PR_SET_NAME, {name!r}, 0, 0, 0)
    named.set()
    end = time.monotonic() + {seconds}
    while time.monotonic() < end:
        hashlib.pbkdf2_hmac("sha256", b"busy", b"", 20_000)
    print("let go", flush=True)
    time.sleep(60)

named = threading.Event()
threading.Thread(target=work, daemon=True).start()
named.wait()
"""


def run(name, seconds):
    script = SCRIPT.format(name=name, seconds=seconds)
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("seconds", [0.02, 0.3])
def test_a_process_waits_for_busy_threads_of_gloo(seconds):
    result = run(b"pt_gloo_runloop", seconds)
    assert (result.returncode, result.stdout) == (0, "let go\n"), result.stderr


def test_it_does_not_wait_for_other_threads_or_for_ever():
    assert run(b"another", 30).stdout == ""
    assert run(b"pt_gloo_runloop", 50).returncode == 0
