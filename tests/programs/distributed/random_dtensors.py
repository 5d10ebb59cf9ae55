"""Random DTensors on two ranks: shards differ, replicas agree, seeds repeat both."""

import faulthandler
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, rand, randn

from d2l_gpu import vgpu
from tests.helpers.waiting import PATIENCE

faulthandler.dump_traceback_later(PATIENCE, exit=True)
rank = int(os.environ["LOCAL_RANK"])
vgpu.enable(2)
gpu = torch.device("vgpu", rank)
torch.vgpu.set_device(gpu)
dist.init_process_group()
mesh = init_device_mesh("vgpu", (2,))
SHAPES = ((4, 4), (1, 6), (3, 2), (2, 5, 3))


def same_on_both(tensor: torch.Tensor) -> None:
    others = [torch.empty_like(tensor) for _ in range(2)]
    dist.all_gather(others, tensor)
    assert torch.equal(*others)


def same_state() -> None:
    """See that the ranks go on with the same random numbers."""
    same_on_both(torch.get_rng_state().to(gpu))


for shape in SHAPES:
    for make in rand, randn:
        for placement in Shard(0), Shard(1), Replicate():
            torch.manual_seed(5)
            first = make(shape, device_mesh=mesh, placements=[placement])
            second = make(shape, device_mesh=mesh, placements=[placement])
            same_state()
            torch.manual_seed(5)
            again = make(shape, device_mesh=mesh, placements=[placement])
            assert again.to_local().device == gpu
            assert torch.equal(again.to_local(), first.to_local())
            assert not torch.equal(first.full_tensor(), second.full_tensor())
            whole = first.full_tensor()
            same_on_both(whole)
            assert whole.unique().numel() == whole.numel()  # so shards differ
            if placement.is_replicate():
                torch.manual_seed(5)
                ordinary = getattr(torch, make.__name__)(shape, device=gpu)
                assert torch.equal(whole, ordinary)

# A generator of the program's own moves on, and the device's doesn't.
X = distribute_tensor(torch.zeros(64, 3), mesh, [Shard(0)])
generator = torch.Generator(gpu).manual_seed(1)
before = torch.get_rng_state()
first, second = (X.clone().normal_(generator=generator) for _ in range(2))
assert torch.equal(torch.get_rng_state(), before)
generator.manual_seed(1)
again = X.clone().normal_(generator=generator)
assert torch.equal(again.to_local(), first.to_local())
assert not torch.equal(first.full_tensor(), second.full_tensor())
same_on_both(generator.get_state().to(gpu))

ones = distribute_tensor(torch.ones(64, 64), mesh, [Shard(0)])
kept = torch.nn.functional.dropout(ones, 0.5).full_tensor()
assert 0.4 < (kept > 0).float().mean().item() < 0.6
assert not torch.equal(kept[:32], kept[32:])
same_state()

if rank == 0:
    print("done")
dist.destroy_process_group()
faulthandler.cancel_dump_traceback_later()
