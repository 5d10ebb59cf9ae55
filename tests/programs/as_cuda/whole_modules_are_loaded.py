import torch
from torch import nn

from tests.programs.as_cuda.start import start

start()

import io

for there in (False, True):
    file = io.BytesIO()
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    torch.save(module.cuda(1) if there else module, file)
    for rule, device in (
        ("cuda:0", "cuda:0"),
        ("cpu", "cpu"),
        (None, "cuda:1" if there else "cpu"),
    ):
        file.seek(0)
        loaded = torch.load(file, rule, weights_only=False)
        for x in (*loaded.parameters(), *loaded.buffers()):
            assert x.device == torch.device(device)
        assert isinstance(loaded[0].weight, nn.Parameter)
        assert torch.equal(loaded[0].weight.cpu(), module[0].weight.cpu())
