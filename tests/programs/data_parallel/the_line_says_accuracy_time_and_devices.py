from functools import partial

from torch import nn

from d2l_gpu import torch as d2l

d2l.use_virtual_gpus(2)
net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
d2l.train(net, 2, 64, 0.1, 2, load_data=partial(d2l.load_data_digits, resize=8))
