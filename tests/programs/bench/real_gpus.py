import torch

from d2l_gpu import torch as d2l

d2l.simulator(1)  # now torch.accelerator answers for virtual GPUs
torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 2
assert d2l.real_gpus(2) == [torch.device("cuda", 0), torch.device("cuda", 1)]
assert d2l.real_gpus(3) == []
assert d2l.num_gpus() == 2 and d2l.gpu(1) == torch.device("cuda", 1)
