"""Sparse tensors: values and gradients as on the CPU, on one device, in its memory."""

import copy
import io
import warnings
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from d2l_gpu import vgpu
from d2l_gpu.vgpu.sim.machine import HOST
from tests.helpers.properties import sizes

pytestmark = [
    pytest.mark.virtual_gpus(3),
    # PyTorch calls CSR experimental, and wants to know whether to check indices.
    pytest.mark.filterwarnings("ignore:Sparse "),
    pytest.mark.filterwarnings("ignore:Casting complex values to real"),
]

GPU = "vgpu:1"
TYPES = [torch.float32, torch.float64, torch.int64, torch.complex64]
LAYOUTS = [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc]


@st.composite
def elements(draw, dtypes=tuple(TYPES), hybrid=True):
    """A COO matrix on the CPU: few elements, repeated ones, or none at all.

    Its elements are numbers, or vectors if it may be hybrid.
    """
    shape = draw(sizes(1, 6)), draw(sizes(1, 6))
    count = draw(sizes(0, 9))
    inner = draw(st.sampled_from([(), (2,)])) if hybrid else ()
    seeds = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    places = torch.stack([torch.randint(n, (count,), generator=seeds) for n in shape])
    values = torch.randint(-4, 5, (count, *inner), generator=seeds)
    values = values.to(draw(st.sampled_from(dtypes)))
    made = torch.sparse_coo_tensor(places, values, (*shape, *inner))
    return made.coalesce() if draw(st.booleans()) else made


def parts(x: torch.Tensor) -> tuple:
    """Return all that a tensor consists of, with dense tensors on the CPU."""
    x = x.detach()
    if x.layout is torch.sparse_coo:
        return x.shape, x.is_coalesced(), x._indices().cpu(), x._values().cpu()
    if x.layout is torch.sparse_csr:
        return x.shape, x.crow_indices().cpu(), x.col_indices().cpu(), x.values().cpu()
    if x.layout is torch.sparse_csc:
        return x.shape, x.ccol_indices().cpu(), x.row_indices().cpu(), x.values().cpu()
    return (x.cpu(),)


def same(a, b) -> bool:
    """Whether two results agree to the last bit; ``a`` is the CPU's."""
    if isinstance(a, torch.Tensor):
        facts = "dtype", "shape", "layout"
        return all(getattr(a, x) == getattr(b, x) for x in facts) and all(
            bits(x) == bits(y) if isinstance(x, torch.Tensor) else x == y
            for x, y in zip(parts(a), parts(b), strict=True)
        )
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def bits(x: torch.Tensor) -> tuple:
    return x.dtype, x.shape, x.numpy().tobytes()


def everywhere(result, device) -> bool:
    if isinstance(result, list | tuple):
        return all(everywhere(x, device) for x in result)
    return not isinstance(result, torch.Tensor) or str(result.device) == device


def outcome(function, *tensors, device):
    """Return a function's result on copies of the tensors, or say that it failed."""
    try:
        result = function(*[x.clone().to(device) for x in tensors])
    except RuntimeError:
        return "an error"
    assert everywhere(result, device)
    return result


def full(x: torch.Tensor, *shape: int) -> torch.Tensor:
    """Return a dense tensor of small numbers on a tensor's device."""
    values = torch.arange(torch.Size(shape).numel()) % 7 - 3
    return values.view(shape).to(x.device, x.dtype)


# ------------------------------------------------------------------ values

FUNCTIONS = {
    "dense": lambda s: s.to_dense(),
    "coalesced": lambda s: s.coalesce(),
    "facts": lambda s: (s._nnz(), s.sparse_dim(), s.dense_dim(), s.is_coalesced()),
    "indices and values": lambda s: (s.indices(), s.values()),
    "sum": lambda s: (s + s, s - s.coalesce(), torch.sparse.sum(s)),
    "sum by dimension": lambda s: torch.sparse.sum(s, 0),
    "product": lambda s: (s * s, s * 3, s * full(s, *s.shape)),
    "added to a dense one": lambda s: full(s, *s.shape) + s,
    "in place": lambda s: (s.mul_(2), s.add_(s, alpha=2), s.neg_(), s.zero_()),
    "dense, in place": lambda s: full(s, *s.shape).add_(s),
    "functions": lambda s: [getattr(s, x)() for x in ("neg", "abs", "sgn", "isnan")],
    "powers": lambda s: (s.coalesce() ** 2, s.sqrt(), s.sin()),
    "transposed": lambda s: (s.transpose(0, 1), s.unsqueeze(0), s[0]),
    "joined": lambda s: (torch.cat([s, s], 1), torch.stack([s, s])),
    "chosen": lambda s: s.index_select(0, torch.zeros(2, dtype=int, device=s.device)),
    "mm": lambda s: torch.sparse.mm(s, full(s, s.shape[1], 2)),
    "mv": lambda s: s @ full(s, s.shape[1]),
    "addmm": lambda s: torch.sparse.addmm(
        full(s, s.shape[0], 2), s, full(s, s.shape[1], 2), beta=2, alpha=3
    ),
    "sparse mm": lambda s: torch.sparse.mm(s, s.transpose(0, 1)),
    "softmax": lambda s: (torch.sparse.softmax(s, 1), torch.sparse.log_softmax(s, 0)),
    "type": lambda s: (s.to(torch.float64), s.to(torch.int32), s.cpu().to(s.device)),
    "like it": lambda s: (torch.zeros_like(s), torch.empty_like(s), s.clone()),
    "by itself": lambda s: s.new(s._indices(), s._values(), s.shape),
    "masked": lambda s: full(s, *s.shape).sparse_mask(s.coalesce()),
    "from dense": lambda s: (s.to_dense().to_sparse(), s.to_dense().to_sparse(1)),
    "rows": lambda s: s.to_sparse_csr(),
    "columns": lambda s: s.to_sparse_csc().to_dense(),
    "rows of a dense one": lambda s: s.to_dense().to_sparse_csr().to_sparse(),
    "rows mm": lambda s: s.to_sparse_csr() @ full(s, s.shape[1], 2),
    "rows mv": lambda s: s.to_sparse_csr() @ full(s, s.shape[1]),
    "rows added": lambda s: s.to_sparse_csr() + s.to_sparse_csr(),
    "rows transposed": lambda s: s.to_sparse_csr().transpose(0, 1),
    "copied": lambda s: (copy.copy(s), copy.deepcopy(s)),
    "overwritten": lambda s: (s + s).copy_(s),
    "smaller": lambda s: s.sparse_resize_and_clear_((3, 3), 2, 0),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@settings(max_examples=15)
@given(data=st.data())
def test_results_equal_the_cpus(function, data):
    s = data.draw(elements())
    expected = outcome(function, s, device="cpu")
    assert same(expected, outcome(function, s, device=GPU))
    with torch.inference_mode():
        again = outcome(function, s, device=GPU)
        assert same(outcome(function, s, device="cpu"), again)


def test_most_functions_succeed_on_the_cpu():
    s = torch.tensor([[0.0, 2, 0], [1, 0, 4]]).to_sparse()
    for function in FUNCTIONS.values():
        assert outcome(function, s, device="cpu") != "an error"


GRADIENTS = {
    "dense": lambda s, X: s.to_dense(),
    "sum": lambda s, X: torch.sparse.sum(s, 0).to_dense(),
    "added": lambda s, X: X + s,
    "products": lambda s, X: (s * s).to_dense(),
    "mm": lambda s, X: torch.sparse.mm(s, X.t()),
    "mv": lambda s, X: s @ X[0],
    "addmm": lambda s, X: torch.sparse.addmm(X @ X.t(), s, X.t()),
    "sparse mm": lambda s, X: torch.sparse.mm(s, s.t()).to_dense(),
    "softmax": lambda s, X: torch.sparse.softmax(s, 1).to_dense(),
    "coalesced": lambda s, X: s.coalesce().values(),
    "from dense": lambda s, X: (X.to_sparse() * 2).to_dense() + s.to_dense(),
    "masked": lambda s, X: X.sparse_mask(s.detach().coalesce()).to_dense(),
    "rows": lambda s, X: s.detach().to_sparse_csr() @ X.t(),
    "rows mv": lambda s, X: s.detach().to_sparse_csr() @ X[0],
    "rows, reduced": lambda s, X: torch.sparse.mm(
        s.detach().to_sparse_csr(), X.t().contiguous(), "amax"
    ),
}


@pytest.mark.parametrize("function", GRADIENTS.values(), ids=GRADIENTS)
@settings(max_examples=10)
@given(s=elements((torch.float32, torch.float64), hybrid=False))
def test_gradients_equal_the_cpus(function, s):
    def gradients(s):
        s.requires_grad_()
        X = full(s, *s.shape).requires_grad_()
        result = function(s, X)
        weights = full(result, *result.shape)
        found = torch.autograd.grad(result, [s, X], weights, allow_unused=True)
        return [result, *found]

    assert same(outcome(gradients, s, device="cpu"), outcome(gradients, s, device=GPU))


@settings(max_examples=20)
@given(s=elements())
def test_printing_adds_the_device(s):
    def squeezed(x):
        return str(x).replace(f"device='{GPU}', ", "").split()

    there = s.to(GPU)
    assert f"device='{GPU}'" in str(there)
    assert "".join(squeezed(there)) == "".join(squeezed(s)).replace("\n", "")


@pytest.mark.parametrize("device", ["vgpu:0", "vgpu:2"])
def test_sparse_tensors_are_made_where_the_program_says(device):
    size, places = (3, 4), torch.tensor([[0, 2], [1, 1]])
    for made in (
        torch.sparse_coo_tensor(size, device=device),
        torch.zeros(size, layout=torch.sparse_coo, device=device),
        torch.zeros(size, layout=torch.sparse_csr, device=device),
        torch.sparse_coo_tensor([[0, 2], [1, 1]], [1.0, 2.0], size, device=device),
        torch.sparse_coo_tensor(places, torch.ones(2), size, device=device),
        torch.sparse_coo_tensor(places.to(device), torch.ones(2, device=device), size),
        torch.sparse_csr_tensor([0, 1, 1, 2], [1, 1], [1, 2.0], size, device=device),
        torch.sparse_csc_tensor([0, 0, 2, 2, 2], [0, 2], [1, 2.0], size, device=device),
    ):
        assert made.shape == size and vgpu.is_virtual(made)
        assert made.device == torch.device(device)
        assert torch.vgpu.current_device() == 0


@pytest.mark.parametrize("device", ["vgpu:0", "vgpu:2"])
def test_sparse_tensors_are_made_on_the_default_device(device):
    with torch.device(device):
        empty = torch.sparse_coo_tensor((2, 3))
        one = torch.sparse_coo_tensor([[1]], [1.0])
        rows = torch.sparse_csr_tensor([0, 1], [0], [1.0])
    assert everywhere([empty, one, rows], device)
    assert everywhere(torch.sparse_coo_tensor((2, 3)), "cpu")


# ------------------------------------------------------------------ learning

OPTIMIZERS = {
    "SparseAdam": lambda p: torch.optim.SparseAdam(p, lr=0.1),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
}


@pytest.mark.parametrize("kind", OPTIMIZERS.values(), ids=OPTIMIZERS)
@settings(max_examples=8)
@given(words=st.lists(st.integers(0, 6), min_size=1, max_size=8))
def test_embeddings_with_sparse_gradients_learn_as_on_the_cpu(kind, words):
    def learned(device):
        torch.manual_seed(0)
        net = nn.Embedding(7, 3, sparse=True).to(device)
        optimizer = kind(net.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            for _ in range(2):  # the second gradient is added to the first
                net(torch.tensor(words, device=device)).square().sum().backward()
            optimizer.step()
        assert net.weight.grad.is_sparse
        return [net.weight, net.weight.grad]

    there = learned(GPU)
    assert everywhere(there, GPU) and same(learned("cpu"), there)


# ------------------------------------------------------------------ devices and memory


@pytest.mark.parametrize("place", ["cpu", "vgpu:0"])
@given(s=elements((torch.float32,), hybrid=False))
@settings(max_examples=5)
def test_operands_on_different_devices_raise_an_error(place, s):
    here, X = s.to(GPU), full(s, s.shape[1], 2)
    for call in (
        lambda: here + s.to(place),
        lambda: s.to(place) * here,
        lambda: torch.sparse.mm(here, X.to(place)),
        lambda: here.to_sparse_csr() @ X.to(place),
        lambda: torch.sparse_coo_tensor(s._indices().to(place), here._values()),
    ):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the"):
            call()
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the"):
            call()


def in_blocks(x: torch.Tensor) -> int:
    """Return the bytes that the parts of a sparse tensor occupy on a device."""
    tensors = [part for part in parts(x) if isinstance(part, torch.Tensor)]
    return sum(-(-part.nbytes // 512) * 512 for part in tensors)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("n", [0, 1, 40, 300])
def test_the_account_holds_indices_and_values_until_both_are_gone(layout, n):
    def used():
        return torch.vgpu.memory_allocated(1)

    before = used()
    s = torch.eye(n).to_sparse(layout=layout).to(GPU)
    assert used() - before == in_blocks(s)
    copies = s.detach(), s.clone()
    assert used() - before == 2 * in_blocks(s)
    del copies
    values = s._values() if s.is_sparse else s.values()
    del s
    assert used() - before >= -(-values.nbytes // 512) * 512
    if layout is torch.sparse_coo:
        assert used() - before == -(-values.nbytes // 512) * 512
    del values
    assert used() == before


def test_the_account_follows_changes_in_place():
    before = torch.vgpu.memory_allocated(1)
    s = torch.eye(100).to_sparse().to(GPU)
    s.add_(torch.ones(100, 100).tril().to_sparse().to(GPU))
    assert torch.vgpu.memory_allocated(1) - before >= s._nnz() * 20
    s.zero_()
    assert torch.vgpu.memory_allocated(1) == before
    s.copy_(torch.ones(100, 100).to_sparse())
    assert torch.vgpu.memory_allocated(1) - before == in_blocks(s)


@pytest.mark.virtual_gpus(2, memory="1MiB")
def test_what_does_not_fit_is_refused_before_it_is_computed():
    n = 2**40  # the host couldn't hold it
    s = torch.sparse_coo_tensor([[0, 0], [0, 0]], [1.0, 1], (n, 1), device=GPU)
    for call in (
        s.to_dense,
        lambda: s @ torch.ones(1, 2, device=GPU),
        lambda: torch.ones(2**19).to_sparse().to(GPU),
    ):
        with pytest.raises(torch.OutOfMemoryError):
            call()
    assert (s + s).coalesce()._nnz() == 1


@given(s=elements(), source=st.integers(-1, 2), target=st.integers(-1, 2))
@settings(max_examples=25)
def test_copies_move_indices_and_values(s, source, target):
    names = {HOST: "cpu"}
    here = s.to(names.get(source, f"vgpu:{source}"))
    there = names.get(target, f"vgpu:{target}")
    with vgpu.record_copies() as copies:
        moved = here.to(there)
    assert same(s, moved) and str(moved.device) == there
    crossing = [s._indices().nbytes, s._values().nbytes] if source != target else []
    assert [x.nbytes for x in copies] == [n for n in crossing if n]
    assert all((x.source, x.target) == (source, target) for x in copies)


# ------------------------------------------------------------------ the clock


def uses(program, n: int) -> dict:
    sim = vgpu.simulator(1)
    s = torch.eye(n, device=sim.gpu(0)).to_sparse()
    X = torch.ones(n, 2, device=sim.gpu(0))
    sim.reset()
    program(s, X)
    return {use.name: use for use in sim.report().devices[0].operators}


@pytest.mark.parametrize("n", [1, 64, 300])
def test_a_kernel_moves_the_bytes_of_indices_and_values(n):
    one = n * (16 + 4)
    assert uses(lambda s, X: s.clone(), n)["clone"].nbytes == 2 * one
    assert uses(lambda s, X: s.to_dense(), n)["_to_dense"].nbytes == one + 4 * n * n
    (product,) = uses(lambda s, X: s @ X, n).values()
    assert product.nbytes == one + 2 * (4 * 2 * n)  # X, and a result like it
    (product,) = uses(lambda s, X: s.to_sparse_csr(), n).values()
    assert product.nbytes == one + 8 * (n + 1) + 12 * n


def test_facts_and_parts_of_a_sparse_tensor_issue_no_kernel():
    def program(s, X):
        s._nnz(), s.is_coalesced(), s.sparse_dim(), s.indices(), s.values(), s.detach()
        torch.sparse_coo_tensor(s._indices(), s._values(), s.shape, is_coalesced=True)

    assert not uses(program, 5)


@pytest.mark.parametrize(
    ("call", "waits"),
    [
        (lambda s: s.to_dense().to_sparse(), True),
        (lambda s: s.to_dense().to_sparse_csr(), True),
        (lambda s: torch.stack([s, s]).coalesce(), True),
        (lambda s: s.to_sparse_csr(), False),
        (lambda s: s.to_dense(), False),
        (lambda s: s + s, False),
    ],
)
def test_the_host_waits_for_the_number_of_elements(call, waits):
    s = torch.eye(3, device=GPU).to_sparse()
    torch.vgpu.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call(s)
    finally:
        torch.vgpu.set_sync_debug_mode("default")
    found = [x for x in caught if "synchronizing operation" in str(x.message)]
    assert bool(found) == waits


# ------------------------------------------------------------------ files, processes


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("parameter", [False, True])
@pytest.mark.parametrize("source", ["cpu", GPU])
def test_a_file_comes_back_where_it_was_or_where_it_is_mapped(
    layout, parameter, source
):
    s = torch.tensor([[0.0, 2, 0], [1, 0, 4]]).to_sparse(layout=layout)
    there = s.to(source)
    file = io.BytesIO()
    torch.save([nn.Parameter(there) if parameter else there], file)
    for place in (None, "cpu", "vgpu:0"):
        file.seek(0)
        (loaded,) = torch.load(file, weights_only=True, map_location=place)
        assert str(loaded.device) == (place or source)
        assert isinstance(loaded, nn.Parameter) == parameter
        assert same(s, loaded)


def test_a_file_of_blocks_can_be_loaded_on_the_cpu_only():
    file = io.BytesIO()
    torch.save(torch.eye(4).to_sparse_bsr((2, 2)), file)
    for place in ("cpu", GPU):
        file.seek(0)
        if place == GPU:
            with pytest.raises(NotImplementedError, match="not sparse_bsr ones"):
                torch.load(file, map_location=place)
        else:
            assert torch.load(file, map_location=place).layout is torch.sparse_bsr


@settings(max_examples=10)
@given(s=elements())
def test_a_copy_is_sent_to_another_process(s):
    sent = ForkingPickler.loads(ForkingPickler.dumps(s.to(GPU)))
    assert str(sent.device) == GPU and same(s, sent)


def test_modules_with_sparse_parameters_move():
    net = nn.Module()
    net.weight = nn.Parameter(torch.eye(3).to_sparse())
    net.register_buffer("mask", torch.eye(2).to_sparse())
    for device in (GPU, "vgpu:0", "cpu"):
        net.to(device)
        assert everywhere([net.weight, net.mask], device)
        assert isinstance(net.weight, nn.Parameter) and net.weight.is_sparse


# ------------------------------------------------------------------ what is refused


def test_without_values_there_are_no_sparse_tensors():
    gpu = vgpu.simulator(1, backing="meta").gpu(0)
    places, values = torch.zeros(2, 1, dtype=int, device=gpu), torch.ones(1, device=gpu)
    for call in (
        values.to_sparse,
        lambda: torch.sparse_coo_tensor(places, values, (3, 3)),
    ):
        with pytest.raises(RuntimeError, match="simulates only shapes"):
            call()


def test_simulated_collectives_take_dense_tensors():
    sim = vgpu.simulator(2)
    tensors = [torch.ones(2, device=sim.gpu(i)).to_sparse() for i in range(2)]
    with pytest.raises(ValueError, match="dense"):
        sim.all_reduce(tensors)
    assert [x.to_dense().tolist() for x in tensors] == [[1, 1], [1, 1]]


@pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="needs gloo",
)
def test_collectives_of_sparse_tensors_are_refused():
    dist = torch.distributed
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(NotImplementedError, match="no collectives of sparse"):
            dist.all_reduce(torch.eye(2, device=GPU).to_sparse())
    finally:
        dist.destroy_process_group()
