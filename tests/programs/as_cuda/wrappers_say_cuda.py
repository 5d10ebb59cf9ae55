import torch
from torch.utils._pytree import tree_map_only

from tests.programs.as_cuda.start import start

start()


class Box(torch.Tensor):
    """A tensor that contains another, as results of asynchronous collectives do."""

    def __new__(cls, inside):
        box = torch.Tensor._make_wrapper_subclass(
            cls, inside.shape, dtype=inside.dtype, device=inside.device
        )
        box.inside = inside
        return box

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = tree_map_only(cls, lambda x: x.inside, (args, kwargs or {}))
        return tree_map_only(torch.Tensor, cls, func(*args, **kwargs))


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


for i in range(2):
    x = Box(torch.ones(3, device=f"cuda:{i}")).requires_grad_()
    assert x.device == torch.device("cuda", i)
    y = Double.apply(x)
    assert y.device == x.device and y.inside.tolist() == [2, 2, 2]
    y.sum().backward()
    assert x.grad.inside.tolist() == [2, 2, 2] and x.grad.device == x.device
