"""Models whose kernels were recorded, for ``plans.py``: one file of JSON for each.

``python -m tools.record`` writes the files; its docstring says how. A file holds every
distinct kernel once, with what the clock needs to know about it, so it serves every
model of GPU. Then, for each degree of tensor parallelism, it says which of them run in
a layer and around the layers, forward and backward, and which collectives are between.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from ..catalogue import choose
from ..clock import Part, Work

# The file of each model, by the model's name.
FILES = {
    "GPT-2 124M": "gpt2",
    "Llama 3.1 8B": "llama_8b",
    "Llama 3.1 70B": "llama_70b",
}


AROUND = ("embedding", "head", "loss")  # what isn't in a layer


@dataclass(frozen=True)
class Shape:
    """The sizes of a language model.

    Attributes:
        layers: their number.
        width: numbers that stand for a token between the layers.
        heads: of attention.
        groups: heads that share keys and values count once; 0 stands for a GPT-2, in
            which none do.
        hidden: numbers inside the feed-forward part of a layer.
        words: in the vocabulary.
        length: tokens of a sequence.
    """

    layers: int
    width: int
    heads: int
    groups: int
    hidden: int
    words: int
    length: int


class Size(NamedTuple):
    """What a GPU has of a parameter that several GPUs share.

    Attributes:
        rows, columns: of the parameter.
        sums: whether its gradient has to be added up over these GPUs.
        cut: if this isn't 0, the gradient has so many rows, and the GPU's are cut out.
    """

    rows: int
    columns: int
    sums: bool = False
    cut: int = 0

    @property
    def numbers(self) -> int:
        """Numbers of the parameter."""
        return self.rows * self.columns

    @property
    def made(self) -> int:
        """Numbers of its gradient, as backward makes it."""
        return (self.cut or self.rows) * self.columns


class Collective(NamedTuple):
    """One of the GPUs that share each layer: a key of ``nccl.SENT``, and its bytes."""

    kind: str
    nbytes: int


class Segment(NamedTuple):
    """What runs for a part of a model in one direction.

    Attributes:
        steps: in order: a kernel, a collective, or the number of a collective of this
            segment, which has to end before the next kernels begin.
        most: bytes that it takes at most, beside those that were there before.
        kept: bytes that stay, without gradients of parameters; negative if it frees
            more than it keeps.
        gradients: bytes of the gradients of its parameters.
    """

    steps: tuple[Work | Collective | int, ...]
    most: int
    kept: int
    gradients: int


@dataclass(frozen=True)
class Model:
    """A language model, of which every layer does the same.

    Attributes:
        name: a key of ``FILES``.
        source: where the sizes come from.
    """

    name: str
    source: str
    shape: Shape

    def __repr__(self) -> str:
        return f"{self.name}, {self.shape.layers} layers"

    @property
    def tensor(self) -> tuple[int, ...]:
        """The degrees of tensor parallelism that were recorded."""
        return tuple(int(n) for n in _data(self.name)["tensor"])

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """The kinds of activation checkpoints that were recorded."""
        parts = _data(self.name)["tensor"]["1"]["1"]
        return tuple(name for name in parts if name not in AROUND)

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        layer, *others = (
            sum(size.numbers for size in self.sizes(part, 1))
            for part in ("layer", "embedding", "head")
        )
        return self.shape.layers * layer + sum(others)

    def sizes(self, part: str, tensor: int) -> tuple["Size", ...]:
        """Return the sizes of the parameters that a GPU has of a part.

        Args:
            part: ``"embedding"``, ``"layer"`` or ``"head"``.
            tensor: GPUs that share each layer.
        """
        found = _data(self.name)["tensor"][str(tensor)]["parameters"][part]
        return tuple(
            Size(
                *size[:2], sums="sum" in size, cut=0 if "sum" in size else sum(size[2:])
            )
            for size in found
        )

    def segment(
        self, part: str, way: str, tensor: int, sequences: int, checkpoint: str = "none"
    ) -> Segment:
        """Return what runs for a part.

        Args:
            part: ``"embedding"``, ``"layer"``, ``"head"`` or ``"loss"``.
            way: ``"forward"`` or ``"backward"``, which includes the second forward of
                what is checkpointed.
            sequences: in a batch.
        """
        part = checkpoint if part == "layer" else part
        return _segment(self.name, part, way, tensor, sequences)

    def with_layers(self, layers: int) -> "Model":
        """Return the model with another number of layers."""
        return replace(self, shape=replace(self.shape, layers=layers))


def model(name: str) -> Model:
    """Return a model that was recorded.

    Raises:
        ValueError: there is none with this name.
    """
    choose("recording of", name, FILES)
    data = _data(name)
    return Model(name, data["source"], Shape(**data["shape"]))


def optimizer(name: str) -> list[tuple[str, float]]:
    """Return the kernels of AdamW, and the bytes that each moves per parameter."""
    return [tuple(kernel) for kernel in _data(name)["optimizer"]]


@cache
def _data(name: str) -> Mapping[str, Any]:
    text = files(__name__).joinpath(f"{FILES[name]}.json").read_text(encoding="utf-8")
    return json.loads(text)


@cache
def _segment(name: str, part: str, way: str, tensor: int, sequences: int) -> Segment:
    data = _data(name)
    variants = data["tensor"][str(tensor)]
    first = max(int(n) for n in variants if n.isdigit() and int(n) <= sequences)
    more, found = sequences - first, variants[str(first)][part][way]
    steps = []
    for word in found["does"].split():
        what, *sizes = word.split(":")
        if what == "wait":
            steps.append(int(sizes[0]))
        elif sizes:
            nbytes, growth = map(int, sizes)
            steps.append(Collective(what, nbytes + more * growth))
        else:
            steps.append(_work(data["kernels"][int(what)], more))
    return Segment(tuple(steps), *(a + more * b for a, b in found["bytes"]))


def _work(line: list, more: int) -> Work:
    name, layer, *parts = line
    return Work(name, tuple(_part(each, more) for each in parts), bool(layer))


def _part(stored: list, more: int) -> Part:
    kind, operations, growth, nbytes, byte_growth, product, product_growth, way = stored
    if product is not None:
        pairs = zip(product, product_growth, strict=True)
        product = tuple(a + more * b for a, b in pairs)
    return Part(
        *(operations + more * growth, kind, nbytes + more * byte_growth),
        *(product, way),
    )
