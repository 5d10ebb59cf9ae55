"""Networks that several lessons train."""

import torch
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    """A residual block: two 3×3 convolutions and a shortcut around them.

    It returns relu(f(X) + X), or relu(f(X) + conv1x1(X)) if the shape changes.

    Args:
        num_channels: channels of the output.
        use_1x1conv: whether a 1×1 convolution on the shortcut gives X the output's
            shape.
        strides: stride of the first convolution and of the 1×1 convolution.
        input_channels: channels of the input. Default: ``num_channels``; with a 1×1
            convolution, those of the first input, because the convolutions are lazy, as
            in the book.
    Raises:
        ValueError: the shape changes, but use_1x1conv is False.
    Source: He et al., Deep Residual Learning for Image Recognition, CVPR 2016
        (arXiv:1512.03385); d2l 1.0.3 ``Residual``, section 8.6.
    """

    def __init__(
        self,
        num_channels: int,
        use_1x1conv: bool = False,
        strides: int = 1,
        input_channels: int | None = None,
    ):
        super().__init__()
        if input_channels is None and not use_1x1conv:
            input_channels = num_channels
        if not use_1x1conv and (strides != 1 or input_channels != num_channels):
            raise ValueError(
                f"A residual block from {input_channels} to {num_channels} channels "
                f"with stride {strides} adds tensors of different shapes: pass "
                "use_1x1conv=True."
            )
        self.conv1 = _conv(input_channels, num_channels, 3, strides, padding=1)
        self.bn1 = nn.BatchNorm2d(num_channels)
        self.conv2 = nn.Conv2d(num_channels, num_channels, kernel_size=3, padding=1)
        self.bn2 = nn.BatchNorm2d(num_channels)
        self.conv3 = (
            _conv(input_channels, num_channels, 1, strides) if use_1x1conv else None
        )

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Map (n, input_channels, h, w) to (n, num_channels, ⌈h/strides⌉, …)."""
        Y = F.relu(self.bn1(self.conv1(X)))
        Y = self.bn2(self.conv2(Y))
        return F.relu(Y + (X if self.conv3 is None else self.conv3(X)))


def _conv(
    in_channels: int | None, channels: int, size: int, stride: int, padding: int = 0
) -> nn.Conv2d:
    if in_channels is None:
        return nn.LazyConv2d(channels, size, stride, padding)
    return nn.Conv2d(in_channels, channels, size, stride, padding)


def resnet18(num_classes: int, in_channels: int = 1) -> nn.Sequential:
    """Return ResNet-18 for small images, without downsampling before the blocks.

    It maps images (n, in_channels, h, w) to logits (n, num_classes). It starts with a
    3×3 convolution of stride 1 instead of a 7×7 one of stride 2 and max-pooling. As in
    the book, all convolutions have biases, and shortcuts have no batch normalization:
    11,175,818 parameters for 10 classes and one channel.

    Args:
        num_classes: number of logits.
        in_channels: channels of the images.
    Source: He et al. 2016 (arXiv:1512.03385); d2l 1.0.3 ``resnet18``, section 13.6.
    """
    blocks: list[nn.Module] = []
    channels = 64
    for num_channels in (64, 128, 256, 512):
        halved = num_channels != channels
        blocks += [
            Residual(num_channels, halved, 2 if halved else 1, channels),
            Residual(num_channels),
        ]
        channels = num_channels
    return nn.Sequential(
        nn.Conv2d(in_channels, 64, kernel_size=3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, num_classes),
    )
