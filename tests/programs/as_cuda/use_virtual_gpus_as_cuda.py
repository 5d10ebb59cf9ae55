import torch

from d2l_gpu import torch as d2l

d2l.use_virtual_gpus(2, memory="64MiB", as_cuda=True)
d2l.use_virtual_gpus(2, memory="64MiB", as_cuda=True)
x = torch.ones(1, device=d2l.gpu(1))
assert x.device == d2l.gpu(1) == d2l.try_gpu(1) == torch.device("cuda:1")
try:
    d2l.use_virtual_gpus(2, memory="64MiB")
except RuntimeError as error:
    assert "can no longer be changed" in str(error)
else:
    raise AssertionError
assert [row[:2] for row in d2l.devices().rows] == [
    ["cpu", "real"],
    ["vgpu:0", "virtual"],
    ["vgpu:1", "virtual"],
]
