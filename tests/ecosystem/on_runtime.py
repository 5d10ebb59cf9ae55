"""Operators of one's own, streams, events, CUDA graphs and random generators."""

import warnings

import torch
from torch.nn.functional import mse_loss

from tests.ecosystem.support import batch, close, main, mlp, raises, same_parameters

NEEDS = ("torch",)


# ------------------------------------------------------------------ operators


def check_operators_of_ones_own():
    """An operator with a kernel for cuda runs it on GPUs, with gradients and checks."""
    called = []

    @torch.library.custom_op("ecosystem::scaled", mutates_args=(), device_types="cpu")
    def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
        called.append("cpu")
        return x * factor

    @scaled.register_kernel("cuda")
    def on_cuda(x, factor):
        called.append("cuda")
        assert x.is_cuda
        return x * factor

    @scaled.register_fake
    def shape(x, factor):
        return torch.empty_like(x)

    scaled.register_autograd(
        lambda ctx, grad: (grad * ctx.factor, None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]),
    )
    X = torch.arange(3.0, device="cuda:1", requires_grad=True)
    Y = scaled(X, 2.0)
    close(Y, torch.tensor([0.0, 2.0, 4.0]), "cuda:1")
    assert called == ["cuda"], called
    Y.sum().backward()
    close(X.grad, torch.full((3,), 2.0), "cuda:1")
    torch.library.opcheck(scaled, (X.detach(), 3.0))
    scaled(torch.ones(2), 2.0)
    assert called[-1] == "cpu"


def check_operators_by_dispatch_key():
    """A library registers kernels for CPU and CUDA, and each device gets its own."""
    library = torch.library.Library("ecosystem_keys", "DEF")
    library.define("which(Tensor x) -> Tensor")
    library.impl("which", lambda x: x + 1, "CPU")
    library.impl("which", lambda x: x + 2, "CUDA")
    which = torch.ops.ecosystem_keys.which
    close(which(torch.zeros(2)), torch.ones(2), "cpu")
    close(which(torch.zeros(2, device="cuda:1")), torch.full((2,), 2.0), "cuda:1")


# ------------------------------------------------------------------ streams and graphs


def check_streams_and_events():
    """Streams and events of torch.cuda order work, and measure it."""
    X = torch.randn(64, 64)
    x = X.cuda()
    stream = torch.cuda.Stream(priority=-1)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        start.record()
        y = x
        for _ in range(10):
            y = y @ x / 8
        end.record()
    y.record_stream(torch.cuda.current_stream())
    torch.cuda.current_stream().wait_event(end)
    end.synchronize()
    assert end.query() and stream.query()
    assert start.elapsed_time(end) > 0
    expected = X
    for _ in range(10):
        expected = expected @ X / 8
    close(y, expected, "cuda:0", rtol=1e-2, atol=1e-2)
    other = torch.cuda.Stream(device="cuda:1")
    with torch.cuda.stream(other):
        assert torch.cuda.current_device() == 1
        z = torch.ones(3, device="cuda")
    assert z.device == torch.device("cuda:1")
    assert torch.cuda.current_device() == 0


def check_streams_of_any_accelerator():
    """torch.accelerator, torch.Stream and torch.Event mean the GPUs."""
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    assert torch.accelerator.device_count() == 2
    stream = torch.Stream(device="cuda:1")
    assert stream.device == torch.device("cuda:1")
    assert isinstance(torch.cuda.Stream(), torch.Stream)
    start = torch.Event(device="cuda:1", enable_timing=True)
    end = torch.Event(device="cuda:1", enable_timing=True)
    with torch.accelerator.device_index(1), stream:
        assert torch.accelerator.current_device_index() == 1
        assert torch.accelerator.current_stream() == stream
        start.record()
        x = torch.ones(500, 500, device="cuda") @ torch.ones(500, 500, device="cuda")
        end.record()
    torch.accelerator.current_stream("cuda:1").wait_event(end)
    stream.synchronize()
    end.synchronize()
    assert start.elapsed_time(end) > 0
    close(x[0, 0], torch.tensor(500.0), "cuda:1")


def check_cuda_graphs():
    """A captured graph of a training step is replayed with new values."""
    X, Y = batch()
    expected, model = mlp(), mlp().to("cuda")
    x, y = torch.zeros_like(X, device="cuda"), torch.zeros_like(Y, device="cuda")
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (expected, model)]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            optimizers[1].zero_grad()
            mse_loss(model(x), y).backward()
            optimizers[1].step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    optimizers[1].zero_grad()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizers[1].step()
    model.load_state_dict(state)
    for factor in 1, 2, 3:
        x.copy_(X * factor)
        y.copy_(Y)
        graph.replay()
        optimizers[0].zero_grad()
        other = mse_loss(expected(X * factor), Y)
        other.backward()
        optimizers[0].step()
        close(loss, other, "cuda:0")
    same_parameters(model, expected, "cuda:0", rtol=1e-3)


def check_callables_made_of_graphs():
    """make_graphed_callables gives a module that trains as before."""
    X, Y = batch()
    expected, model = mlp(), mlp().to("cuda")
    sample = torch.randn(16, 8, device="cuda", requires_grad=False)
    model = torch.cuda.make_graphed_callables(model, (sample,))
    for _ in range(2):
        for net, x, y in (expected, X, Y), (model, X.cuda(), Y.cuda()):
            net.zero_grad()
            mse_loss(net(x), y).backward()
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter -= 0.1 * parameter.grad
    same_parameters(model, expected, "cuda:0", rtol=1e-3)


# ------------------------------------------------------------------ random numbers


def check_generators():
    """A generator of a GPU repeats its numbers by seed and by state, there only."""
    generator = torch.Generator(device="cuda:1").manual_seed(3)
    assert generator.device == torch.device("cuda:1")
    assert generator.initial_seed() == 3
    first = torch.randn(4, device="cuda:1", generator=generator)
    state = generator.get_state()
    second = torch.randn(4, device="cuda:1", generator=generator)
    generator.set_state(state)
    close(torch.randn(4, device="cuda:1", generator=generator), second, "cuda:1")
    generator.manual_seed(3)
    close(torch.empty(4, device="cuda:1").normal_(generator=generator), first, "cuda:1")
    places = torch.randperm(10, device="cuda:1", generator=generator)
    assert sorted(places.tolist()) == list(range(10))
    here = torch.Generator().manual_seed(0)
    raises(
        RuntimeError,
        lambda: torch.rand(2, device="cuda:1", generator=here),
        "generator",
    )
    raises(RuntimeError, lambda: torch.rand(2, generator=generator), "generator")


def check_each_gpu_has_its_own_random_numbers():
    """Each device has a generator of its own: what one draws doesn't change others'."""
    torch.manual_seed(0)
    first = torch.rand(3, device="cuda:0")
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    zero, one = torch.rand(3, device="cuda:0"), torch.rand(3, device="cuda:1")
    close(zero, first)
    close(one, first)  # seeded alike
    close(torch.rand(3), expected)  # and the CPU has drawn nothing yet
    with torch.random.fork_rng(devices=[0, 1]):
        inside = torch.rand(3, device="cuda:1")
    close(torch.rand(3, device="cuda:1"), inside)
    state = torch.cuda.get_rng_state("cuda:1")
    numbers = torch.rand(3, device="cuda:1")
    torch.cuda.set_rng_state(state, "cuda:1")
    close(torch.rand(3, device="cuda:1"), numbers)
    states = torch.cuda.get_rng_state_all()
    assert len(states) == 2 and not torch.equal(*states)
    torch.cuda.manual_seed(5)
    assert torch.cuda.initial_seed() == 5


# ------------------------------------------------------------------ waiting


def check_waiting_is_reported():
    """In sync debug mode what makes the host wait warns, or raises."""
    X = torch.arange(4.0, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    assert torch.cuda.get_sync_debug_mode() == 2
    try:
        Y = X * 2 + 1
        for wait in X.sum().item, X.cpu, X.nonzero:
            raises(RuntimeError, wait, "synchroniz")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert Y.tolist() == [1.0, 3.0, 5.0, 7.0]
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        X[0].item()
    torch.cuda.set_sync_debug_mode(0)
    assert any("synchroniz" in str(w.message) for w in caught), caught


if __name__ == "__main__":
    main(globals())
