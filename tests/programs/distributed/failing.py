"""One rank runs out of memory while the other waits for it."""

import faulthandler
import os

import torch
import torch.distributed as dist

from d2l_gpu import vgpu
from tests.helpers.waiting import PATIENCE

faulthandler.dump_traceback_later(PATIENCE, exit=True)
vgpu.enable(2, memory="1MiB")
rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("gloo")
X = torch.ones((1 + rank) * 2**18, device=torch.device("vgpu", rank))
dist.all_reduce(X[:4])
print("the other rank came")
