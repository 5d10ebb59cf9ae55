import torch

from d2l_gpu import vgpu

vgpu.enable(2, as_cuda=True)


def on_cuda(X):
    if torch.cuda.is_available() and X.is_cuda and X.device.type == "cuda":
        X = X + torch.cuda.current_device()
    places = torch.arange(len(X), device=X.device)
    torch.cuda.synchronize()
    return X * 2 + torch.zeros(3, device="cuda:1") + places.to("cuda:1")


for backend in ("eager", "aot_eager"):
    torch._dynamo.reset()
    fast = torch.compile(on_cuda, backend=backend, fullgraph=True)
    X = torch.randn(3, device="cuda:1")
    assert torch.equal(fast(X), on_cuda(X))
    assert fast(X).device == torch.device("cuda:1") == torch.device("cuda", 1)

net = torch.nn.Linear(3, 2).to("cuda:1")
program = torch.export.export(net, (X[None],))
assert torch.equal(program.module()(X[None]), net(X[None]))
devices = {
    node.meta["val"].device for node in program.graph.nodes if "val" in node.meta
}
assert devices == {torch.device("cuda:1")}, devices
