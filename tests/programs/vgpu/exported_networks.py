import torch
from torch import nn

from d2l_gpu import vgpu

vgpu.enable(2)
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).to("vgpu:1")
X = torch.randn(5, 3, device="vgpu:1")
rows = torch.export.Dim("rows", min=2)
for strict in (False, True):
    program = torch.export.export(net, (X,), dynamic_shapes=({0: rows},), strict=strict)
    for count in (5, 2):
        assert torch.equal(program.module()(X[:count]), net(X[:count]))
