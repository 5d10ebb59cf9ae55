import torch

from d2l_gpu import vgpu
from tests.programs.as_cuda.start import start

start()

vgpu.enable(3)
assert torch.ones(1, device="cuda:2").device == torch.device("cuda:2")
assert torch.cuda.device_count() == 3
vgpu.enable(1, as_cuda=True)
assert torch.cuda.device_count() == 1
