"""One record per operator: each is an existing operator's, and no fact is elsewhere.

What the records say is tested through what a program sees: kernels and waiting on the
simulated clock, memory, errors and devices.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
import torch
import torchgen
import yaml
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from d2l_gpu import vgpu
from d2l_gpu.vgpu.operators import all_operators, operator
from d2l_gpu.vgpu.records import FAMILIES, RECORDS, Record, record_of
from tests.helpers.paths import REPOSITORY
from tests.helpers.properties import sizes

# With and without overload; those of other libraries keep their namespace.
OVERLOADS = {
    name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names()
}
NAMES = {name.partition(".")[0] for name in OVERLOADS}

# ------------------------------------------------------------------ the table


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_of_an_operator(name):
    if name.startswith("c10d::") and not torch.distributed.is_available():
        pytest.skip("this PyTorch has no torch.distributed")
    assert name in OVERLOADS | NAMES


@pytest.mark.parametrize("prefix", FAMILIES)
def test_a_family_has_several_members(prefix):
    if prefix == "c10d::" and not torch.distributed.is_available():
        pytest.skip("this PyTorch has no torch.distributed")
    assert sum(name.startswith(prefix) for name in NAMES) > 1


def test_a_record_of_a_members_own_says_what_its_family_says():
    for prefix, family in FAMILIES.items():
        shared = [
            f.name for f in fields(family) if getattr(family, f.name) != f.default
        ]
        assert shared
        for name, record in RECORDS.items():
            if name.startswith(prefix):
                assert all(getattr(record, x) == getattr(family, x) for x in shared)


def test_an_overload_an_operator_and_a_family_have_records():
    aten = torch.ops.aten
    assert record_of(aten.index.Tensor_out) is RECORDS["index"]
    assert record_of(aten._unsafe_index.Tensor) is FAMILIES["_unsafe_index"]
    assert record_of(aten.add.Tensor) == Record()
    split = aten.tensor_split
    assert record_of(split.tensor_indices_or_sections).composite is not None
    assert record_of(split.sections) == Record()


# ------------------------------------------------------------------ and nothing else

PACKAGE = REPOSITORY / "d2l_gpu" / "vgpu"
ELSEWHERE = sorted(set(PACKAGE.rglob("*.py")) - {PACKAGE / "records.py"})
# A table of names that are not operators', though some operators are called the same.
ARGUMENTS = {"_HARMLESS"}


def texts(node: ast.AST) -> set[str]:
    return {
        x.value
        for x in ast.walk(node)
        if isinstance(x, ast.Constant) and isinstance(x.value, str)
    }


def tables(tree: ast.AST) -> Iterator[set[str]]:
    """Yield the texts that each collection holds, or that are the keys of a dict."""
    arguments = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and {x.id for x in node.targets if isinstance(x, ast.Name)} & ARGUMENTS
    }
    for node in ast.walk(tree):
        if id(node) in arguments:
            continue
        if isinstance(node, ast.Dict):
            yield set().union(*(texts(key) for key in node.keys if key is not None))
        elif isinstance(node, ast.Set | ast.List | ast.Tuple):
            yield texts(node)


def comparisons(tree: ast.AST) -> Iterator[set[str]]:
    """Yield the texts that the name of something is compared with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            sides = [node.func.value, *node.args]
            if node.func.attr != "startswith":
                continue
        else:
            continue
        if any(isinstance(x, ast.Attribute) and x.attr == "name" for x in sides):
            yield set().union(*map(texts, sides))


# Also the names of collectives, and the keys of an event of memory.
ALSO = {"gather", "scatter", "addr", "size"}


def misplaced(code: str) -> list[set[str]]:
    """Return the operators' names in a file that look like facts about operators."""
    tree = ast.parse(code)
    found = [names & (NAMES | OVERLOADS) - ALSO for names in tables(tree)]
    found = [names for names in found if len(names) > 1]
    # A comparison can also ask for the beginning of a name, as in "_foreach".
    found += [
        {x for x in compared if x and any(name.startswith(x) for name in NAMES)}
        for compared in comparisons(tree)
    ]
    return [names for names in found if names]


@pytest.mark.parametrize(
    "path", ELSEWHERE, ids=lambda path: path.relative_to(PACKAGE).as_posix()
)
def test_no_other_file_has_facts_about_operators(path: Path):
    assert not misplaced(path.read_text("utf-8"))


@pytest.mark.parametrize(
    "code",
    [
        'X = {"mm", "bmm"}',
        'X = ("linear", "conv2d")',
        'X = {"copy_": f, "_to_copy": g}',
        'X = dict.fromkeys(("index_select", "take"), 3)',
        'self.kernel = self.name != "detach"',
        'waits = op.name in ("index", "index_put")',
        'if op.name.startswith("_foreach"): pass',
    ],
)
def test_facts_in_another_file_are_noticed(code):
    assert misplaced(code)


# ------------------------------------------------------------------ what programs see


def on_clock(program):
    """Return a simulation that has run a program of a matrix, and its kernels."""
    sim = vgpu.simulator(1)
    X = torch.ones(256, 256, device=sim.gpu(0))
    sim.reset()
    program(X)
    return sim, {use.name for use in sim.report().devices[0].operators}


@pytest.mark.virtual_gpus(1)
@pytest.mark.parametrize(
    ("program", "kernels"),
    [
        (lambda X: X.view(-1)[3:].detach(), set()),
        (lambda X: torch.empty_like(X).new_empty(3), set()),
        (lambda X: torch.empty(3, device=X.device), set()),
        (lambda X: torch.ones(3, device=X.device), {"ones"}),
        (lambda X: X.view(16, 16, 256) @ X, {"mm"}),
        (lambda X: X.relu().clone(), {"relu", "clone"}),
    ],
)
def test_views_and_memory_without_values_issue_no_kernel(program, kernels):
    assert on_clock(program)[1] == kernels


@pytest.mark.virtual_gpus(1)
@pytest.mark.parametrize(
    ("program", "waits"),
    [
        (lambda X: X.nonzero(), True),
        (lambda X: X.sum().item(), True),
        (lambda X: X[torch.tensor([1, 2], device=X.device)], False),
        (lambda X: X.index_select(0, torch.tensor([1, 2], device=X.device)), False),
        (lambda X: X.relu(), False),
    ],
)
def test_the_host_waits_where_values_decide_on_a_shape(program, waits):
    sim, _ = on_clock(lambda X: program(X @ X @ X @ X))
    assert (sim.now() == sim.elapsed()) == waits


# What may stand at one or several dimensions of size 2 in an index; a mask has a single
# True, so that all indices fit together.
INDICES = {
    "slice": lambda device: slice(None),
    "step": lambda device: slice(None, None, 2),
    "new": lambda device: None,
    "number": lambda device: 1,
    "numbers": lambda device: torch.tensor([1], device=device),
    "mask": lambda device: torch.tensor([False, True], device=device),
    "bytes": lambda device: torch.tensor([1, 0], dtype=torch.uint8, device=device),
    "mask of two": lambda device: torch.tensor(
        [[False, False], [True, False]], device=device
    ),
}
DIMENSIONS = {"new": 0, "mask of two": 2}
MASKS = {"mask", "bytes", "mask of two"}


@pytest.mark.virtual_gpus(1)
@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@given(
    kinds=st.lists(st.sampled_from(sorted(INDICES)), min_size=1, max_size=4),
    more=sizes(most=2),
    rest=st.booleans(),
    way=st.sampled_from(["read", "write", "add"]),
)
def test_the_host_waits_for_a_mask_wherever_it_stands(kinds, more, rest, way):
    if way != "read":  # PyTorch's own kernel refuses bytes where it writes one value
        kinds = ["mask" if kind == "bytes" else kind for kind in kinds]
    dims = sum(DIMENSIONS.get(kind, 1) for kind in kinds) + more
    sim = vgpu.simulator(1)
    X = torch.zeros([2] * dims, device=sim.gpu(0))
    index = tuple(INDICES[kind](sim.gpu(0)) for kind in kinds)
    if rest:
        index += (...,)
    value = torch.ones((), device=sim.gpu(0))
    work = torch.ones(256, 256, device=sim.gpu(0))
    sim.reset()
    work @ work
    if way == "read":
        X[index]
    elif way == "write":
        X[index] = value
    else:
        X[index] += value
    assert (sim.now() == sim.elapsed()) == bool(MASKS & set(kinds))


@pytest.mark.virtual_gpus(2)
def test_lengths_stay_on_the_host_and_indices_may():
    X = torch.ones(2, 3, 4, device="vgpu")
    packed = nn.utils.rnn.pack_padded_sequence(X, torch.tensor([3, 1]), True)
    assert packed.data.device.type == "vgpu"
    assert packed.batch_sizes.device.type == "cpu"
    layer = nn.GRU(4, 2).to("vgpu")
    assert layer(packed)[0].batch_sizes.device.type == "cpu"
    assert X[torch.tensor([1])].device.type == "vgpu"
    with pytest.raises(RuntimeError, match="indices should be either on cpu or"):
        X[torch.tensor([1], device="vgpu:1")]


# ------------------------------------------------------------------ numbers on the CPU

NATIVE = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
# They check what their tensors are in another way.
NOT_NUMBERS = {
    "_nested_from_padded",
    "_nested_view_from_buffer",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_validate_compressed_sparse_indices",
    "bernoulli_.Tensor",
    "binomial",
    "is_set_to",
    "max.dim_max",
    "min.dim_min",
    "set_.source_Tensor",
}


@pytest.mark.skipif(not NATIVE.exists(), reason="torchgen comes without its data")
def test_numbers_on_the_cpu_are_taken_where_pytorch_does_not_compare_devices():
    functions = yaml.safe_load(NATIVE.read_text("utf-8"))
    unchecked = {
        f["func"].partition("(")[0]
        for f in functions
        if f.get("device_check") == "NoCheck"
    }
    assert len(unchecked) > 500
    here = torch._C._dispatch_has_kernel_for_dispatch_key
    for name, func in all_operators():
        name = name.removeprefix("aten::")
        tensors = sum("Tensor" in str(a.type) for a in func._schema.arguments)
        composite = any(
            here(f"aten::{name}", f"Composite{kind}")
            for kind in ("ImplicitAutograd", "ExplicitAutograd")
        )
        writes_out = any(a.is_out for a in func._schema.arguments)
        if tensors < 2 or composite or writes_out or not here(f"aten::{name}", "CPU"):
            continue
        takes = operator(func).pointwise or operator(func).indexes
        assert not takes or name in unchecked, name
        assert takes or name not in unchecked - NOT_NUMBERS, name


@pytest.mark.virtual_gpus(2)
@pytest.mark.parametrize(
    "program",
    [
        lambda X, number: X.fill_(number),
        lambda X, number: X.masked_fill(X > 0, number),
        lambda X, number: X.masked_fill_(X > 0, number),
        lambda X, number: X // number,
        lambda X, number: X.floor_divide_(number),
        lambda X, number: X.gt_(number),
        lambda X, number: torch.xlogy(X, number),
        lambda X, number: torch.rsub(X, number),
        lambda X, number: X.index_fill(
            0, torch.tensor([1], device=X.device), number.to(X.dtype)
        ),
        lambda X, number: torch.where(X > 0, X, number),
        lambda X, number: X.__setitem__(X > 0.5, number),
    ],
)
def test_a_number_on_the_cpu_is_taken_and_a_vector_is_not(program):
    X = torch.rand(4, 3)
    virtual = X.to("vgpu:1")
    result, expected = program(virtual, torch.tensor(2.0)), program(X, torch.tensor(2))
    if expected is not None:
        assert result.device == torch.device("vgpu:1")
        torch.testing.assert_close(result.cpu(), expected)
    torch.testing.assert_close(virtual.cpu(), X)
    with pytest.raises(RuntimeError, match=r"same device|0-dimension|cpu"):
        program(virtual, torch.ones(3))


@pytest.mark.virtual_gpus(1)
@pytest.mark.parametrize("name", ["clamp", "clamp_min", "logaddexp", "nextafter"])
def test_some_operators_take_no_number_on_the_cpu_either(name):
    X = torch.rand(3, device="vgpu")
    with pytest.raises(RuntimeError, match="different from other tensors on vgpu:0"):
        getattr(torch, name)(X, torch.tensor(2.0))


@pytest.mark.virtual_gpus(1)
@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss])
def test_some_losses_refuse_a_mismatch_as_tensoriterator_does(loss):
    X = torch.ones(3, device="vgpu")
    with pytest.raises(RuntimeError, match="at least two devices, vgpu:0 and cpu!"):
        loss(X, torch.ones(3))
    with pytest.raises(RuntimeError, match="when checking argument in method"):
        X.dot(torch.ones(3))


@pytest.mark.virtual_gpus(1)
@pytest.mark.parametrize("shape", [(2, 3), (4, 1, 5), (2, 3, 4, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_parts_of_synchronized_batch_normalization_make_the_whole(shape, dtype):
    X, eps = torch.randn(shape).to(dtype), 1e-5
    weight, bias = torch.rand(shape[1]), torch.rand(shape[1])
    x, w, b = (t.to("vgpu") for t in (X, weight, bias))
    mean, invstd = torch.batch_norm_stats(x, eps)
    assert mean.dtype == invstd.dtype == torch.float32
    count = torch.tensor([X.numel() / shape[1]], device="vgpu")
    running = torch.zeros(shape[1], device="vgpu"), torch.ones(shape[1], device="vgpu")
    total, invstd = torch.batch_norm_gather_stats_with_counts(
        x, mean[None], invstd[None], *running, 0.1, eps, count
    )
    result = torch.batch_norm_elemt(x, w, b, total, invstd, eps)
    expected_running = torch.zeros(shape[1]), torch.ones(shape[1])
    expected = F.batch_norm(
        X.float(), *expected_running, weight, bias, training=True, momentum=0.1
    )
    torch.testing.assert_close(result.cpu(), expected.to(dtype))
    for ours, theirs in zip(running, expected_running, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)


# ------------------------------------------------------------------ bounds


class Bounds(TorchDispatchMode):
    """Compare the memory of each result with the bound, for operators that have one."""

    def __init__(self):
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        op, results = operator(func), func(*args, **(kwargs or {}))
        if op.bound is not None and op.allocates:
            self.seen.add(op.name)
            operands = [x for x in tree_leaves(args) if isinstance(x, torch.Tensor)]
            found = [x for x in tree_leaves(results) if isinstance(x, torch.Tensor)]
            nbytes = sum(x.untyped_storage().nbytes() for x in found)
            bound = op.bound(args, sum(x.nbytes for x in operands))
            assert nbytes <= bound, (op.name, nbytes, bound)
        return results


def test_no_result_is_larger_than_the_bound_of_its_operator():
    X = torch.randn(2, 4, 9, 9, requires_grad=True)
    y = torch.tensor([1, 3])
    with Bounds() as bounds:
        for program in (
            lambda X: X[0, 0] @ X[1, 0, :, :5],
            lambda X: X[0] @ X[1],
            nn.Linear(9, 700),
            *(
                nn.Conv2d(4, 20, k, s, p, d, groups)
                for k, s, p, d, groups in (
                    (1, 1, 3, 1, 1),
                    (3, 2, 1, 1, 2),
                    ((2, 4), (1, 3), (0, 9), (4, 1), 4),
                )
            ),
            nn.ConvTranspose2d(4, 3, 5, stride=4, output_padding=3),
            lambda X: F.conv1d(X[0], torch.ones(3, 9, 2), padding=50),
            nn.BatchNorm2d(4),
            nn.GroupNorm(2, 4),
            nn.LayerNorm([9, 9]),
            nn.MaxPool2d(2, stride=1, padding=1),
            lambda X: torch.native_dropout(X, 0.5, True)[0],
            nn.ReLU(),
            nn.Softmax(1),
            lambda X: F.cross_entropy(X[:, :, 0, 0], y),
            lambda X: F.nll_loss(X, y[:, None, None].expand(2, 9, 9)),
            lambda X: torch._foreach_add(list(X), 1.0)[0],
        ):
            program(X).sum().backward()
    expected = {name for name, record in RECORDS.items() if record.bound is not None}
    expected = {name for name in expected if not re.search("^_foreach", name)}
    assert expected <= bounds.seen
