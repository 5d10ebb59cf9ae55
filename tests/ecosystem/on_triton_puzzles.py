"""Triton Puzzles: what its notebook asks for, computed by kernels for GPUs.

The notebook itself runs its kernels on the CPU, in an interpreter of its own. Here we
read the specifications from it, and solve them with Triton's interpreter.
"""

import ast
import inspect
import json

import torch
import triton
import triton.language as tl
from jaxtyping import Float32
from torch import Tensor

from tests.ecosystem.support import close, main, source

SOURCE = "Triton-Puzzles"
NEEDS = ("triton", "jaxtyping")
ENVIRONMENT = {"TRITON_INTERPRET": "1"}


def specification(name: str):
    """Return the function of the notebook that says what a kernel computes."""
    notebook = json.loads((source(SOURCE) / "Triton-Puzzles.ipynb").read_text("utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"]]
    cell = next(text for text in cells if f"def {name}_spec(" in text)
    function = next(
        node
        for node in ast.parse(cell).body
        if getattr(node, "name", "") == f"{name}_spec"
    )
    names = {"torch": torch, "Tensor": Tensor, "Float32": Float32}
    exec(compile(ast.unparse(function), "Triton-Puzzles.ipynb", "exec"), names)
    return names[function.name]


def solved(name: str, kernel, grid: tuple[int, ...], *numbers: int) -> None:
    """Assert that a kernel computes on a GPU what a puzzle specifies."""
    function = specification(name)
    torch.manual_seed(0)
    inputs = [
        torch.rand([size.size for size in parameter.annotation.dims]) - 0.5
        for parameter in inspect.signature(function).parameters.values()
    ]
    expected = function(*inputs)
    result = torch.empty(expected.shape, device="cuda")
    kernel[grid](*(x.cuda() for x in inputs), result, *numbers)
    close(result, expected, "cuda:0", rtol=1e-3, atol=1e-3)


@triton.jit
def add(x, z, n, block: tl.constexpr):
    places = tl.program_id(0) * block + tl.arange(0, block)
    inside = places < n
    tl.store(z + places, tl.load(x + places, inside) + 10.0, inside)


@triton.jit
def multiply(x, y, z, columns, rows, width: tl.constexpr, height: tl.constexpr):
    i = tl.program_id(0) * width + tl.arange(0, width)
    j = tl.program_id(1) * height + tl.arange(0, height)
    product = tl.load(y + j, j < rows)[:, None] * tl.load(x + i, i < columns)[None, :]
    inside = (j < rows)[:, None] & (i < columns)[None, :]
    place = z + j[:, None] * columns + i[None, :]
    tl.store(place, tl.maximum(product, 0.0), inside)


@triton.jit
def sums(x, z, length, block: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, length, block):
        places = start + tl.arange(0, block)
        total += tl.sum(tl.load(x + row * length + places, places < length, 0.0))
    tl.store(z + row, total)


@triton.jit
def softmax(x, z, length, block: tl.constexpr):
    places = tl.program_id(0) * length + tl.arange(0, block)
    inside = tl.arange(0, block) < length
    values = tl.load(x + places, inside, -float("inf"))
    values = tl.exp(values - tl.max(values))
    tl.store(z + places, values / tl.sum(values), inside)


def check_puzzles_are_solved():
    """Kernels that add, multiply, sum and normalise compute what puzzles ask for."""
    solved("add2", add, (7,), 200, 32)
    solved("mul_relu_block", multiply, (4, 3), 100, 90, 32, 32)
    solved("sum", sums, (4,), 200, 32)
    solved("softmax", softmax, (4,), 200, 256)


if __name__ == "__main__":
    main(globals())
