import torch

from d2l_gpu import torch as d2l

data = d2l.Batches(
    torch.ones(4, 1, 2, 2, dtype=torch.uint8),
    torch.arange(4),
    3,
    device="cuda:1",
).shard(0, 2)
iterator = iter(data)
print(data.device, torch.cuda.is_initialized())
try:
    next(iterator)
except (AssertionError, RuntimeError) as error:
    print("CUDA" in str(error) or "NVIDIA" in str(error))
