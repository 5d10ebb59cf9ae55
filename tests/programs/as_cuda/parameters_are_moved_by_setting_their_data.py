import torch
from torch import nn

from tests.programs.as_cuda.start import start

start()

w = nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([w], lr=1.0)
(w * 2).sum().backward()
w.data = w.data.cuda(1)
w.grad.data = w.grad.data.cuda(1)
assert type(w.detach()) is type(torch.ones(1, device="cuda"))
assert isinstance(w, nn.Parameter) and w.is_leaf and w.requires_grad
(w * 2).sum().backward()
assert w.grad.tolist() == [4, 4] and w.grad.get_device() == w.get_device() == 1
optimizer.step()
assert w.tolist() == [-3, -3]
x = torch.ones(2)
x.data = torch.zeros(3)
assert x.shape == (3,) and not x.is_cuda
x.data = x.data.cuda()
assert x.is_cuda and not x.requires_grad and x.grad is None
