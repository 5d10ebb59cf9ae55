"""Ten steps of DDP on unequal shards against ten steps on the whole batch."""

import faulthandler
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from d2l_gpu import torch as d2l
from tests.helpers.waiting import PATIENCE

faulthandler.dump_traceback_later(PATIENCE, exit=True)
d2l.use_virtual_gpus(2, memory="64MiB")
rank, k = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group()

images = torch.arange(77 * 64).remainder(251).to(torch.uint8).reshape(77, 1, 8, 8)
batches = d2l.Batches(images, torch.arange(77) % 10, batch_size=7, shuffle=True)


def network():
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(144, 10)).double()


def train(net, data, share):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    data.set_epoch(0)
    for (X, y), n in zip(data, data.batch_sizes, strict=True):
        optimizer.zero_grad()
        (cross_entropy(net(X.double()), y, reduction="sum") * share / n).backward()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in net.parameters()]


gpu = d2l.gpu(rank)
ddp = DistributedDataParallel(network().to(gpu), device_ids=[rank])
ours = train(ddp, batches.shard(rank, k).to(gpu), share=k)
whole = train(network(), batches, share=1)
for a, b in zip(ours, whole, strict=True):
    torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-12)
dist.destroy_process_group()
if rank == 0:
    print("done")
