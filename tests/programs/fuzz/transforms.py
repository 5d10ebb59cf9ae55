"""Run random programs, each in a process of its own: ``transforms.py SEED …``.

A program is a function of two matrices, made of random operators, and a random chain
of what PyTorch can do with functions: transformations of ``torch.func``, gradients of
gradients, hooks, checkpoints, threads. It runs on the CPU and on a virtual GPU. Each
process ends with 0 if the values agree or both raise an error; a line of JSON says how
each ended. Nothing may end a process by a signal, or hang.
"""

import json
import os
import random
import signal
import sys
import threading
import warnings

import torch
from torch import func
from torch.utils.checkpoint import checkpoint

LIMIT = 60  # seconds for a program
SIZE = 3
# What a virtual GPU refuses, and no CPU.
REFUSALS = ("Virtual GPUs",)

# ------------------------------------------------------------------ operators

UNARY = [
    torch.sin,
    torch.tanh,
    torch.exp,
    torch.sigmoid,
    lambda x: x * x + 1,
    lambda x: x.softmax(-1),
    lambda x: x - x.mean(),
    lambda x: x.t() if x.dim() == 2 else x,
    lambda x: x.cumsum(-1),
    lambda x: torch.nn.functional.gelu(x),
    lambda x: x.clone().mul_(2),
    lambda x: torch.where(x > 0, x, x.sin()),
    lambda x: x.sort(-1)[0],
    lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    lambda x: x.to(torch.float32).to(x.dtype),
]
BINARY = [
    torch.add,
    torch.mul,
    lambda x, y: x @ y,
    torch.maximum,
    lambda x, y: torch.cat([x, y])[: x.shape[0]],
    lambda x, y: torch.stack([x, y]).sum(0),
    lambda x, y: x / (y * y + 1),
]


def random_function(rng: random.Random):
    """Return a function of two matrices that returns a matrix."""
    steps = [rng.choice(UNARY) for _ in range(rng.randint(1, 4))]
    join, more = rng.choice(BINARY), rng.random() < 0.5

    def function(x, y):
        for step in steps:
            x = step(x)
        result = join(x, y)
        return steps[0](result) if more else result

    return function


# ------------------------------------------------------------------ what runs them


def scalar(function):
    return lambda x, y: function(x, y).sum()


def backward(function, x, y):
    x, y = x.requires_grad_(), y.requires_grad_()
    function(x, y).sum().backward()
    return x.grad, y.grad


def twice(function, x, y):
    x = x.requires_grad_()
    (grad,) = torch.autograd.grad(function(x, y).sum(), x, create_graph=True)
    return torch.autograd.grad(grad.sin().sum(), x)


def hooks(function, x, y):
    seen = []
    x = x.requires_grad_()
    middle = x * 2
    middle.register_hook(lambda grad: seen.append(grad.sum()) or grad * 2)
    x.register_post_accumulate_grad_hook(lambda x: seen.append(x.grad.sum()))
    function(middle, y).sum().backward()
    return x.grad, *seen


def saved(function, x, y):
    x = x.requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: t.cpu(), lambda t: t.to(x.device)
    ):
        result = function(x, y).sum()
    result.backward()
    return x.grad


def recomputed(function, x, y):
    x = x.requires_grad_()
    checkpoint(function, x, y, use_reentrant=False).sum().backward()
    return x.grad


def in_threads(function, x, y):
    results = [None] * 3

    def work(i):
        z = (x + i).detach().requires_grad_()
        function(z, y).sum().backward()
        results[i] = z.grad

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# ------------------------------------------------------------------ errors in backward


class Stop(Exception):
    pass


def stop(*args):
    raise Stop


def after(start):
    """Return a run whose backward pass a hook ends with an error, then another.

    Args:
        start: takes the function and x, adds the hook, and returns a scalar.
    """

    def run(function, x, y):
        x = x.requires_grad_()
        try:
            start(lambda x: function(x, y).sum(), x).backward()
        except Stop:
            return backward(function, x.detach().clone(), y.detach().clone())
        raise AssertionError("nothing ended the backward pass")

    return run


def by_a_hook(function, x):
    z = x * 1
    z.register_hook(stop)
    return function(z)


def by_a_hook_of_a_leaf(function, x):
    x.register_hook(stop)
    return function(x * 1)


def by_an_accumulated_gradient(function, x):
    x.register_post_accumulate_grad_hook(stop)
    return function(x * 1)


def by_a_module(function, x):
    module = torch.nn.Linear(SIZE, SIZE).to(x)
    module.register_full_backward_hook(stop)
    return function(module(x))


def by_a_module_before(function, x):
    module = torch.nn.Linear(SIZE, SIZE).to(x)
    module.register_full_backward_pre_hook(stop)
    return function(module(x))


def by_unpacking(function, x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, stop):
        return function(x * x)


def by_a_checkpoint(function, x):
    calls = []

    def part(x):
        calls.append(x)
        if len(calls) > 1:
            raise Stop
        return x.sin()

    return function(checkpoint(part, x, use_reentrant=False))


def by_a_function(function, x):
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            raise Stop

    return function(Failing.apply(x))


def by_several(function, x):
    z = x * 1
    for _ in range(3):
        z.register_hook(stop)
        x.register_hook(stop)
    return function(z)


def interrupted(function, x, y):
    """Press Ctrl-C in the middle of backward."""
    x, reached = x.requires_grad_(), []
    signal.signal(signal.SIGINT, signal.default_int_handler)
    z = x * 1
    if x.device.type != "cpu":  # there it takes effect in the hook itself
        z.register_hook(lambda grad: os.kill(os.getpid(), signal.SIGINT))
    x.register_hook(reached.append)
    try:
        function(z, y).sum().backward()
    except KeyboardInterrupt:
        assert reached, "it didn't wait for the end"
    else:
        assert x.device.type == "cpu", "nothing was interrupted"
    return backward(function, x.detach().clone(), y.detach().clone())


ERRORS = [
    by_a_hook,
    by_a_hook_of_a_leaf,
    by_an_accumulated_gradient,
    by_a_module,
    by_a_module_before,
    by_unpacking,
    by_a_checkpoint,
    by_a_function,
    by_several,
]


class Own(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].cos()

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * ctx.saved_tensors[0].cos()


RUNS = [
    lambda f, x, y: f(x, y),
    backward,
    twice,
    hooks,
    saved,
    recomputed,
    in_threads,
    interrupted,
    *map(after, ERRORS),
    lambda f, x, y: func.grad(scalar(f), argnums=(0, 1))(x, y),
    lambda f, x, y: func.vjp(f, x, y)[1](torch.ones_like(f(x, y))),
    lambda f, x, y: func.jvp(f, (x, y), (y, x)),
    lambda f, x, y: func.jacrev(f)(x, y),
    lambda f, x, y: func.jacfwd(f)(x, y),
    lambda f, x, y: func.hessian(scalar(f))(x, y),
    lambda f, x, y: func.vmap(f)(torch.stack([x, y]), torch.stack([y, x])),
    lambda f, x, y: func.vmap(f, in_dims=(0, None))(torch.stack([x, y]), y),
    lambda f, x, y: func.vmap(func.grad(scalar(f)))(
        torch.stack([x, y]), torch.stack([y, x])
    ),
    lambda f, x, y: func.linearize(f, x, y)[1](y, x),
    lambda f, x, y: torch.autograd.functional.jacobian(f, (x, y)),
    lambda f, x, y: torch.autograd.functional.jacobian(f, (x, y), vectorize=True),
    lambda f, x, y: torch.autograd.functional.hessian(scalar(f), (x, y)),
    lambda f, x, y: func.functionalize(f)(x, y),
]
WRAPPERS = [
    lambda f: f,
    lambda f: lambda x, y: Own.apply(f(x, y)),
    lambda f: lambda x, y: func.grad(scalar(f))(x, y),
    lambda f: lambda x, y: func.vmap(f)(x[None], y[None])[0],
    lambda f: lambda x, y: f(x, y).detach() + x,
    lambda f: lambda x, y: func.jvp(f, (x, y), (y, x))[1],
]


def random_program(seed: int):
    """Return a program of two matrices, the same for the same seed.

    Those of negative seeds are simple: each runs one of ``RUNS``.
    """
    if seed < 0:
        return lambda x, y: RUNS[-1 - seed](lambda x, y: (x * x).sin() * y, x, y)
    rng = random.Random(seed)
    function = random_function(rng)
    for _ in range(rng.randint(0, 2)):
        function = rng.choice(WRAPPERS)(function)
    run = rng.choice(RUNS)
    return lambda x, y: run(function, x, y)


# ------------------------------------------------------------------ and compare


def outcome(seed: int, place: str):
    """Return what a program returns on a device, or the error that it raises."""
    generator = torch.Generator().manual_seed(seed)
    options = {"generator": generator, "dtype": torch.float64}
    x, y = (torch.rand(SIZE, SIZE, **options).to(place) for _ in range(2))
    try:
        return random_program(seed)(x, y)
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        return error


def leaves(value) -> list[torch.Tensor]:
    if value is None:  # the gradient of what isn't used
        return []
    if isinstance(value, torch.Tensor):
        return [value]
    return [x for part in value for x in leaves(part)]


def compare(seed: int) -> str:
    """Run a program on both devices, and return how it ended."""
    from d2l_gpu import vgpu

    vgpu.enable(2)
    expected, found = outcome(seed, "cpu"), outcome(seed, "vgpu:1")
    if isinstance(expected, Exception):
        assert isinstance(found, Exception), f"only the CPU raised {expected!r}"
        return "raises"
    if isinstance(found, Exception):
        if any(str(found).startswith(start) for start in REFUSALS):
            return "refused"
        raise found
    for a, b in zip(leaves(found), leaves(expected), strict=True):
        assert a.device == torch.device("vgpu", 1), a.device
        torch.testing.assert_close(a.detach().cpu(), b.detach())
    return "agrees"


def in_a_process(seed: int) -> dict:
    """Fork, run a program there, and return how it ended."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        signal.alarm(LIMIT)
        os.close(read)
        try:
            text = compare(seed)
        except BaseException as error:
            text = f"fails: {type(error).__name__}: {error}"
        os.write(write, text[:4000].encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        text = file.read().decode()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        text = f"died of {signal.Signals(os.WTERMSIG(status)).name}"
    return {"seed": seed, "ended": text}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for seed in map(int, sys.argv[1:] or range(-len(RUNS), 0)):
        print(json.dumps(in_a_process(seed)), flush=True)
