"""Training with DistributedDataParallel on two ranks against one process.

    python benchmarks/ddp_scaling.py [--rounds 3] [--steps 10] [--images 128] [--quick]

Weak scaling: every rank has one thread and a batch of 128 images of its own, the one
process has one thread and 128 images, so 2 is what two free cores could give at best.
ResNet-18 on images of 1×16×16, SGD with momentum; gloo averages the gradients. Measured
on the host's tensors and on virtual GPUs, each against one process of its own kind; the
result is that of virtual GPUs, which the lessons use.

Only one configuration runs at a time, each in fresh processes, by turns. Timed are the
steps after warm-up, from a moment when all ranks are ready to one when all are done.
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
    # The ranks' share of the cores would be more than one thread on larger machines.
    os.environ["OMP_NUM_THREADS"] = "1"
    # glibc gives large blocks back to the system at every step, and the system fills
    # them with zeros anew, for which ranks wait for each other. Keep them, as other
    # allocators do; without it all configurations are slower, the ranks a little more.
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
        # Of each round, whose two figures were taken one right after the other
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
    """Return the throughput of all ranks together, trained in fresh processes."""
    from d2l_gpu import torch as d2l

    [result] = d2l.launch(__file__, ranks, ["--train", kind, images, steps])
    return result["images_per_second"]


def train(kind: str, images: int, steps: int) -> None:
    """Train on this rank; rank 0 reports the throughput of all."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from d2l_gpu import torch as d2l

    assert torch.get_num_threads() == 1
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = d2l.cpu()
    if kind == "virtual":
        with redirect_stdout(None):  # it says each time what it uses
            d2l.use_virtual_gpus(ranks, host="cpu")
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
