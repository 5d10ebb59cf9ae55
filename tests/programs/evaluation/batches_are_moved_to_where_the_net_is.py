import torch
from torch import nn

from d2l_gpu import torch as d2l
from d2l_gpu import vgpu

d2l.use_virtual_gpus(2)
torch.manual_seed(0)
X, y = torch.randn(64, 5), torch.randint(3, (64,))
net = nn.Linear(5, 3)
loader = list(zip(X.split(16), y.split(16), strict=True))
expected = d2l.evaluate_accuracy_gpu(net, loader)
net.to(d2l.gpu(1))
with vgpu.record_copies() as copies:
    print(d2l.evaluate_accuracy_gpu(net, loader) == expected)
print(sum(copy.source == 1 for copy in copies))
net.cpu()
print(d2l.evaluate_accuracy_gpu(net, loader, "cpu") == expected)
