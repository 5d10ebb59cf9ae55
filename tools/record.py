"""Record the kernels of models, from which ``sim/plans.py`` composes training steps.

    python -m tools.record            record, and write the files
    python -m tools.record --check    record again, and say what differs
    python -m tools.record llama      only models whose file names begin like this

Networks for images are recorded, too; ``record_networks.py`` says how. Each language
model runs on virtual GPUs, on shapes only, with three layers. The code is that of
``tools/plan_training.py``, without ``fully_shard``, whose work ``sim/plans.py`` adds.
The layer in the middle is recorded, and what comes before the first and after the last
one. That is done with one sequence and with two: all sizes grow by the same amount with
each further one. Under tensor parallelism, several sequences need other kernels than
one, because places are what's divided; there we record one, and then two and three.
The files are ``d2l_gpu/vgpu/sim/recordings/*.json``.
"""

import argparse
import json
import sys
import warnings
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel

from d2l_gpu import vgpu
from d2l_gpu.vgpu.devices import Devices
from d2l_gpu.vgpu.sim.cluster import Meeting
from d2l_gpu.vgpu.sim.commands import StreamWaits
from d2l_gpu.vgpu.sim.memory_use import GRADIENTS, Change
from d2l_gpu.vgpu.sim.recordings import FILES, Shape
from d2l_gpu.vgpu.sim.recordings.networks import FILES as NETWORKS
from d2l_gpu.vgpu.work import work_of
from tools import record_networks
from tools.plan_training import Layout, loss_of, network

FOLDER = Path(__file__).parent.parent / "d2l_gpu" / "vgpu" / "sim" / "recordings"
LAYERS = 3
BEFORE, AFTER, LOSS = "embedding", "head", "loss"


@dataclass(frozen=True)
class Subject:
    """A model to record: the degrees of tensor parallelism, and the checkpoints."""

    name: str
    source: str
    shape: Shape
    tensor: tuple[int, ...]
    checkpoints: tuple[str, ...]


LLAMA = "A. Grattafiori and others, The Llama 3 herd of models (2024), table 3"
LLAMAS = (1, 2, 4, 8), ("none", "selective", "full")
SUBJECTS = (
    Subject(
        "GPT-2 124M",
        "A. Radford and others, Language models are unsupervised multitask learners "
        "(2019), table 2; PyTorch's own layers, and an output of its own (not tied)",
        Shape(12, 768, 12, 0, 3072, 50_257, 1024),
        (1,),
        ("none", "full"),
    ),
    Subject(
        "Llama 3.1 8B", LLAMA, Shape(32, 4096, 32, 8, 14_336, 128_256, 8192), *LLAMAS
    ),
    Subject(
        "Llama 3.1 70B", LLAMA, Shape(80, 8192, 64, 8, 28_672, 128_256, 8192), *LLAMAS
    ),
)


@dataclass
class Mark:
    """A note to find later; the clock does nothing for it."""

    name: str

    def work_off(self, clock, index: int, stream: int, thread: int) -> None:
        pass


def mark(name: str) -> None:
    Devices.machine.clock.note(Mark(name), torch.vgpu.current_device(), 0)


def notes_of(
    shape: Shape, tensor: int, checkpoint: str, sequences: int
) -> tuple[list[tuple], dict[str, list]]:
    """Return the notes of a step with marks in them, and the sizes of parameters."""
    sizes: dict[str, list] = {}

    def program() -> None:
        mesh = dist.init_device_mesh("vgpu", (tensor,), mesh_dim_names=("tensor",))
        layout = Layout(tensor, checkpoint)
        net = network(replace(shape, layers=LAYERS), layout, LAYERS, True, True, mesh)
        net = net.to(torch.bfloat16).to_empty(device="vgpu")
        watch(net.layers)
        X = torch.zeros(sequences, shape.length, dtype=torch.int64, device="vgpu")
        with loss_parallel() if tensor > 1 else nullcontext():
            for _ in range(2):  # the first one also allocates workspaces
                mark(f"{BEFORE} forward")
                scores = net(X)
                scores.register_hook(lambda grad: mark(f"{AFTER} backward"))
                mark(f"{LOSS} forward")
                loss = loss_of(scores, X)
                del scores
                mark(f"{LOSS} backward")
                loss.backward()
                del loss
                mark("end")
                sizes.update(sizes_of(net))
                for parameter in net.parameters():
                    parameter.grad = None

    cluster = vgpu.cluster(1, tensor, "H100", memory=10**13)
    notes = cluster.run(program).ranks[0].clock.kept
    places = [i for i, note in enumerate(notes) if isinstance(note[0], Mark)]
    begin = [i for i in places if notes[i][0].name == f"{BEFORE} forward"][-1]
    return notes[begin:], sizes


def watch(layers) -> None:
    """Mark where the layers of a network begin, forward and backward."""
    last = len(layers) - 1
    for i, layer in enumerate(layers):

        def before(module, inputs, i=i):
            if i == 0:
                inputs[0].register_hook(lambda grad: mark(f"{BEFORE} backward"))
            mark(f"layer {i} forward")

        def after(module, inputs, output, i=i):
            output.register_hook(lambda grad: mark(f"layer {i} backward"))
            if i == last:
                mark(f"{AFTER} forward")

        layer.register_forward_pre_hook(before)
        layer.register_forward_hook(after)


def sizes_of(net) -> dict[str, list]:
    """Return rows and columns of the parameters that a GPU has, by part.

    After a backward. Where a gradient isn't divided as its parameter is, there is a
    third item: the rows that it has, of which some are cut out; or ``"sum"`` if it has
    to be added up over the GPUs.
    """
    parts = {BEFORE: [], "layer": [], AFTER: []}
    for name, parameter in net.named_parameters():
        if name.startswith("layers."):
            if not name.startswith("layers.1."):
                continue
            part = "layer"
        else:
            part = AFTER if name.startswith(("norm.", "output.")) else BEFORE
        if not isinstance(parameter, DTensor):
            rows = len(parameter)
            parts[part].append([rows, parameter.numel() // rows])
            continue
        local, grad = parameter.to_local(), parameter.grad
        size = [len(local), local.numel() // len(local)]
        if grad.placements != parameter.placements:
            (placement,) = grad.placements
            size.append("sum" if placement.is_partial() else len(grad.to_local()))
        parts[part].append(size)
    return parts


# ------------------------------------------------------------------ segments


def segments_of(notes) -> dict[str, list[tuple]]:
    """Return what lies between two marks, by the name of the first one."""
    found: dict[str, list[tuple]] = {}
    for note in notes:
        if isinstance(note[0], Mark):
            segment = found[note[0].name] = []
        else:
            segment.append(note)
    return found


def steps_of(notes) -> tuple[list, list[int]]:
    """Return what a segment does, in order, and its bytes.

    Returns:
        kernels, each a ``Work``; collectives, each a kind and its bytes; and numbers of
        collectives that it waits for. Then the most bytes more than at its beginning,
        those at its end without gradients of parameters, and those gradients.
    """
    steps, asked, waited = [], [], set()
    now = most = gradients = 0
    for note, *_ in notes:
        if isinstance(note, Meeting):
            asked.append(note.done)
            steps.append((note.kind, note.size))
        elif isinstance(note, StreamWaits):
            number = next(i for i, x in enumerate(asked) if x is note.moment)
            waited.add(number)
            steps.append(number)
        elif isinstance(note, Change):
            now += note.nbytes
            most = max(most, now)
            if note.holding.category == GRADIENTS:
                gradients += note.nbytes
        elif type(note) is tuple:
            steps.append(work_of(note))
    # What the next segment waits for, such as the embedding's, is waited for here.
    steps += [i for i in range(len(asked)) if i not in waited]
    return steps, [most, now - gradients, gradients]


class Kernels:
    """The distinct kernels of a model, as lines of its file."""

    def __init__(self):
        self.lines: list[list] = []
        self._places: dict[str, int] = {}

    def place(self, one, two) -> int:
        """Return the number of a kernel, given its work with one and two sequences."""
        if one.name != two.name or len(one.parts) != len(two.parts):
            raise RuntimeError(f"{one.name} becomes {two.name} with a second sequence.")
        parts = []
        for a, b in zip(one.parts, two.parts, strict=True):
            product, more = a.product, None
            if product is not None:
                more = [y - x for x, y in zip(product, b.product, strict=True)]
            parts.append(
                [
                    *(a.kind, a.operations, b.operations - a.operations, a.nbytes),
                    *(b.nbytes - a.nbytes, product, more, a.algorithm),
                ]
            )
        line = [one.name, int(one.layer), *parts]
        key = json.dumps(line)
        if key not in self._places:
            self._places[key] = len(self.lines)
            self.lines.append(line)
        return self._places[key]

    def coded(self, one, two) -> dict:
        """Return a segment as it is stored, given it with one and two sequences."""
        (steps, sizes), (more_steps, more_sizes) = steps_of(one), steps_of(two)
        words = []
        for a, b in zip(steps, more_steps, strict=True):
            if isinstance(a, int):
                words.append(f"wait:{a}")
            elif isinstance(a[1], int) and len(a) == 2:
                words.append(f"{a[0]}:{a[1]}:{b[1] - a[1]}")
            else:
                words.append(str(self.place(a, b)))
        pairs = zip(sizes, more_sizes, strict=True)
        return {"does": " ".join(words), "bytes": [[a, b - a] for a, b in pairs]}


# ------------------------------------------------------------------ files


def recorded(subject: Subject) -> dict:
    """Return what the file of a model says."""
    kernels, parts = Kernels(), {}
    for tensor in subject.tensor:
        of_tensor = parts[str(tensor)] = {}
        for first, then in ((1, 2),) if tensor == 1 else ((1, 1), (2, 3)):
            found = of_tensor[str(first)] = {}
            for checkpoint in subject.checkpoints:
                (one, sizes), (more, _) = (
                    notes_of(subject.shape, tensor, checkpoint, n)
                    for n in (first, then)
                )
                of_tensor["parameters"] = sizes
                _put(found, checkpoint, kernels, *map(segments_of, (one, more)))
    return {
        "model": subject.name,
        "source": subject.source,
        "recorded": "python -m tools.record",
        "PyTorch": torch.__version__.partition("+")[0],
        "shape": asdict(subject.shape),
        "optimizer": optimizer_kernels(),
        "kernels": kernels.lines,
        "tensor": parts,
    }


def optimizer_kernels() -> list[list]:
    """Return the kernels of AdamW, and the bytes that each moves per parameter."""
    number = 2**30

    def program() -> None:
        parameter = torch.nn.Parameter(torch.empty(number, device="vgpu"))
        optimizer = torch.optim.AdamW([parameter], foreach=True)
        for _ in range(2):  # the first step makes the moments
            parameter.grad = torch.empty(number, device="vgpu")
            mark("step")
            optimizer.step()
            mark("end")

    notes = vgpu.cluster(1, 1, "H100", memory=10**13).run(program).ranks[0].clock.kept
    begin = [i for i, x in enumerate(notes) if x[0] == Mark("step")][-1]
    works = [work_of(note[0]) for note in notes[begin:] if type(note[0]) is tuple]
    return [
        [work.name, round(sum(part.nbytes for part in work.parts) / number, 3)]
        for work in works
    ]


def _put(found: dict, checkpoint: str, kernels: Kernels, one: dict, more: dict):
    """Put the segments of a network with some checkpoints to those of others."""

    def coded(name: str) -> dict:
        return kernels.coded(one[name], more[name])

    layer = {way: coded(f"layer 1 {way}") for way in ("forward", "backward")}
    if not found:
        for end in (BEFORE, AFTER, LOSS):
            found[end] = {way: coded(f"{end} {way}") for way in layer}
        # What the last layer leaves otherwise than others do counts with the head, and
        # so does the first one's with the embedding.
        for end, edge, way in (
            (AFTER, LAYERS - 1, "forward"),
            (BEFORE, 0, "backward"),
        ):
            its, others = coded(f"layer {edge} {way}")["bytes"], layer[way]["bytes"]
            for j in (0, 1):
                for i in (0, 1):
                    found[end][way]["bytes"][j][i] += its[1][i] - others[1][i]
        # The loss itself is freed last of all, but belongs to the other end.
        ends, loss = found[BEFORE], found[LOSS]["backward"]["bytes"][1]
        for i in (0, 1):
            late = sum(ends[way]["bytes"][1][i] for way in layer)
            ends["backward"]["bytes"][1][i] -= late
            loss[i] += late
    found[checkpoint] = layer


def text_of(data: dict) -> str:
    """Return a file's text: JSON, with a line for each kernel and each segment."""
    lines = []

    def put(value, indent: int, name: str, end: str) -> None:
        space, key = " " * indent, f"{json.dumps(name)}: " if name else ""
        deep = (
            isinstance(value, dict)
            and any(isinstance(x, dict | list) for x in value.values())
            and "does" not in value
        )
        if deep:
            lines.append(f"{space}{key}{{")
            items = list(value.items())
            for i, (k, v) in enumerate(items):
                put(v, indent + 1, k, "," if i < len(items) - 1 else "")
            lines.append(f"{space}}}{end}")
        elif name == "kernels":
            lines.append(f"{space}{key}[")
            for i, each in enumerate(value):
                put(each, indent + 1, "", "," if i < len(value) - 1 else "")
            lines.append(f"{space}]{end}")
        else:
            lines.append(f"{space}{key}{json.dumps(value, separators=(',', ':'))}{end}")

    put(data, 0, "", "")
    return "\n".join(lines) + "\n"


def differences(old: str, new: str) -> list[str]:
    """Return sentences on what differs between two texts of a file."""
    if not old:
        return ["there is no such file"]
    was, now = json.loads(old), json.loads(new)
    found = [
        f"{name} was {was.get(name)!r}, and is {now[name]!r}"
        for name in ("model", "source", "PyTorch", "shape")
        if was.get(name) != now[name]
    ]
    found += _different(_spelt(was), _spelt(now), "")
    if not found and old != new:
        found.append("the same, written otherwise")
    return found


def _spelt(data: dict) -> dict:
    """Return segments with their kernels in place of numbers."""
    kernels = [json.dumps(line) for line in data["kernels"]]

    def spell(value):
        if isinstance(value, dict) and "does" in value:
            words = value["does"].split()
            return {
                "does": [kernels[int(w)] if w.isdigit() else w for w in words],
                "bytes": value["bytes"],
            }
        if isinstance(value, dict):
            return {k: spell(v) for k, v in value.items()}
        return value

    return spell(data["tensor"])


def _different(was, now, where: str) -> list[str]:
    if isinstance(was, dict) and isinstance(now, dict):
        return [
            sentence
            for key in dict.fromkeys([*was, *now])
            for sentence in _different(was.get(key), now.get(key), f"{where} {key}")
        ]
    if was == now:
        return []
    if isinstance(was, list) and isinstance(now, list) and where.endswith(" does"):
        for i, (a, b) in enumerate(zip(was, now, strict=False)):
            if a != b:
                return [f"tensor{where}: step {i} was {a}, and is {b}"]
        return [f"tensor{where}: {len(was)} steps have become {len(now)}"]
    return [f"tensor{where} was {was}, and is {now}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("start", nargs="?", default="", help="of the files' names")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", "In a simulated cluster")
    failed = False
    subjects = [(subject, FILES, sys.modules[__name__]) for subject in SUBJECTS]
    subjects += [(each, NETWORKS, record_networks) for each in record_networks.SUBJECTS]
    for subject, files, module in subjects:
        file = files[subject.name]
        if not file.startswith(options.start):
            continue
        path = FOLDER / f"{file}.json"
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        new = module.text_of(module.recorded(subject))
        if options.check:
            found = module.differences(old, new)
            failed |= bool(found)
            print(f"{path.name}: {'; '.join(found[:5]) or 'the same'}")
            if len(found) > 5:
                print(f"  and {len(found) - 5} more differences")
        else:
            path.write_text(new, encoding="utf-8")
            print(f"{path.name}: {len(new):,} bytes")
    sys.exit(failed)


if __name__ == "__main__":
    main()
