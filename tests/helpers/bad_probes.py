"""Probes of the doctor that end badly, in a module that is imported quickly."""

import os
import signal
import subprocess
import sys
from pathlib import Path


def speaks_then_dies():
    yield {"first": 1}
    os.kill(os.getpid(), signal.SIGABRT)


def speaks_then_hangs(file):
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield {"first": 1}
    Path(file).write_text(f"{os.getpid()} {sleeper.pid}")
    sleeper.wait()


def prints_and_fails():
    yield {"first": "ä\n"}
    print('{"first": 2}', flush=True)
    os.write(1, b'{"first": 3}\n')
    raise ValueError("one\ntwo")
