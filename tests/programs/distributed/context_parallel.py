"""Attention over a sequence that is split over two ranks, and its gradients."""

import faulthandler
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F  # context_parallel changes it
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import (
    context_parallel_unshard,
    set_rotate_method,
)
from torch.nn.attention import SDPBackend, sdpa_kernel

from d2l_gpu import vgpu
from tests.helpers.waiting import PATIENCE

faulthandler.dump_traceback_later(PATIENCE, exit=True)
rank = int(os.environ["LOCAL_RANK"])
vgpu.enable(2)
gpu = torch.device("vgpu", rank)
torch.vgpu.set_device(gpu)
dist.init_process_group()
mesh = init_device_mesh("vgpu", (2,))

torch.manual_seed(0)
whole = [torch.randn(2, 3, 128, 16, requires_grad=True) for _ in range(3)]
expected = F.scaled_dot_product_attention(*whole, is_causal=True)
expected.square().sum().backward()

for backend, dtype, rtol, atol in (
    (SDPBackend.FLASH_ATTENTION, torch.bfloat16, 2e-2, 2e-1),
    (SDPBackend.EFFICIENT_ATTENTION, torch.float32, 1e-4, 1e-4),
):
    for method in "allgather", "alltoall":
        set_rotate_method(method)
        mine = [x.detach().to(gpu, dtype) for x in whole]
        with (
            sdpa_kernel(backend),
            context_parallel(mesh, buffers=mine, buffer_seq_dims=[2, 2, 2]),
        ):
            leaves = [x.detach().clone().requires_grad_() for x in mine]
            assert leaves[0].shape == (2, 3, 64, 16)
            output = F.scaled_dot_product_attention(*leaves, is_causal=True)
            output.square().sum().backward()
            parts = [output.detach(), *(x.grad for x in leaves)]
            parts = context_parallel_unshard(mesh, parts, [2] * 4)
        for part, other in zip(
            parts, [expected.detach(), *(x.grad for x in whole)], strict=True
        ):
            assert part.device == gpu and part.dtype == dtype
            torch.testing.assert_close(part.float().cpu(), other, rtol=rtol, atol=atol)

if rank == 0:
    print("done")
dist.destroy_process_group()
faulthandler.cancel_dump_traceback_later()
