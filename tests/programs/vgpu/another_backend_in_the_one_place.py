import torch

torch.utils.rename_privateuse1_backend("other")
from d2l_gpu import vgpu

try:
    vgpu.enable(2)
except RuntimeError as error:
    print(error)
