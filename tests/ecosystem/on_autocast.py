"""Automatic mixed precision: torch.autocast and GradScaler."""

import torch
from torch import nn
from torch.amp import GradScaler, custom_bwd, custom_fwd
from torch.nn import functional as F

from tests.ecosystem.support import batch, close, main, mlp, raises

NEEDS = ("torch",)


def check_operators_choose_their_types():
    """Inside autocast, operators compute in the types of CUDA's lists."""
    torch.manual_seed(0)
    x, w = torch.randn(4, 4, device="cuda"), torch.randn(4, 4, device="cuda")
    images = torch.randn(1, 2, 5, 5, device="cuda")
    kernels = torch.randn(3, 2, 3, 3, device="cuda")
    norm = nn.LayerNorm(4).to("cuda")
    for dtype in torch.float16, torch.bfloat16:
        half = x.to(dtype)
        with torch.autocast("cuda", dtype=dtype):
            assert torch.is_autocast_enabled("cuda")
            assert torch.get_autocast_dtype("cuda") == dtype
            for result in (
                x @ w,
                F.linear(x, w),
                torch.bmm(x[None], w[None]),
                torch.einsum("ij,jk->ik", x, w),
                F.conv2d(images, kernels),
                F.scaled_dot_product_attention(x[None], w[None], x[None]),
            ):
                assert result.dtype == dtype, result.dtype
            for result in (
                half.softmax(1),
                half.log_softmax(1),
                half.exp(),
                half.abs().log(),
                half.pow(2),
                half.sum(),
                half.norm(),
                half.cumsum(0),
                norm(half),
                F.mse_loss(half, half),
                F.cross_entropy(half, torch.tensor([0, 1, 2, 3], device="cuda")),
                F.cosine_similarity(half, half),
            ):
                assert result.dtype == torch.float32, result.dtype
            assert (half + x).dtype == torch.float32
            assert torch.cat([half, x]).dtype == torch.float32
            assert half.relu().dtype == dtype
            assert (half * half).dtype == dtype
            with torch.autocast("cuda", enabled=False):
                assert (x @ w).dtype == torch.float32
            scores = torch.rand(4, 1, device="cuda")
            raises(
                RuntimeError,
                lambda scores=scores: F.binary_cross_entropy(scores, scores),
                "unsafe to autocast",
            )
        close(x.cpu() @ w.cpu(), (x @ w).cpu())
    assert not torch.is_autocast_enabled("cuda")


def check_scaled_gradients():
    """GradScaler skips steps with infinite gradients, and adapts the scale."""
    X, Y = batch()
    model = mlp().to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = GradScaler("cuda", init_scale=1024.0, growth_interval=2)
    before = [p.detach().clone() for p in model.parameters()]
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.mse_loss(model(X.cuda()), Y.cuda())
    scaler.scale(loss * torch.inf).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 512.0
    for a, b in zip(model.parameters(), before, strict=True):
        assert torch.equal(a, b)
    expected = mlp()
    other = torch.optim.SGD(expected.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            output = model(X.cuda())
            loss = F.mse_loss(output, Y.cuda())
        assert output.dtype == torch.float16 and loss.dtype == torch.float32
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        other.zero_grad()
        F.mse_loss(expected(X), Y).backward()
        close(norm, nn.utils.clip_grad_norm_(expected.parameters(), 0.5), rtol=2e-2)
        other.step()
    for a, b in zip(model.parameters(), expected.parameters(), strict=True):
        close(a, b, "cuda:0", rtol=1e-2, atol=1e-3)
    assert scaler.get_scale() == 1024.0
    again = GradScaler("cuda")
    again.load_state_dict(scaler.state_dict())
    assert again.get_scale() == 1024.0


def check_functions_with_a_type_of_their_own():
    """custom_fwd casts inputs to a type, and backward runs in the same state."""
    seen = []

    class Squared(torch.autograd.Function):
        @staticmethod
        @custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx, x):
            ctx.save_for_backward(x)
            seen.append((x.dtype, torch.is_autocast_enabled("cuda")))
            return x @ x

        @staticmethod
        @custom_bwd(device_type="cuda")
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            seen.append((grad.dtype, torch.is_autocast_enabled("cuda")))
            return grad @ x.t() + x.t() @ grad

    x = torch.eye(3, device="cuda:1").mul_(1 + 2**-12).requires_grad_()
    with torch.autocast("cuda", dtype=torch.float16):
        half = x.half()
        y = Squared.apply(half)
    assert y.dtype == torch.float32
    y.sum().backward()
    assert seen == [(torch.float32, False)] * 2, seen
    close(y, half.float().cpu() @ half.float().cpu(), "cuda:1")
    assert x.grad.dtype == torch.float32 and x.grad.device == torch.device("cuda:1")


if __name__ == "__main__":
    main(globals())
