import torch

from d2l_gpu import torch as d2l

before = torch.accelerator.current_accelerator(), torch.accelerator.is_available
assert d2l.race(8).seconds["H100"] > 0
after = torch.accelerator.current_accelerator(), torch.accelerator.is_available
assert after == before
assert torch._C._get_privateuse1_backend_name() != "vgpu"
