"""What CUDA computes in no certain order, with ``use_deterministic_algorithms``."""

import warnings

import pytest
import torch
from torch.nn import functional as F

pytestmark = pytest.mark.virtual_gpus(2)

# Functions whose gradient isn't deterministic on CUDA, and the dimensions they take.
GRADIENTS = {
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 2), 2),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, 2), 3),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, 2), 2),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), 3),
    "reflection_pad1d": (lambda x: F.pad(x, (1, 1), mode="reflect"), 1),
    "reflection_pad2d": (lambda x: F.pad(x, (1,) * 4, mode="reflect"), 2),
    "upsample_linear1d": (lambda x: F.interpolate(x, 9, mode="linear"), 1),
    "upsample_bicubic2d": (lambda x: F.interpolate(x, 9, mode="bicubic"), 2),
}


@pytest.fixture(autouse=True)
def afterwards():
    yield
    torch.use_deterministic_algorithms(False)


def gradient(name: str, device: str) -> torch.Tensor:
    function, dimensions = GRADIENTS[name]
    torch.manual_seed(0)
    x = torch.randn(2, 3, *[6] * dimensions).to(device).requires_grad_()
    function(x).square().sum().backward()
    return x.grad.cpu()


@pytest.mark.parametrize("name", GRADIENTS)
def test_such_a_gradient_raises_as_on_cuda_and_only_if_asked(name):
    expected = gradient(name, "cpu")
    for device in "vgpu:0", "vgpu:1":
        assert torch.equal(gradient(name, device), expected)
        torch.use_deterministic_algorithms(True)
        assert torch.equal(gradient(name, "cpu"), expected)
        with pytest.raises(RuntimeError, match=f"{name}_backward.*_cuda does not have"):
            gradient(name, device)
        torch.use_deterministic_algorithms(True, warn_only=True)
        with pytest.warns(UserWarning, match=f"{name}_backward.* does not have"):
            assert torch.equal(gradient(name, device), expected)
        torch.use_deterministic_algorithms(False)


def test_forward_passes_and_other_operators_are_not_touched():
    torch.use_deterministic_algorithms(True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for function, dimensions in GRADIENTS.values():
            x = torch.randn(2, 3, *[6] * dimensions, device="vgpu:1")
            function(x)
        layer = torch.nn.Linear(3, 3, device="vgpu:1")
        layer(torch.ones(2, 3, device="vgpu:1")).sum().backward()
    with pytest.raises(RuntimeError, match="_histc_cuda does not have"):
        torch.histc(torch.ones(3, device="vgpu:1"))
