import warnings

import torch
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention

from d2l_gpu import vgpu

warnings.simplefilter("ignore")  # it isn't fused, neither here nor on the CPU
vgpu.enable(2, as_cuda=True)
here = [x.requires_grad_() for x in torch.randn(3, 1, 2, 32, 8)]
there = [x.detach().to("cuda:1").requires_grad_() for x in here]
slope = torch.tensor(0.25, device="cuda:1")
output = flex_attention(*there, score_mod=lambda s, b, h, i, j: s + slope * (j - i))
places = torch.arange(32)
bias = 0.25 * (places[None, :] - places[:, None])
expected = scaled_dot_product_attention(*here, attn_mask=bias)
output.square().sum().backward()
expected.square().sum().backward()
assert output.device == torch.device("cuda:1")
torch.testing.assert_close(output.cpu(), expected, rtol=1e-3, atol=1e-4)
for mine, other in zip(there, here, strict=True):
    torch.testing.assert_close(mine.grad.cpu(), other.grad, rtol=1e-2, atol=1e-3)
