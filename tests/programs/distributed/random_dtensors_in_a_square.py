"""Random DTensors on four ranks, split in both dimensions: all shards differ."""

import faulthandler
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, rand

from d2l_gpu import vgpu
from tests.helpers.waiting import PATIENCE

faulthandler.dump_traceback_later(PATIENCE, exit=True)
vgpu.enable(4)
torch.vgpu.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group()
mesh = init_device_mesh("vgpu", (2, 2))
# In a square, places mirrored at the diagonal are easily taken for each other.
for shape in ((2, 2), (6, 6), (4, 10), (3, 5, 2)):
    for placements in (
        (Shard(0), Shard(1)),
        (Shard(1), Shard(0)),
        (Shard(0), Replicate()),
        (Shard(1), Shard(1)),
    ):
        torch.manual_seed(3)
        whole = rand(shape, device_mesh=mesh, placements=placements).full_tensor()
        assert whole.unique().numel() == whole.numel(), (shape, placements)
dist.destroy_process_group()
if int(os.environ["RANK"]) == 0:
    print("done")
