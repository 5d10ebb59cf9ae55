"""Triton's interpreter, in which kernels run without a compiler."""

import torch
import triton
import triton.language as tl

from tests.ecosystem.support import close, main

NEEDS = ("triton",)
SHORT = ("vectors_are_added",)
ENVIRONMENT = {"TRITON_INTERPRET": "1"}


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def check_vectors_are_added():
    """A kernel adds tensors of a GPU, of a length that no block divides."""
    torch.manual_seed(0)
    for device in "cuda:0", "cuda:1":
        x, y = torch.rand(1000, device=device), torch.rand(1000, device=device)
        out = torch.empty_like(x)
        grid = lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)  # noqa: E731
        add_kernel[grid](x, y, out, 1000, BLOCK=128)
        close(out, x.cpu() + y.cpu(), device)


@triton.jit
def softmax_kernel(out_ptr, in_ptr, in_stride, out_stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    x = tl.load(in_ptr + row * in_stride + columns, mask=mask, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * out_stride + columns, x / tl.sum(x, axis=0), mask=mask)


def check_rows_are_normalized():
    """A kernel computes the softmax of rows, also of a view with other strides."""
    torch.manual_seed(0)
    whole = torch.randn(5, 40, device="cuda")
    for x in whole, whole[:, 3:33], whole[1:4]:
        out = torch.zeros(x.shape, device="cuda")
        block = triton.next_power_of_2(x.shape[1])
        softmax_kernel[(x.shape[0],)](
            out, x, x.stride(0), out.stride(0), x.shape[1], BLOCK=block
        )
        close(out, x.cpu().softmax(1), "cuda:0")


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        inner = k + tl.arange(0, BLOCK)
        a = tl.load(
            a_ptr + rows[:, None] * K + inner[None, :],
            mask=(rows[:, None] < M) & (inner[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + inner[:, None] * N + columns[None, :],
            mask=(inner[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        total += tl.dot(a, b, input_precision="ieee")
    tl.store(
        c_ptr + rows[:, None] * N + columns[None, :],
        total,
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


class Product(torch.autograd.Function):
    """A matrix product by the kernel, with gradients by the kernel."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return multiplied(a, b)

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return multiplied(grad, b.T), multiplied(a.T, grad)


def multiplied(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a, b = a.contiguous(), b.contiguous()
    (M, K), N = a.shape, b.shape[1]
    c = a.new_empty(M, N)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    matmul_kernel[grid](a, b, c, M, N, K, BLOCK=16)
    return c


def check_matrices_are_multiplied():
    """A kernel multiplies matrices in an autograd function, forward and backward."""
    torch.manual_seed(0)
    A, B = torch.randn(20, 33), torch.randn(33, 18)
    a, b = A.cuda().requires_grad_(), B.cuda().requires_grad_()
    product = Product.apply(a, b)
    close(product, A @ B, "cuda:0")
    product.square().sum().backward()
    close(a.grad, 2 * (A @ B) @ B.T, "cuda:0", rtol=1e-3, atol=1e-3)
    close(b.grad, 2 * A.T @ (A @ B), "cuda:0", rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    main(globals())
