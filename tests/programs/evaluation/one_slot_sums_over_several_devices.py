import torch

from d2l_gpu import torch as d2l
from d2l_gpu import vgpu

d2l.use_virtual_gpus(2)
metric = d2l.Accumulator(1)
with vgpu.record_copies() as copies:
    values = [torch.ones((), device=d2l.gpu(i % 2)) for i in range(6)]
    copies.clear()
    for value in values:
        metric.add(value)
    metric.add(torch.tensor(4))
    print(len(copies), metric[0], len(copies))
