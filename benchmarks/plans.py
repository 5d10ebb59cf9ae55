"""Compare simulated plans with PyTorch's own code, and with what others measured.

    python benchmarks/plans.py [--quick]

Plans come from recordings (``sim/plans.py``). The same plans run as programs on
``vgpu.cluster``, with the same clock: what differs is the plans' mistake. The result is
the largest relative error of a step's time. Then come torchtitan's published runs, from
``data/published_training.csv``. ``--quick`` takes few layers on 8 GPUs.
"""

import argparse
import csv
import sys
import warnings
from pathlib import Path
from time import perf_counter

from common import hardware, print_result

from d2l_gpu import vgpu
from d2l_gpu.vgpu.sim.plans import Machine, Plan, model, simulate

sys.path.append(str(Path(__file__).resolve().parent.parent))
from tools.plan_training import program

DATA = Path(__file__).parent / "data" / "published_training.csv"
SMALL, LARGE = "Llama 3.1 8B", "Llama 3.1 70B"
# The model, its layers, the plan, and GPUs of a node.
PLANS = (
    (SMALL, 32, Plan(shards=8, sequences=2, checkpoint="selective")),
    (SMALL, 32, Plan(tensor=8, shards=8, sequences=12, checkpoint="selective")),
    (
        LARGE,
        80,
        Plan(4, 8, 32, microbatches=8, checkpoint="full", zero=1),
    ),
)
QUICK = (
    (SMALL, 2, Plan(shards=8)),
    (SMALL, 4, Plan(pipeline=2, tensor=2, shards=2, microbatches=2, zero=1)),
)
# Rows of torchtitan's, by their plan.
PUBLISHED = {
    "llama8b-h100-8": PLANS[0][2],
    "llama8b-h100-8-compile": PLANS[0][2],
    "llama8b-h100-64-fsdp8-tp8": PLANS[1][2],
}


def compare(name: str, layers: int, plan: Plan) -> float:
    """Print how a plan and its program differ, and return the error of the time."""
    network = model(name).with_layers(layers)
    nodes, memory = plan.gpus // 8, "1000GiB"
    start = perf_counter()
    ours = simulate(network, plan, Machine(nodes, 8, network="NDR", memory=memory))
    between = perf_counter()
    cluster = vgpu.cluster(nodes, 8, "H100", "NDR", memory=memory)
    run = cluster.run(program(network.shape, plan))
    end = perf_counter()
    error = ours.seconds / run.seconds - 1
    sizes = [
        sum(found.values()) / each.allocated - 1
        for found, each in zip(ours.memory, run.ranks.values(), strict=True)
    ]
    most = max(sizes, key=abs)
    print(
        f"{name}, {layers} layers, {plan.gpus:,} × H100, {plan}\n"
        f"  a step takes {ours.seconds:.4g} s, the program's {run.seconds:.4g} s "
        f"({error:+.1%}); memory {most:+.1%} at most\n"
        f"  simulated in {between - start:.2f} s, the program in {end - between:.1f} s"
    )
    return error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few layers, 8 GPUs")
    quick = parser.parse_args().quick
    warnings.filterwarnings("ignore", "In a simulated cluster")
    print(f"{hardware()}; no GPU is used\n")
    errors = [compare(*each) for each in (QUICK if quick else PLANS)]
    print("\ntokens/s per GPU of torchtitan on H100s with 96 GB, published, simulated")
    with DATA.open() as file:
        lines = list(csv.reader(line for line in file if not line.startswith("#")))
    for line in lines:
        plan = PUBLISHED.get(line[0])
        if plan is not None:
            machine = Machine(plan.gpus // 8, 8, "H100 96GB", "NDR", memory="1000GiB")
            outcome = simulate(SMALL, plan, machine)
            rate, published = outcome.tokens_per_second / plan.gpus, float(line[10])
            print(f"{line[0]:<27}{published:7,.0f}{rate:7,.0f}", end="")
            print(f"{rate / published - 1:+8.1%}  {line[13]}".rstrip())
    print_result(
        *("plans", round(max(map(abs, errors)), 4), "relative error"),
        "the same plans as programs",
    )


if __name__ == "__main__":
    main()
