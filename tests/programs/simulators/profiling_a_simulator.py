"""A profiler takes the kernels of simulators, also where no virtual GPUs are in use."""

import gc

import torch
from torch.profiler import ProfilerActivity, profile

from d2l_gpu import vgpu

first, second = (vgpu.simulator(1, model, backing="meta") for model in ("V100", "T4"))
for activities in ([ProfilerActivity.PrivateUse1], None):
    first.reset()
    second.reset()
    with profile(activities=activities) as profiler:
        for sim in (first, second):
            X = torch.empty(512, 512, device=sim.gpu(0))
            for _ in range(3):
                Y = X @ X
    found = {e.key: e for e in profiler.key_averages() if "(simulated)" in e.key}
    assert found["mm (simulated)"].count == 6, found
    busy = sum(sim.report().devices[0].busy for sim in (first, second))
    assert abs(found["mm (simulated)"].device_time_total / 1e6 - busy) < 1e-9
    for sim in (first, second):  # PyTorch waits for devices when a profile ends
        assert sim.now() >= sim.elapsed()

del first, second, sim, X, Y
gc.collect()
with profile() as profiler:  # and where there is no device any more
    torch.ones(3) + 1
assert "aten::add" in [e.key for e in profiler.key_averages()]
