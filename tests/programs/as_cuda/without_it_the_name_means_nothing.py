import torch

from d2l_gpu import vgpu

vgpu.enable(2)
assert torch.ones(1, device="vgpu").device.type == "vgpu"
assert not torch.cuda.is_available()
try:
    torch.ones(1, device="cuda")
except (AssertionError, RuntimeError) as error:
    assert "CUDA" in str(error) or "NVIDIA" in str(error)
else:
    raise AssertionError
