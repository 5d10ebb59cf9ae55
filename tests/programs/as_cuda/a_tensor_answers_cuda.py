import torch
from torch import nn

from tests.programs.as_cuda.start import start

start()

x = torch.ones(2, device="cuda:1")
assert x.device == torch.device("cuda:1") and x.device.type == "cuda"
assert x.is_cuda and x.get_device() == 1 and not torch.ones(1).is_cuda
assert (x * 2).device == x.device and (x * 2)[0].device == x.device
assert nn.Linear(2, 2, device="cuda:1").weight.is_cuda
assert torch.testing.assert_close(x, torch.ones(2, device="cuda:1")) is None
print(x)
print(nn.Parameter(x))
