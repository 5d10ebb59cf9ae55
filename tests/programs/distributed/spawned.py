"""Two ranks started by ``torch.multiprocessing.spawn``."""

import faulthandler
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from d2l_gpu import vgpu
from tests.helpers.waiting import PATIENCE


def train(rank: int, rendezvous: str) -> None:
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    vgpu.enable(2, memory="64MiB")
    gpu = torch.device("vgpu", rank)
    dist.init_process_group(
        "gloo", init_method=rendezvous, rank=rank, world_size=2, device_id=gpu
    )
    torch.manual_seed(0)
    net = DistributedDataParallel(torch.nn.Linear(2, 1).to(gpu), device_ids=[rank])
    net(torch.full((1, 2), float(rank), device=gpu)).sum().backward()
    assert net.module.weight.grad.device == gpu
    assert net.module.weight.grad.tolist() == [[0.5, 0.5]]
    dist.destroy_process_group()


if __name__ == "__main__":
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    with tempfile.TemporaryDirectory() as folder:
        rendezvous = (Path(folder) / "rendezvous").as_uri()
        torch.multiprocessing.spawn(train, (rendezvous,), nprocs=2)
    print("done")
