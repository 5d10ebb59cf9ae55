import torch

from d2l_gpu import vgpu

vgpu.enable(2, as_cuda=True)
# TorchScript knows functions by their identity.
assert torch.jit._builtins._find_builtin(torch.tensor) == "aten::tensor"
torch.cuda.nvtx.range_push("a"), torch.cuda.nvtx.range_pop()
