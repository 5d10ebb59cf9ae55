import torch

from d2l_gpu import vgpu

torch.cuda.is_available = lambda: True
try:
    vgpu.enable(2, as_cuda=True)
except RuntimeError as error:
    assert "because this machine has CUDA devices: hide them" in str(error)
else:
    raise AssertionError
assert not hasattr(torch, "vgpu")  # refused before anything was changed
