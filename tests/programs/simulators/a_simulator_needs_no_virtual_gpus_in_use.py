import torch

from d2l_gpu import torch as d2l

before = str(d2l.gpu(0)), d2l.num_gpus(), d2l.real_gpus(1)
sim = d2l.simulator(2)
net = torch.nn.Linear(3, 2).to(sim.gpu(1))
net(torch.ones(4, 3, device=sim.gpu(1))).sum().backward()
assert net.weight.grad.device == sim.gpu(1)
assert (str(d2l.gpu(0)), d2l.num_gpus(), d2l.real_gpus(1)) == before
with d2l.transfers() as log:
    torch.ones(3).to(sim.gpu(0))

# Streams and events need none either.
copying = torch.vgpu.Stream(sim.gpu(0))
early, late = (torch.vgpu.Event(enable_timing=True) for _ in range(2))
computing = torch.vgpu.current_stream(sim.gpu(0))
early.record(computing)
with torch.vgpu.stream(copying):
    X = torch.ones(3, 3).to(sim.gpu(0))
computing.wait_stream(copying)
X @ X
late.record(computing)
late.synchronize()
assert early.elapsed_time(late) > 0 and early.device == sim.gpu(0)

d2l.require_gpus(3)
assert d2l.num_gpus() == 3 and str(d2l.gpu(2)) == "vgpu:2"
assert torch.ones(3, device=d2l.gpu(2)).to(sim.gpu(0)).device == sim.gpu(0)
