import torch

from d2l_gpu import torch as d2l

d2l.use_virtual_gpus(1)
x = torch.ones(2)
batch = d2l.Trainer(1, num_gpus=1).prepare_batch(([x, (x,)], {"n": x}, "text"))
[a, [b]], more, text = batch
print(a.device, b.device, more["n"].device, text)
