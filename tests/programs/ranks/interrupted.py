"""Ctrl-C while ranks run: in a loop, asleep, in collectives, in operators."""

import _thread
import faulthandler
import threading
import time

import torch
import torch.distributed as dist

from d2l_gpu import vgpu
from tests.helpers.waiting import PATIENCE

faulthandler.dump_traceback_later(PATIENCE, exit=True)
vgpu.enable(3)
begun = threading.Event()


def work(rank, where):
    X = torch.ones(2, device="vgpu", requires_grad=True)
    if rank == 1:
        begun.set()
    while where == "collective" or rank == 1:
        if where == "collective":
            dist.barrier()
        elif where == "sleep":
            time.sleep(0.05)
        elif where == "forward":
            (X * X).sum()
        elif where == "backward":
            (X * X).sum().backward()
    dist.barrier()


def interrupt():
    begun.wait()
    time.sleep(0.1)
    _thread.interrupt_main()


for where in "loop", "sleep", "collective", "forward", "backward":
    begun.clear()
    threading.Thread(target=interrupt).start()
    try:
        vgpu.run_ranks(lambda rank, n: work(rank, where), 3)  # noqa: B023
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("Nothing was interrupted.")
    assert threading.active_count() == 1, threading.enumerate()
    assert vgpu.run_ranks(lambda rank, n: rank, 3) == [0, 1, 2]
print("done")
