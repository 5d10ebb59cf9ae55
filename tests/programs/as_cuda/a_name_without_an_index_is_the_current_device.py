import torch
from torch import nn

from tests.programs.as_cuda.start import start

start()


def made():
    return [
        torch.ones(2, device="cuda"),
        torch.tensor([1], device="cuda"),
        torch.ones(2).to("cuda"),
        torch.ones(2).to(device=torch.device("cuda")),
        torch.ones(2).cuda(),
        nn.Linear(2, 2).to("cuda").weight,
        nn.Linear(2, 2).cuda().bias,
        torch.ones(2).new_tensor([1], device="cuda"),
        torch.zeros_like(torch.ones(2), device="cuda"),
    ]


assert {x.get_device() for x in made()} == {0}
with torch.cuda.device(1):
    assert {x.get_device() for x in made()} == {1}
torch.cuda.set_device("cuda:1")
assert torch.cuda.current_device() == 1
assert {x.get_device() for x in made()} == {1}
