"""einops: rearranging tensors by names of their axes."""

import copy

import torch
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import EinMix, Rearrange
from torch import nn

from tests.ecosystem.support import close, main, same_gradients

NEEDS = ("einops",)
SHORT = ("tensors_are_rearranged",)


def check_tensors_are_rearranged():
    """Everything that einops does to tensors and in layers works on a GPU."""
    torch.manual_seed(0)
    X, W = torch.randn(2, 4, 4, 3), torch.randn(3, 5)
    for function in (
        lambda x, w: rearrange(x, "b (h p) (w q) c -> b (h w) (p q c)", p=2, q=2),
        lambda x, w: reduce(x, "b h w c -> b c", "max"),
        lambda x, w: reduce(x, "b (h 2) (w 2) c -> b h w c", "mean"),
        lambda x, w: repeat(x, "b h w c -> (b n) h w c", n=2),
        lambda x, w: einsum(x, w, "b h w c, c d -> b d h w"),
        lambda x, w: rearrange([x, x + 1], "n b h w c -> b n (h w c)"),
        lambda x, w: unpack(*pack([x, w], "*"), "*")[1],
    ):
        close(function(X.to("cuda:1"), W.to("cuda:1")), function(X, W), "cuda:1")
    net = nn.Sequential(
        Rearrange("b h w c -> b (h w) c"),
        EinMix("b n c -> b n d", weight_shape="c d", bias_shape="d", c=3, d=5),
    )
    net(X).square().sum().backward()
    there = copy.deepcopy(net).to("cuda:1")
    there.zero_grad()
    close(there(X.to("cuda:1")), net(X), "cuda:1")
    there(X.to("cuda:1")).square().sum().backward()
    same_gradients(there, net, "cuda:1")


if __name__ == "__main__":
    main(globals())
