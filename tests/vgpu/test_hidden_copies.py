"""Copies and waiting that no line asks for, as docs/vgpu/copies.md lists them."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from d2l_gpu import vgpu
from tests.helpers.paths import REPOSITORY
from tests.helpers.properties import sizes

HOST = -1
TEXT = (REPOSITORY / "docs" / "vgpu" / "copies.md").read_text("utf-8")
ROWS = {
    line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:4]]
    for line in TEXT.splitlines()
    if line.startswith("| `")
}


# For each row programs, and the bytes of each copy: to the device, to the host. X is a
# matrix of 4 × 3 float32 on the device, and i an index there, [0, 2].
PROGRAMS = {
    "`X[i]`, `X[i] = Y` with `i` on the CPU": [
        (lambda X, i: X[torch.tensor([0, 2])], [16], []),
        (lambda X, i: X[[0, 2]], [16], []),
        (lambda X, i: X[np.array([0, 2])], [16], []),
        (lambda X, i: X[torch.tensor([0, 2]), torch.tensor([1, 1])], [16] * 2, []),
        (lambda X, i: X[torch.tensor([0, 2], dtype=torch.int32)], [8], []),
        (lambda X, i: X.__setitem__(torch.tensor([3]), 2 * X[:1]), [8], []),
    ],
    "`X[mask]` with `mask` on the CPU": [
        (lambda X, i: X[torch.tensor([True, False, True, True])], [24], []),
        (lambda X, i: X[torch.ones(4, 3, dtype=torch.bool)], [192], []),
        (lambda X, i: X.__setitem__(torch.ones(4, dtype=torch.bool), 2 * X), [32], []),
    ],
    "`X[i] = torch.tensor(1.0)`, a number on the CPU": [
        (
            lambda X, i: X.__setitem__(i, torch.tensor(1.0)),
            [4],
            [],
        ),
    ],
    "`X.item()`, `float(X)`, `if X > 0:`": [
        (lambda X, i: X.sum().item(), [], [4]),
        (lambda X, i: float(X[0, 0]), [], [4]),
        (lambda X, i: 1 if X.sum() > 0 else 2, [], [1]),
    ],
    "`print(X)`, `f'{x}'`": [
        (lambda X, i: f"{X[0, 0]:.2f}", [], [4]),
        (lambda X, i: repr(X.int()), [], None),
    ],
    "`X.tolist()`, `3 in X`": [
        (lambda X, i: X.tolist(), [], [48]),
        (lambda X, i: 3 in X, [], [1]),
    ],
    "`X[X > 0]`, `X.nonzero()`, `X.unique()`": [
        (lambda X, i: X[X > 0], [], []),
        (lambda X, i: X.nonzero(), [], []),
        (lambda X, i: X.unique(), [], []),
        (lambda X, i: X.masked_select(X > 0), [], []),
        (lambda X, i: X.__setitem__(X > 0, X.sum()), [], []),
    ],
    "`torch.equal(X, Y)`, `torch.allclose(X, Y)`": [
        (lambda X, i: torch.equal(X, X), [], []),
        (lambda X, i: torch.allclose(X, X), [], []),
    ],
    "`torch.linalg.inv(X)`, `solve`, `cholesky`": [
        (lambda X, i: torch.linalg.inv(X[:3]), [], []),
        (lambda X, i: torch.linalg.cholesky(X[:3]), [], []),
    ],
}
FREE = {
    "a number times X": lambda X, i: X * torch.tensor(2.0),
    "where": lambda X, i: torch.where(X > 0, X, torch.tensor(0.0)),
    "fill": lambda X, i: X.fill_(torch.tensor(2.0)),
    "an integer": lambda X, i: X[1],
    "an integer in a tensor": lambda X, i: X[torch.tensor(1)],
    "a number where a mask says": lambda X, i: X.__setitem__(X > 0, 1.0),
    "a slice": lambda X, i: X[1:3, ::2],
    "an index on the device": lambda X, i: X[i],
    "a shape": lambda X, i: X.new_zeros(len(X), X.shape[1]),
    "clipping": lambda X, i: nn.utils.clip_grad_norm_([X], 1.0),
    "a row at a time": lambda X, i: [row.sum() for row in X],
}


def test_the_table_has_these_rows_and_no_other():
    assert list(ROWS) == list(PROGRAMS)


def observed(program):
    """Return bytes copied to and from the device, and whether the host waited."""
    vgpu.enable(1)
    sim = vgpu.current_simulator()
    device = torch.device("vgpu:0")
    X = torch.eye(4, device=device)[:, :3].contiguous()
    W = torch.ones(512, 512, device=device)
    i = torch.tensor([0, 2], device=device)
    sim.reset()
    work = W @ W  # takes longer than the host needs to issue what follows
    for _ in range(20):
        work = work @ W
    before = torch.vgpu.Event()
    before.record()
    with vgpu.record_copies() as copies:
        program(X, i)
    waited = before.query()
    inwards = [c.nbytes for c in copies if c.source == HOST]
    return inwards, [c.nbytes for c in copies if c.target == HOST], waited


@pytest.mark.parametrize(
    ("row", "number"),
    [(row, i) for row, cases in PROGRAMS.items() for i in range(len(cases))],
)
def test_each_row_says_what_is_copied_and_that_the_host_waits(row, number):
    program, inwards, outwards = PROGRAMS[row][number]
    copied = observed(program)
    assert copied[0] == inwards
    assert copied[1] == outwards or (outwards is None and len(copied[1]) > 12)
    said = " ".join(ROWS[row])
    assert copied[2] == ("the host goes on" not in said)
    assert ("to the device" in said) == bool(inwards)
    assert ("to the host" in said) == (outwards is None or bool(outwards))


@pytest.mark.parametrize("name", FREE)
def test_what_needs_no_value_neither_copies_nor_waits(name):
    assert observed(FREE[name]) == ([], [], False)


@pytest.mark.virtual_gpus(2)
@given(
    n=sizes(most=5),
    places=st.lists(st.integers(0, 4), max_size=6),
    dtype=st.sampled_from([torch.int64, torch.int32]),
    index=st.integers(0, 1),
)
def test_an_index_on_the_cpu_crosses_to_the_tensors_own_device(n, places, dtype, index):
    places = [place % n for place in places] if n else []
    X = torch.rand(max(n, 1), 2).to(f"vgpu:{index}")
    with vgpu.record_copies() as copies:
        Y = X[torch.tensor(places, dtype=dtype)]
    assert Y.device == X.device
    expected = [(HOST, index, dtype.itemsize * len(places))] if places else []
    assert [(c.source, c.target, c.nbytes) for c in copies] == expected


@pytest.mark.virtual_gpus(1)
def test_a_mode_names_the_line_with_an_index_on_the_cpu(recwarn):
    X, i = torch.rand(3, device="vgpu"), torch.tensor([1])
    there = i.to("vgpu")
    torch.vgpu.set_sync_debug_mode("warn")
    try:
        X[there]
        X[torch.tensor([True, False, True])]
        X[X > 0.5] = 1.0
        assert not recwarn
        X[i]
    finally:
        torch.vgpu.set_sync_debug_mode("default")
    (warning,) = recwarn
    assert re.search("waits for vgpu:0", str(warning.message))
    assert warning.filename == __file__


@pytest.mark.virtual_gpus(1)
def test_a_truth_value_written_from_the_cpu_is_one_byte():
    X, i = torch.zeros(3, device="vgpu").bool(), torch.tensor([1], device="vgpu")
    with vgpu.record_copies() as copies:
        X[i] = torch.tensor(True)
    assert X.tolist() == [False, True, False]
    assert [c.nbytes for c in copies] == [1]


@pytest.mark.virtual_gpus(1)
def test_an_index_beyond_the_end_copies_nothing():
    X = torch.rand(3, device="vgpu")
    with vgpu.record_copies() as copies, pytest.raises(torch.AcceleratorError):
        X[torch.tensor([7])]
    assert copies == []
