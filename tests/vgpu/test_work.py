"""What the clock is told of operators: operations by PyTorch's formulas, and bytes."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from d2l_gpu import torch as d2l
from d2l_gpu import vgpu
from d2l_gpu.vgpu.sim import catalogue

pytestmark = pytest.mark.virtual_gpus(1)

CELL = nn.functional


def counted(program, *shapes, dtype=torch.float32, gradient=False) -> int:
    """The operations that PyTorch counts for a program of tensors of these shapes."""
    tensors = [torch.zeros(shape, dtype=dtype) for shape in shapes]
    for x in tensors:
        x.requires_grad_(gradient)
    with FlopCounterMode(display=False) as counter:
        result = program(*tensors)
        if gradient:
            result.sum().backward()
    return counter.get_total_flops()


def simulated(program, *shapes, dtype=torch.float32, gradient=False):
    """The operators that a simulated device did for it."""
    sim = d2l.simulator(1)
    tensors = [torch.zeros(shape, dtype=dtype, device=sim.gpu(0)) for shape in shapes]
    for x in tensors:
        x.requires_grad_(gradient)
    sim.reset()
    result = program(*tensors)
    if gradient:
        result.sum().backward()
    return {use.name: use for use in sim.report().devices[0].operators}


@pytest.mark.parametrize(
    "program, shapes",
    [
        (torch.mm, [(3, 4), (4, 5)]),
        (torch.bmm, [(2, 3, 4), (2, 4, 5)]),
        (torch.addmm, [(3, 5), (3, 4), (4, 5)]),
        (torch.baddbmm, [(2, 3, 5), (2, 3, 4), (2, 4, 5)]),
        (CELL.linear, [(6, 3, 4), (5, 4), (5,)]),
        (CELL.conv1d, [(2, 3, 9), (4, 3, 3)]),
        (CELL.conv2d, [(2, 3, 8, 9), (4, 3, 3, 3), (4,)]),
        (
            lambda X, W: CELL.conv2d(X, W, stride=2, padding=1),
            [(2, 3, 8, 8), (4, 3, 3, 3)],
        ),
        (CELL.conv3d, [(1, 2, 5, 5, 5), (3, 2, 2, 2, 2)]),
        (CELL.conv_transpose2d, [(2, 3, 4, 4), (3, 5, 2, 2)]),
    ],
)
@pytest.mark.parametrize("gradient", [False, True])
def test_operations_are_those_of_pytorchs_counter(program, shapes, gradient):
    expected = counted(program, *shapes, gradient=gradient)
    products = ("mm", "bmm", "addmm", "baddbmm", "convolution", "convolution_backward")
    uses = simulated(program, *shapes, gradient=gradient)
    found = sum(uses[name].operations for name in products if name in uses)
    assert found == expected > 0


@pytest.mark.parametrize("gradient", [False, True])
def test_attention(gradient):
    shapes = [(2, 4, 6, 8)] * 3
    uses = simulated(CELL.scaled_dot_product_attention, *shapes, gradient=gradient)
    forward = 2 * 2 * (2 * 4) * 6 * 6 * 8
    assert sum(use.operations for use in uses.values()) >= forward * (
        3.5 if gradient else 1
    )


def test_a_whole_network():
    net = d2l.resnet18(10)
    X = torch.zeros(2, 1, 28, 28)
    net(X)
    with FlopCounterMode(display=False) as counter:
        net(X).sum().backward()
    sim = d2l.simulator(1, backing="meta")
    net, X = net.to(sim.gpu(0)), X.to(sim.gpu(0))
    sim.reset()
    net(X).sum().backward()
    operators = sim.report().devices[0].operators
    products = ("mm", "addmm", "convolution", "convolution_backward")
    found = sum(use.operations for use in operators if use.name in products)
    assert found == counter.get_total_flops()


def test_bytes_are_those_of_operands_and_results():
    n = 1000
    uses = simulated(lambda X, Y: (X + Y).relu_().sum(), (n,), (n,))
    assert (uses["add"].nbytes, uses["add"].operations) == (12 * n, n)
    assert uses["relu_"].nbytes == 8 * n
    assert uses["sum"].nbytes == 4 * n + 4
    assert uses["add"].intensity == 1 / 12


def test_what_is_only_written_is_not_read():
    def program(X, Y):
        torch._foreach_copy_([X], [Y])
        torch._foreach_zero_([X])
        Y.fill_(1.0)
        X.zero_()

    uses = simulated(program, (1000,), (1000,))
    assert uses["_foreach_copy_"].nbytes == 8000
    assert {uses[x].nbytes for x in ("_foreach_zero_", "fill_", "zero_")} == {4000}


@pytest.mark.parametrize("rows", [100, 10_000])
def test_looking_up_reads_and_writes_what_is_found_and_not_the_table(rows):
    def program(table):
        return CELL.embedding(
            torch.zeros(5, dtype=torch.long, device=table.device), table
        )

    assert simulated(program, (rows, 8))["embedding"].nbytes == 2 * 5 * 8 * 4


def test_views_and_memory_without_values_take_no_time():
    def program(X):
        return torch.empty_like(X.view(-1)[10:].detach())

    assert simulated(program, (10, 10)) == {}


def test_one_foreach_operator_counts_all_its_tensors():
    def program(X, Y):
        torch._foreach_add_([X, Y], 1.0)

    (use,) = simulated(program, (10,), (20,)).values()
    assert (use.calls, use.operations, use.nbytes) == (1, 30, 2 * 4 * 30)


@pytest.mark.parametrize(
    "layer, shape",
    [
        (nn.Linear(4, 4), (8, 4)),
        (nn.Conv2d(4, 4, 3), (2, 4, 5, 5)),
        (nn.ConvTranspose1d(4, 4, 3), (2, 4, 5)),
        (nn.BatchNorm2d(4, track_running_stats=False), (2, 4, 5, 5)),
        (nn.LayerNorm(4), (8, 4)),
        (nn.GroupNorm(2, 4), (2, 4, 5)),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, nn.Module) else "",
)
def test_a_layer_with_parameters_takes_the_host_longer_than_an_operator(layer, shape):
    sim = d2l.simulator(1, backing="meta")
    X = torch.zeros(shape, device=sim.gpu(0), requires_grad=True)
    layer = layer.to(sim.gpu(0))
    sim.reset()
    result = layer(X)
    assert sim.now() == pytest.approx(catalogue.LAYER.value)
    sim.reset()
    result.relu()
    assert sim.now() == pytest.approx(catalogue.ISSUE.value)
    sim.reset()
    result.backward(torch.empty_like(result))  # not Python's code
    kernels = sim.report().devices[0].operators
    assert sim.now() == pytest.approx(
        catalogue.ISSUE.value * sum(use.calls for use in kernels)
    )


def test_batch_normalization_goes_over_its_input_twice():
    n = 4 * 3 * 8 * 8

    def program(X):
        return CELL.batch_norm(X, None, None, training=True)

    uses = simulated(program, (4, 3, 8, 8))
    assert uses["native_batch_norm"].nbytes == pytest.approx(3 * 4 * n, rel=0.02)


def test_precision_of_products_is_that_of_the_program():
    sim = d2l.simulator(1, "A100", backing="meta")
    X = torch.zeros(4096, 4096, device=sim.gpu(0))

    def seconds(X):
        sim.reset()
        _ = X @ X
        return sim.elapsed()

    fp32 = seconds(X)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        assert fp32 / seconds(X) == pytest.approx(156 / 19.5, rel=0.05)
    finally:
        torch.set_float32_matmul_precision(before)
    assert fp32 / seconds(X.bfloat16()) == pytest.approx(312 / 19.5, rel=0.05)
    assert fp32 / seconds(X.double()) == pytest.approx(1, rel=0.05)  # on tensor cores


@pytest.mark.parametrize("layer, gates", [(nn.LSTM, 4), (nn.GRU, 3)])
def test_recurrent_layers_are_the_kernels_inside(layer, gates):
    sim = d2l.simulator(1)
    net, X = layer(8, 16).to(sim.gpu(0)), torch.zeros(5, 2, 8, device=sim.gpu(0))
    sim.reset()
    net(X)
    (device,) = sim.report().devices
    assert device.kernels > 5
    products = 2 * 5 * 2 * gates * 16 * (8 + 16)
    assert products < device.operations < 2 * products


@pytest.mark.parametrize("model", vgpu.MODELS.values(), ids=lambda model: model.name)
def test_an_entry_of_the_catalogue(model):
    assert model.link in vgpu.LINKS
    assert model.source
    assert set(model.rates) <= {"fp64", "fp32", "bf16", "fp16"}
    assert set(model.tensor_rates) <= {"fp64", "fp32", "tf32", "bf16", "fp16"}
    for rate in (*model.rates.values(), *model.tensor_rates.values()):
        assert 1e11 < rate < 1e16
    assert all(model.tensor_rates[k] >= model.rate(k) for k in model.tensor_rates)
    assert 1e10 < model.bandwidth < 1e13
    assert 2**30 < model.memory < 2**40


def test_constants_are_medians_of_what_was_measured():
    for measured in (catalogue.MATRIX, catalogue.MEMORY, catalogue.LINK):
        assert all(0.5 < share < 1 for share in measured.figures.values())
        assert min(measured.figures.values()) <= measured.value < 1
    assert catalogue.Measured({"a": 1.0, "b": 5.0, "c": 2.0}, "").value == 2.0
    for link in vgpu.LINKS.values():
        assert link.source
        assert 1e9 < link.bandwidth < 1e12


# ------------------------------------------------------------------ TF32


@pytest.mark.parametrize(
    ("program", "shapes", "products"),
    [
        (torch.mm, [(1024, 1024), (1024, 1024)], True),
        (torch.bmm, [(4, 512, 512), (4, 512, 512)], True),
        (CELL.linear, [(1024, 1024), (1024, 1024), (1024,)], True),
        (CELL.conv2d, [(32, 64, 32, 32), (64, 64, 3, 3), (64,)], False),
        (CELL.conv_transpose2d, [(32, 64, 16, 16), (64, 64, 3, 3)], False),
    ],
    ids=["mm", "bmm", "linear", "convolution", "transposed"],
)
def test_products_and_convolutions_have_each_a_setting_of_tf32(
    program, shapes, products
):
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    seconds = {}
    try:
        for own in (False, True):
            for other in (False, True):
                settings = (own, other) if products else (other, own)
                matmul.allow_tf32, cudnn.allow_tf32 = settings
                sim = d2l.simulator(1, "A100", backing="meta")
                tensors = [
                    torch.empty(shape, device=sim.gpu(0), requires_grad=True)
                    for shape in shapes
                ]
                program(*tensors).sum().backward()
                seconds[own, other] = {
                    use.name: use.seconds
                    for use in sim.report().devices[0].operators
                    if "mm" in use.name or "convolution" in use.name
                }
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
    for own in (False, True):
        assert seconds[own, False] == seconds[own, True]
    assert seconds[True, True]
    for name, tf32 in seconds[True, True].items():
        assert tf32 < 0.7 * seconds[False, True][name]
