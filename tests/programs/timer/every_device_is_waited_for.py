import torch

from d2l_gpu import torch as d2l

d2l.use_virtual_gpus(2)
waited = []
torch.vgpu.synchronize = lambda device=None: waited.append(str(device))
timer = d2l.Timer(devices=[d2l.gpu(0), "vgpu:1", d2l.cpu()])
print(waited)
waited.clear()
timer.stop()
print(waited)
waited.clear()
d2l.Timer(d2l.gpu(1))
print(waited)
