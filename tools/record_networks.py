"""Record the training of networks for images, from which ``sim/replicas.py`` replays.

``python -m tools.record`` does it. Each program of ``tools/network_training.py`` runs
on virtual GPUs, on shapes only: in each precision, alone and with another GPU. What it
issues in its four steps is written down: kernels, memory that it gets and frees, and
collectives. That's done with batches of three sizes. Every number grows by the same
amount with each further image, or the recording fails. The algorithms of a convolution
do not, so of a convolution the shapes are kept, from which ``sim/cudnn.py`` finds them.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from unittest.mock import patch

import torch

from d2l_gpu import vgpu
from d2l_gpu.vgpu import convolutions, one_rank, simulators
from d2l_gpu.vgpu.devices import Devices
from d2l_gpu.vgpu.sim.caching import CachingMachine
from d2l_gpu.vgpu.sim.clock import Choice, queues
from d2l_gpu.vgpu.sim.cluster import Meeting
from d2l_gpu.vgpu.sim.commands import CopyCommand, HostWaits, Record, StreamWaits
from d2l_gpu.vgpu.sim.memory_use import OTHER, Change, MemoryUse
from d2l_gpu.vgpu.sim.recordings.networks import BUCKETS, IMAGES, programs_of
from d2l_gpu.vgpu.work import work_of
from tools.network_training import STEPS, TRAININGS, program

BATCHES = 32, 48, 80  # the third one shows whether numbers grow evenly
PRECISIONS = ("fp32", "fp16", "bf16")
WORLDS = {"alone": 1, "replicas": 2}  # more GPUs do the same as two
SHORTEST = 4  # words that are worth repeating by where they are


@dataclass(frozen=True)
class Subject:
    """A network to record, which is trained on images; see ``TRAININGS``."""

    name: str
    source: str
    title: str


SUBJECTS = (
    Subject(
        "LeNet",
        "Y. LeCun and others, Gradient-based learning applied to document recognition "
        "(1998), with ReLU instead of sigmoids; images of 28 × 28; SGD",
        "LeNet, 28 × 28",
    ),
    Subject(
        "ResNet-18",
        "A. Zhang and others, Dive into Deep Learning (2023), section 13.6: ResNet-18 "
        "for images of 28 × 28; SGD",
        "ResNet-18 of the book, 28 × 28",
    ),
    Subject(
        "ResNet-50",
        "K. He and others, Deep residual learning for image recognition (2015), "
        "version 1.5; images of 224 × 224; SGD with momentum, one parameter after the "
        "other, as PyTorch 1.9 did; halves have their channels last",
        "ResNet-50 v1.5, 224 × 224",
    ),
)


# ------------------------------------------------------------------ a run


@dataclass
class Taken:
    """A note that memory was asked for; the clock does nothing for it."""

    nbytes: int

    def work_off(self, clock, index: int, stream: int, thread: int) -> None:
        pass


class Taking(CachingMachine):
    """A machine that notes how many bytes it's asked for, before they are rounded."""

    def take(self, index: int, nbytes: int):
        self.clock.notes.append((Taken(nbytes), index, 0, queues.thread))
        return super().take(index, nbytes)


def notes_of(name: str, batch: int, precision: str, world: int) -> tuple:
    """Run a program, and return its notes, its memory, and the buckets of DDP."""
    buckets, average = set(), one_rank._average

    def watched(group, bucket):
        account = bucket.buffer()._backing.untyped_storage()._vgpu_charge
        (use,) = Devices.machine.observers
        buckets.add(use._living[id(account)])
        return average(group, bucket)

    with (
        patch.object(simulators, "CachingMachine", Taking),
        patch.object(one_rank, "_average", watched),
    ):
        cluster = vgpu.cluster(1, world, "H100", memory=10**13)
        rank = cluster.run(program(name, batch, precision)).ranks[0]
    return rank.clock.kept, rank.memory, buckets


def events_of(notes: Sequence[tuple], use: MemoryUse, buckets: set) -> Iterator[tuple]:
    """Yield what a program does, each a word and what belongs to it, up to its end."""
    places: dict[object, int] = {}  # of what lives, by the order in which it began
    asked: dict[int, int] = {}  # the number of each meeting
    phase = wanted = None
    began = steps = 0
    for note, *_ in notes:
        if not isinstance(note, Change) and wanted is not None:
            yield "workspace", wanted
            wanted = None
        if type(note) is tuple:
            yield "kernel", note
        elif isinstance(note, Taken):
            wanted = note.nbytes
        elif isinstance(note, Change):
            if note.phase != phase:
                phase = note.phase
                yield "phase", use._phases[phase]
            if note.nbytes > 0:
                if note.holding in places or wanted is None:
                    raise RuntimeError("An allocation has grown.")
                places[note.holding] = began
                began += 1
                yield "take", wanted, category_of(note.holding, use, buckets)
                wanted = None
            elif note.nbytes < 0:
                yield "free", began - places.pop(note.holding)
        elif isinstance(note, Meeting):
            asked[id(note.done)] = len(asked)
            yield "meet", note.kind, note.size
        elif isinstance(note, StreamWaits):
            yield "wait", len(asked) - asked[id(note.moment)]
        elif isinstance(note, CopyCommand):
            yield "copy", note.nbytes, note.source, note.pinned, note.blocking
        elif isinstance(note, HostWaits) and note.moment is None:
            yield ("synchronize",)
        elif isinstance(note, Record):
            steps += 1
            yield ("step",)
            if steps == STEPS:
                return
        else:
            raise RuntimeError(f"A replay can't do this: {note}")


def category_of(holding, use: MemoryUse, buckets: set) -> str:
    return BUCKETS if holding in buckets else use._category(holding)


# ------------------------------------------------------------------ growth


def grown(values: Sequence) -> object:
    """Return one value for those with each batch: ``"a+b*n"`` if it grows with it.

    Raises:
        RuntimeError: they don't grow evenly.
    """
    first, second, third = values
    if isinstance(first, list | tuple):
        if not len(first) == len(second) == len(third):
            raise RuntimeError(f"{first} has become {third}.")
        return [grown(each) for each in zip(*values, strict=True)]
    if first == second == third:
        return first
    growth, left = divmod(second - first, BATCHES[1] - BATCHES[0])
    constant = first - growth * BATCHES[0]
    if left or constant + growth * BATCHES[2] != third:
        raise RuntimeError(f"With batches of {BATCHES}, one number is {values}.")
    return f"{constant}+{growth}*n"


KIND = {"fp16": "half", "bf16": "half"}


def kernel_of(key: tuple) -> list:
    """Return a kernel as it's stored: its name, whether it's a layer's, and its parts.

    A part has one of three forms. One that moves tensors: the type of number, the
    numbers, the bytes of the tensors and the times that they move. A product: the type,
    operations, bytes, the product and its algorithm. And a convolution: the type, the
    side that's computed, operations, and the fields of ``cudnn.Sides``.
    """

    def shapes(computed, sides, operations, kind):
        return [(KIND.get(kind, kind), computed, operations, *sides)]

    with patch.object(convolutions, "ways", shapes):
        work = work_of(key)
    op, nbytes, *rest = key
    parts = []
    for part in work.parts:
        if isinstance(part, Choice):
            parts.append([list(x) if isinstance(x, tuple) else x for x in part.ways[0]])
            continue
        kind = KIND.get(part.kind, part.kind)
        if isinstance(op, str) or len(rest) < 3:
            traffic = 1 if isinstance(op, str) else op.record.traffic
            parts.append([kind, part.operations, nbytes, traffic])
        else:
            product = list(part.product) if part.product else 0
            parts.append([kind, part.operations, part.nbytes, product, part.algorithm])
    return [work.name, int(work.layer), *parts]


class Table:
    """Distinct lines, each with its number."""

    def __init__(self):
        self.lines: list = []
        self._places: dict[str, int] = {}

    def place(self, line) -> int:
        key = json.dumps(line)
        if key not in self._places:
            self._places[key] = len(self.lines)
            self.lines.append(line)
        return self._places[key]


# ------------------------------------------------------------------ words


class Writer:
    """Writes what programs do as words, with tables of kernels and of memory.

    ``recordings/networks.py`` says what the words mean.
    """

    def __init__(self):
        self.kernels, self.sizes = Table(), Table()
        self.words: list[str] = []  # of all segments
        self._found: dict[tuple[str, ...], list[int]] = {}

    def segments(self, runs: Sequence[Sequence[tuple]]) -> list[str]:
        """Return the steps of a program, each as a text.

        Args:
            runs: what it does with each batch.
        """
        words, found = [], []
        for events in zip(*runs, strict=True):
            words.append(self._word(events))
            if words[-1] == "step":
                found.append(self._shortened(words))
                words = []
        return found

    def _word(self, events: Sequence[tuple]) -> str:
        names = {event[0] for event in events}
        if len(names) > 1:
            raise RuntimeError(f"A larger batch does something else: {names}.")
        (name,) = names
        if name == "kernel":
            lines = [kernel_of(key) for _, key in events]
            return str(self.kernels.place(grown(lines)))
        values = grown([event[1:] for event in events])
        if name == "take":
            nbytes, purpose = values
            if purpose == OTHER and isinstance(nbytes, str):  # it grows with the batch
                purpose = IMAGES
            return f"+{self.sizes.place([nbytes, purpose])}"
        if name == "free":
            return f"-{values[0]}"
        if name == "copy":
            nbytes, source, pinned, blocking = values
            way = "in" if source == -1 else "out"
            return f"{way}:{nbytes}:{pinned:d}{blocking:d}"
        if name == "workspace":
            return name
        return ":".join(map(str, (*((name,) if name != "meet" else ()), *values)))

    def _shortened(self, words: Sequence[str]) -> str:
        """Return words as a text; in it ``~a:b`` are b words from the a-th one on."""
        text, i, begin = [], 0, len(self.words)
        while i < len(words):
            start, count = self._longest(words, i, begin)
            if count < SHORTEST:
                count = 1
                text.append(words[i])
            else:
                text.append(f"~{start}:{count}")
            i += count
        self.words += words
        for place in range(max(0, begin - SHORTEST), len(self.words) - SHORTEST + 1):
            key = tuple(self.words[place : place + SHORTEST])
            self._found.setdefault(key, []).append(place)
        return " ".join(text)

    def _longest(self, words: Sequence[str], i: int, end: int) -> tuple[int, int]:
        """Return where the longest run of the same words begins, and its length."""
        best = 0, 0
        for place in self._found.get(tuple(words[i : i + SHORTEST]), ()):
            count = 0
            while (
                i + count < len(words)
                and place + count < end
                and self.words[place + count] == words[i + count]
            ):
                count += 1
            best = max(best, (place, count), key=lambda x: x[1])
        return best


# ------------------------------------------------------------------ files


def recorded(subject: Subject) -> dict:
    """Return what the file of a network says."""
    writer, programs = Writer(), {}
    for precision in PRECISIONS:
        programs[precision] = {}
        for world, gpus in WORLDS.items():
            runs = [
                list(events_of(*notes_of(subject.name, batch, precision, gpus)))
                for batch in BATCHES
            ]
            programs[precision][world] = writer.segments(runs)
    return {
        "network": subject.name,
        "title": subject.title,
        "source": subject.source,
        "recorded": "python -m tools.record",
        "PyTorch": torch.__version__.partition("+")[0],
        "parameters": parameters_of(subject.name),
        "memory": writer.sizes.lines,
        "kernels": writer.kernels.lines,
        "programs": programs,
    }


def parameters_of(name: str) -> int:
    net = TRAININGS[name].network()
    return sum(parameter.numel() for parameter in net.parameters())


def differences(old: str, new: str) -> list[str]:
    """Return sentences on what differs between two texts of a file."""
    if not old:
        return ["there is no such file"]
    was, now = json.loads(old), json.loads(new)
    found = [
        f"{name} was {was.get(name)!r}, and is {now[name]!r}"
        for name in now
        if isinstance(now[name], str | int) and was.get(name) != now[name]
    ]
    before, after = spelt(was), spelt(now)
    for where, steps in after.items():
        earlier = before.get(where, [])
        pairs = enumerate(zip(earlier, steps, strict=False))
        change = next(((i, pair) for i, pair in pairs if pair[0] != pair[1]), None)
        if change is not None:
            i, (a, b) = change
            found.append(f"{where}: word {i} was {a}, and is {b}")
        elif len(earlier) != len(steps):
            found.append(f"{where}: {len(earlier)} words have become {len(steps)}")
    if not found and old != new:
        found.append("the same, written otherwise")
    return found


def spelt(data: dict) -> dict[str, list[str]]:
    """Return the words of each program, with lines of tables in place of numbers."""
    found = {}
    for (precision, world), words in programs_of(data).items():
        found[f"{precision}, {world}"] = [
            json.dumps(data["kernels"][int(word)])
            if word.isdigit()
            else f"gets {json.dumps(data['memory'][int(word[1:])])}"
            if word[0] == "+"
            else word
            for word in words
        ]
    return found


def text_of(data: dict) -> str:
    """Return a file's text: JSON, with a line for each kernel and each step."""

    def text(value) -> str:
        return json.dumps(value, separators=(",", ":"))

    def lines(values: Sequence) -> str:
        return "[\n" + ",\n".join(f"  {text(value)}" for value in values) + "\n ]"

    items = []
    for name, value in data.items():
        if name == "programs":
            parts = [
                f"  {text(precision)}: {{\n"
                + ",\n".join(
                    f"   {text(world)}: {lines(steps)}"
                    for world, steps in found.items()
                )
                + "\n  }"
                for precision, found in value.items()
            ]
            shown = "{\n" + ",\n".join(parts) + "\n }"
        else:
            shown = lines(value) if isinstance(value, list) else text(value)
        items.append(f" {text(name)}: {shown}")
    return "{\n" + ",\n".join(items) + "\n}\n"
