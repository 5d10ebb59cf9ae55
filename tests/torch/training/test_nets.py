"""Networks: their shapes, their number of parameters, and that they learn."""

import pytest
import torch
from torch import nn

from d2l_gpu import torch as d2l


def num_parameters(net):
    return sum(parameter.numel() for parameter in net.parameters())


@pytest.mark.parametrize(
    ("num_classes", "in_channels", "count"),
    [(10, 1, 11_175_818), (100, 3, 11_175_818 + 90 * 513 + 2 * 64 * 9)],
)
def test_resnet18_has_the_books_number_of_parameters(num_classes, in_channels, count):
    assert num_parameters(d2l.resnet18(num_classes, in_channels)) == count


@pytest.mark.parametrize("size", [28, 96])
def test_resnet18_makes_logits_of_images_of_any_size(size):
    net = d2l.resnet18(10)
    assert net(torch.randn(2, 1, size, size)).shape == (2, 10)


def test_resnet18_halves_images_three_times():
    X, shapes = torch.randn(1, 1, 28, 28), []
    for layer in d2l.resnet18(10):
        X = layer(X)
        if isinstance(layer, d2l.Residual):
            shapes.append(tuple(X.shape[1:]))
    halves = [(64, 28, 28), (128, 14, 14), (256, 7, 7), (512, 4, 4)]
    assert shapes == [shape for shape in halves for _ in range(2)]


def test_a_residual_block_adds_its_input():
    block = d2l.Residual(3)
    nn.init.zeros_(block.bn2.weight)
    X = torch.randn(4, 3, 6, 6)
    assert torch.equal(block(X), X.relu())


def test_a_1x1_convolution_carries_the_input_to_another_shape():
    block = d2l.Residual(6, use_1x1conv=True, strides=2, input_channels=3)
    nn.init.zeros_(block.bn2.weight)
    X = torch.randn(4, 3, 6, 6)
    assert torch.equal(block(X), block.conv3(X).relu())
    assert block(X).shape == (4, 6, 3, 3)


@pytest.mark.virtual_gpus(1, memory="1GiB")
def test_the_books_resnet_runs_as_it_is_written():
    """Its blocks are told no channels of their inputs (d2l 1.0.3, section 8.6.3)."""

    def block(num_residuals, num_channels, first_block=False):
        blk = []
        for i in range(num_residuals):
            if i == 0 and not first_block:
                blk.append(d2l.Residual(num_channels, use_1x1conv=True, strides=2))
            else:
                blk.append(d2l.Residual(num_channels))
        return nn.Sequential(*blk)

    net = nn.Sequential(
        nn.LazyConv2d(64, kernel_size=3, padding=1),
        nn.LazyBatchNorm2d(),
        nn.ReLU(),
        block(2, 64, first_block=True),
        *(block(2, channels) for channels in (128, 256, 512)),
        nn.AdaptiveAvgPool2d((1, 1)),
        nn.Flatten(),
        nn.LazyLinear(10),
    ).to("vgpu:0")
    X = torch.randn(2, 1, 28, 28)
    assert net(X.to("vgpu:0")).shape == (2, 10)
    assert num_parameters(net) == num_parameters(d2l.resnet18(10))
    ours = d2l.resnet18(10)
    values = net.state_dict().values()
    ours.load_state_dict(dict(zip(ours.state_dict(), values, strict=True)))
    assert torch.allclose(ours.eval()(X), net.cpu().eval()(X), atol=1e-5)


@pytest.mark.parametrize("change", [{"strides": 2}, {"input_channels": 1}])
def test_another_shape_without_a_1x1_convolution_is_refused(change):
    with pytest.raises(ValueError, match=r"adds tensors of different shapes.*1x1conv"):
        d2l.Residual(3, **change)


def test_a_few_steps_reduce_the_loss():
    torch.manual_seed(0)
    net, loss = d2l.resnet18(10), nn.CrossEntropyLoss()
    X, y = torch.randn(8, 1, 12, 12), torch.arange(8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        current = loss(net(X), y)
        current.backward()
        optimizer.step()
        losses.append(current.item())
    assert losses[-1] < losses[0] / 2
    assert all(p.grad is not None for p in net.parameters())
