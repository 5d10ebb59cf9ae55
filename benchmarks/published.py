"""Compare the simulated clock with training runs that others have timed and published.

    python benchmarks/published.py                all rows
    python benchmarks/published.py bert-a100      rows whose names begin like this
    python benchmarks/published.py --tables       write recorded errors into the pages

``data/published_training.csv`` has the runs, with their sources. Each is simulated with
the network of ``networks.py``, on shapes only, and the whole step counts: forward,
backward, sums of gradients, and the optimizer. The result is the median of the relative
errors. Nothing in the clock was fitted to these rows: its constants are in
``d2l_gpu/vgpu/sim/catalogue.py``, each with its source.
"""

import argparse
import csv
import gc
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from common import hardware, print_result
from networks import (
    WORDS,
    Bert,
    Lamb,
    Llama,
    checkpointed,
    parallelize_llama,
    resnet50,
    resnext101,
    se_resnext101,
)
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional as F

from d2l_gpu import torch as d2l
from d2l_gpu import vgpu
from d2l_gpu.vgpu.sim import catalogue
from d2l_gpu.vgpu.sim.catalogue import Link

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))  # for the tools
from tools.marks import replace_between  # noqa: E402

VGPU = ROOT / "d2l_gpu" / "vgpu"
PAGES = (ROOT / "README.md", ROOT / "docs" / "vgpu" / "accuracy.md")
RESULTS = ROOT / "benchmarks" / "results" / "published.txt"
EXPECTED = VGPU / "sim" / "published.py"
BEGIN, END = "<!-- from benchmarks/published.py -->", "<!-- end of published -->"

DATA = Path(__file__).parent / "data" / "published_training.csv"
MODELS = {"T4": "T4", "V100": "V100", "A100": "A100 80GB", "H100-96": "H100 96GB"}
# Between the GPUs of a node, and what each of them has for itself to other nodes.
LINKS = {"V100": "NVLink2", "A100": "NVLink3", "H100-96": "NVLink4"}
NETWORKS = {
    "V100": "InfiniBand HDR",
    "A100": "InfiniBand HDR",
    "H100-96": "InfiniBand NDR",
}
# Some V100s had 16 GB and others 32. Memory isn't compared here.
MEMORY = 10**12
IMAGES = 60_000  # of Fashion-MNIST, in an epoch
# Bytes that are summed at a time: DistributedDataParallel's default, and BERT's choice,
# all gradients in one (run_pretraining.py).
BUCKETS = {False: 25 * 2**20, True: 10**12}


class Row(NamedTuple):
    """A published run. Batches are of one GPU, and of one forward."""

    id: str
    model: str
    gpu: str
    gpus: int
    nodes: int
    precision: str
    batch: float
    length: int
    accumulation: int
    unit: str
    value: float
    peak: str
    source: str
    exempt: str


def rows() -> list[Row]:
    """Return the published runs."""
    kinds = (
        str,
        str,
        str,
        int,
        int,
        str,
        float,
        lambda x: int(x or 0),
        int,
        str,
        float,
    )
    with DATA.open() as file:
        lines = list(csv.reader(line for line in file if not line.startswith("#")))[1:]
    return [
        Row(*(kind(x) for kind, x in zip(kinds, line[:11], strict=True)), *line[11:])
        for line in lines
    ]


# ------------------------------------------------------------------ data parallelism


def link_of(row: Row) -> Link:
    """Return what connects the GPUs of a run.

    NCCL makes as many rings as a node has GPUs. Each goes through all GPUs of a node
    and leaves it by the network card of another one, so the cards work together, and
    one step of n crosses the network.
    """
    near = catalogue.LINKS[LINKS[row.gpu]]
    if row.nodes == 1:
        return near
    far, n = catalogue.LINKS[NETWORKS[row.gpu]], row.gpus // row.nodes
    return Link(
        f"{n} × {far.name}",
        min(near.bandwidth, n * far.bandwidth),
        ((n - 1) * near.step + far.step) / n,
        f"{near.source}; {far.source}",
        near.channels,
    )


class Replicas:
    """Equal GPUs that train the same network, of which one is simulated.

    As DistributedDataParallel does, it sums gradients in buckets, each as soon as
    backward has filled it.

    Args:
        waits: whether the host waits for the GPU at the end of each step.
    """

    def __init__(self, row: Row, net: nn.Module, waits: bool = False):
        link, model = link_of(row), MODELS[row.gpu]
        self.sim = vgpu.simulator(
            row.gpus, model, link, "meta", memory=MEMORY, replicas=True
        )
        self.net = net.to(self.sim.gpu(0))
        self.row, self.filling, self.pending, self.waits = row, [], [], waits
        # What travels: NVIDIA's BERT sends float16 where it computes in it.
        bert = row.model.startswith("BERT")
        halves = row.precision == "fp16" and bert
        self.sent = torch.float16 if halves else torch.float32
        self.bucket = BUCKETS[bert]
        self.summing = False
        for parameter in self.net.parameters():
            parameter.register_post_accumulate_grad_hook(self._ready)

    def _ready(self, parameter: nn.Parameter) -> None:
        if self.summing and self.row.gpus > 1:
            self.filling.append(parameter.grad)
            if sum(x.nbytes for x in self.filling) >= self.bucket:
                self._start()

    def _start(self) -> None:
        grads, self.filling = self.filling, []
        flat = torch.cat([x.flatten() for x in grads]).to(self.sent)
        self.pending.append((grads, flat, self.sim.all_reduce([flat], beside=True)))

    def finish(self) -> None:
        """Wait for all sums, and copy them into the gradients."""
        if self.filling:
            self._start()
        for grads, flat, sum_ in self.pending:
            sum_.wait()
            parts = flat.split([x.numel() for x in grads])
            parts = [part.view_as(x) for part, x in zip(parts, grads, strict=True)]
            torch._foreach_copy_(grads, parts)
        self.pending.clear()

    def seconds(self, forward: Callable[[], torch.Tensor], optimizer) -> float:
        """Return the seconds of a step: some batches, then an update.

        Args:
            forward: computes the loss of one batch.
        """
        halves = self.row.precision == "fp16"
        autocast = partial(torch.autocast, "vgpu", torch.float16)

        def batch() -> None:
            with autocast() if halves else nullcontext():
                loss = forward()
            loss = loss * 65536.0 if halves else loss
            loss.backward()

        def update() -> None:
            if (
                halves
            ):  # what GradScaler does, which asks for a value, so the host waits
                grads = [p.grad for p in self.net.parameters()]
                found, scale = torch.zeros(2, device=self.sim.gpu(0)).split(1)
                torch._amp_foreach_non_finite_check_and_unscale_(grads, found, scale)
                self.sim.synchronize()
            optimizer.step()
            optimizer.zero_grad()
            if self.waits:
                self.sim.synchronize()

        def last() -> None:
            self.summing = True
            batch()
            self.finish()
            self.summing = False
            update()

        last()  # the first step also allocates the optimizer's state
        seconds = self._timed(last)
        if self.row.accumulation > 1:
            # Gradients are there from the second batch on, so that it adds to them.
            batch()
            seconds += (self.row.accumulation - 1) * self._timed(batch)
        return seconds

    def _timed(self, work: Callable[[], None]) -> float:
        """Return the seconds of work that is repeated, without its beginning."""
        self.sim.reset()
        work()
        once = self.sim.elapsed()
        work()
        return self.sim.elapsed() - once


def resnet_seconds(row: Row) -> float:
    """Return the seconds per step of ResNet-50 and ResNeXt-101.

    The pictures are on the GPU already. Like the program that was timed, it updates one
    parameter after the other, as PyTorch 1.9 did, and waits for the GPU at the end.
    """
    net = resnet50() if row.model.startswith("ResNet-50") else resnext101()
    replicas = Replicas(row, net, waits=True)
    device = replicas.sim.gpu(0)
    X = torch.zeros(int(row.batch), 3, 224, 224, device=device)
    y = torch.zeros(int(row.batch), dtype=torch.int64, device=device)
    if row.precision == "fp16":
        replicas.net.to(memory_format=torch.channels_last)
        X = X.contiguous(memory_format=torch.channels_last)
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(
        *(replicas.net.parameters(), 1.0, 0.875), weight_decay=3e-5, foreach=False
    )
    return replicas.seconds(lambda: loss(replicas.net(X), y), optimizer)


def inference_seconds(row: Row) -> float:
    """Return the seconds for one batch of pictures, which are on the GPU already."""
    sim = vgpu.simulator(1, MODELS[row.gpu], backing="meta", memory=MEMORY)
    net = se_resnext101().eval().to(sim.gpu(0))
    X = torch.zeros(int(row.batch), 3, 224, 224, device=sim.gpu(0))
    sim.reset()
    with torch.no_grad():
        net(X)
    sim.synchronize()
    return sim.now()


def bert_seconds(row: Row) -> float:
    """Return the seconds per step of BERT's pre-training.

    Words are scored where they are masked; the program of 2019 scored all of them, and
    left the others out of the loss (modeling.py at 23a6382).
    """
    replicas = Replicas(row, Bert())
    device, batch = replicas.sim.gpu(0), int(row.batch)
    whole = partial(torch.zeros, dtype=torch.int64, device=device)
    X, parts = whole(batch, row.length), whole(batch, row.length)
    mask = torch.zeros(batch, 1, 1, row.length, device=device)
    masked = whole(batch * (20 if row.length == 128 else 80))
    if row.source == "DLE19":
        masked = whole(batch * row.length)
    words, follows = torch.zeros_like(masked), whole(batch)

    def forward() -> torch.Tensor:
        scores, next_ = replicas.net(X, parts, mask, masked)
        return F.cross_entropy(scores, words) + F.cross_entropy(next_, follows)

    assert replicas.net.words.num_embeddings == WORDS
    return replicas.seconds(forward, Lamb(replicas.net.parameters()))


# ------------------------------------------------------------------ sharded


def llama_seconds(row: Row) -> float:
    """Return the seconds per step of Llama 3.1 8B, sharded as torchtitan does it.

    With tensor parallelism, that's within a node, and parameters are sharded between
    nodes.
    """
    gpus = row.gpus // row.nodes
    tensor = gpus if "tp" in row.id else 1
    cluster = vgpu.cluster(
        *(row.nodes, gpus, MODELS[row.gpu], NETWORKS[row.gpu].split()[-1]),
        memory=MEMORY,
    )

    def train() -> None:
        mesh = dist.init_device_mesh(
            "vgpu", (row.gpus // tensor, tensor), mesh_dim_names=("data", "tensor")
        )
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        with torch.device("meta"):
            net = Llama()
        if tensor > 1:
            parallelize_llama(net, mesh["tensor"])
        for layer in net.layers:
            layer.forward = checkpointed(layer.forward)
            fully_shard(layer, mesh=mesh["data"], mp_policy=policy)
        fully_shard(net, mesh=mesh["data"], mp_policy=policy)
        net.to_empty(device="vgpu")
        optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4, foreach=True)
        batch = int(row.batch * tensor)
        X = torch.zeros(batch, row.length, dtype=torch.int64, device="vgpu")
        for _ in range(2):
            with loss_parallel() if tensor > 1 else nullcontext():
                scores = net(X).flatten(0, 1).float()
                F.cross_entropy(scores, X.flatten()).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    return cluster.run(train).seconds


# ------------------------------------------------------------------ the table


def book_seconds(row: Row) -> float:
    """Return the seconds per epoch of the book's ResNet-18, under nn.DataParallel.

    As the book's loop does, it copies each batch from pageable memory. It updates one
    parameter after the other, as PyTorch did before 2.0.
    """
    gc.collect()  # devices are set up again only if no tensor is left on them
    vgpu.enable(
        row.gpus,
        memory=MEMORY,
        backing="meta",
        model=MODELS[row.gpu],
        link=LINKS[row.gpu],
    )
    sim, batch = vgpu.current_simulator(), int(row.batch) * row.gpus
    net = nn.DataParallel(d2l.resnet18(10).to("vgpu:0"), list(range(row.gpus)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
    loss = nn.CrossEntropyLoss()
    X, y = torch.zeros(batch, 1, 28, 28), torch.zeros(batch, dtype=torch.int64)

    def step() -> float:
        optimizer.zero_grad(set_to_none=False)
        loss(net(X.to("vgpu:0")), y.to("vgpu:0")).backward()
        optimizer.step()
        return sim.elapsed()

    _, once, twice = (step() for _ in range(3))
    return IMAGES / batch * (twice - once)


SECONDS = {
    "ResNet-50 v1.5": resnet_seconds,
    "ResNeXt-101 32x4d": resnet_seconds,
    "SE-ResNeXt-101, inference": inference_seconds,
    "BERT-large": bert_seconds,
    "Llama 3.1 8B": llama_seconds,
    "ResNet-18 of the book": book_seconds,
}


def simulated(row: Row) -> float:
    """Return the simulated value, in the row's unit."""
    may = row.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = may
    seconds = SECONDS[row.model](row)
    if row.unit == "seconds per epoch":
        return seconds
    if row.unit == "milliseconds":
        return seconds * 1e3
    items = row.batch * row.accumulation
    if row.unit == "tokens/s per GPU":
        return items * row.length / seconds
    return row.gpus * items / seconds


def why_not(row: Row) -> str:
    """Return why a row isn't counted, nothing if it is."""
    if row.exempt == "binned":
        return "not counted: its sequences are shorter than it says"
    return ""


class Found(NamedTuple):
    """A run, and the relative error of its simulation."""

    row: Row
    error: float


def compared(start: str) -> Iterator[Found]:
    """Simulate the runs whose names begin with ``start``, and print them."""
    print(f"{'run':<28}{'unit':<20}{'published':>10}{'simulated':>11}{'error':>8}")
    for row in rows():
        if not row.id.startswith(start):
            continue
        value = simulated(row)
        # Positive where the simulation is too fast, and as exact as it's printed.
        ratio = value / row.value
        if "seconds" in row.unit:
            ratio = 1 / ratio
        error = round(ratio - 1, 3)
        digits = 0 if row.value > 100 else 1
        print(
            f"{row.id:<28}{row.unit:<20}{row.value:>10,.{digits}f}"
            f"{value:>11,.{digits}f}{error:>+8.1%}  {why_not(row) or row.exempt}",
            flush=True,
        )
        if not why_not(row):
            yield Found(row, error)


# ------------------------------------------------------------------ what is recorded

HEAD = '''"""Errors on published runs; from benchmarks/published.py --tables."""

# Work, type of number, runs, the median and the largest of the relative errors, GPUs.
ERRORS = ('''
RUNS = """
# The runs, in the order of benchmarks/data/published_training.csv, which has sources:
# network, GPU, how many of them, type of number, year of the software, seconds of a
# step as published, and relative error of the simulated speed.
RUNS = ("""
CONDITIONS = """
# Of the same runs: the batch of each GPU, what else was different, and the source.
CONDITIONS = ("""
MIDDLE_AND_MOST = statistics.median, max
# What the table of runs calls them, written out.
SOURCES = {
    "DLE": "NVIDIA, DeepLearningExamples at 729963d, README of the model, "
    "https://github.com/NVIDIA/DeepLearningExamples",
    "DLE19": "NVIDIA, DeepLearningExamples at 23a6382, README of the model, "
    "https://github.com/NVIDIA/DeepLearningExamples",
    "TT": "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, "
    "https://github.com/pytorch/torchtitan",
    "TT2": "torchtitan, benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md, "
    "https://github.com/pytorch/torchtitan",
    "BOOK": "Dive into Deep Learning, outputs of multiple-gpus-concise, their "
    "median, https://github.com/d2l-ai/d2l-pytorch-colab",
}
# Of the software, by source.
YEARS = {"DLE19": 2019, "DLE": 2021, "BOOK": 2021, "TT": 2024, "TT2": 2025}
NUMBERS = {"fp32": "fp32", "tf32": "TF32", "fp16": "float16", "bf16": "bfloat16"}


def groups(found: Sequence[Found], key: Callable[[Row], Hashable]) -> dict:
    """Return the sizes of the errors, by what a function says of their runs."""
    sizes = defaultdict(list)
    for each in found:
        sizes[key(each.row)].append(abs(each.error))
    return sizes


def by_group(found: Sequence[Found]) -> dict[str, list]:
    """Return the sizes of the errors, by how runs came to be compared."""

    def group(row: Row) -> str:
        if row.exempt == "kept back":
            return "kept back until convolutions were done"
        years = "of 2019" if row.source == "DLE19" else "of 2021 and later"
        return f"known from the start, software {years}"

    kinds = groups(found, group)
    return {**kinds, "all": [abs(each.error) for each in found]}


def table(found: Sequence[Found]) -> str:
    """Return the errors by network, GPU and type of number, as Markdown."""
    lines = ["| network | GPU | numbers | runs | median error | largest |"]
    lines.append("|---|---|---|---:|---:|---:|")
    kinds = groups(found, lambda row: (row.model, row.gpu, NUMBERS[row.precision]))
    for name, sizes in by_group(found).items():
        kinds[name, "", ""] = sizes
    for names, sizes in kinds.items():
        errors = f"{statistics.median(sizes):.0%} | {max(sizes):.0%}".replace("%", " %")
        lines.append(f"| {' | '.join(names)} | {len(sizes)} | {errors} |")
    return "\n".join(lines)


def expected(found: Sequence[Found]) -> str:
    """Return the content of ``d2l_gpu/vgpu/sim/published.py``.

    It has the errors by kind of work, without inference that waits for the host, which
    is of no kind of a device's work; then all runs.
    """
    training = [each for each in found if "inference" not in each.row.model]

    def kind(row: Row) -> tuple[str, str]:
        work = "convolutions" if row.model.startswith("ResNe") else "products"
        return work, row.precision

    gpus = defaultdict(dict)  # in order, as in a set
    for each in training:
        gpus[kind(each.row)][each.row.gpu.partition("-")[0]] = True
    lines = []
    for names, sizes in groups(training, kind).items():
        errors = (round(f(sizes), 3) for f in MIDDLE_AND_MOST)
        lines.append(f"    {(*names, len(sizes), *errors, tuple(gpus[names]))},")
    runs = [
        f"    {(*of_run(row), float(f'{step_seconds(row):.4g}'), error)},"
        for row, error in found
    ]
    conditions = [f"    {(*of_conditions(row),)}," for row, _ in found]
    sources = ["SOURCES = {"]
    for name, source in SOURCES.items():
        what, address = source.rsplit(" ", 1)
        sources += [f'    "{name}": "{what} "', f'    "{address}",']
    text = [HEAD, *lines, f"){RUNS}", *runs, f"){CONDITIONS}", *conditions, ")"]
    return "\n".join([*text, *sources, "}"]).replace("'", '"') + "\n"


def of_run(row: Row) -> tuple:
    """Return what is recorded of a run besides its time."""
    return row.model, row.gpu, row.gpus, row.precision, YEARS[row.source]


def of_conditions(row: Row) -> tuple:
    """Return the batch of a GPU and a forward, what else differs, and the source."""
    how = []
    if row.source == "BOOK" and row.gpus > 1:
        how.append("nn.DataParallel")
    if row.source in ("TT", "TT2"):
        how.append("selective checkpoints")
    if "tp" in row.id:
        how.append(f"tensor parallelism of {row.gpus // row.nodes}")
    how += {"compiled": ["torch.compile"], "fused": ["fused layers"]}.get(
        row.exempt, []
    )
    return row.batch, ", ".join(how), row.source


def step_seconds(row: Row) -> float:
    """Return the seconds of a step as published: of one update, or of one inference."""
    if row.unit == "milliseconds":
        return row.value / 1e3
    items = row.batch * row.accumulation
    if row.unit == "seconds per epoch":
        return row.value * row.gpus * items / IMAGES
    if row.unit == "tokens/s per GPU":
        return items * row.length / row.value
    return row.gpus * items / row.value


def recorded() -> list[Found]:
    """Return the errors of the recorded results."""
    by_id = {row.id: row for row in rows()}
    found = []
    for line in RESULTS.read_text(encoding="utf-8").splitlines():
        row = by_id.get(line.partition(" ")[0])
        error = re.search(r"([+-][\d.]+)%", line)
        if row and error and not why_not(row):
            found.append(Found(row, round(float(error[1]) / 100, 3)))
    return found


def record(found: Sequence[Found]) -> None:
    """Write the errors into the pages, and where reports find them."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        text = replace_between(text, BEGIN, END, table(found), page.name)
        page.write_text(text, encoding="utf-8")
    EXPECTED.write_text(expected(found), encoding="utf-8")


def scaling(found: Sequence[Found]) -> None:
    """Print how efficient many GPUs are, published and simulated, against eight."""
    rates = {
        each.row.gpus: (each.row.value, each.row.value * (1 + each.error))
        for each in found
        if each.row.id.startswith("bert-a100-amp-128-")
    }
    for n in rates:
        if n > 8 and 8 in rates:
            published, simulated = (
                rate / few * 8 / n for rate, few in zip(rates[n], rates[8], strict=True)
            )
            print(
                f"BERT-large on {n} GPUs: {published:.1%} of {n // 8} times 8 GPUs, "
                f"simulated {simulated:.1%}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("start", nargs="?", default="", help="of rows to simulate")
    parser.add_argument(
        "--tables",
        action="store_true",
        help="simulate nothing, write the recorded errors into the READMEs",
    )
    options = parser.parse_args()
    if options.tables:
        record(recorded())
        return
    print(f"{hardware()}; no GPU is used, and no clock is read\n")
    found = list(compared(options.start))
    if not found:
        parser.error(f"no run that counts begins with {options.start!r}.")
    print()
    for name, sizes in by_group(found).items():
        middle = statistics.median(sizes)
        print(f"{name}: median {middle:.1%}, largest {max(sizes):.1%}", end="")
        print(f", {len(sizes)} runs")
    scaling(found)
    print_result(
        "published", round(middle, 3), "relative error", f"{len(sizes)} published runs"
    )


if __name__ == "__main__":
    main()
