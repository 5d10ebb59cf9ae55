"""``torch.compile`` and ``torch.export``: the graphs that a program has on a GPU."""

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.helpers.fresh_process import run_program

pytestmark = pytest.mark.virtual_gpus(3)


def no_break(X):
    return (X.sin() @ X.T).relu() + torch.arange(len(X), device=X.device)


def break_at_a_call(X):
    Y = X.cos()
    torch._dynamo.graph_break()
    return Y @ Y.T


def break_at_a_value(X):
    Y = X.exp()
    return Y * 2 if Y.sum() > 3 else Y - 1


def break_in_a_loop(X):
    for _ in range(3):
        X = X / X.max().item()
        X = X + 1
    return X


def a_branch_on_the_shape(X):
    return X.relu() if len(X) > 2 else X * 2


PROGRAMS = [
    no_break,
    break_at_a_call,
    break_at_a_value,
    break_in_a_loop,
    a_branch_on_the_shape,
]


@pytest.fixture(autouse=True)
def forget_graphs():
    counters.clear()
    yield
    torch._dynamo.reset()


def graphs_of(program, X):
    """Return how many graphs, breaks and operators a program has, and its result."""
    torch._dynamo.reset()
    found = torch._dynamo.explain(program)(X)
    return found.graph_count, found.graph_break_count, found.op_count


@pytest.mark.parametrize("program", PROGRAMS)
def test_breaks_are_found_where_the_cpu_has_them(program):
    X = torch.randn(4, 4)
    assert graphs_of(program, X.to("vgpu:1")) == graphs_of(program, X)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [None, pytest.param(True, marks=pytest.mark.all)])
@pytest.mark.parametrize("program", PROGRAMS)
def test_results_and_gradients_are_those_of_the_code_as_it_is(
    program, backend, dynamic
):
    fast = torch.compile(program, backend=backend, dynamic=dynamic)
    for device in ("vgpu:1", "vgpu:2", "cpu", "vgpu:1"):
        for length in (4, 2, 5):
            X = torch.randn(length, 5, generator=torch.Generator().manual_seed(0))
            found = []
            for function in (program, fast):
                leaf = X.to(device).requires_grad_()
                Y = function(leaf)
                Y.square().sum().backward()
                assert Y.device == leaf.grad.device == torch.device(device)
                found.append((Y.detach(), leaf.grad))
            torch.testing.assert_close(*found)


@pytest.mark.all
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_network_is_trained_by_one_graph(backend):
    def train(compiled):
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()
        ).append(nn.LazyLinear(3))
        X, y = torch.randn(6, 1, 5, 5), torch.arange(6) % 3
        net(X)
        net.to("vgpu:2")
        run = torch.compile(net, backend=backend, fullgraph=True) if compiled else net
        optimizer = torch.optim.Adam(net.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(run(X.to("vgpu:2")), y.to("vgpu:2")).backward()
            optimizer.step()
        return {name: x.cpu() for name, x in net.state_dict().items()}

    torch.testing.assert_close(train(True), train(False))
    assert counters["stats"]["unique_graphs"] == 1


def test_a_backend_of_ones_own_gets_tensors_on_the_device():
    seen = []

    def backend(graph, inputs):
        seen.append({x.device for x in inputs})
        return graph.forward

    fast = torch.compile(no_break, backend=backend, fullgraph=True)
    for device in ("vgpu:1", "vgpu:2", "vgpu:1"):
        assert fast(torch.ones(3, 3, device=device)).device == torch.device(device)
    assert seen == [{torch.device("vgpu:1")}, {torch.device("vgpu:2")}]


def test_a_break_in_a_full_graph_is_an_error():
    fast = torch.compile(break_at_a_call, backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        fast(torch.ones(2, 2, device="vgpu:1"))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("settings", [{}, {"backend": "cudagraphs"}])
def test_kernels_are_not_generated_and_compiling_says_so(settings):
    with pytest.warns(UserWarning, match="does nothing while virtual GPUs are in use"):
        double = torch.compile(lambda X: 2 * X, **settings)
    assert double(torch.ones(1, device="vgpu:1")).item() == 2
    with pytest.warns(UserWarning, match="does nothing"):
        net = torch.compile(nn.Linear(2, 1).to("vgpu:0"), **settings)
    assert net(torch.ones(1, 2, device="vgpu:0")).shape == (1, 1)
    assert not counters["stats"]["unique_graphs"]


def test_an_exported_network_runs_where_it_was():
    # PyTorch keeps tensors of an exported program, so it has a process of its own.
    run_program("vgpu/exported_networks.py")


@pytest.mark.parametrize(
    "program",
    [
        lambda X: torch.cond(X.sum() > 0, torch.sin, torch.cos, (X,)),
        lambda X: torch.cond(X.sum() < 0, torch.sin, torch.cos, (X,)),
        lambda X: while_loop(
            lambda i, Y: i < 3,
            lambda i, Y: (i + 1, Y * 2),
            (torch.zeros((), dtype=torch.int64, device=X.device), X),
        )[1],
        lambda X: scan(lambda c, x: (c + x, c * x), torch.zeros_like(X[0]), X)[1],
        lambda X: associative_scan(torch.add, X, 0, combine_mode="generic"),
        lambda X: checkpoint(torch.tanh, X, use_reentrant=False),
    ],
    ids=["cond", "else", "while_loop", "scan", "associative_scan", "checkpoint"],
)
def test_operators_on_functions_compute_as_on_the_cpu(program):
    here = torch.randn(4, 3).abs()
    there = here.to("vgpu:1")
    for _ in range(2):
        found = program(there)
        assert found.device == there.device
        torch.testing.assert_close(found.cpu(), program(here))


def test_attention_with_a_score_of_ones_own_has_gradients():
    # PyTorch compiles it, and looks for the device's name: vgpu isn't in its list.
    run_program("as_cuda/attention_with_a_score.py")


def test_code_that_is_traced_may_ask_for_cuda():
    run_program("as_cuda/compiled_code_asks_for_cuda.py")
