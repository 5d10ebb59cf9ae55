import torch
import torch.distributed as dist

from d2l_gpu import torch as d2l

sim = d2l.simulator(2)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
for device in ("cpu", sim.gpu(1)):
    x = torch.arange(3.0, device=device)
    dist.all_reduce(x)
    assert x.tolist() == [0, 1, 2] and x.device == torch.device(device)
dist.destroy_process_group()

# Nor does a backend of each device's own.
dist.init_process_group(
    "cpu:gloo,vgpu:gloo", store=dist.HashStore(), rank=0, world_size=1
)
dist.barrier()
dist.destroy_process_group()
