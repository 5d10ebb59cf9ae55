import os

import torch

from d2l_gpu import torch as d2l

sim = d2l.simulator(1)
X = torch.ones(2, device=sim.gpu(0))
pid = os.fork()
if not pid:
    try:
        X + X
    except RuntimeError as error:
        os._exit("Cannot re-initialize" in str(error))
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
