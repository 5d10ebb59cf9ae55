"""Threads of all processes below this one count, wherever they are."""

import subprocess
import sys
import time

from d2l_gpu.exercises import limits

THREADS = """
import sys, threading, time
for _ in range(int(sys.argv[1])):
    threading.Thread(target=time.sleep, args=[60], daemon=True).start()
print("ready", flush=True)
time.sleep(60)
"""
limits.THREADS = 30
for threads, is_too_many in (([20], False), ([10, 10], False), ([20, 20], True)):
    told = []
    children = [
        subprocess.Popen([sys.executable, "-c", THREADS, str(n)], stdout=-1)
        for n in threads
    ]
    with limits.few_processes(children[0].pid, lambda: told.append(True)):
        for child in children:
            child.stdout.readline()
        time.sleep(1)  # four looks
    assert bool(told) == is_too_many, (threads, told)
    # The one that is kept is the caller's to end; the others have ended.
    ended = [child.poll() is not None for child in children]
    assert ended == [False] + [is_too_many] * (len(children) - 1), ended
    for child in children:
        child.kill()
        child.wait()
        child.stdout.close()
