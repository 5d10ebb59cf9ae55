import torch
from torch import nn

from tests.programs.as_cuda.start import start

start()

torch.set_default_device("cuda")
torch.cuda.set_device(1)
assert torch.ones(2).get_device() == torch.tensor([1.0]).get_device() == 1
assert nn.Linear(2, 2).weight.is_cuda
assert torch.get_default_device() == torch.device("cuda:1")
assert torch.ones(1, device="cpu").device.type == "cpu"
torch.set_default_device(None)
with torch.device("cuda:0"):
    assert torch.rand(2).get_device() == torch.tensor([1]).get_device() == 0
assert torch.ones(1).device.type == torch.tensor([1]).device.type == "cpu"
