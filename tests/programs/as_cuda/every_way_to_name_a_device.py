import pickle

import torch
from torch import nn

from tests.programs.as_cuda.start import raises, start

start()

import numpy as np

host, there = torch.ones(2, 2), torch.ones(2, 2, device="cuda:1")
for device in ("cuda:1", torch.device("cuda:1"), torch.device("cuda", 1), 1, "vgpu:1"):
    made = [
        *(f(2, 2, device=device) for f in (torch.ones, torch.rand, torch.empty)),
        *(f(host, device=device) for f in (torch.zeros_like, torch.rand_like)),
        *(f([1.0], device=device) for f in (torch.tensor, torch.as_tensor)),
        torch.asarray(np.ones(2), device=device),
        torch.as_tensor(np.ones(2), device=device),
        torch.arange(3, device=device),
        torch.full((2,), 1.0, device=device),
        torch.randint(3, (2,), device=device),
        torch.randperm(3, device=device),
        torch.linspace(0, 1, 3, device=device),
        torch.normal(0.0, 1.0, (2,), device=device),
        host.new_zeros(2, device=device),
        host.new_tensor([1.0], device=device),
        torch.zeros_like(torch.ones(2, device="cuda:0"), device=device),
        torch.ones(2, device="cuda:0").new_full((2,), 1.0, device=device),
        host.to(device),
        host.to(device=device),
        host.to(device, torch.float64),
        host.to(device, torch.float64, True),
        host.to(device=device, dtype=torch.float16, non_blocking=True),
        host.to(torch.ones(1, device=device)),
        host.cuda(device),
        nn.Linear(2, 2).to(device).weight,
        nn.Linear(2, 2).to(device=device, dtype=torch.float64).weight,
        nn.Linear(2, 2, device=device).weight,
        nn.Linear(2, 2).cuda(device).weight,
        nn.LazyLinear(2, device=device)(there),
        nn.LazyLinear(2).to(device)(there),
    ]
    assert {x.device for x in made} == {torch.device("cuda:1")}, (device, made)
    assert there.to(device) is there
    assert nn.LazyLinear(2, device=device).weight.device == there.device
assert there.new_tensor([1]).device == there.new(3).device == there.device
assert there.new_ones(2).device == torch.empty_like(there).device == there.device
assert there.to("cpu").device == there.cpu().device == torch.device("cpu")
assert torch.zeros_like(there, device="cpu").device.type == "cpu"
assert host.to(torch.float64).device.type == "cpu" and host.to("cpu") is host
assert nn.LazyLinear(2).to(torch.float64)(host.double()).device.type == "cpu"
raises(RuntimeError, "nonsense", lambda: host.to("nonsense"))
for number in range(2):
    by_number = torch.device(number)
    assert by_number == torch.device("cuda", number) == torch.ones(1).to(number).device
    assert isinstance(by_number, torch.device)
    assert pickle.loads(pickle.dumps(by_number)) == by_number
assert not isinstance("cuda:1", torch.device)
assert torch.device("cpu") == torch.device(torch.device("cpu"))
