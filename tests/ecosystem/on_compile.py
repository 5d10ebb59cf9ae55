"""torch.export and torch.compile."""

import io

import torch
from torch import nn
from torch.nn.functional import mse_loss

from tests.ecosystem.support import batch, close, main, mlp, same_gradients

NEEDS = ("torch",)


class Branching(nn.Module):
    """A network whose way depends on shapes, and which ends on the GPU it started."""

    def __init__(self):
        super().__init__()
        self.net = mlp()
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, X):
        offsets = torch.arange(X.shape[0], device=X.device)[:, None]
        Y = self.net(X) * self.scale + offsets
        return Y if X.shape[0] > 4 else Y.relu()


def check_an_exported_program():
    """A model on a GPU is exported with a dynamic batch, saved, loaded and called."""
    X, _ = batch()
    model, expected = Branching().to("cuda"), Branching()
    rows = torch.export.Dim("rows", min=5, max=64)
    program = torch.export.export(model, (X.cuda(),), dynamic_shapes={"X": {0: rows}})
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    program = torch.export.load(buffer)
    called = program.module()
    for count in 16, 7:
        close(called(X[:count].cuda()), expected(X[:count]), "cuda:0")
    names = {str(node.target) for node in program.graph.nodes}
    assert any("linear" in name or "addmm" in name for name in names), names
    assert all(p.device == torch.device("cuda:0") for p in called.parameters())


def check_backends_of_ones_own_get_the_graph():
    """torch.compile hands a backend the graph of a model on a GPU, without a break."""
    graphs = []

    def backend(graph, inputs):
        graphs.append((graph, inputs))
        return graph.forward

    X, _ = batch()
    model = torch.compile(Branching().to("cuda"), backend=backend, fullgraph=True)
    close(model(X.cuda()), Branching()(X), "cuda:0")
    close(model(X.cuda()), Branching()(X), "cuda:0")
    assert len(graphs) == 1, len(graphs)
    graph, inputs = graphs[0]
    assert any(node.op == "call_function" for node in graph.graph.nodes)
    assert {x.device for x in inputs if isinstance(x, torch.Tensor)} == {
        torch.device("cuda:0")
    }


def compiled(backend: str, **options) -> None:
    """Train a compiled model for two steps, and compare with one that isn't."""
    X, Y = batch()
    expected, model = Branching(), Branching().to("cuda:1")
    fast = torch.compile(model, backend=backend, **options)
    for rows in 16, 8:
        for net, x, y in (
            (expected, X[:rows], Y[:rows]),
            (fast, X[:rows].to("cuda:1"), Y[:rows].to("cuda:1")),
        ):
            net.zero_grad()
            loss = mse_loss(net(x), y)
            loss.backward()
        same_gradients(model, expected, "cuda:1", rtol=1e-3)
    with torch.no_grad():
        close(fast(X.to("cuda:1")), expected(X), "cuda:1", rtol=1e-3)


def check_compiled_by_eager():
    """torch.compile with the backend eager gives the same gradients, dynamically."""
    compiled("eager", dynamic=True)


def check_compiled_by_aot_eager():
    """torch.compile with the backend aot_eager gives the same gradients."""
    compiled("aot_eager", fullgraph=True)


def check_compiled_by_inductor():
    """torch.compile as it comes, and with CUDA graphs, gives the same gradients."""
    compiled("inductor")
    compiled("inductor", mode="reduce-overhead")


if __name__ == "__main__":
    main(globals())
