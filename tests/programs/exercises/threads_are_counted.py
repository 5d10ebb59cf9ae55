"""Threads of all processes below this one count, wherever they are."""

import subprocess
import sys
import time

from d2l_gpu.exercises import limits
from tests.helpers.waiting import wait_until

THREADS = """
import sys, threading, time
for _ in range(int(sys.argv[1])):
    threading.Thread(target=time.sleep, args=[60], daemon=True).start()
print("ready", flush=True)
time.sleep(60)
"""
limits.THREADS, told = 30, []
for threads, is_too_many in (([20], False), ([10, 10], False), ([20, 20], True)):
    told.clear()
    children = [
        subprocess.Popen(
            [sys.executable, "-c", THREADS, str(n)], stdout=subprocess.PIPE
        )
        for n in threads
    ]
    try:
        with limits.few_processes(children[0].pid, lambda: told.append(True)):
            for child in children:
                child.stdout.readline()
            if is_too_many:
                wait_until(lambda: told)
            else:
                time.sleep(1)  # four looks
        assert bool(told) == is_too_many, (threads, told)
        assert {child.poll() is not None for child in children} == {is_too_many}
    finally:
        for child in children:
            child.kill()
            child.wait()
            child.stdout.close()
