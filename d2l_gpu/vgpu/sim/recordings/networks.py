"""Networks for images whose training was recorded, for ``replicas.py``.

``python -m tools.record`` writes the files. A file holds four steps of training, in
each precision, on one GPU alone and on several. It says in words what a rank does, in
the order of the program:

* ``12``: kernel number 12 of the table ``kernels``;
* ``+3``: gets the memory number 3 of the table ``memory``;
* ``workspace``: gets one for cuBLAS;
* ``-2``: frees the second-latest that it got;
* ``all_reduce:4096``: asks for this collective of so many bytes;
* ``wait:1``: the stream waits for the latest of those;
* ``in:4:01``, ``out:4:01``: copies 4 bytes from or to the host's memory, which isn't
  page-locked; the host waits;
* ``synchronize``: the host waits for the GPU;
* ``phase:forward``: memory that comes and goes from now on belongs to this phase;
* ``step``: the step ends;
* ``~120:56``: what the 56 words from number 120 on say, counted over all programs.

Numbers such as ``64+784*n`` grow with the batch. The first step also creates the
network, the second one divides the gradients into buckets as backward has made them,
after which the host waits for the GPU. The fourth step is like all that follow.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from ..catalogue import choose
from ..clock import Choice, Part, Work
from ..cudnn import Sides, ways

# The file of each network, by the network's name.
FILES = {"LeNet": "lenet", "ResNet-18": "resnet18", "ResNet-50": "resnet50"}

PRECISIONS = ("fp32", "tf32", "fp16", "bf16")

# What memory is for beside ``memory_use.CATEGORIES``, where it's other.
BUCKETS, IMAGES = "buckets", "images and labels"

Word = tuple[str, Any]


@dataclass(frozen=True)
class Network:
    """A network whose training was recorded.

    Attributes:
        name: a key of ``FILES``.
        title: the same with the size of an image.
        source: where it comes from, and how it's trained.
        parameters: their number.
    """

    name: str
    title: str
    source: str
    parameters: int


def network(name: str) -> Network:
    """Return a network that was recorded.

    Raises:
        ValueError: there is none with this name.
    """
    choose("recording of", name, FILES)
    data = _data(name)
    return Network(name, data["title"], data["source"], data["parameters"])


def words(name: str, precision: str, gpus: int) -> tuple[Word, ...]:
    """Return what a rank does in four steps.

    Returns:
        words, each as what it's about and a value; of ``kernel`` and ``get`` the number
        in their table.
    """
    # TF32 is another way to compute the same kernels.
    precision = "fp32" if precision == "tf32" else precision
    return _programs(name)[precision, "alone" if gpus == 1 else "replicas"]


@lru_cache(maxsize=32)
def memory(name: str, batch: int) -> tuple[tuple[int, str], ...]:
    """Return the table of memory: bytes, and what they are for."""
    return tuple((_at(size, batch), what) for size, what in _data(name)["memory"])


@lru_cache(maxsize=32)
def kernels(name: str, batch: int, precision: str) -> tuple[Work, ...]:
    """Return the table of kernels."""
    return tuple(
        Work(
            name,
            [found for part in parts for found in _parts(_at(part, batch), precision)],
            bool(layer),
        )
        for name, layer, *parts in _data(name)["kernels"]
    )


# ------------------------------------------------------------------ files


@cache
def _data(name: str) -> Mapping[str, Any]:
    path = files(__package__).joinpath(f"{FILES[name]}.json")
    return json.loads(path.read_text(encoding="utf-8"))


@cache
def _programs(name: str) -> dict[tuple[str, str], tuple[Word, ...]]:
    found = programs_of(_data(name))
    return {about: tuple(map(_word, spelt)) for about, spelt in found.items()}


def programs_of(data: Mapping[str, Any]) -> dict[tuple[str, str], list[str]]:
    """Return the words of a file's programs, with those that are repeated.

    Returns:
        words, by the precision and by ``"alone"`` or ``"replicas"``.
    """
    spelt: list[str] = []  # of all programs
    found = {}
    for precision, worlds in data["programs"].items():
        for world, steps in worlds.items():
            begin = len(spelt)
            for word in " ".join(steps).split():
                if word[0] == "~":
                    start, count = map(int, word[1:].split(":"))
                    spelt += spelt[start : start + count]
                else:
                    spelt.append(word)
            found[precision, world] = spelt[begin:]
    return found


@cache
def _word(text: str) -> Word:
    if text.isdigit():
        return "kernel", (int(text),)
    if text[0] in "+-":
        return ("get", int(text[1:])) if text[0] == "+" else ("free", int(text[1:]))
    name, *values = text.split(":")
    if name in ("in", "out"):
        pinned, blocking = (flag == "1" for flag in values[1])
        return "copy", (name, int(values[0]), pinned, blocking)
    if name in ("workspace", "synchronize", "step"):
        return name, None
    if name == "phase":
        return name, values[0]
    return (
        (name, int(values[0])) if name == "wait" else ("meet", (name, int(values[0])))
    )


def _at(value, batch: int):
    """Return a value of a file for a batch; lists may have such values inside."""
    if isinstance(value, list):
        return tuple(_at(each, batch) for each in value)
    if isinstance(value, str) and value.endswith("*n"):
        constant, growth = value[:-2].split("+")
        return int(constant) + int(growth) * batch
    return value


def _parts(stored: tuple, precision: str) -> list[Part | Choice]:
    """Return the kernels of a part; ``tools/record_networks.py`` has the forms."""
    kind, *rest = stored
    if kind == "half":
        kind = precision
    if len(rest) == 3:
        numbers, nbytes, traffic = rest
        return [Part(numbers, kind, round(nbytes * traffic))]
    if kind == "fp32":  # what may run as TF32
        kind = "tf32" if precision == "tf32" else kind
    if len(rest) == 4:
        operations, nbytes, product, algorithm = rest
        return [Part(operations, kind, nbytes, product or None, algorithm)]
    computed, operations, *sides = rest
    return [Choice(tuple(ways(computed, Sides(*sides), operations, kind)))]
