import torch

from d2l_gpu import torch as d2l
from d2l_gpu import vgpu

d2l.use_virtual_gpus(1)
board = d2l.ProgressBoard()
animator = d2l.Animator()
animator.display = False
y = torch.ones((), device=d2l.gpu())
with vgpu.record_copies() as copies:
    for x in range(20):
        board.draw(x, y, "y", every_n=10)
    print(len(copies))
    animator.add(0, (y, 2 * y, 3 * y))
    print(len(copies), animator.data)
