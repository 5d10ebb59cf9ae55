"""A race of machines: one product of two matrices, on each of them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch

from d2l_gpu.common.arguments import check_integer
from d2l_gpu.common.processor import cpu_model
from d2l_gpu.vgpu import MODELS, count_text, product_seconds, time_text
from d2l_gpu.vgpu.sim.catalogue import closest

from ..gpus.inventory import device_model
from ..gpus.torch_gpus import cpu, machine_gpus
from .timer import Timer

# A CPU of 20 cores, and data-center GPUs that went on sale between 2017 and 2025.
RUNNERS = ("Xeon E5-2698 v4", "T4", "V100", "A100", "H100", "B200")

# Rows of the product that shows how fast a machine is, before the one that counts.
TRIAL = 1024

# Small products are repeated this often, or for so many seconds. It's the fastest run
# that counts: on a busy machine, others are interrupted and take much longer.
RUNS, LEAST = 1000, 1.0

# Up to this many rows, the CPU uses one thread. PyTorch would use all, but with so
# little work they'd spend more time waiting for each other than computing, and
# thousands of times as much if the machine has other things to do.
ALONE = 128


@dataclass(frozen=True)
class Runner:
    """One machine, and the time that it took.

    Attributes:
        name: ``this CPU``, ``this GPU``, or the model that was simulated.
        seconds: for the whole product.
        kind: the kind of work that pictures draw it as, ``host`` or ``compute``.
        measured: what was measured, and how much of it; empty if simulated.
    """

    name: str
    seconds: float
    kind: str
    measured: str = ""


class Race:
    """What ``race`` returns; it prints as a table.

    Attributes:
        n: number of rows and columns of both matrices.
        runners: the machines, those that were measured first.
    """

    def __init__(self, n: int, runners: Sequence[Runner]):
        self.n, self.runners = n, list(runners)

    @property
    def operations(self) -> int:
        """Floating-point operations: n multiplications and n additions per result."""
        return 2 * self.n**3

    @property
    def seconds(self) -> dict[str, float]:
        """The time of each machine, by its name."""
        return {each.name: each.seconds for each in self.runners}

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of work that pictures draw each machine as, by its name."""
        return {each.name: each.kind for each in self.runners}

    def rate(self, name: str) -> float:
        """Return a machine's floating-point operations per second."""
        return self.operations / self.seconds[name]

    def __repr__(self) -> str:
        # The columns have fixed widths, because the simulated lines must be the same on
        # every machine.
        lines = [f"{'':<15}  {'time':>7}  {'speed':>12}"]
        for each in self.runners:
            how = f"measured ({each.measured})" if each.measured else "simulated"
            speed = count_text(self.operations / each.seconds, "FLOP/s")
            time = time_text(each.seconds)
            lines.append(f"{each.name:<15}  {time:>7}  {speed:>12}  {how}")
        return "\n".join(lines)


def race(
    n: int = 4096, models: Sequence[str] = RUNNERS, *, budget: float = 4.0
) -> Race:
    """Multiply two n × n matrices on this machine, and on simulated ones.

    All compute in fp32, without TF32. The CPU is measured, and so is the machine's
    first real GPU, if it has one and ``D2L_GPU_VIRTUAL`` doesn't force virtual ones.
    What counts is the time until the product is there, in the fastest of three runs or
    more, as far as the budget allows. A device that would take longer than the budget
    computes only some of the rows, half of them or a quarter and so on, and its time is
    multiplied accordingly. For matrices of up to 128 rows, the CPU uses one thread.

    Args:
        n: number of rows and columns.
        models: names of the processors to simulate, in ``d2l_gpu.vgpu.MODELS``.
        budget: seconds for which to measure one device, about.
    Returns:
        One time per machine.
    Raises:
        TypeError, ValueError: an argument or ``D2L_GPU_VIRTUAL`` is invalid.
    """
    check_integer("The number of rows", n, least=1, example=4096)
    if isinstance(budget, bool) or not isinstance(budget, int | float):
        raise TypeError(f"The budget must be a number of seconds, but got {budget!r}.")
    if not budget > 0:
        raise ValueError(f"The budget must be positive, but got {budget!r} seconds.")
    devices = [cpu(), *machine_gpus()[:1]]
    simulated = [_simulated(n, name) for name in models]
    with _in_full_fp32(), _one_thread() if n <= ALONE else nullcontext():
        measured = [_measured(n, device, budget) for device in devices]
    return Race(n, measured + simulated)


@contextmanager
def _in_full_fp32() -> Iterator[None]:
    """Compute products in full fp32, whatever the program has set."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let PyTorch use one thread on the CPU."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _simulated(n: int, name: str) -> Runner:
    model = MODELS.get(name)
    if model is None:
        raise ValueError(
            f"There is no processor {name!r} in the catalogue"
            f"{closest(str(name), MODELS)}: choose from {', '.join(MODELS)}."
        )
    kind = "compute" if model.asynchronous else "host"
    return Runner(name, product_seconds(model, n, n, n), kind)


def _measured(n: int, device: torch.device, budget: float) -> Runner:
    # A generator of our own, so that the program's random numbers stay as they were.
    numbers = torch.Generator().manual_seed(0)
    X, Y = (torch.randn(n, n, generator=numbers).to(device) for _ in range(2))
    timer = Timer(device)

    def timed(A: torch.Tensor, B: torch.Tensor) -> float:
        timer.start()
        _ = A @ B
        return timer.stop()

    m = min(n, TRIAL)
    small = X[:m, :m].contiguous(), Y[:m, :m].contiguous()
    timed(*small)  # loads libraries and starts threads
    expected = min(timed(*small) for _ in range(3)) * (n / m) ** 3
    rows = n
    while rows > 1 and expected * rows / n > budget:
        rows //= 2
    part = X[:rows]
    times = [timed(part, Y)]
    spent = times[0]
    while spent + times[-1] <= budget and (
        len(times) < 3 or (len(times) < RUNS and spent < LEAST)
    ):
        times.append(timed(part, Y))
        spent += times[-1]
    if device.type == "cpu":
        name, kind, what = "this CPU", "host", cpu_model()
        if n <= ALONE:
            what = f"{what}; 1 thread"
    else:
        name, kind, what = "this GPU", "compute", device_model(device)
    if rows < n:
        what = f"{what}; {rows:,} of {n:,} rows"
    return Runner(name, min(times) * n / rows, kind, what)
