"""Ranks that use DDP wait for ever; then virtual GPUs are set up again."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from d2l_gpu import vgpu


def one_batch_more(rank, n):
    net = DistributedDataParallel(nn.Linear(4, 1).to("vgpu"))
    for _ in range(3 if rank == 0 else 2):
        net(torch.ones(8, 4, device="vgpu")).sum().backward()


vgpu.enable(3)
try:
    vgpu.run_ranks(one_batch_more, 3)
except RuntimeError as error:
    print("wait for ever" in str(error))
vgpu.enable(3, model="H100")  # fails if memory is in use
print("done")
