import torch
from torch import nn

from tests.programs.as_cuda.start import raises, start

start()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)

    def forward(self, x, fail=False):
        if fail:
            raise ValueError("from a replica")
        assert not torch.is_autocast_enabled() or self.linear(x).dtype is torch.float16
        return {"out": self.norm(self.linear(x)), "where": x}


net = nn.DataParallel(Net()).cuda()
x = torch.rand(6, 3)
before = net.module.norm.running_mean.clone()
result = net(x)
assert result["where"].tolist() == x.tolist()
assert not torch.equal(net.module.norm.running_mean, before)  # device 0 keeps its own
with torch.autocast("cuda"):
    net(x.cuda())
raises(ValueError, "from a replica", lambda: net(x, fail=True))
net.to("cuda:1")
raises(RuntimeError, "on device cuda:0 (device_ids[0]) but found", lambda: net(x))
