"""``torch.func``, batches of gradients and forward mode, against the CPU."""

import pytest
import torch
from torch import func
from torch.autograd import forward_ad, functional

pytestmark = pytest.mark.virtual_gpus(2)


def f(x):
    return (x.sin() ** 2 * x).sum()


def batched(x):
    x = x.detach().requires_grad_()
    each = torch.eye(len(x), device=x.device)
    return torch.autograd.grad(x.cos(), x, each, is_grads_batched=True)[0]


def dual(x):
    with forward_ad.dual_level():
        y = (forward_ad.make_dual(x, torch.ones_like(x)) ** 3).exp()
        return forward_ad.unpack_dual(y).tangent


TRANSFORMS = {
    "grad": func.grad(f),
    "vmap of grad of grad": func.vmap(func.grad(func.grad(lambda x: x**3))),
    "jacrev": func.jacrev(torch.sin),
    "jacfwd": func.jacfwd(torch.sin),
    "jacfwd of grad": func.jacfwd(func.grad(f)),
    "hessian": func.hessian(f),
    "hessian of hessian": func.hessian(lambda x: func.hessian(f)(x).sum()),
    "jvp": lambda x: func.jvp(f, (x,), (torch.ones_like(x),))[1],
    "vjp": lambda x: func.vjp(torch.sin, x)[1](torch.ones_like(x))[0],
    "batched gradients": batched,
    "dual numbers": dual,
    "jacobian": lambda x: functional.jacobian(torch.sin, x, vectorize=True),
    "hessian, vectorized": lambda x: functional.hessian(f, x, vectorize=True),
    "forward mode": lambda x: functional.jacobian(
        torch.sin, x, vectorize=True, strategy="forward-mode"
    ),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_transforms_are_those_of_the_cpu(transform, size):
    X = torch.linspace(-1, 2, size)
    expected = transform(X)
    for device in ("vgpu:0", "vgpu:1"):
        for _ in range(2):
            result = transform(X.to(device))
            assert result.device == torch.device(device)
            torch.testing.assert_close(result.cpu(), expected)


def test_gradients_of_another_device_are_refused_in_batches_too():
    x = torch.ones(3, device="vgpu:0", requires_grad=True)
    with pytest.raises(RuntimeError, match="expected device vgpu:0 but got vgpu:1"):
        torch.autograd.grad(
            x * 2, x, torch.eye(3, device="vgpu:1"), is_grads_batched=True
        )


def test_tensors_without_values_are_refused_in_a_sentence():
    with torch._subclasses.FakeTensorMode():
        fake = torch.ones(3)
    with pytest.raises(NotImplementedError, match="combined with a fake tensor"):
        torch.ones(3, device="vgpu") + fake


@pytest.mark.parametrize(
    ("source", "target"), [("cpu", "vgpu:1"), ("vgpu:1", "cpu"), ("vgpu:0", "vgpu:1")]
)
def test_a_tensor_with_a_tangent_is_copied_to_another_device(source, target):
    x = torch.arange(3.0, device=source)
    with forward_ad.dual_level():
        y = torch.zeros(3, device=target)
        y.copy_(forward_ad.make_dual(x, 2 * x))
        tangent = forward_ad.unpack_dual(y).tangent
    assert y.tolist() == [0, 1, 2]
    # PyTorch leaves the tangent where it is, between the CPU and CUDA too.
    assert tangent.device == torch.device(source)
    assert tangent.tolist() == [0, 2, 4]
    assert torch.is_same_size(x, y)
    assert not torch.is_same_size(x, y[1:])
