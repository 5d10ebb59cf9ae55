"""Operators that a program defines with ``torch.library``, and their kernels."""

import itertools

import pytest
import torch

from tests.helpers.fresh_process import run_program

pytestmark = pytest.mark.virtual_gpus(2)

_numbers = itertools.count()


@pytest.fixture
def library():
    """A namespace of its own, whose operators end with the test."""
    library = torch.library.Library(f"own_kernels_{next(_numbers)}", "DEF")
    yield library
    library._destroy()


def define(library, schema):
    library.define(schema)
    return getattr(getattr(torch.ops, library.ns), schema.partition("(")[0])


@pytest.mark.parametrize("index", [0, 1])
def test_the_kernel_of_the_device_gets_its_tensors(library, index):
    which = define(library, "which(Tensor x, int more=0) -> Tensor")
    seen = []

    def on_device(x, more=0):
        seen.append(x.device)
        return x + 2 + more + torch.zeros(1, device=x.device)

    library.impl("which", lambda x, more=0: x + 1, "CPU")
    library.impl("which", on_device, "PrivateUse1")
    X = torch.zeros(3, device=f"vgpu:{index}")
    for more in 0, 5:
        Y = which(X, more)
        assert Y.device == X.device and Y.tolist() == [2 + more] * 3
    assert which(torch.zeros(3)).tolist() == [1, 1, 1]
    assert seen == [X.device] * 2


def test_a_kernel_for_all_devices_runs_on_each(library):
    twice = define(library, "twice(Tensor x) -> (Tensor, Tensor)")
    seen = []

    def kernel(x):
        seen.append(x.device.type)
        return x * 2, x.new_ones(2)

    library.impl("twice", kernel, "CompositeExplicitAutograd")
    for device in "cpu", "vgpu:1":
        X = torch.arange(3.0, device=device)
        for result in twice(X):
            assert result.device == X.device
        assert twice(X)[0].tolist() == [0, 2, 4]
    assert seen == ["cpu"] * 2 + ["vgpu"] * 2


def test_a_kernel_can_come_after_the_first_call_and_go_again(library):
    which = define(library, "which(Tensor x) -> Tensor")
    library.impl("which", lambda x: x + 1, "CPU")
    X = torch.zeros(2, device="vgpu:1")
    assert which(X).tolist() == [1, 1]  # the CPU's on the backing tensor, as ever
    with torch.library._scoped_library(library.ns, "IMPL") as more:
        more.impl("which", lambda x: x + 2, "PrivateUse1")
        assert which(X).tolist() == [2, 2]
    assert which(X).tolist() == [1, 1]


def test_each_overload_has_its_own_kernel(library):
    which = define(library, "which(Tensor x) -> Tensor")
    library.define("which.more(Tensor x, int more) -> Tensor")
    for name, add in ("which", 1), ("which.more", 10):
        library.impl(name, lambda x, more=0, add=add: x + add + more, "PrivateUse1")
    X = torch.zeros(2, device="vgpu:1")
    for _ in range(2):
        assert which(X).tolist() == [1, 1]
        assert which(X, 5).tolist() == [15, 15]
    # One overload's kernel is of no use to another.
    library.define("which.less(Tensor x, float less) -> Tensor")
    library.impl("which.less", lambda x, less: x - less, "CPU")
    assert which(X, 0.5).tolist() == [-0.5, -0.5]


def test_a_custom_operator_writes_its_argument_and_has_gradients():
    namespace = f"own_kernels_{next(_numbers)}"

    @torch.library.custom_op(f"{namespace}::scaled", mutates_args=())
    def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
        assert x.device.type == "vgpu"
        return x * factor

    scaled.register_autograd(
        lambda ctx, grad: (grad * ctx.factor, None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]),
    )

    @torch.library.custom_op(f"{namespace}::add_to", mutates_args=("x",))
    def add_to(x: torch.Tensor, y: torch.Tensor) -> None:
        x += y

    X = torch.arange(3.0, device="vgpu:1", requires_grad=True)
    Y = scaled(X, 4.0)
    Y.sum().backward()
    assert Y.device == X.grad.device == X.device
    assert X.grad.tolist() == [4, 4, 4]
    Z = torch.ones(3, device="vgpu:1")
    add_to(Z, Z * 2)
    assert Z.tolist() == [3, 3, 3]


def test_memory_of_results_is_counted_once(library):
    ones = define(library, "ones(Tensor x) -> Tensor")
    library.impl("ones", lambda x: torch.ones_like(x), "PrivateUse1")
    X = torch.zeros(1024, device="vgpu:1")
    before = torch.vgpu.memory_allocated(1)
    Y = ones(X)
    assert torch.vgpu.memory_allocated(1) - before == Y.nbytes
    del Y
    assert torch.vgpu.memory_allocated(1) == before


@pytest.mark.all
def test_a_kernel_registered_for_cuda_runs_on_what_is_called_cuda():
    run_program("as_cuda/kernels_of_ones_own.py")
