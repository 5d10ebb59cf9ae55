"""PyTorch's tensors, for shared graders."""

import torch

from d2l_gpu import torch as d2l
from d2l_gpu.exercises.arrays import Arrays

ARRAYS = Arrays(
    kind=torch.Tensor,
    put=lambda values, device: torch.tensor(values).to(device),
    fetch=lambda x: x.detach().cpu().numpy(),
    device=lambda x: x.device,
    cpu=d2l.cpu,
    gpus=d2l.try_all_gpus,
)
