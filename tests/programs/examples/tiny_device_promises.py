"""What the example of a device promises; prints the name of each promise that it keeps.

It runs apart from pytest, since a process can have one device of this kind only.
"""

import copy
import gc
import sys
import traceback
from collections.abc import Callable

import tiny_device
import torch
from torch import nn
from torch.nn import functional as F

HERE = "tiny:1"
MIXED = "Expected all tensors to be on the same device, but found at least two devices"


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    """Normal random numbers on the CPU, the same in every call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def same(tiny: torch.Tensor, plain: torch.Tensor, device: str = HERE) -> None:
    """See that a tensor is on the device and equals the CPU's to the last bit."""
    assert type(tiny) is tiny_device.TinyTensor
    assert type(plain) is torch.Tensor
    assert str(tiny.device) == device
    assert (tiny.dtype, tiny.shape) == (plain.dtype, plain.shape)
    assert tiny.stride() == plain.stride()
    values, expected = tiny.detach().cpu(), plain.detach()
    assert values.numpy().tobytes() == expected.numpy().tobytes()


def refused(kind: type[Exception], sentence: str, function: Callable) -> None:
    """See that a function raises this."""
    try:
        function()
    except kind as error:
        assert str(error) == sentence, error
    else:
        raise AssertionError("Nothing was raised.")


def it_needs_nothing_of_this_project():
    assert not [name for name in sys.modules if name.startswith("d2l_gpu")]


def mixing_devices_is_an_error():
    x, y, z = (torch.ones(2, 2, device=d) for d in ("tiny:0", "tiny:1", "cpu"))
    mixtures = {
        "tiny:0 and tiny:1!": (lambda: x + y, lambda: x @ y, lambda: torch.cat([x, y])),
        "tiny:1 and tiny:0!": (lambda: y.mul_(x), lambda: torch.add(y, y, out=x)),
        "tiny:0 and cpu!": (lambda: x + z, lambda: z + x, lambda: F.linear(x, z)),
    }
    for devices, functions in mixtures.items():
        for function in functions:
            refused(RuntimeError, f"{MIXED}, {devices}", function)
    refused(
        RuntimeError,
        f"{MIXED}, tiny:1 and tiny:0!",
        lambda: y + torch.ones((), device="tiny:0"),
    )


def cpu_scalars_and_copies_cross_devices():
    plain = random(2, 3)
    same(plain.to(HERE) * torch.tensor(2.0), plain * 2)
    for source in ("cpu", "tiny:0", HERE):
        for target in ("cpu", "tiny:0", HERE):
            x = plain.to(source)
            y = torch.zeros(2, 3, device=target)
            assert y.copy_(x) is y
            for copied in (y, x.to(target, copy=True)):
                if target == "cpu":
                    assert type(copied) is torch.Tensor
                    assert torch.equal(copied, plain)
                else:
                    same(copied, plain, target)
                copied.zero_()
            assert torch.equal(x.cpu(), plain)
    assert plain.to(HERE).sum().item() == plain.sum().item()


def factories_make_tensors_on_the_device():
    factories = (
        lambda device: torch.ones(2, 3, device=device),
        lambda device: torch.zeros(2, dtype=torch.int64, device=device),
        lambda device: torch.full((2,), 7.5, device=device),
        lambda device: torch.arange(10, 2, -3, device=device),
        lambda device: torch.linspace(0, 1, 7, device=device),
        lambda device: torch.eye(3, device=device),
        lambda device: torch.tensor([[1, 2], [3, 4]], device=device),
        lambda device: torch.ones_like(torch.empty(2, 3), device=device),
        lambda device: torch.rand(5, device=device),
        lambda device: torch.randn(5, device=device, dtype=torch.float64),
        lambda device: torch.randint(100, (5,), device=device),
        lambda device: torch.randperm(10, device=device),
    )
    for factory in factories:
        torch.manual_seed(1)
        plain = factory("cpu")
        torch.manual_seed(1)
        same(factory(HERE), plain)
    same(torch.ones(2, device="tiny"), torch.ones(2), "tiny:0")
    with torch.device(HERE):
        same(torch.ones(2), torch.ones(2, device="cpu"))


INDEX = torch.tensor([2, 0, 2])
# Of an X with 4 rows and 6 columns of floats, and of a function that brings other
# tensors to its device. Those in the second table have gradients, too.
WITHOUT_GRADIENT = {
    "argmax": lambda X, to: X.argmax(1),
    "argsort": lambda X, to: X.argsort(),
    "bincount": lambda X, to: to(INDEX).bincount(),
    "comparison": lambda X, to: (X > 0) & (X < 1),
    "isnan": lambda X, to: X.isnan().any(),
    "nonzero": lambda X, to: (X > 0).nonzero(),
    "one_hot": lambda X, to: F.one_hot(to(INDEX)),
    "round": lambda X, to: (10 * X).round().long(),
    "unique": lambda X, to: to(INDEX).unique(),
}
WITH_GRADIENT = {
    "abs": lambda X, to: X.abs(),
    "add, broadcast": lambda X, to: X + X[:1],
    "addmm": lambda X, to: torch.addmm(X[0, 0], X, X.T),
    "bmm": lambda X, to: X.view(2, 2, 6) @ X.view(2, 6, 2),
    "cat": lambda X, to: torch.cat([X, 2 * X]),
    "clamp": lambda X, to: X.clamp(-1, 1),
    "conv2d": lambda X, to: F.conv2d(X.view(1, 1, 4, 6), to(random(2, 1, 3, 3))),
    "cross_entropy": lambda X, to: F.cross_entropy(X[:3], to(INDEX)),
    "cumsum": lambda X, to: X.cumsum(0),
    "div": lambda X, to: X / (X * X + 1),
    "embedding": lambda X, to: F.embedding(to(INDEX), X),
    "exp": lambda X, to: X.exp(),
    "gather": lambda X, to: X.gather(1, to(INDEX).view(3, 1)),
    "gelu": lambda X, to: F.gelu(X),
    "index, a list": lambda X, to: X[[2, 0, 2], 1:],
    "index, a mask": lambda X, to: X[X > 0],
    "index, a slice": lambda X, to: X[::2, 1],
    "index, a tensor": lambda X, to: X[to(INDEX)],
    "index, assigned": lambda X, to: torch.zeros_like(X).index_put((to(INDEX),), X[:3]),
    "layer_norm": lambda X, to: F.layer_norm(X, (6,)),
    "linear": lambda X, to: F.linear(X, to(random(5, 6)), to(random(5))),
    "log_softmax": lambda X, to: X.log_softmax(0),
    "logsumexp": lambda X, to: X.logsumexp(1),
    "matmul": lambda X, to: X @ X.T,
    "matmul, a vector": lambda X, to: X @ X[0],
    "max": lambda X, to: X.max(1).values,
    "max_pool2d": lambda X, to: F.max_pool2d(X.view(1, 1, 4, 6), 2),
    "mean": lambda X, to: X.mean(),
    "mse_loss": lambda X, to: F.mse_loss(X, to(random(4, 6, seed=1))),
    "norm": lambda X, to: X.norm(),
    "pad": lambda X, to: F.pad(X, (1, 2)),
    "pow": lambda X, to: X**3,
    "relu": lambda X, to: X.relu(),
    "sigmoid": lambda X, to: X.sigmoid(),
    "softmax": lambda X, to: X.softmax(1),
    "sort": lambda X, to: X.sort(0).values,
    "stack": lambda X, to: torch.stack([X, X], 1),
    "sum": lambda X, to: X.sum(0, keepdim=True),
    "tanh": lambda X, to: X.tanh(),
    "transpose": lambda X, to: X.T.contiguous(),
    "tril": lambda X, to: X.tril(),
    "var": lambda X, to: X.var(1),
    "view": lambda X, to: X.view(3, 8).unsqueeze(1).expand(3, 2, 8),
    "where": lambda X, to: torch.where(X > 0, X, 0.1 * X),
    "in place": lambda X, to: (2 * X).add_(1).mul_(X).relu_(),
    "in place, a view": lambda X, to: (2 * X).view(6, 4)[1:].mul_(3).add(1),
    "in place, a part": lambda X, to: (2 * X).index_fill_(0, to(INDEX), 1.5),
}


def to_tiny(plain: torch.Tensor) -> torch.Tensor:
    return plain.to(HERE)


def values_are_those_of_the_cpu():
    for name, function in (WITHOUT_GRADIENT | WITH_GRADIENT).items():
        plain = function(random(4, 6), lambda x: x)
        try:
            same(function(random(4, 6).to(HERE), to_tiny), plain)
        except Exception as error:
            raise AssertionError(name) from error


def gradients_are_those_of_the_cpu():
    for name, function in WITH_GRADIENT.items():
        X, Y = random(4, 6).requires_grad_(), random(4, 6).to(HERE).requires_grad_()
        plain, tiny = function(X, lambda x: x), function(Y, to_tiny)
        weights = random(*plain.shape, seed=2)
        plain.backward(weights)
        tiny.backward(weights.to(HERE))
        try:
            same(Y.grad, X.grad)
        except Exception as error:
            raise AssertionError(name) from error
    # From one device to the other, and back again.
    x = torch.ones(3, device="tiny:0", requires_grad=True)
    (x.to(HERE) * 2).square().sum().backward()
    same(x.grad, torch.full((3,), 8.0), "tiny:0")


def an_operator_in_place_returns_the_same_object():
    X, plain = random(2, 3).to(HERE), random(2, 3)
    assert X.add_(1) is X
    same(X, plain.add_(1))
    X[0, 1:] = 5
    plain[0, 1:] = 5
    same(X, plain)
    assert torch.mul(X, 2, out=X) is X
    same(X, plain * 2)
    with torch.inference_mode():  # C++ doesn't see to it here
        Y = torch.zeros(3, device=HERE)
        assert torch.ops.aten.add_(Y, 1) is Y
    # The shape may change, too.
    assert X.t_() is X
    same(X, (plain * 2).T)
    out = torch.empty(0, device=HERE)
    assert torch.exp(X, out=out) is out
    same(out, torch.exp((plain * 2).T))


def a_view_shares_memory():
    X, plain = random(4, 6).to(HERE), random(4, 6)
    used = torch.tiny.memory_allocated(HERE)
    view, same_view = X.view(6, 4).T[1:], plain.view(6, 4).T[1:]
    assert torch.tiny.memory_allocated(HERE) == used
    assert view._is_view()
    assert view.storage_offset() == same_view.storage_offset()
    view.zero_()
    same_view.zero_()
    same(X, plain)
    del X
    gc.collect()
    assert torch.tiny.memory_allocated(HERE) == used


def modules_keep_their_parameters():
    plain = nn.Sequential(nn.Linear(6, 3), nn.Tanh(), nn.Linear(3, 1))
    net = copy.deepcopy(plain)
    parameters = list(net.parameters())
    for device in (HERE, "tiny:0", HERE):
        net.to(device)
        now = list(net.parameters())
        assert all(p is q for p, q in zip(parameters, now, strict=True))
        for p, q in zip(now, plain.parameters(), strict=True):
            same(p, q.detach(), device)
    same(copy.deepcopy(net)[0].weight, plain[0].weight.detach())
    net.cpu()
    for p, q in zip(parameters, plain.parameters(), strict=True):
        assert torch.equal(p, q)


def training_is_that_of_the_cpu():
    plain = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU())
    plain.extend([nn.Flatten(), nn.Dropout(0.25), nn.Linear(16, 3)])
    net = copy.deepcopy(plain).to(HERE)
    X, y = random(8, 1, 4, 6), torch.arange(8) % 3
    for kind in (torch.optim.SGD, torch.optim.Adam):
        losses = []
        for module, device in ((plain, "cpu"), (net, HERE)):
            torch.manual_seed(3)
            optimizer = kind(module.parameters(), lr=0.1)
            losses.append([])
            for _ in range(3):
                optimizer.zero_grad()
                loss = F.cross_entropy(module(X.to(device)), y.to(device))
                loss.backward()
                optimizer.step()
                losses[-1].append(loss.item())
        assert losses[0] == losses[1]
        assert len(set(losses[0])) == 3
    for p, q in zip(net.parameters(), plain.parameters(), strict=True):
        same(p.grad, q.grad)
        same(p, q.detach())


def memory_is_counted_and_freed():
    gc.collect()
    allocated = torch.tiny.memory_allocated
    assert (allocated("tiny:0"), allocated(HERE)) == (0, 0)
    X = torch.ones(2, 3, device=HERE)
    count = torch.arange(6, device="tiny:0")  # it grows from nothing
    assert (allocated("tiny:0"), allocated(HERE)) == (48, 24)
    Y = X.requires_grad_() * 2
    loss = (Y * Y).sum()
    del Y  # autograd needs it
    assert allocated(HERE) == 24 + 24 + 4
    loss.backward()
    assert allocated(HERE) == 24 + 4 + 24
    del X, loss, count
    assert (allocated("tiny:0"), allocated(HERE)) == (0, 0)


def what_it_cannot_do_is_an_error():
    X = torch.ones(2, device=HERE)
    sentence = "tiny has no complex numbers"
    refused(NotImplementedError, sentence, lambda: X * 1j)
    refused(NotImplementedError, sentence, lambda: torch.fft.rfft(X))
    try:
        X.data = torch.zeros(2, device=HERE)
    except AttributeError:
        same(X, torch.ones(2))
    else:
        raise AssertionError("Nothing was raised.")


failed = False
for promise in (
    it_needs_nothing_of_this_project,
    mixing_devices_is_an_error,
    cpu_scalars_and_copies_cross_devices,
    factories_make_tensors_on_the_device,
    values_are_those_of_the_cpu,
    gradients_are_those_of_the_cpu,
    an_operator_in_place_returns_the_same_object,
    a_view_shares_memory,
    modules_keep_their_parameters,
    training_is_that_of_the_cpu,
    memory_is_counted_and_freed,
    what_it_cannot_do_is_an_error,
):
    try:
        promise()
        print(promise.__name__)
    except Exception:
        failed = True
        traceback.print_exc()
sys.exit(failed)
