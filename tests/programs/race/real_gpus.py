import os

import torch

from d2l_gpu import torch as d2l
from d2l_gpu.torch.gpus.torch_gpus import machine_gpus
from d2l_gpu.torch.timing import race

d2l.use_virtual_gpus(2, backing="cpu")
assert machine_gpus() == []
assert list(d2l.race(8, []).seconds) == ["this CPU"]

torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 2
assert machine_gpus() == [torch.device("cuda", 0), torch.device("cuda", 1)]
raced = []


def measured(n, device, budget):
    raced.append(device)
    return race.Runner(str(device), 1.0, "compute", "one")


race._measured = measured
d2l.race(8, [])
assert raced == [torch.device("cpu"), torch.device("cuda", 0)]
os.environ["D2L_GPU_VIRTUAL"] = "2"
assert machine_gpus() == []
