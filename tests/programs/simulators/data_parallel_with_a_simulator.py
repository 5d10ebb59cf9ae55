import pytest
import torch
from torch import nn

from d2l_gpu import vgpu

sim = vgpu.simulator(2)
net = nn.Linear(4, 3).to(sim.gpu(0))
for devices in sim.gpus(), None:
    with pytest.raises(RuntimeError, match=r"that vgpu\.enable sets up"):
        nn.DataParallel(net, device_ids=devices)
assert nn.DataParallel(nn.Linear(4, 3)).device_ids == []
vgpu.enable(2)
parallel = nn.DataParallel(net, device_ids=sim.gpus())
sim.reset()
assert parallel(torch.ones(8, 4, device=sim.gpu(0))).shape == (8, 3)
assert all(device.kernels for device in sim.report().devices)
