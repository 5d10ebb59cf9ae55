import torch

from d2l_gpu import torch as d2l

X = torch.ones(2, 3)
with d2l.transfers() as log:
    Y = X.to("meta")
    X + 1
    X.clone()
    Y.copy_(X)
    X.to("meta", torch.float64)
    Y.copy_(X.double())
X.to("meta")
print([tuple(copy) for copy in log])
