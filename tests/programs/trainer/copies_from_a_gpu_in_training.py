import torch
from torch import nn

from d2l_gpu import torch as d2l
from d2l_gpu import vgpu
from tests.helpers.toy_training import Line, Regression

d2l.use_virtual_gpus(2)
torch.manual_seed(0)
model = Regression(nn.Linear(2, 1))
model.board.display = False
with vgpu.record_copies() as copies:
    d2l.Trainer(3, num_gpus=1, gradient_clip_val=1).fit(model, Line())
print(sum(copy.source == 0 for copy in copies))
print(sum(map(len, model.board.data.values())))
