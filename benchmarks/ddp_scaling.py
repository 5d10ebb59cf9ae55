"""Compare DistributedDataParallel on two ranks with a single process.

    python benchmarks/ddp_scaling.py [--rounds 3] [--steps 10] [--images 128] [--quick]

This is weak scaling: each rank has one thread and its own batch of 128 images, and so
has the single process. So the ideal speedup, with two free cores, is 2. The model is
ResNet-18 on images of 1×16×16, trained by SGD with momentum; gloo averages the
gradients. We measure CPU tensors and virtual GPUs, each against a single process of the
same kind. The result is that of virtual GPUs, which the lessons use.

Configurations run one at a time, in turns, each in fresh processes. We time the steps
after the warm-up, between two barriers.
"""

import argparse
import os
import sys
from contextlib import redirect_stdout
from functools import partial
from statistics import median
from time import perf_counter

from common import hardware, in_turns, print_result

RANKS = 2
WARM_UP = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="timed, of each rank")
    parser.add_argument("--images", type=int, default=128, help="of a step and rank")
    parser.add_argument("--quick", action="store_true", help="a try, not a result")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.steps, options.images = 1, 1, 2
    # On larger machines, the ranks' share of the cores would be more than one thread.
    os.environ["OMP_NUM_THREADS"] = "1"
    # By default, glibc returns large blocks to the system at every step. The system
    # then has to zero them again, and ranks wait for each other while it does. Keep
    # the blocks, as other allocators do. Otherwise all configurations are slower, the
    # ranks a little more so.
    os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", str(2**30))
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(2**30))
    print(hardware())
    print(
        f"ResNet-18, 1×16×16, {options.images} images per rank, 1 thread per rank, "
        f"{options.steps} steps after {WARM_UP}; median of {options.rounds} rounds "
        "(lowest to highest)"
    )
    kinds = ["virtual"] if options.quick else ["host", "virtual"]
    measures = [
        partial(images_per_second, kind, ranks, options.images, options.steps)
        for kind in kinds
        for ranks in (1, RANKS)
    ]
    figures = in_turns(measures, options.rounds, cold=options.quick)
    for i, kind in enumerate(kinds):
        one, several = figures[2 * i : 2 * i + 2]
        # Ratios within a round, whose two figures were taken right after each other.
        ratios = [b / a for a, b in zip(one, several, strict=True)]
        ratio = median(ratios)
        print(
            f"{kind:7}  1 process {median(one):6.1f} images/s  "
            f"{RANKS} ranks {median(several):6.1f} images/s  "
            f"{ratio:.2f} times ({min(ratios):.2f} to {max(ratios):.2f})"
        )
    baseline = f"1 process with 1 thread, virtual GPU: {median(one):.1f} images/s"
    print_result("ddp_scaling", round(ratio, 3), "times the baseline", baseline)


def images_per_second(kind: str, ranks: int, images: int, steps: int) -> float:
    """Train in fresh processes; return the total throughput of all ranks."""
    from d2l_gpu import torch as d2l

    [result] = d2l.launch(__file__, ranks, ["--train", kind, images, steps])
    return result["images_per_second"]


def train(kind: str, images: int, steps: int) -> None:
    """Train on this rank; rank 0 reports the total throughput of all ranks."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from d2l_gpu import torch as d2l

    assert torch.get_num_threads() == 1
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = d2l.cpu()
    if kind == "virtual":
        with redirect_stdout(None):  # it prints which GPUs it uses
            d2l.use_virtual_gpus(ranks, backing="cpu")
        device = d2l.gpu(rank)
    torch.manual_seed(rank)
    X = torch.randn(images, 1, 16, 16).to(device)
    y = torch.randint(10, (images,)).to(device)
    net = d2l.resnet18(10).to(device)
    if ranks > 1:
        dist.init_process_group("gloo")
        net = DistributedDataParallel(
            net, gradient_as_bucket_view=True, static_graph=True
        )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            if ranks > 1:
                dist.barrier()
            began = perf_counter()
        optimizer.zero_grad()
        loss(net(X), y).backward()
        optimizer.step()
    if ranks > 1:
        dist.barrier()
    seconds = perf_counter() - began
    d2l.report(images_per_second=ranks * images * steps / seconds)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train(sys.argv[2], *map(int, sys.argv[3:]))
    else:
        main()
