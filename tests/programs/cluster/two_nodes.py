"""Ten steps of DDP that can be told to stop, and go on after a restart.

    two_nodes.py FOLDER [--stop-at STEP]

Rank 0 writes the weights, and where the ranks were, into the folder. With --stop-at,
the last rank says that it has come to this step, and waits to be killed: once.
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

from d2l_gpu import torch as d2l

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--stop-at", type=int)
options = parser.parse_args()
local = int(os.environ["LOCAL_RANK"])
d2l.require_gpus(int(os.environ["LOCAL_WORLD_SIZE"]))
device = d2l.gpu(local)
dist.init_process_group()
rank, k = dist.get_rank(), dist.get_world_size()
hosts = [None] * k
dist.all_gather_object(hosts, os.uname().nodename)

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)
ddp = nn.parallel.DistributedDataParallel(net, device_ids=[local])
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

checkpoint, stopped = options.folder / "checkpoint.pt", options.folder / "stopped"
first = 0
if checkpoint.exists():
    saved = torch.load(checkpoint)
    net.load_state_dict(saved["net"])
    first = saved["step"]
for step in range(first, 10):
    if step == options.stop_at and rank == k - 1 and not stopped.exists():
        stopped.touch()
        time.sleep(600)
    generator = torch.Generator().manual_seed(step)
    X = torch.randn(16, 8, generator=generator).chunk(k)[rank].to(device)
    y = torch.randint(4, (16,), generator=generator).chunk(k)[rank].to(device)
    optimizer.zero_grad()
    cross_entropy(ddp(X), y).backward()
    optimizer.step()
    if rank == 0:
        weights = {name: value.cpu() for name, value in net.state_dict().items()}
        torch.save({"net": weights, "step": step + 1}, checkpoint.with_suffix(".new"))
        checkpoint.with_suffix(".new").replace(checkpoint)
if rank == 0:
    result = {"net": weights, "hosts": hosts, "first": first}
    torch.save(result, options.folder / "result.pt")
dist.barrier()
dist.destroy_process_group()
