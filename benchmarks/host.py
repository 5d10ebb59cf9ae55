"""Measure how long this machine takes to issue work, as ``vgpu.measure_host`` does.

    python benchmarks/host.py [DEVICE]

Without a GPU it measures the CPU, where the work of a GPU's driver is missing. The
result is what ``nn.DataParallel`` takes to copy a module, as a multiple of an operator:
the clock's ``REPLICA`` in ``d2l_gpu/vgpu/sim/catalogue.py`` is the median of what this
printed, and no run that the clock is compared with had a part in it.
"""

import argparse
from statistics import median

import torch
from common import hardware, print_result

from d2l_gpu import vgpu

ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    has_gpu = torch.accelerator.is_available()
    parser.add_argument("device", nargs="?", default=None if has_gpu else "cpu")
    torch.set_num_threads(1)
    device = parser.parse_args().device
    hosts = [vgpu.measure_host(device) for _ in range(ROUNDS)]
    print(f"{hardware()}\n{hosts[0].source}")
    for name in ("operator", "layer", "replica"):
        seconds = sorted(getattr(host, name) for host in hosts)
        low, middle, high = (
            x * 1e6 for x in (seconds[0], median(seconds), seconds[-1])
        )
        print(f"{name:<9}{middle:8.2f} µs ({low:.2f} to {high:.2f})")
    ratio = median(host.replica / host.operator for host in hosts)
    print_result("host", round(ratio, 1), "times an operator", "an operator")


if __name__ == "__main__":
    main()
